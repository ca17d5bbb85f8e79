//! Keeps the server's thread near the program that it serves.
//!
//! A program that sends one request after another waits for the server, and then the server waits
//! for the program. On two processors each of them wakes the other by an interrupt, and between two
//! virtual processors that takes longer than the request itself: an untar took 11 us a request on
//! one processor, and 90 to 180 us on two. The scheduler parts the two as soon as another processor
//! is idle for a moment, and leaves them apart when all are busy again.
//!
//! So when one thread has sent a number of requests in a row, the server moves beside it. Where
//! other processors stay idle the scheduler parts them again at once. Then idle processors are kept
//! awake instead, if that helps ([`Awake`]), and the next attempts come ever more seldom. It is
//! tried now and then even if the two stay together. Where it has helped, processors are kept awake
//! again as soon as requests are slow.
//!
//! The server never waits for a look ([`Follower`]): the program may wait for the server meanwhile,
//! with a lock held that the look needs.

use std::collections::VecDeque;

use manylogs_block::{Handle, Nanos, Time};
use manylogs_storage::Follower;

use super::awake::{Awake, Pace};

/// Requests in a row from one thread between two looks where it runs: a look costs some 10 us.
const LOOK_EVERY: u32 = 64;
/// The same while all attempts are in vain.
const LOOK_SELDOM: u32 = 64 * LOOK_EVERY;
/// Attempts in vain after which idle processors are kept awake for the first time.
const VAIN: u32 = 3;
/// Requests in a row after which they are kept awake again, if that helped before.
const AGAIN_AFTER: u32 = 16;
/// So many requests in a row are timed together.
const GROUP: u32 = 4;
/// The last so many groups say how fast requests are.
const GROUPS: usize = 16;
/// Looks after which idle processors are kept awake for a trial, although the two are together.
/// That may be faster all the same: the server does meanwhile what the kernel sends by itself.
const TRIAL: u32 = 8;

/// Follows the thread that sends one request after another: see the module.
pub(super) struct Companion {
    row: Row,
    runtime: Handle,
    /// `None` if it could not be started: then nobody is followed.
    follower: Option<Follower>,
    /// How fast requests were when the look under way began.
    pace: Pace,
    /// `None` if processors may always sleep.
    awake: Option<Awake>,
}

/// The requests of one thread in a row.
#[derive(Debug, Default)]
struct Row {
    thread: u32,
    /// Its requests since the last look.
    requests: u32,
    /// When the group under way began.
    since: Time,
    /// The time of all groups since the last look.
    took: Nanos,
    /// The time of each of the last groups since the last look, in no order.
    groups: VecDeque<Nanos>,
    /// Attempts in vain since the two were found together.
    vain: u32,
    /// Looks since idle processors were kept awake.
    looks: u32,
}

impl Row {
    /// Notes a request that `thread` sent (0 if no thread did). Returns how fast its requests were
    /// since the last look, if it is time for the next one.
    fn served(&mut self, thread: u32, every: u32, now: impl Fn() -> Time) -> Option<Pace> {
        if thread == 0 {
            return None;
        }
        if thread != self.thread {
            (self.thread, self.requests, self.since, self.took) = (thread, 0, now(), Nanos(0));
            self.groups.clear();
            return None;
        }
        self.requests += 1;
        if self.requests.is_multiple_of(GROUP) {
            let now = now();
            let took = now.since(self.since);
            self.since = now;
            self.took += took;
            if self.groups.len() == GROUPS {
                self.groups.pop_front();
            }
            self.groups.push_back(took);
        }
        if self.requests < every {
            return None;
        }
        let groups = self.groups.make_contiguous();
        groups.sort_unstable();
        let median = groups.get(groups.len().saturating_sub(1) / 2).copied()?;
        let mean = Nanos(self.took.0 / u64::from(self.requests));
        self.groups.clear();
        (self.requests, self.took) = (0, Nanos(0));
        Some(Pace { median: Nanos(median.0 / u64::from(GROUP)), mean })
    }

    /// Requests between two looks.
    fn every(&self) -> u32 {
        LOOK_EVERY.saturating_mul(1 << self.vain.min(31)).min(LOOK_SELDOM)
    }

    /// Notes whether the two were found on one processor.
    fn looked(&mut self, together: bool) {
        self.vain = if together { 0 } else { self.vain + 1 };
        self.looks += 1;
    }

