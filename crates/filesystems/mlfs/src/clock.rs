//! Times of files where clocks on the wall give them.

use std::time::{SystemTime, UNIX_EPOCH};

use manylogs_ext4::Timestamp;

/// What clocks on the wall show; the beginning of 1970 if they show less.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: since.subsec_nanos() }
}
