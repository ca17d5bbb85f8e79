//! Tells the user why an opening takes long.

use std::path::Path;
use std::sync::OnceLock;

type Tell = fn(&Path, &str);

static TELL: OnceLock<Tell> = OnceLock::new();

/// From now on, when an opening waits for more than a moment, `tell` is called with the path and
/// the reason. Only the first call counts.
pub fn tell_waits(tell: fn(&Path, &str)) {
    let _ = TELL.set(tell);
}

pub(crate) fn tell(path: &Path, why: &str) {
    if let Some(tell) = TELL.get() {
        tell(path, why);
    }
}
