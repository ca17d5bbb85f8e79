//! Wall-clock time of this machine.

#![expect(unsafe_code, reason = "local time is the C library's")]

use std::time::{SystemTime, UNIX_EPOCH};

use manylogs_block::TimeOfDay;

// The `libc` crate does not declare this.
unsafe extern "C" {
    fn tzset();
}

/// The local time of day: by the variable TZ if it is set, else by /etc/localtime. Both are read
/// anew each time, so a changed time zone takes effect as soon as summer time does. A machine with
/// neither has UTC.
pub(crate) fn time_of_day() -> TimeOfDay {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let utc_s = since_1970.as_secs();
    let now = libc::time_t::try_from(utc_s).unwrap_or(libc::time_t::MAX);
    // SAFETY: all bits zero is a value of the structure, whose pointer may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: the C library guards its time zone with a lock of its own. It reads the environment,
    // which nothing in this program changes.
    unsafe { tzset() };
    // SAFETY: both point to variables of this function; the second is written.
    let known = unsafe { libc::localtime_r(&raw const now, &raw mut local) };
    if known.is_null() {
        // The year cannot be represented.
        return TimeOfDay::from_seconds(utc_s);
    }
    // A leap second counts as the second before it.
    let parts = [local.tm_hour, local.tm_min, local.tm_sec.min(59)];
    let seconds = parts.iter().fold(0, |sum, part| sum * 60 + part.unsigned_abs());
    TimeOfDay::from_seconds(seconds.into())
}
