//! A device in virtual time that takes requests one after the other.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Handle, Hint, IoError, Lba,
    MemoryDevice, Nanos, Payload, Request, Sectors, Time, completion,
};
use manylogs_schedule::{Scheduler, Targets};
use manylogs_sim::{Sim, TaskOrder};

pub(crate) const CAPACITY: Sectors = Sectors(1 << 20);
pub(crate) const LATENCY: Nanos = Nanos::from_millis(10);
/// Targets that hold requests back from the beginning.
pub(crate) const AT_ONCE: Targets = Targets { latency: LATENCY, contended_after: Nanos(0) };

pub(crate) fn read(start: u64, len: u64) -> Request {
    Request::Read { extent: Extent::new(start, len) }
}

pub(crate) fn write(start: u64, len: u64, tag: u64) -> Request {
    let (extent, payload) = (Extent::new(start, len), Payload::tags(tag, Sectors(len)));
    Request::Write { extent, payload, fua: true, hint: Hint::None }
}

/// A device with 100 MB/s and 2 ms a seek. It serves a request that follows the last one first, as
/// drives do. Requests take effect in the order of submission.
#[derive(Clone)]
pub(crate) struct Drive(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    runtime: Handle,
    pub(crate) memory: MemoryDevice,
    waiting: RefCell<VecDeque<(Extent, bool, Completion, Completer)>>,
    at: Cell<Lba>,
    busy: Cell<bool>,
    pub(crate) submitted: RefCell<Vec<(Time, Request)>>,
    sectors: Cell<u64>,
    pub(crate) most_sectors: Cell<u64>,
    pub(crate) fails_at: Cell<Option<Lba>>,
    writes: Cell<u32>,
    /// Number of reads that came while a write was in the device.
    pub(crate) beside_writes: Cell<u32>,
}

impl Drive {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self(Rc::new(Inner {
            runtime,
            memory: MemoryDevice::new(CAPACITY),
            waiting: RefCell::default(),
            at: Cell::default(),
            busy: Cell::default(),
            submitted: RefCell::default(),
            sectors: Cell::default(),
            most_sectors: Cell::default(),
            fails_at: Cell::default(),
            writes: Cell::default(),
            beside_writes: Cell::default(),
        }))
    }

    async fn serve(self) {
        loop {
            let next = {
                let mut waiting = self.0.waiting.borrow_mut();
                let follows = waiting.iter().position(|(e, ..)| e.start == self.0.at.get());
                waiting.remove(follows.unwrap_or(0))
            };
            let Some((extent, writes, done, completer)) = next else { break };
            let movement = if extent.start == self.0.at.get() { 0 } else { 2_000_000 };
            self.0.runtime.sleep(Nanos(movement + extent.len.0 * 5_120 + 10_000)).await;
            self.0.at.set(extent.end());
            self.0.sectors.set(self.0.sectors.get() - extent.len.0);
            self.0.writes.set(self.0.writes.get() - u32::from(writes));
            let bad = self.0.fails_at.get().is_some_and(|lba| extent.range().contains(&lba.0));
            let result = done.await;
            completer.complete(if bad { Err(IoError::Medium { extent }) } else { result });
        }
        self.0.busy.set(false);
    }
}

impl BlockDevice for Drive {
    fn capabilities(&self) -> Capabilities {
        self.0.memory.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let inner = &self.0;
        let extent = request.extent().unwrap_or_default();
        inner.submitted.borrow_mut().push((inner.runtime.now(), request.clone()));
        inner.sectors.set(inner.sectors.get() + extent.len.0);
        let writes = matches!(request, Request::Write { .. });
        inner.writes.set(inner.writes.get() + u32::from(writes));
        let beside = !writes && inner.writes.get() > 0;
        inner.beside_writes.set(inner.beside_writes.get() + u32::from(beside));
        inner.most_sectors.set(inner.most_sectors.get().max(inner.sectors.get()));
        let done = inner.memory.submit(request);
        let (completer, answer) = completion();
        inner.waiting.borrow_mut().push_back((extent, writes, done, completer));
        if !inner.busy.replace(true) {
            inner.runtime.spawn(self.clone().serve());
        }
        answer
    }
}

pub(crate) fn in_virtual_time<F: Future<Output = ()> + 'static>(
    targets: Targets,
    test: impl FnOnce(Handle, Drive, Scheduler) -> F,
) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let drive = Drive::new(runtime.clone());
    let scheduler = Scheduler::new(runtime.clone(), Rc::new(drive.clone()), targets);
    sim.block_on(node, test(runtime, drive, scheduler));
}

/// Whether `test` fails with this bug.
#[cfg(feature = "plant")]
pub(crate) fn is_noticed(bug: manylogs_plant::Bug, test: impl FnOnce() + std::panic::UnwindSafe) {
    manylogs_plant::plant(Some(bug));
    let noticed = std::panic::catch_unwind(test).is_err();
    manylogs_plant::plant(None);
    assert!(noticed, "{bug:?} was not noticed");
}
