//! What is done with a journal that keeps its metadata while nobody uses the device.
//!
//! Programs that read the disk past a journal that keeps its metadata see an old state. So what is
//! older than a bound goes home, a little at a time, and only while no request came for a while: a
//! disk that is always in use keeps it. It is the same checkpoint as when the journal is full, of
//! less.
//!
//! A journal that empties itself ([`crate::Mode::Ordered`]) brings home what no transaction changed
//! for half a minute, whoever uses the device. That is nearly what the kernel does: there the
//! buffers of a committed transaction are dirty pages of the device, and Linux writes these after
//! `dirty_expire_centisecs`, looking every `dirty_writeback_centisecs`, in the order of their
//! places. But Linux counts from the first page of the device that became dirty, and then writes
//! all of them that the running transaction does not have: a block that changes all the time goes
//! home there about every half minute, and here when the journal is full.

use std::rc::Rc;

use manylogs_block::{IoError, Nanos, Time, first_of, narrow};
use manylogs_plant::{Bug, is};

use crate::metadata::Metadata;
use crate::ops::Ext4;
use crate::units::Timestamp;

/// How old metadata may become when nothing else is said: a day.
pub(super) const USUAL: Nanos = Nanos::from_secs(24 * 3600);
/// The same of a journal that empties itself: Linux's `dirty_expire_centisecs`.
pub(super) const EXPIRES: Nanos = Nanos::from_secs(30);
/// Longest time between two looks at it: Linux's `dirty_writeback_centisecs`.
const LOOK: Nanos = Nanos::from_secs(5);
/// Longest time without a request after which the device is idle.
const IDLE: Nanos = Nanos::from_secs(10);
/// Shortest such time.
const IDLE_LEAST: Nanos = Nanos::from_millis(1);
/// The same between two parts that go home.
const PAUSE: Nanos = Nanos::from_millis(100);

/// A moment by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// By the wall clock, which may be set. The log has it of each transaction.
    pub wall: Timestamp,
    /// By the runtime's clock, which nobody sets.
    pub runtime: Time,
}

/// What became of an attempt to bring home what is too old.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// Nothing is too old.
    Nothing,
    /// A part of it went home.
    Part,
    /// The device did not do it this time, and may later.
    Later,
    /// The oldest part cannot go home: a copy is damaged, or the journal has failed.
    Stuck,
}

impl Ext4 {
    /// Sets how old metadata may become in a journal that keeps it ([`crate::Mode::Lazy`]): what is
    /// older goes home while no request comes. `None` is no bound; it is a day before this is
    /// called. A crash changes nothing of that: times of commits are in the journal.
    ///
    /// In the other modes that have ext4's own journal it is 30 s before this is called, counted
    /// from the last transaction that changed each block, and requests do not defer it. `None`
    /// leaves metadata in the journal until that is full.
    ///
    /// What was committed since the mount is too old when the wall clock or the runtime's clock
    /// says so. If the wall clock is set back, it delays only what was committed before the mount.
    /// If something too old cannot go home, nothing is tried any more until the next mount: see
    /// [`Ext4::too_old_stays`].
    pub fn max_age(&self, most: Option<Nanos>) {
        self.core.journal.max_age.set(most);
        self.core.journal.aging.notify();
    }

    /// Why metadata that is too old ([`Ext4::max_age`]) stays in the journal: a copy there is
    /// damaged and not in memory, or the journal has failed. `None` if nothing has kept it there
    /// since the mount. Changes go on if only a copy is damaged. Whoever needs its room later gets
    /// an error.
    #[must_use]
    pub fn too_old_stays(&self) -> Option<IoError> {
        self.core.journal.too_old_stays.borrow().clone()
    }

    /// Whether the map of a journal that keeps its content ([`crate::Mode::Lazy`]) is saved, at an
    /// unmount and now and then. True before this is called. Without it the next mount reads the
    /// whole journal; nothing else is different.
    pub fn save_maps(&self, saves: bool) {
        self.core.journal.saves_map.set(saves);
    }
}