    /// Whether idle processors should be kept awake.
    const fn asks_for_awake(&self) -> bool {
        self.vain >= VAIN || self.looks >= TRIAL
    }
}

impl Companion {
    /// Follows nobody yet. Idle processors are kept awake if `may_keep_awake`.
    pub(super) fn new(runtime: Handle, may_keep_awake: bool) -> Self {
        let awake = may_keep_awake.then(|| Awake::new(runtime.clone()));
        let follower = Follower::of_this_thread().ok();
        Self { row: Row::default(), runtime, follower, pace: Pace::default(), awake }
    }

    /// Whether idle processors are kept awake.
    pub(super) fn keeps_awake(&self) -> bool {
        self.awake.as_ref().is_some_and(Awake::is_held)
    }

    /// Notes a request that `thread` sent (0 if no thread did), and follows the thread when it is
    /// time to.
    pub(super) fn served(&mut self, thread: u32) {
        let Some(follower) = &mut self.follower else { return };
        if let Some(found) = follower.found() {
            // It may be a thread of another container, or run where the server must not run.
            self.row.looked(found.is_ok_and(|moved| !moved));
            if self.row.asks_for_awake()
                && let Some(awake) = &self.awake
            {
                self.row.looks = 0;
                awake.begin(self.pace);
            }
        }
        let awake = self.awake.as_ref();
        let (held, helped) = (awake.filter(|it| it.is_held()), awake.filter(|it| it.helped()));
        let every = match (held, helped) {
            (Some(_), _) => LOOK_EVERY,
            (None, Some(_)) => AGAIN_AFTER,
            (None, None) => self.row.every(),
        };
        let Some(pace) = self.row.served(thread, every, || self.runtime.now()) else { return };
        // While processors are awake two of them are as good as one.
        if let Some(awake) = held {
            return awake.used(pace);
        }
        if let Some(awake) = helped {
            return awake.begin_again(pace);
        }
        if !follower.looks() {
            self.pace = pace;
            follower.follow(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(row: &mut Row, thread: u32) -> bool {
        row.served(thread, row.every(), || Time(0)).is_some()
    }

    /// Requests of `thread` until the next look.
    fn until_look(row: &mut Row, thread: u32) -> Option<u32> {
        (1..=2 * LOOK_SELDOM).find(|_| served(row, thread))
    }

    #[test]
    fn a_thread_that_is_alone_is_looked_at_now_and_then() {
        let mut row = Row::default();
        assert_eq!(until_look(&mut row, 7), Some(LOOK_EVERY + 1));
        for _ in 0..3 {
            row.looked(true);
            assert_eq!(until_look(&mut row, 7), Some(LOOK_EVERY));
        }
    }

    #[test]
    fn threads_that_take_turns_are_not_followed() {
        let mut row = Row::default();
        assert!((0..100 * LOOK_EVERY).all(|number| !served(&mut row, 7 + number % 2)));
        // What the kernel sends by itself ends no row.
        assert!((0..=LOOK_EVERY).flat_map(|_| [9, 0]).any(|thread| served(&mut row, thread)));
        assert_eq!(until_look(&mut row, 0), None);
    }

    #[test]
    fn attempts_in_vain_come_ever_more_seldom() {
        let mut row = Row { thread: 7, ..Row::default() };
        let mut waits = Vec::new();
        for _ in 0..40 {
            waits.extend(until_look(&mut row, 7));
            row.looked(false);
        }
        let doubled = (0..40).map(|times: u32| (u64::from(LOOK_EVERY) << times).min(1 << 12));
        assert_eq!(
            waits.iter().map(|wait| u64::from(*wait)).collect::<Vec<_>>(),
            Vec::from_iter(doubled)
        );
        row.looked(true);
        assert_eq!(until_look(&mut row, 7), Some(LOOK_EVERY));
    }

    #[test]
    fn requests_that_waited_for_the_disk_do_not_change_the_median() {
        let (mut row, mut paces) = (Row::default(), Vec::new());
        let mut now = 1000;
        for number in 0..=2 * LOOK_EVERY {
            // One half waits.
            now += if number.div_ceil(GROUP).is_multiple_of(2) { 50 } else { 8_050 };
            paces.extend(row.served(7, LOOK_EVERY, || Time(now)));
        }
        assert_eq!(paces, [Pace { median: Nanos(50), mean: Nanos(4_050) }; 2]);
    }
}
