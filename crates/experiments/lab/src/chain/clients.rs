//! The clients of a case: closed loops of random writes, random reads, streams and flushes.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, SECTOR_BYTES,
    Sectors, Time,
};

use super::case::{ChainCase, Durability, Pattern};
use crate::stats::Latencies;

/// Size of a random request.
pub(super) const BLOCK: Sectors = Sectors(8);
/// Size of a request of a stream.
const STREAM: Sectors = Sectors(2048);
/// Requests of a stream in flight.
const STREAM_DEPTH: u64 = 4;
const FLUSH_EVERY: Nanos = Nanos::from_secs(1);

/// What the clients share.
pub(super) struct Load {
    device: Rc<dyn BlockDevice>,
    runtime: Handle,
    rng: RefCell<Rng>,
    pattern: Pattern,
    fua: bool,
    /// Blocks that are written, and blocks that are read.
    written: Range<u64>,
    read: Range<u64>,
    tag: Cell<u64>,
    /// Blocks that were written, while somebody reads of them.
    recent: Option<RefCell<Vec<Extent>>>,
    /// When the measurement begins.
    pub(super) from: Cell<Time>,
    /// Clients end when this is set.
    pub(super) over: Cell<bool>,
    pub(super) running: Cell<usize>,
    /// Bytes that were answered since the measurement began.
    pub(super) bytes: Cell<u64>,
    pub(super) read_bytes: Cell<u64>,
    pub(super) latencies: RefCell<Latencies>,
    pub(super) failed: RefCell<Option<IoError>>,
}

impl Load {
    pub(super) fn new(
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        case: &ChainCase,
        (written, read): (Range<u64>, Range<u64>),
    ) -> Rc<Self> {
        Rc::new(Self {
            device,
            runtime,
            rng: RefCell::new(Rng::new(case.seed ^ 0x10ad)),
            pattern: case.pattern,
            fua: case.durability == Durability::Each,
            written,
            read,
            tag: Cell::new(1 << 48),
            recent: (case.tail_reads_s > 0).then(RefCell::default),
            from: Cell::new(Time(u64::MAX)),
            over: Cell::new(false),
            running: Cell::new(0),
            bytes: Cell::new(0),
            read_bytes: Cell::new(0),
            latencies: RefCell::default(),
            failed: RefCell::default(),
        })
    }

    /// Starts the clients of `case`.
    pub(super) fn start(self: &Rc<Self>, case: &ChainCase) {
        for _ in 0..case.in_flight {
            self.spawn(|load| async move { load.write().await });
        }
        let readers = if self.read.is_empty() { 0 } else { case.readers };
        for _ in 0..readers {
            self.spawn(|load| async move { load.read().await });
        }
        if case.tail_reads_s > 0 {
            let every = Nanos(Nanos::from_secs(1).0 / u64::from(case.tail_reads_s));
            self.spawn(|load| async move { load.read_tail(every).await });
        }
        let share = (self.written.end - self.written.start) / u64::from(case.streams.max(1));
        for stream in 0..u64::from(case.streams) {
            let begin = (self.written.start + stream * share) * BLOCK.0;
            let place = Rc::new(Cell::new(0));
            for _ in 0..STREAM_DEPTH {
                let place = Rc::clone(&place);
                self.spawn(|load| async move { load.stream(begin, share * BLOCK.0, &place).await });
            }
        }
        if case.durability == Durability::FlushEachSecond {
            self.spawn(|load| async move { load.flush().await });
        }
    }

    fn spawn<F: Future<Output = Result<(), IoError>> + 'static>(
        self: &Rc<Self>,
        client: impl FnOnce(Rc<Self>) -> F,
    ) {
        let (load, client) = (Rc::clone(self), client(Rc::clone(self)));
        self.running.set(self.running.get() + 1);
        self.runtime.spawn(async move {
            if let Err(error) = client.await {
                load.failed.borrow_mut().get_or_insert(error);
            }
            load.running.set(load.running.get() - 1);
        });
    }

    fn block(&self) -> Extent {
        let mut rng = self.rng.borrow_mut();
        let all = self.written.end - self.written.start;
        let tenth = (all / 10).max(1);
        let block = match self.pattern {
            Pattern::Hot if !rng.one_in(10) => rng.below(tenth),
            Pattern::Hot => tenth + rng.below(all - tenth),
            Pattern::Uniform => rng.below(all),
        };
        Extent::new((self.written.start + block) * BLOCK.0, BLOCK.0)
    }

    async fn write(&self) -> Result<(), IoError> {
        while !self.over.get() {
            let extent = self.block();
            let began = self.runtime.now();
            self.write_one(extent).await?;
            self.answered(began, &self.bytes, extent.len);
            if let Some(recent) = self.recent.as_ref().filter(|_| began >= self.from.get()) {
                recent.borrow_mut().push(extent);
            }
            if began >= self.from.get() {
                self.latencies.borrow_mut().record(self.runtime.now().since(began));
            }
            if !self.fua && began == self.runtime.now() {
                // Clients take turns, where time does not pass.
                manylogs_block::yield_now().await;
            }
        }
        Ok(())
    }

    /// Writes `len` sectors from `begin` on, again and again, with others who share `place`.
    async fn stream(&self, begin: u64, len: u64, place: &Cell<u64>) -> Result<(), IoError> {
        while !self.over.get() {
            let at = if place.get() + STREAM.0 > len { 0 } else { place.get() };
            place.set(at + STREAM.0);
            let began = self.runtime.now();
            self.write_one(Extent::new(begin + at, STREAM.0)).await?;
            self.answered(began, &self.bytes, STREAM);
        }
        Ok(())
    }

    async fn write_one(&self, extent: Extent) -> Result<(), IoError> {
        let payload = Payload::tags(self.tag.get(), extent.len);
        self.tag.set(self.tag.get() + extent.len.0);
        let (fua, hint) = (self.fua, Hint::None);
        self.device.submit(Request::Write { extent, payload, fua, hint }).await.map(drop)
    }

    async fn read(&self) -> Result<(), IoError> {
        while !self.over.get() {
            let block = self.rng.borrow_mut().below(self.read.end - self.read.start);
            let extent = Extent::new((self.read.start + block) * BLOCK.0, BLOCK.0);
            let began = self.runtime.now();
            self.device.submit(Request::Read { extent }).await?;
            self.answered(began, &self.read_bytes, extent.len);
        }
        Ok(())
    }

    /// Reads what was written since the measurement began, a block each time.
    async fn read_tail(self: Rc<Self>, every: Nanos) -> Result<(), IoError> {
        while !self.over.get() {
            self.runtime.sleep(every).await;
            let Some(extent) = self.recent() else { continue };
            self.spawn(|load| async move {
                let began = load.runtime.now();
                load.device.submit(Request::Read { extent }).await?;
                load.answered(began, &load.read_bytes, extent.len);
                Ok(())
            });
        }
        Ok(())
    }

    fn recent(&self) -> Option<Extent> {
        let recent = self.recent.as_ref()?.borrow();
        let chosen = self.rng.borrow_mut().below((recent.len() as u64).max(1));
        recent.get(manylogs_block::to_usize(chosen)).copied()
    }

    async fn flush(&self) -> Result<(), IoError> {
        while !self.over.get() {
            self.runtime.sleep(FLUSH_EVERY).await;
            self.device.submit(Request::Flush).await?;
        }
        Ok(())
    }

    fn answered(&self, began: Time, bytes: &Cell<u64>, len: Sectors) {
        if began >= self.from.get() {
            bytes.set(bytes.get() + len.0 * SECTOR_BYTES);
        }
    }
}
