//! Keeps idle processors awake while a program sends one request after another.
//!
//! A processor without work sleeps, and an interrupt must wake it. In virtual machines that takes
//! some 40 us, and a request needs it twice if the program and the server run on two processors.
//! Whoever holds `/dev/cpu_dma_latency` open and has written a zero to it asks the kernel that no
//! processor sleeps: an idle one then looks for work all the time, and takes it in about a
//! microsecond (PM QoS, `Documentation/power/pm_qos_interface.rst` of Linux).
//!
//! That costs energy, so it is asked for only while requests come fast, and only where it makes
//! most of them at least half as fast again. On most real machines it does not.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Time};

/// The kernel's device for the wish.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// The longest latency that is wished for, in microseconds.
const LATENCY_US: i32 = 0;
/// The wish ends when it was not used for so long.
const UNUSED_MOST: Nanos = Nanos::from_millis(20);
/// Paces in a row that gain too little, after which the wish ends.
const BAD_MOST: u32 = 16;
/// After a wish that gained too little the next one waits: at first so long, then ever longer.
const PAUSE_LEAST: Nanos = Nanos::from_secs(1);
/// The longest such pause.
const PAUSE_MOST: Nanos = Nanos::from_secs(64);

/// How fast a number of requests in a row were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// The median time of a request: some may have waited for the disk, which no processor makes
    /// faster.
    pub(super) median: Nanos,
    /// Mean time of a request.
    pub(super) mean: Nanos,
}

impl Pace {
    /// A gain is worth its cost from this part of the mean time on.
    const GAIN_LEAST: u64 = 8;

    /// Whether most requests take at most two thirds of what they take at the pace of `other`, and
    /// the gain is not lost beside what requests wait for the disk.
    fn is_much_faster(self, other: Self) -> bool {
        let (one, other_one) = (self.median.0, other.median.0);
        one.saturating_mul(3) <= other_one.saturating_mul(2)
            && (other_one - one).saturating_mul(Self::GAIN_LEAST) >= self.mean.0
    }
}

/// The wish, which ends when all clones are dropped: see the module.
#[derive(Clone)]
pub(super) struct Awake(Rc<State>);

struct State {
    runtime: Handle,
    device: PathBuf,
    /// Open while the wish holds.
    held: RefCell<Option<File>>,
    used_at: Cell<Time>,
    worth: RefCell<Worth>,
}

/// Judges whether the wish is worth its cost.
#[derive(Debug, Default)]
struct Worth {
    /// Requests without the wish.
    before: Pace,
    /// Requests with it, when that was last worth it.
    with: Option<Pace>,
    /// Paces in a row that gained too little.
    bad: u32,
    /// No wish before this time.
    not_before: Time,
    /// The next pause; zero stands for the least.
    pause: Nanos,
}

impl Worth {
    /// Whether the wish goes on after requests at `pace`.
    fn goes_on(&mut self, pace: Pace, now: Time) -> bool {
        if pace.is_much_faster(self.before) {
            (self.bad, self.pause, self.with) = (0, PAUSE_LEAST, Some(pace));
            return true;
        }
        self.bad += 1;
        if self.bad < BAD_MOST {
            return true;
        }
        let pause = self.pause.max(PAUSE_LEAST);
        (self.bad, self.pause) = (0, Nanos(2 * pause.0).min(PAUSE_MOST));
        (self.not_before, self.with) = (now + pause, None);
        false
    }
}

impl Awake {
    /// No wish yet.
    pub(super) fn new(runtime: Handle) -> Self {
        Self::at(runtime, Path::new(DEVICE))
    }

    fn at(runtime: Handle, device: &Path) -> Self {
        let (held, used_at) = (RefCell::default(), Cell::new(runtime.now()));
        let (device, worth) = (device.to_owned(), RefCell::default());
        Self(Rc::new(State { runtime, device, held, used_at, worth }))
    }

    /// Whether the wish holds.
    pub(super) fn is_held(&self) -> bool {
        self.0.held.borrow().is_some()
    }

    /// Begins to wish, if that may help: requests come at `pace` without it. Nothing happens if
    /// this process may not wish (it is not root), or the kernel has no such device.
    pub(super) fn begin(&self, pace: Pace) {
        let now = self.0.runtime.now();
        if self.is_held() || now < self.0.worth.borrow().not_before {
            return;
        }
        let Ok(device) = wish(&self.0.device) else {
            // It will not be different later.
            self.0.worth.borrow_mut().not_before = Time(u64::MAX);
            return;
        };
        *self.0.held.borrow_mut() = Some(device);
        self.0.worth.borrow_mut().before = pace;
        self.0.used_at.set(now);
        let awake = self.clone();
        self.0.runtime.spawn(async move { awake.end_when_unused().await });
    }

