//! The wall clock, for the times of files.

use std::time::{SystemTime, UNIX_EPOCH};

use manylogs_ext4::Timestamp;

/// The system's wall-clock time; the start of 1970 if it is earlier.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: since.subsec_nanos() }
}
