//! The bugs that are planted in this thread, and in this process.

use std::cell::Cell;
use std::sync::LazyLock;

use crate::Bug;

thread_local! {
    static IN_THREAD: Cell<Option<Bug>> = const { Cell::new(None) };
}

static IN_PROCESS: LazyLock<Option<String>> =
    LazyLock::new(|| std::env::var("MANYLOGS_PLANT").ok());

/// Plants a bug in this thread, or none.
pub fn plant(bug: Option<Bug>) {
    IN_THREAD.set(bug);
}

/// The bug planted in this thread, to plant it in another thread of the same test.
#[must_use]
pub fn planted() -> Option<Bug> {
    IN_THREAD.get()
}

/// Whether the bug is planted here.
#[must_use]
pub fn is(bug: Bug) -> bool {
    let is_it = |name: &str| name == format!("{bug:?}");
    IN_THREAD.get() == Some(bug)
        || IN_PROCESS.as_ref().is_some_and(|names| names.split(',').any(is_it))
}
