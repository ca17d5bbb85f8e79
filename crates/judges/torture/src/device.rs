//! The disk as the volume sees it: each request carries the phase that the volume was in.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::{Phase, PhaseProbe};
use manylogs_block::{BlockDevice, Capabilities, Completion, Extent, Extents, Request};
use manylogs_sim::CrashDisk;

/// A crashing disk that labels each request with its phase.
#[derive(Debug)]
pub(crate) struct PhasedDisk {
    pub(crate) disk: CrashDisk,
    /// The phase of the volume that uses the disk, which may be another one later.
    pub(crate) probe: Rc<RefCell<PhaseProbe>>,
    /// The phase of the last request to this disk and those beside it.
    pub(crate) last: Rc<Cell<u8>>,
}

impl BlockDevice for PhasedDisk {
    fn capabilities(&self) -> Capabilities {
        self.disk.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let phase = self.probe.borrow().get() as u8;
        self.last.set(phase);
        self.disk.submit_labelled(request, phase)
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.disk.extents(within)
    }
}

/// The phase of the request that the disk's last event belongs to.
pub(crate) fn last_phase(disk: &CrashDisk) -> Phase {
    Phase::ALL[usize::from(disk.last_label())]
}
