//! What the log says of md's arrays below a device.

use std::path::Path;

use manylogs_operate::log::{Level, line};
use manylogs_storage::small_bitmap_chunks;

/// Names each bitmap that md will write often, and what to do.
pub(crate) fn say(device: &Path) {
    for small in small_bitmap_chunks(device) {
        line(Level::Info, Some(device), &small.advice(), &[]);
    }
}
