//! Purposes of the writes of a system. A crash campaign learns from them which work it interrupted.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Request, SECTOR_BYTES};

/// The work that a write or flush of a system belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// A record of clients' small writes.
    #[default]
    Append,
    /// A client's large write on its way home, or the flush that makes it durable.
    Bypass,
    /// A record with entries that supersede older versions.
    Supersede,
    /// Logged data going home, and the floor that then retires it.
    Checkpoint,
    /// The first record of a log's next epoch.
    Reset,
    /// A record of content that moves from one log to another.
    Swap,
    /// A table snapshot, and the root that names it.
    Snapshot,
    /// The root that opens logs ahead of their use.
    OpenedSet,
    /// Format, the root with the new incarnation, and changes of the superblock.
    Open,
    /// The flush and the scan before that root.
    Recovery,
    /// A record with zeroed extents.
    Discard,
    /// A drain: emptying the logs for good, with the writes that belong to it.
    Drain,
}

impl Phase {
    /// Every phase, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Append,
        Self::Bypass,
        Self::Supersede,
        Self::Checkpoint,
        Self::Reset,
        Self::Swap,
        Self::Snapshot,
        Self::OpenedSet,
        Self::Open,
        Self::Recovery,
        Self::Discard,
        Self::Drain,
    ];

    /// Name in outputs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Bypass => "bypass",
            Self::Supersede => "supersede",
            Self::Checkpoint => "checkpoint",
            Self::Reset => "reset",
            Self::Swap => "swap",
            Self::Snapshot => "snapshot",
            Self::OpenedSet => "opened-set",
            Self::Open => "open",
            Self::Recovery => "recovery",
            Self::Discard => "discard",
            Self::Drain => "drain",
        }
    }
}

/// Writes of a system in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Requests other than reads.
    pub requests: u64,
    /// Total length of the requests that have an extent.
    pub bytes: u64,
}

/// Tells why a system writes, and how much it wrote for each purpose. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct PhaseProbe(Rc<Probed>);

#[derive(Debug, Default)]
struct Probed {
    last: Cell<Phase>,
    written: [Cell<Written>; Phase::ALL.len()],
}

impl PhaseProbe {
    /// The phase of the last request that was not a read.
    #[must_use]
    pub fn get(&self) -> Phase {
        self.0.last.get()
    }

    /// Writes of each phase since the probe was made.
    pub fn written(&self) -> impl Iterator<Item = (Phase, Written)> {
        Phase::ALL.into_iter().map(|phase| (phase, self.0.written[phase as usize].get()))
    }

    pub(crate) fn note(&self, phase: Phase, request: &Request) {
        self.0.last.set(phase);
        let cell = &self.0.written[phase as usize];
        let (before, len) = (cell.get(), request.extent().map_or(0, |extent| extent.len.0));
        cell.set(Written {
            requests: before.requests + 1,
            bytes: before.bytes + len * SECTOR_BYTES,
        });
    }
}
