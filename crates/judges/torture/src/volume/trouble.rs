//! A device that fails requests while it is opened or used, for good or for a while.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs::Layout;
use manylogs_block::{Extent, Handle, IoError, Nanos, Request, Rng, Time};

use crate::volume::victims::{Failing, install};

/// Faults of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Writes to logs fail.
    Appends,
    /// Writes to the roots fail.
    Roots,
    /// Writes to one place outside the logs fail.
    Home(Extent),
    /// Reads of a place fail.
    Reads(Extent),
    /// Reads of logs fail; most of these are reads of a checkpoint.
    LogReads,
    Flushes,
    /// All requests fail.
    Gone,
}

/// Errors that the device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Medium,
    Transient,
}

/// Duration of the failures of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    Requests(u64),
    Span(Nanos),
    ForGood,
}

/// Whether content that only one place of the medium holds may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Possible,
    /// Content that cannot be read can be read soon after. Only if the device does not report its
    /// medium as bad may that take any time.
    Never,
}

/// Facts about the trouble that the clients and the judges of a history need.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// Requests that the device failed.
    pub(crate) failed: Rc<Cell<u64>>,
    /// Those of them that it may carry out later.
    pub(crate) transient: Rc<Cell<u64>>,
    /// Whether reads may fail as long as the volume is open.
    pub(crate) reads_fail: Rc<Cell<bool>>,
    /// Whether the medium is bad where the only copy of some content may be: that may be lost.
    pub(crate) lossy: Rc<Cell<bool>>,
}

impl Told {
    fn count(&self, says: Says) {
        self.failed.set(self.failed.get() + 1);
        self.transient.set(self.transient.get() + u64::from(says == Says::Transient));
    }
}

/// Gives the device medium errors from some moment on. Returns a description of them.
pub(crate) fn medium_trouble(
    devices: &[Failing],
    layout: &Layout,
    rng: &mut Rng,
    told: &Told,
) -> String {
    let target = target(layout, rng);
    let passes = rng.below(if target == Target::Roots { 12 } else { 40 });
    let lasts = if rng.one_in(3) || target == Target::Gone {
        Lasts::ForGood
    } else {
        Lasts::Requests(1 + rng.below(3))
    };
    fail(devices, layout, Fails { target, says: Says::Medium, lasts, passes }, told)
}

/// Makes the device fail some requests from some moment on, with medium errors or others, for good
/// or for a while. Returns a description of the failures.
pub(crate) fn any_trouble(
    devices: &[Failing],
    layout: &Layout,
    (rng, loss): (&mut Rng, Loss),
    told: &Told,
) -> String {
    let target = if rng.one_in(3) { Target::LogReads } else { target(layout, rng) };
    let passes = rng.below(if target == Target::Roots { 12 } else { 40 });
    let says = if rng.one_in(2) { Says::Medium } else { Says::Transient };
    let lasts = match target {
        Target::Gone => Lasts::ForGood,
        Target::Reads(_) | Target::LogReads if (says, loss) == (Says::Medium, Loss::Never) => {
            span(rng)
        }
        _ => lasts(rng),
    };
    fail(devices, layout, Fails { target, says, lasts, passes }, told)
}

/// Makes the device fail some reads of an opening. Returns a description of them.
pub(crate) fn opening_trouble(
    devices: &[Failing],
    layout: &Layout,
    (rng, loss): (&mut Rng, Loss),
    told: &Told,
) -> String {
    let one = |rng: &mut Rng, all: &[Extent]| {
        vec![all[manylogs_block::to_usize(rng.below(all.len() as u64))]]
    };
    let (name, places) = match rng.below(8) {
        0 => ("a superblock", one(rng, &layout.superblocks())),
        1 => ("a root", one(rng, &layout.roots())),
        2 => ("the snapshots", layout.snapshots().to_vec()),
        3 => ("both superblocks and roots", [layout.superblocks(), layout.roots()].concat()),
        4..6 => ("some sectors of a log", {
            let log = one(rng, layout.regions())[0];
            let start = log.start.0 + rng.below(log.len.0);
            vec![Extent::new(start, (1 + rng.below(8)).min(log.end().0 - start))]
        }),
        6 => ("a log", one(rng, layout.regions())),
        _ => ("all logs", layout.regions().to_vec()),
    };
    let medium = rng.one_in(2) && loss == Loss::Possible;
    let says = if medium { Says::Medium } else { Says::Transient };
    let lasts = lasts(rng);
    let words = format!("reads of {name} fail: {says:?}, {lasts:?}");
    told.reads_fail.set(true);
    told.lossy.set(told.lossy.get() || says == Says::Medium);
    let mut bad: BTreeSet<u64> = places.iter().flat_map(|place| place.range()).collect();
    let (mut clock, told) = (Clock::of(devices, lasts), told.clone());
    install(devices, move |request, at| match request {
        Request::Read { extent }
            if at.iter().any(|place| bad.range(place.range()).next().is_some()) =>
        {
            clock.fails().then(|| {
                told.count(says);
                says.error(*extent)
            })
        }
        // A bad sector can be read again once it is written.
        Request::Write { .. } | Request::WriteZeroes { .. } if says == Says::Medium => {
            at.iter().flat_map(|place| place.range()).for_each(|lba| {
                bad.remove(&lba);
            });
            None
        }
        _ => None,
    });
    words
}