    /// Whether the last wish was worth its cost.
    pub(super) fn helped(&self) -> bool {
        self.0.worth.borrow().with.is_some()
    }

    /// Begins to wish again if requests, which come at `pace` without the wish, are much slower
    /// than with the last one.
    pub(super) fn begin_again(&self, pace: Pace) {
        let with = self.0.worth.borrow().with;
        let with = with.map(|Pace { median, .. }| Pace { median, ..pace });
        if with.is_some_and(|with| with.is_much_faster(pace)) {
            self.begin(pace);
        }
    }

    /// Notes that requests came at `pace` while the wish held.
    pub(super) fn used(&self, pace: Pace) {
        let now = self.0.runtime.now();
        self.0.used_at.set(now);
        if !self.0.worth.borrow_mut().goes_on(pace, now) {
            self.end();
        }
    }

    /// Ends the wish.
    pub(super) fn end(&self) {
        self.0.held.take();
    }

    async fn end_when_unused(self) {
        while self.is_held() {
            let end = self.0.used_at.get() + UNUSED_MOST;
            if self.0.runtime.now() >= end {
                return self.end();
            }
            self.0.runtime.sleep_until(end).await;
        }
    }
}

/// Wishes for [`LATENCY_US`], until the result is dropped.
fn wish(device: &Path) -> io::Result<File> {
    let mut device = OpenOptions::new().write(true).open(device)?;
    device.write_all(&LATENCY_US.to_ne_bytes())?;
    Ok(device)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use manylogs_storage::Reactor;

    use super::*;

    /// Requests of which each took `nanos`.
    fn all(nanos: u64) -> Pace {
        Pace { median: Nanos(nanos), mean: Nanos(nanos) }
    }

    #[test]
    fn waits_for_the_disk_do_not_count_unless_they_are_nearly_all() {
        let before = all(90_000);
        let with = |mean| Pace { median: Nanos(10_000), mean: Nanos(mean) };
        assert!(with(10_000).is_much_faster(before));
        assert!(with(640_000).is_much_faster(before));
        assert!(!with(640_001).is_much_faster(before), "the gain is lost beside the disk");
        assert!(!before.is_much_faster(with(10_000)));
    }

    #[test]
    fn a_wish_goes_on_only_if_it_gains_enough() {
        let mut worth = Worth { before: all(90_000), ..Worth::default() };
        let now = Time(5);
        assert!((0..100).all(|_| worth.goes_on(all(60_000), now)));
        // A few slow requests end nothing.
        let mixed = |number| if number % BAD_MOST == 0 { 10_000 } else { 80_000 };
        assert!((0..100).all(|number| worth.goes_on(all(mixed(number)), now)));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            worth.bad = 0;
            assert!((1..BAD_MOST).all(|_| worth.goes_on(all(60_001), now)));
            assert!(!worth.goes_on(all(60_001), now));
            pauses.push(worth.not_before.since(now));
        }
        assert_eq!(pauses[..3], [1, 2, 4].map(Nanos::from_secs));
        assert_eq!(pauses.last(), Some(&PAUSE_MOST));
    }

    /// A file in place of the device.
    fn wished(device: &Path) -> Vec<u8> {
        std::fs::read(device).unwrap()
    }

    #[test]
    fn a_wish_that_is_not_used_ends_and_can_begin_again() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("latency");
        File::create(&device).unwrap();
        let reactor = Reactor::new().unwrap();
        let (runtime, path) = (reactor.handle(), device.clone());
        let awake = Awake::at(runtime.clone(), &device);
        reactor.block_on(async move {
            for _ in 0..2 {
                assert!(!awake.is_held());
                awake.begin(all(100_000));
                assert!(awake.is_held());
                assert_eq!(wished(&path), [0; 4]);
                while awake.is_held() {
                    runtime.sleep(Nanos::from_millis(1)).await;
                }
            }
            assert!(!awake.helped(), "nobody knows");
            awake.begin(all(100_000));
            awake.used(all(20_000));
            awake.end();
            awake.begin_again(all(29_000));
            assert!(awake.helped() && !awake.is_held(), "as fast without");
            awake.begin_again(all(30_000));
            assert!(awake.is_held());
            for _ in 0..BAD_MOST {
                awake.used(all(100_000));
            }
            assert!(!awake.helped() && !awake.is_held(), "it gained nothing");
            awake.begin(all(100_000));
            assert!(!awake.is_held(), "too soon");
        });
    }

    #[test]
    fn without_the_device_nothing_happens() {
        let dir = tempfile::tempdir().unwrap();
        let reactor = Reactor::new().unwrap();
        let awake = Awake::at(reactor.handle(), &dir.path().join("none"));
        awake.begin(all(100_000));
        assert!(!awake.is_held());
    }
}
