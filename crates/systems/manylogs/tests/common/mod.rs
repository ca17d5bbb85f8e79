//! A device that fails on demand, and short forms of requests.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::future::Future;
use std::rc::Rc;

use manylogs::{CheckpointPolicy, LogPlacement, VolumeConfig};
use manylogs_block::{
    Capabilities, Extent, Handle, Hint, IoError, MemoryDevice, Nanos, Payload, Request,
    RequestKind, Sectors,
};
use manylogs_filters::{Faults, Reported, Rule, Stop, Trace};
use manylogs_sim::{Sim, TaskOrder};

pub(crate) const DEVICE: Sectors = Sectors(40_000);

pub(crate) fn config() -> VolumeConfig {
    VolumeConfig {
        threshold: Sectors(16),
        record: Sectors(64),
        log: Sectors(400),
        placement: LogPlacement::EveryGroup(Sectors(4000)),
        checkpoint: CheckpointPolicy::OnFull,
        snapshot: Nanos(0),
        ..VolumeConfig::default()
    }
}

/// Runs `test` in virtual time.
pub(crate) fn in_virtual_time<F: Future<Output = ()> + 'static>(test: impl FnOnce(Handle) -> F) {
    let sim = Sim::new(1, TaskOrder::Fifo);
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

/// A device in memory that records its requests, can be cut, and fails by rule.
pub(crate) type Rig = Trace<Stop<Faults<Reported<Rc<MemoryDevice>>>>>;

/// A rig with a volatile cache.
pub(crate) fn cached() -> Rc<Rig> {
    let volatile = |told| Capabilities { volatile_cache: true, ..told };
    rig(Reported::new(Rc::new(MemoryDevice::new(DEVICE)), volatile))
}

/// A rig over a medium without a cache.
pub(crate) fn over(medium: Rc<MemoryDevice>) -> Rc<Rig> {
    rig(Reported::new(medium, |told| told))
}

/// A rig without a cache.
pub(crate) fn uncached() -> Rc<Rig> {
    over(Rc::new(MemoryDevice::new(DEVICE)))
}

/// A rig that is gone after this many changes.
pub(crate) fn stopping(medium: Rc<MemoryDevice>, changes: u32) -> Rc<Rig> {
    let rig = over(medium);
    rig.stop_after(changes.into());
    rig
}

/// The beginning of a larger device.
pub(crate) fn part_of(disk: Rc<MemoryDevice>, capacity: Sectors) -> Rc<Reported<Rc<MemoryDevice>>> {
    Rc::new(Reported::new(disk, |told| Capabilities { capacity, ..told }))
}

fn rig(reported: Reported<Rc<MemoryDevice>>) -> Rc<Rig> {
    Rc::new(Trace::new(Stop::new(Faults::new(reported))))
}

/// How reads of a sector fail, until it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFault {
    /// The device says that the medium is bad.
    Medium,
    /// This many reads fail with a transient error.
    Passing(u32),
}

/// Orders to a [`Rig`], and questions about it.
pub(crate) trait RigOrders {
    /// The medium below the filters.
    fn medium(&self) -> &MemoryDevice;
    fn faults(&self) -> &Faults<Reported<Rc<MemoryDevice>>>;
    /// Lets this many more changes pass; [`u64::MAX`] lets all pass.
    fn stop_after(&self, changes: u64);

    /// Makes writes to `extent` fail.
    fn fail_writes(&self, extent: Extent) {
        let error = |extent| IoError::Medium { extent };
        self.faults().add(Rule::new(&[RequestKind::Write], error).within(extent));
    }

    /// Makes flushes fail as if the device were gone.
    fn fail_flushes(&self) {
        self.faults().add(Rule::new(&[RequestKind::Flush], |_| IoError::Gone));
    }

    /// Makes reads of `extent` fail.
    fn fail_reads(&self, extent: Extent, fault: ReadFault) {
        let reads = &[RequestKind::Read];
        let rule = match fault {
            ReadFault::Medium => Rule::new(reads, |extent| IoError::Medium { extent }),
            ReadFault::Passing(times) => {
                Rule::new(reads, |extent| IoError::Transient { extent }).times(times)
            }
        };
        self.faults().add(rule.within(extent).until_changed());
    }
}

impl RigOrders for Rig {
    fn medium(&self) -> &MemoryDevice {
        self.faults().below().below()
    }

    fn faults(&self) -> &Faults<Reported<Rc<MemoryDevice>>> {
        self.below().below()
    }

    fn stop_after(&self, changes: u64) {
        self.below().cut_after(changes);
    }
}