impl Metadata {
    /// Brings home what is too old, and scrubs the log, as long as the file system is mounted. If
    /// the oldest part cannot go home it is left where it is, and scrubs go on: whoever needs the
    /// room later hears why.
    pub(super) async fn age_forever(self: Rc<Self>) {
        let (mut seen, mut last) = (None, Attempt::Nothing);
        while self.journal.is_sound() {
            let change = self.journal.aging.wait();
            if self.journal.closing.get() {
                break;
            }
            let bound = self.journal.max_age.get();
            let idle = bound.map_or(IDLE, |it| Nanos((it.0 / 4).clamp(IDLE_LEAST.0, IDLE.0)));
            let pause = if last == Attempt::Part { PAUSE.min(idle) } else { idle };
            first_of(change, self.runtime.sleep(pause)).await;
            let requests = self.requests_of_others();
            if seen.replace(requests) == Some(requests) && !self.journal.closing.get() {
                last = match bound {
                    Some(bound) => self.bring_old_home(bound).await,
                    None => Attempt::Nothing,
                };
                if last != Attempt::Part && self.journal.is_sound() && self.scrub_meanwhile().await
                {
                    last = Attempt::Part;
                }
                // Its own requests do not count.
                seen = Some(self.requests_of_others());
            } else {
                last = Attempt::Nothing;
            }
        }
    }

    /// Brings home what was not changed for so long as the bound says, as long as the file system
    /// is mounted and nothing is stuck. While the log is empty nothing wakes.
    pub(super) async fn expire_forever(self: Rc<Self>) {
        while self.journal.is_sound() {
            let (change, settled) = (self.journal.aging.wait(), self.journal.settled.wait());
            if self.journal.closing.get() {
                break;
            }
            let bound = self.journal.max_age.get();
            let Some(bound) = bound.filter(|_| !self.journal.sink.is_empty()) else {
                first_of(change, settled).await;
                continue;
            };
            let pause = Nanos((bound.0 / 4).clamp(IDLE_LEAST.0, LOOK.0));
            first_of(change, self.runtime.sleep(pause)).await;
            // An attempt writes all that it can, and begins anew each time.
            if !self.journal.closing.get() && self.bring_old_home(bound).await == Attempt::Stuck {
                return;
            }
        }
    }

    /// Brings home the oldest part of the log if that is older than the bound, unless that failed
    /// before.
    async fn bring_old_home(self: &Rc<Self>, bound: Nanos) -> Attempt {
        let runtime = Time(self.runtime.now().0.saturating_sub(bound.0));
        let before = Moment { wall: (self.clock)().earlier(bound), runtime };
        if !self.journal.is_sound() || self.journal.too_old_stays.borrow().is_some() {
            return Attempt::Stuck;
        }
        if !self.journal.sink.has_older(before) || is(Bug::LazyAgeForgotten) {
            return Attempt::Nothing;
        }
        match self.healing(|sink| sink.bring_old_home(before)).await {
            Ok(()) => Attempt::Part,
            // The log is as it was. The next attempt comes after a pause.
            Err(IoError::Transient { .. }) => Attempt::Later,
            Err(error) => {
                self.journal.too_old_stays.replace(Some(error.clone()));
                if !error.is_damage() {
                    self.journal.abort(error);
                }
                Attempt::Stuck
            }
        }
    }

    /// How many requests for the device there were since the mount, without those of arranging.
    fn requests_of_others(&self) -> u64 {
        self.requests().saturating_sub(self.journal.arranging_requests.get())
    }

    /// How many requests for the device there were since the mount.
    pub(crate) fn requests(&self) -> u64 {
        self.ahead.get().map_or(0, |ahead| ahead.requests())
    }
}

impl Timestamp {
    /// The time that is earlier by `span`.
    fn earlier(self, span: Nanos) -> Self {
        const SECOND: u32 = 1_000_000_000;
        let second = u64::from(SECOND);
        let (seconds, nanos) = ((span.0 / second).cast_signed(), narrow(span.0 % second));
        match self.nanos.checked_sub(nanos) {
            Some(nanos) => Self { seconds: self.seconds - seconds, nanos },
            None => {
                let nanos = self.nanos + SECOND - nanos;
                Self { seconds: self.seconds - seconds - 1, nanos }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_time_borrows_a_second() {
        let now = Timestamp { seconds: 100, nanos: 5 };
        let before = |span| (now.earlier(Nanos(span)).seconds, now.earlier(Nanos(span)).nanos);
        assert_eq!(before(5), (100, 0));
        assert_eq!(before(6), (99, 999_999_999));
        assert_eq!(before(3_000_000_000), (97, 5));
    }
}
