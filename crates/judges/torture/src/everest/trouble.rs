//! Devices of a store that fail requests while it is used or opened.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Request, Rng, Sectors};
use manylogs_sim::CrashDisk;

/// First sector of the logs on each device of a store, and the length of its superblocks: see
/// `docs/format.md`.
const LOGS_FROM: Sectors = Sectors(64);
const SUPERBLOCKS: Sectors = Sectors(16);

/// The requests that failed so far, and a description of what fails.
#[derive(Clone, Default)]
pub(super) struct Trouble {
    failed: Rc<Cell<u64>>,
    transient: Rc<Cell<u64>>,
    words: Rc<Cell<Option<&'static str>>>,
}

impl Trouble {
    /// Makes one of the disks fail a few reads. A store that opens must be patient for that long.
    pub(super) fn opening(&self, disks: &[CrashDisk], rng: &mut Rng) {
        let disk = pick(disks, rng);
        let mut left = 1 + rng.below(5);
        self.words.set(Some("reads of a device fail for a while as the store opens"));
        let told = self.clone();
        disk.fail_requests(Box::new(move |request| {
            let Request::Read { extent } = request else { return None };
            left = left.checked_sub(1)?;
            Some(told.fails(IoError::Transient { extent: *extent }))
        }));
    }

    /// Makes devices of a store in use fail. Its logs have the length `log`.
    pub(super) fn begin(&self, disks: &[CrashDisk], log: Sectors, rng: &mut Rng) {
        match rng.below(4) {
            0 => self.roots(disks, rng),
            _ => self.appends(disks, log, rng),
        }
    }

    /// Makes writes to one log fail, for good or for a while, after some have passed.
    fn appends(&self, disks: &[CrashDisk], log: Sectors, rng: &mut Rng) {
        let disk = pick(disks, rng);
        let logs = (disk.capabilities().capacity.0 - LOGS_FROM.0 - SUPERBLOCKS.0) / log.0;
        let bad = Extent::new(LOGS_FROM.0 + rng.below(logs) * log.0, log.0);
        let mut passes = rng.below(20);
        let mut left = if rng.one_in(2) { u64::MAX } else { 1 + rng.below(4) };
        let medium = rng.one_in(2);
        self.words.set(Some("writes to a log fail"));
        let told = self.clone();
        disk.fail_requests(Box::new(move |request| {
            let Request::Write { extent, .. } = request else { return None };
            if !extent.overlaps(bad) {
                return None;
            }
            if passes > 0 {
                passes -= 1;
                return None;
            }
            left = left.checked_sub(1)?;
            let extent = *extent;
            Some(told.fails(match medium {
                true => IoError::Medium { extent },
                false => IoError::Transient { extent },
            }))
        }));
    }

    /// Makes one write of the root fail. The next one succeeds, because a drive replaces a bad
    /// sector when it is written.
    fn roots(&self, disks: &[CrashDisk], rng: &mut Rng) {
        let (mut passes, mut left) = (rng.below(6), 1_u64);
        self.words.set(Some("a write of the root fails once"));
        let told = self.clone();
        disks[0].fail_requests(Box::new(move |request| {
            let Request::Write { extent, .. } = request else { return None };
            if extent.end().0 > LOGS_FROM.0 {
                return None;
            }
            if passes > 0 {
                passes -= 1;
                return None;
            }
            left = left.checked_sub(1)?;
            Some(told.fails(IoError::Medium { extent: *extent }))
        }));
    }

    /// Makes the devices sound again.
    pub(super) fn heal(disks: &[CrashDisk]) {
        disks.iter().for_each(|disk| disk.fail_requests(Box::new(|_| None)));
    }

    fn fails(&self, error: IoError) -> IoError {
        self.failed.set(self.failed.get() + 1);
        let passing = matches!(error, IoError::Transient { .. });
        self.transient.set(self.transient.get() + u64::from(passing));
        error
    }

    /// Number of requests that failed, and of those that may be carried out later.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.failed.get(), self.transient.get())
    }

    /// The problem, with a description of what the devices did.
    pub(super) fn explain(&self, problem: String) -> String {
        match self.words.get() {
            Some(words) => format!("{problem} ({words}; {} requests failed)", self.failed.get()),
            None => problem,
        }
    }
}

fn pick<'a>(disks: &'a [CrashDisk], rng: &mut Rng) -> &'a CrashDisk {
    &disks[manylogs_block::to_usize(rng.below(disks.len() as u64))]
}
