//! A device that fails on demand, and requests in short.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;

use manylogs::{CheckpointPolicy, EngineConfig, LogPlacement};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, Hint, IoError, MemoryDevice, Nanos,
    Payload, Request, Sectors,
};
use manylogs_sim::{Order, Sim};

pub(crate) const DEVICE: Sectors = Sectors(40_000);

pub(crate) fn config() -> EngineConfig {
    EngineConfig {
        threshold: Sectors(16),
        record: Sectors(64),
        log: Sectors(400),
        placement: LogPlacement::EveryGroup(Sectors(4000)),
        checkpoint: CheckpointPolicy::OnFull,
        snapshot: Nanos(0),
        ..EngineConfig::default()
    }
}

/// Runs `test` in virtual time.
pub(crate) fn in_virtual_time<F: Future<Output = ()> + 'static>(test: impl FnOnce(Handle) -> F) {
    let sim = Sim::new(1, Order::Fifo);
    let node = sim.node();
    let handle = sim.handle(node);
    sim.block_on(node, test(handle));
}

pub(crate) fn low_byte(n: u64) -> u8 {
    n.to_le_bytes()[0]
}

pub(crate) fn bytes(seed: u8, sectors: u64) -> Payload {
    let content = (0..sectors * 512).map(|i| seed.wrapping_add(low_byte(i % 251)));
    Payload::bytes(content.collect::<Vec<u8>>())
}

pub(crate) fn write(start: u64, payload: &Payload, fua: bool) -> Request {
    let extent = Extent { start: manylogs_block::Lba(start), len: payload.len() };
    Request::Write { extent, payload: payload.clone(), fua, hint: Hint::None }
}

pub(crate) fn read(start: u64, len: u64) -> Request {
    Request::Read { extent: Extent::new(start, len) }
}

/// A device whose writes to some sectors fail, and which notes what it is asked for.
pub(crate) struct Faulty {
    pub(crate) below: MemoryDevice,
    pub(crate) bad: RefCell<BTreeSet<u64>>,
    pub(crate) flush_fails: Cell<bool>,
    pub(crate) writes: RefCell<Vec<Extent>>,
}

impl Faulty {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            below: MemoryDevice::new(DEVICE),
            bad: RefCell::default(),
            flush_fails: Cell::new(false),
            writes: RefCell::default(),
        })
    }

    pub(crate) fn fail_in(&self, extent: Extent) {
        self.bad.borrow_mut().extend(extent.range());
    }
}

impl BlockDevice for Faulty {
    fn capabilities(&self) -> Capabilities {
        Capabilities { volatile_cache: true, ..self.below.capabilities() }
    }

    fn submit(&self, request: Request) -> Completion {
        match &request {
            Request::Write { extent, .. } => {
                self.writes.borrow_mut().push(*extent);
                if self.bad.borrow().range(extent.range()).next().is_some() {
                    return Completion::ready(Err(IoError::Medium { extent: *extent }));
                }
            }
            Request::Flush if self.flush_fails.get() => {
                return Completion::ready(Err(IoError::Gone));
            }
            _ => {}
        }
        self.below.submit(request)
    }
}

/// A device that is gone after so many writes.
pub(crate) struct Stopping(Rc<MemoryDevice>, Cell<u32>);

impl Stopping {
    pub(crate) fn new(below: Rc<MemoryDevice>, writes: u32) -> Rc<Self> {
        Rc::new(Self(below, writes.into()))
    }
}

impl BlockDevice for Stopping {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if matches!(request, Request::Write { .. }) {
            match self.1.get().checked_sub(1) {
                Some(left) => self.1.set(left),
                None => return Completion::ready(Err(IoError::Gone)),
            }
        }
        self.0.submit(request)
    }
}

/// How reads of a sector fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFault {
    /// The device says that the medium is bad, until the sector is written.
    Medium,
    /// So many reads fail in another way.
    Passing(u32),
}

/// A device whose reads of some sectors fail, and which may be gone after so many changes.
pub(crate) struct Unreliable {
    pub(crate) below: Rc<dyn BlockDevice>,
    faults: RefCell<BTreeMap<u64, ReadFault>>,
    /// Reads that failed.
    pub(crate) failed: Cell<u32>,
    /// What may still change.
    pub(crate) changes_left: Cell<u32>,
    pub(crate) writes: RefCell<Vec<Extent>>,
}

impl Unreliable {
    pub(crate) fn over(below: Rc<dyn BlockDevice>) -> Rc<Self> {
        Rc::new(Self {
            below,
            faults: RefCell::default(),
            failed: Cell::new(0),
            changes_left: Cell::new(u32::MAX),
            writes: RefCell::default(),
        })
    }

    pub(crate) fn new() -> Rc<Self> {
        Self::over(Rc::new(MemoryDevice::new(DEVICE)))
    }

    pub(crate) fn fail(&self, extent: Extent, fault: ReadFault) {
        self.faults.borrow_mut().extend(extent.range().map(|sector| (sector, fault)));
    }

    pub(crate) fn heal(&self) {
        self.faults.borrow_mut().clear();
    }

    fn read_fault(&self, extent: Extent) -> Option<IoError> {
        let mut faults = self.faults.borrow_mut();
        for (_, fault) in faults.range_mut(extent.range()) {
            match fault {
                ReadFault::Medium => return Some(IoError::Medium { extent }),
                ReadFault::Passing(0) => {}
                ReadFault::Passing(left) => {
                    *left -= 1;
                    return Some(IoError::Transient { extent });
                }
            }
        }
        None
    }
}

impl BlockDevice for Unreliable {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        match &request {
            Request::Read { extent } => {
                if let Some(error) = self.read_fault(*extent) {
                    self.failed.set(self.failed.get() + 1);
                    return Completion::ready(Err(error));
                }
            }
            Request::Flush => {}
            Request::Write { extent, .. }
            | Request::WriteZeroes { extent, .. }
            | Request::Discard { extent, .. } => {
                let Some(left) = self.changes_left.get().checked_sub(1) else {
                    return Completion::ready(Err(IoError::Gone));
                };
                self.changes_left.set(left);
                self.writes.borrow_mut().push(*extent);
                self.faults.borrow_mut().retain(|sector, _| !extent.range().contains(sector));
            }
        }
        self.below.submit(request)
    }
}
