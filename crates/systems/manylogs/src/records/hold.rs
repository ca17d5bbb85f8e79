//! Decides when a record goes, and holds records back so that other writes share them (`hold=`).

use manylogs_block::{Nanos, Time};
use manylogs_logstore::LogId;

/// Writes that arrive within this time of the first belong to the same sync.
const ONE_SYNC: Nanos = Nanos::from_millis(1);
/// Weight of one wait in the moving mean of the gain, as a divisor.
const RECENT: f64 = 8.0;
/// Waiting pays if other writes join at least this share of the waits.
const WORTH: f64 = 0.2;
/// A record shared by this number of syncs goes at once: a longer wait would cost all of them more
/// than one further sync could save.
pub(crate) const ENOUGH: usize = 4;
/// If waiting does not pay, one record in this number waits as a probe.
const PROBE: u32 = 16;

/// Times that bound the committer's work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    /// The pause of records beside a database.
    pub(crate) rest: Rest,
    /// Time of the device that records took lately.
    pub(crate) share: Share,
    /// Number of records that the device has answered, and their total time.
    pub(crate) ended: u64,
    pub(crate) took_ns: u64,
    /// Time of the last submitted record.
    pub(crate) last_append: Time,
    /// The log of that record.
    pub(crate) last_log: Option<LogId>,
    /// Whether the checkpoint writes a band, so that no record may come in between.
    pub(crate) held_by_band: bool,
    /// Whether a timer is set for the next record.
    pub(crate) stagger_armed: bool,
    /// Time at which placement last asked for a log to be opened.
    pub(crate) last_opening: Time,
    /// Decides whether the next record waits for other writes to share it.
    pub(crate) hold: Hold,
    /// The timer that is set for a held record.
    pub(crate) hold_armed: Option<Time>,
}

/// A record never waits for longer than this for the reads of a database.
const REST_MAX: Nanos = Nanos::from_millis(250);

/// The pause after a record for which the device drains its queue: as long as the record took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    ended: Time,
    took: Nanos,
}

impl Rest {
    /// The time until which the next record waits, if it must.
    pub(crate) fn until(&self, now: Time) -> Option<Time> {
        let until = self.ended + self.took.min(REST_MAX);
        (now < until).then_some(until)
    }
}

/// Beside lasting streams records may take this much of the device's time at once ...
const BURST: Nanos = Nanos::from_millis(500);
/// ... and after that four parts for each nine parts of the streams. The seeks to the log and back
/// count as the streams' parts, so the streams keep about half of their bandwidth.
const RECORD_PARTS: u64 = 4;
const STREAM_PARTS: u64 = 9;
/// A record that takes longer waited in the device while the device did other work.
const RECORD_MAX: Nanos = Nanos::from_millis(25);

/// Time of the device that records took lately, less their share of the time since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    took: Nanos,
    at: Time,
}

impl Share {
    /// Notes that a record was in the device from `sent` until `ended`.
    pub(crate) fn note(&mut self, sent: Time, ended: Time) {
        self.took = self.left(sent);
        self.took += ended.since(self.at.max(sent)).min(RECORD_MAX);
        self.at = ended;
    }

    fn left(&self, now: Time) -> Nanos {
        Nanos(self.took.0.saturating_sub(now.since(self.at).0 / STREAM_PARTS * RECORD_PARTS))
    }

    /// The time until which the next record waits for streams to get their share, if it must.
    pub(crate) fn until(&self, now: Time) -> Option<Time> {
        let until =
            self.at + Nanos(self.took.0.saturating_sub(BURST.0) / RECORD_PARTS * STREAM_PARTS);
        (now < until).then_some(until)
    }
}

impl Pacing {
    /// Notes that a record that went at `sent` has ended.
    pub(crate) fn record_ended(&mut self, sent: Time, now: Time) {
        self.share.note(sent, now);
        self.rest = Rest { ended: now, took: now.since(sent) };
        self.ended += 1;
        self.took_ns += now.since(sent).0;
    }
}

/// Whether the next record waits, and whether waiting has paid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The wait for the record that is due.
    wait: Option<Wait>,
    /// Share of waits that another sync joined.
    gain: f64,
    /// Records since the last one that waited.
    passed: u32,
}

/// The wait of a record.
#[derive(Clone, Copy, Debug)]
struct Wait {
    began: Time,
    /// Arrival of the last sync, number of waiting writes at that time, and number of syncs.
    last: Time,
    waiters: usize,
    syncs: u32,
}

impl Default for Hold {
    fn default() -> Self {
        Self { wait: None, gain: 1.0, passed: 0 }
    }
}