fn target(layout: &Layout, rng: &mut Rng) -> Target {
    let place = |rng: &mut Rng| {
        let start = rng.below(layout.device().0);
        Extent::new(start, 1 + rng.below(layout.device().0 / 4))
    };
    match rng.below(12) {
        0..4 => Target::Appends,
        4..6 => Target::Home(place(rng)),
        6..8 => Target::Reads(place(rng)),
        8 => Target::Flushes,
        9 => Target::Gone,
        _ => Target::Roots,
    }
}

fn lasts(rng: &mut Rng) -> Lasts {
    match rng.below(4) {
        0 => Lasts::ForGood,
        1 => span(rng),
        _ => Lasts::Requests(1 + rng.below(5)),
    }
}

fn span(rng: &mut Rng) -> Lasts {
    Lasts::Span(Nanos::from_millis(1 + rng.below(1000)))
}

struct Fails {
    target: Target,
    says: Says,
    lasts: Lasts,
    /// Number of requests of the kind that succeed first.
    passes: u64,
}

fn fail(devices: &[Failing], layout: &Layout, fails: Fails, told: &Told) -> String {
    let Fails { target, says, lasts, mut passes } = fails;
    let words =
        format!("the device fails {target:?}: {says:?}, {lasts:?}, after {passes} requests");
    let reads = matches!(target, Target::Reads(_) | Target::LogReads);
    told.reads_fail.set(reads || target == Target::Gone);
    told.lossy.set(told.lossy.get() || (reads && says == Says::Medium));
    let (layout, told, mut clock) = (layout.clone(), told.clone(), Clock::of(devices, lasts));
    install(devices, move |request, at| {
        if !target.hits(request, at, &layout) {
            return None;
        }
        if passes > 0 {
            passes -= 1;
            return None;
        }
        if !clock.fails() {
            return None;
        }
        told.count(says);
        let extent = request.extent().unwrap_or_default();
        Some(if target == Target::Gone { IoError::Gone } else { says.error(extent) })
    });
    words
}

/// Tells whether the trouble still lasts.
struct Clock {
    clock: Handle,
    lasts: Lasts,
    began: Option<Time>,
}

impl Clock {
    /// # Panics
    /// If there is no device.
    fn of(devices: &[Failing], lasts: Lasts) -> Self {
        Self { clock: devices[0].clock.clone(), lasts, began: None }
    }

    fn fails(&mut self) -> bool {
        let now = self.clock.now();
        let began = *self.began.get_or_insert(now);
        match &mut self.lasts {
            Lasts::ForGood => true,
            Lasts::Span(span) => now.since(began) < *span,
            Lasts::Requests(0) => false,
            Lasts::Requests(left) => {
                *left -= 1;
                true
            }
        }
    }
}

impl Says {
    const fn error(self, extent: Extent) -> IoError {
        match self {
            Self::Medium => IoError::Medium { extent },
            Self::Transient => IoError::Transient { extent },
        }
    }
}

impl Target {
    /// Whether it hits a request to these addresses.
    fn hits(self, request: &Request, at: &[Extent], layout: &Layout) -> bool {
        at.iter().any(|extent| self.hits_at(request, *extent, layout))
            || matches!((self, request), (Self::Gone, _) | (Self::Flushes, Request::Flush))
    }

    fn hits_at(self, request: &Request, extent: Extent, layout: &Layout) -> bool {
        let is_log = layout.is_log(extent.start);
        let is_root = layout.roots().iter().any(|root| root.overlaps(extent));
        match (self, request) {
            (Self::Appends, Request::Write { .. }) => is_log,
            (Self::Roots, Request::Write { .. }) => is_root,
            (Self::Home(place), Request::Write { .. }) => !is_log && extent.overlaps(place),
            (Self::Reads(place), Request::Read { .. }) => extent.overlaps(place),
            (Self::LogReads, Request::Read { .. }) => is_log,
            _ => false,
        }
    }
}
