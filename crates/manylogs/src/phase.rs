//! Purposes of the volume's writes. A crash campaign learns from them which work it has
//! interrupted.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, Lba, Request, SECTOR_BYTES,
    Sectors,
};
use manylogs_schedule::{Class, Scheduler, Targets};

/// The work that a write or flush of the volume belongs to.
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
    /// The flush and the scan before that.
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

/// Writes of the volume in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Requests but reads.
    pub requests: u64,
    /// Length of those that have one.
    pub bytes: u64,
}

/// Tells what the volume writes for, and how much it wrote for each purpose. Clones share the
/// counters.
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

    fn note(&self, phase: Phase, request: &Request) {
        self.0.last.set(phase);
        let cell = &self.0.written[phase as usize];
        let (before, len) = (cell.get(), request.extent().map_or(0, |extent| extent.len.0));
        cell.set(Written {
            requests: before.requests + 1,
            bytes: before.bytes + len * SECTOR_BYTES,
        });
    }
}

/// For whom is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A client, who waits.
    Client,
    /// Checkpoint or swap.
    Volume,
}

/// Clients' reads and writes up to this long are small.
const SMALL: Sectors = Sectors(128);

/// The device below, which is told why it writes.
#[derive(Clone)]
pub(crate) struct Below {
    device: Rc<dyn BlockDevice>,
    /// Scheduler of the device, once the volume serves clients.
    scheduler: Option<Scheduler>,
    probe: PhaseProbe,
    /// Everything belongs to draining from now on.
    draining: Rc<Cell<bool>>,
    /// Clients wait for room in the logs, and so for the volume's own work.
    pressed: Rc<Cell<bool>>,
}

impl Below {
    pub(crate) fn new(device: Rc<dyn BlockDevice>, probe: PhaseProbe) -> Self {
        Self { device, scheduler: None, probe, draining: Rc::default(), pressed: Rc::default() }
    }

    /// Puts a scheduler in front of the device.
    pub(crate) fn scheduled(self, runtime: &Handle, targets: Targets) -> Self {
        let scheduler = Scheduler::new(runtime.clone(), Rc::clone(&self.device), targets);
        Self { scheduler: Some(scheduler), ..self }
    }

    pub(crate) const fn scheduler(&self) -> Option<&Scheduler> {
        self.scheduler.as_ref()
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    pub(crate) fn read(&self, reader: Reader, extent: Extent) -> Completion {
        let class = match reader {
            Reader::Client => by_length(extent),
            Reader::Volume => self.own_work(),
        };
        self.hand_over(class, Request::Read { extent })
    }

    /// See [`BlockDevice::extents`].
    pub(crate) fn extents(&self, within: Extent) -> Completion<Extents> {
        self.device.extents(within)
    }

    /// Submits anything but a read.
    pub(crate) fn submit(&self, phase: Phase, request: Request) -> Completion {
        let phase = if self.draining.get() { Phase::Drain } else { phase };
        self.probe.note(phase, &request);
        self.hand_over(self.class(phase, &request), request)
    }

    fn hand_over(&self, class: Class, request: Request) -> Completion {
        match &self.scheduler {
            Some(scheduler) => scheduler.submit(class, request),
            None => self.device.submit(request),
        }
    }

    /// Every flush is urgent: a client waits for it, or its next flush waits for one of the
    /// volume's own work.
    fn class(&self, phase: Phase, request: &Request) -> Class {
        let Some(extent) = request.extent() else { return Class::Record };
        match phase {
            // Moved content too: a client's record behind it in the log waits for it.
            Phase::Append
            | Phase::Swap
            | Phase::Supersede
            | Phase::Discard
            | Phase::Reset
            | Phase::Open
            | Phase::Recovery => Class::Record,
            Phase::Bypass => by_length(extent),
            // Placement would like another log, but has one meanwhile.
            Phase::OpenedSet => self.own_work(),
            Phase::Checkpoint | Phase::Snapshot => self.own_work(),
            Phase::Drain => Class::Stream,
        }
    }

    fn own_work(&self) -> Class {
        if self.pressed.get() { Class::Stream } else { Class::Background }
    }

    /// Position of the head after the requests in the device, if requests are held back. Otherwise
    /// the end of the last client's request.
    pub(crate) fn head(&self, asked: Lba) -> Lba {
        self.scheduler.as_ref().and_then(Scheduler::head).unwrap_or(asked)
    }

    /// Tells that a client asks for something to be durable.
    pub(crate) fn sync_asked(&self) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.sync_asked();
        }
    }

    /// Whether clients wait for small reads, and sync so often that these need their place.
    pub(crate) fn serves_database(&self) -> bool {
        self.scheduler.as_ref().is_some_and(Scheduler::serves_database)
    }

    pub(crate) fn set_draining(&self) {
        self.draining.set(true);
    }

    /// Whether clients wait for room in the logs.
    pub(crate) fn set_pressed(&self, pressed: bool) {
        self.pressed.set(pressed);
    }

    /// For those who only read.
    pub(crate) const fn device(&self) -> &Rc<dyn BlockDevice> {
        &self.device
    }
}

fn by_length(extent: Extent) -> Class {
    if extent.len <= SMALL { Class::Small } else { Class::Stream }
}
