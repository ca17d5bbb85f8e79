//! Planted bugs must be noticed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use manylogs_plant::{Bug, plant};

/// Checks that something does not hold, or panics, while a bug is planted.
pub(crate) fn assert_noticed(bug: Bug, holds: impl Fn() -> bool) {
    plant(Some(bug));
    let found = catch_unwind(AssertUnwindSafe(holds));
    plant(None);
    assert!(!found.unwrap_or(false), "{bug:?} is not noticed");
}
