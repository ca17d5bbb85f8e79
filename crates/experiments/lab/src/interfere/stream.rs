//! Streams, each of which keeps a number of requests in flight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, Sectors, Time,
};

use super::case::{StreamKind, StreamLoad};
use crate::stats::Latencies;

/// Counters that the streams of a run share, and the times at which counting begins and ends.
#[derive(Debug)]
pub(super) struct Moved {
    /// Requests answered before this time do not count.
    pub(super) from: Time,
    /// The streams end at this time.
    pub(super) until: Time,
    /// Bytes moved by each stream.
    pub(super) bytes: Vec<Cell<u64>>,
    /// Latencies from the moment at which each request was due. A request that waits until fewer
    /// are in flight is sent later than it was due.
    pub(super) latencies: RefCell<Latencies>,
    pub(super) running: Cell<usize>,
    pub(super) failed: RefCell<Option<IoError>>,
}

/// Position of one stream.
struct Cursor {
    index: usize,
    kind: StreamKind,
    size: Sectors,
    start: u64,
    room: Sectors,
    next: Cell<u64>,
    rng: RefCell<Rng>,
    pace: Option<Pace>,
}

/// Decides when requests are due in bursts.
struct Pace {
    interval: Nanos,
    /// Requests of one burst.
    requests: u64,
    /// When the first burst begins.
    began: Time,
    asked: Cell<u64>,
}

impl Pace {
    fn of(load: &StreamLoad, index: u32, now: Time) -> Option<Self> {
        let bursts = load.bursts?;
        let requests = bursts.burst.0.div_ceil(load.size.0).max(1);
        let bytes = requests * load.size.bytes();
        let interval = Nanos::from_secs_f64(bytes as f64 / bursts.bytes_per_second.max(1) as f64);
        // The bursts of several streams begin one after the other.
        let began = now + Nanos(interval.0 / u64::from(load.streams) * u64::from(index));
        Some(Self { interval, requests, began, asked: Cell::new(0) })
    }

    /// When the next request is due.
    fn next(&self) -> Time {
        let index = self.asked.replace(self.asked.get() + 1);
        self.began + Nanos(self.interval.0.saturating_mul(index / self.requests))
    }
}

impl Cursor {
    fn request(&self) -> Request {
        let extent = Extent { start: manylogs_block::Lba(self.address()), len: self.size };
        match self.kind {
            StreamKind::Read | StreamKind::Random | StreamKind::None => Request::Read { extent },
            StreamKind::Write => {
                let payload = Payload::tags(extent.start.0, extent.len);
                Request::Write { extent, payload, fua: false, hint: Hint::None }
            }
        }
    }

    fn address(&self) -> u64 {
        if self.kind == StreamKind::Random {
            let slots = (self.room.0 / self.size.0).max(1);
            return self.start + self.rng.borrow_mut().below(slots) * self.size.0;
        }
        let at = self.next.get();
        let at = if at + self.size.0 > self.room.0 { 0 } else { at };
        self.next.set(at + self.size.0);
        self.start + at
    }
}

/// Starts the streams of `load` on `device`.
///
/// # Errors
/// If the streams do not fit the device.
pub(super) fn start(
    runtime: &Handle,
    device: &Rc<dyn BlockDevice>,
    load: &StreamLoad,
    seed: u64,
    moved: &Rc<Moved>,
) -> Result<(), super::case::UnfitStream> {
    let capacity = device.capabilities().capacity;
    for index in 0..load.streams {
        let (start, room) = load.region(index, capacity)?;
        let rng = RefCell::new(Rng::new(seed ^ (u64::from(index) + 1) << 32));
        let (kind, size) = (load.kind, load.size);
        let pace = Pace::of(load, index, runtime.now());
        let index = manylogs_block::to_usize(u64::from(index));
        let cursor =
            Rc::new(Cursor { index, kind, size, start, room, next: Cell::new(0), rng, pace });
        for _ in 0..load.depth {
            moved.running.set(moved.running.get() + 1);
            runtime.spawn(keep_one_in_flight(
                runtime.clone(),
                Rc::clone(device),
                Rc::clone(&cursor),
                Rc::clone(moved),
            ));
        }
    }
    Ok(())
}

async fn keep_one_in_flight(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    cursor: Rc<Cursor>,
    moved: Rc<Moved>,
) {
    loop {
        let due = cursor.pace.as_ref().map_or_else(|| runtime.now(), Pace::next);
        if due.max(runtime.now()) >= moved.until {
            break;
        }
        if due > runtime.now() {
            runtime.sleep_until(due).await;
        }
        let result = device.submit(cursor.request()).await;
        let now = runtime.now();
        if let Err(error) = result {
            moved.failed.borrow_mut().get_or_insert(error);
            break;
        }
        if (moved.from..moved.until).contains(&now) {
            let bytes = &moved.bytes[cursor.index];
            bytes.set(bytes.get() + cursor.size.bytes());
            moved.latencies.borrow_mut().record(now.since(due));
        }
    }
    moved.running.set(moved.running.get() - 1);
}
