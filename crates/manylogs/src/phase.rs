//! What the engine is writing for: by this a crash campaign knows what it has crashed.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Capabilities, Completion, Request};

/// The work that a write or flush of the engine belongs to.
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
    /// The root that marks logs ahead of their use.
    OpenedSet,
    /// Format, and the root with the new incarnation.
    Open,
    /// The flush and the scan before that.
    Recovery,
    /// A record with zeroed extents.
    Discard,
    /// Emptying the logs for good, and what goes with it.
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
}

/// Tells the phase of the request that the engine submits next. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PhaseProbe(Rc<Cell<Phase>>);

impl PhaseProbe {
    /// The phase of the engine's last request but reads.
    #[must_use]
    pub fn get(&self) -> Phase {
        self.0.get()
    }

    fn set(&self, phase: Phase) {
        self.0.set(phase);
    }
}

/// The device below, which is told why it writes.
#[derive(Clone)]
pub(crate) struct Below {
    device: Rc<dyn BlockDevice>,
    probe: PhaseProbe,
    /// Everything belongs to draining from now on.
    draining: Rc<Cell<bool>>,
}

impl Below {
    pub(crate) fn new(device: Rc<dyn BlockDevice>, probe: PhaseProbe) -> Self {
        Self { device, probe, draining: Rc::default() }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    pub(crate) fn read(&self, extent: manylogs_block::Extent) -> Completion {
        self.device.submit(Request::Read { extent })
    }

    /// Submits anything but a read.
    pub(crate) fn submit(&self, phase: Phase, request: Request) -> Completion {
        self.probe.set(if self.draining.get() { Phase::Drain } else { phase });
        self.device.submit(request)
    }

    pub(crate) fn set_draining(&self) {
        self.draining.set(true);
    }

    /// For those who only read.
    pub(crate) const fn device(&self) -> &Rc<dyn BlockDevice> {
        &self.device
    }
}