impl Hold {
    /// The time until which the record that is due waits, if it does. `waiters` writes wait for it.
    pub(crate) fn until(&mut self, now: Time, hold: Nanos, waiters: usize) -> Option<Time> {
        if hold == Nanos(0) || (self.gain < WORTH && self.passed < PROBE) {
            return None;
        }
        let wait = self.wait.get_or_insert(Wait { began: now, last: now, waiters, syncs: 1 });
        if waiters > wait.waiters {
            if now.since(wait.last) > ONE_SYNC {
                wait.last = now;
                wait.syncs += 1;
            }
            wait.waiters = waiters;
        }
        // More writes of the last sync may still arrive.
        let whole = wait.began + hold;
        let until =
            if wait.syncs as usize >= ENOUGH { whole.min(wait.last + ONE_SYNC) } else { whole };
        (now < until).then_some(until)
    }

    /// Notes that the record goes.
    pub(crate) fn goes(&mut self) {
        self.passed = self.passed.saturating_add(1);
        if let Some(wait) = self.wait.take() {
            self.passed = 0;
            let joined = wait.syncs > 1;
            self.gain += (f64::from(joined) - self.gain) / RECENT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Nanos = Nanos::from_millis(60);

    fn at(ms: u64) -> Time {
        Time(0) + Nanos::from_millis(ms)
    }

    #[test]
    fn records_rest_as_long_as_the_last_one_took() {
        let mut pacing = Pacing::default();
        assert_eq!(pacing.rest.until(at(0)), None, "there was none");
        pacing.record_ended(at(100), at(180));
        assert_eq!(pacing.rest.until(at(180)), Some(at(260)));
        assert_eq!(pacing.rest.until(at(260)), None);
        pacing.record_ended(at(300), at(3000));
        assert_eq!(pacing.rest.until(at(3000)), Some(at(3250)), "but not for ever");
    }

    #[test]
    fn records_without_a_pause_leave_streams_most_of_the_time() {
        let mut share = Share::default();
        let mut now = at(1000);
        let mut records = 0;
        while now < at(31_000) {
            now = share.until(now).unwrap_or(now);
            share.note(now, now + Nanos::from_millis(5));
            now = now + Nanos::from_millis(5);
            records += 1;
        }
        assert!((1900..1940).contains(&records), "{records} of 5 ms in 30 s");
    }

    #[test]
    fn rare_records_and_bursts_of_them_do_not_wait_for_streams() {
        let mut share = Share::default();
        for second in 1..10 {
            for record in 0..28 {
                let began = at(1000 * second + 5 * record);
                assert_eq!(share.until(began), None, "record {record}");
                share.note(began, began + Nanos::from_millis(5));
            }
        }
    }

    #[test]
    fn a_record_that_the_device_left_waiting_does_not_count_as_work() {
        let mut share = Share::default();
        share.note(at(1000), at(4000));
        assert_eq!(share.until(at(4000)), None);
    }

    #[test]
    fn a_record_waits_no_longer_than_said() {
        let mut hold = Hold::default();
        assert_eq!(hold.until(at(100), HOLD, 1), Some(at(160)));
        assert_eq!(hold.until(at(130), HOLD, 2), Some(at(160)));
        assert_eq!(hold.until(at(160), HOLD, 2), None);
        assert_eq!(Hold::default().until(at(5), Nanos(0), 1), None);
    }

    #[test]
    fn a_record_that_enough_syncs_share_goes_at_once() {
        let mut hold = Hold::default();
        for (ms, waiters) in [(100, 20), (105, 40), (110, 60)] {
            assert_eq!(hold.until(at(ms), HOLD, waiters), Some(at(160)));
        }
        assert_eq!(hold.until(at(115), HOLD, 70), Some(at(116)), "the rest of the fourth");
        assert_eq!(hold.until(at(116), HOLD, 80), None);
    }

    #[test]
    fn waiting_that_nobody_joins_ends_and_is_tried_again() {
        let mut hold = Hold::default();
        let mut waited = Vec::new();
        for sync in 0..200 {
            let began = at(sync * 100);
            waited.push(hold.until(began, HOLD, 20).is_some());
            hold.until(began + HOLD, HOLD, 20);
            hold.goes();
        }
        assert!(waited[..8].iter().all(|waits| *waits));
        let later = waited[40..].iter().filter(|waits| **waits).count();
        assert!((5..15).contains(&later), "{later} of 160");
        // Now other syncs come: each wait is shared, and all records wait again.
        for sync in 0..200 {
            let began = at(100_000 + sync * 100);
            if hold.until(began, HOLD, 1).is_some() {
                hold.until(began + Nanos::from_millis(20), HOLD, 2);
            }
            hold.goes();
        }
        assert!(hold.until(at(200_000), HOLD, 1).is_some());
    }
}
