//! The clients that make small writes durable.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Lba, Nanos, Payload, Request, Rng, Sectors, Time,
};

use super::case::{SyncLoad, SyncMode};
use crate::stats::Latencies;

/// Size of a small write.
const WRITE: Sectors = Sectors(8);
/// Size of the descriptor and metadata blocks of one journal transaction.
const JOURNAL_WRITE: Sectors = Sectors(32);
const COMMIT_BLOCK: Sectors = Sectors(8);
/// Length of the journal, which lies in the middle of the device, where mke2fs puts it.
const JOURNAL: Sectors = Sectors(128 << 11);

/// Latencies of the syncs of a run.
#[derive(Debug)]
pub(super) struct Synced {
    /// Syncs that begin before this time do not count.
    pub(super) from: Time,
    /// The clients end at this time.
    pub(super) until: Time,
    pub(super) latencies: RefCell<Latencies>,
    /// Number of counted syncs that ended before the end of the measurement.
    pub(super) in_time: Cell<u64>,
    pub(super) running: Cell<usize>,
    pub(super) failed: RefCell<Option<IoError>>,
}

/// State that the clients share.
struct Syncer {
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    mode: SyncMode,
    writes: u32,
    /// See [`SyncLoad::column`].
    column: Option<u16>,
    /// Next address in the journal.
    journal_at: Cell<u64>,
    rng: RefCell<Rng>,
}

/// Starts the clients of `load` on `device`.
pub(super) fn start(
    runtime: &Handle,
    device: &Rc<dyn BlockDevice>,
    load: &SyncLoad,
    seed: u64,
    synced: &Rc<Synced>,
) {
    if !load.rate.is_any() {
        return;
    }
    let syncer = Rc::new(Syncer {
        runtime: runtime.clone(),
        device: Rc::clone(device),
        mode: load.mode,
        writes: load.writes,
        column: load.column,
        journal_at: Cell::new(0),
        rng: RefCell::new(Rng::new(seed)),
    });
    let interval = load.rate.interval(load.clients);
    for _ in 0..load.clients {
        synced.running.set(synced.running.get() + 1);
        let (syncer, synced) = (Rc::clone(&syncer), Rc::clone(synced));
        let anywhere = load.clients > 1;
        runtime.spawn(async move { syncer.run(interval, anywhere, &synced).await });
    }
}

impl Syncer {
    /// Syncs once in each interval: at its beginning, or at a random moment in it if `anywhere`. A
    /// late sync begins at once.
    async fn run(&self, interval: Nanos, anywhere: bool, synced: &Synced) {
        let mut slot = self.runtime.now();
        loop {
            let offset = if anywhere { self.rng.borrow_mut().below(interval.0.max(1)) } else { 0 };
            self.runtime.sleep_until(slot + Nanos(offset)).await;
            let begin = self.runtime.now();
            if begin >= synced.until {
                break;
            }
            if let Err(error) = self.sync().await {
                synced.failed.borrow_mut().get_or_insert(error);
                break;
            }
            let end = self.runtime.now();
            if begin >= synced.from {
                synced.latencies.borrow_mut().record(end.since(begin));
                let in_time = u64::from(end < synced.until);
                synced.in_time.set(synced.in_time.get() + in_time);
            }
            let next = slot + interval;
            slot = if next + interval < end || !anywhere { next.max(end) } else { next };
        }
        synced.running.set(synced.running.get() - 1);
    }

    async fn sync(&self) -> Result<(), IoError> {
        let fua = self.mode == SyncMode::Fua;
        let mut answers = Vec::new();
        for _ in 0..self.writes {
            let at = self.somewhere();
            answers.push(match self.mode {
                SyncMode::Read => {
                    self.device.submit(Request::Read { extent: Extent::new(at, WRITE.0) })
                }
                _ => self.write(at, WRITE, fua),
            });
        }
        for answer in answers {
            answer.await?;
        }
        match self.mode {
            SyncMode::Fua | SyncMode::Read => {}
            SyncMode::Flush => drop(self.device.submit(Request::Flush).await?),
            SyncMode::Journal => {
                self.append_to_journal(JOURNAL_WRITE).await?;
                self.device.submit(Request::Flush).await?;
                self.append_to_journal(COMMIT_BLOCK).await?;
                self.device.submit(Request::Flush).await?;
            }
        }
        Ok(())
    }

    /// A random address; of one column, if that is asked for.
    fn somewhere(&self) -> u64 {
        let capacity = self.device.capabilities().capacity;
        let on_column = self.column.zip(self.device.geometry());
        let on_column = on_column.filter(|(column, array)| *column < array.columns);
        let Some((column, array)) = on_column else {
            return self.rng.borrow_mut().below(capacity.0 / WRITE.0) * WRITE.0;
        };
        // Neither the first stripe nor the last, of which the device may have a part only.
        let stripes = (capacity.0 / array.stripe().0).saturating_sub(2).max(1);
        let mut rng = self.rng.borrow_mut();
        let within = rng.below(array.chunk.0 / WRITE.0) * WRITE.0;
        let place = Lba((1 + rng.below(stripes)) * array.chunk.0 + within);
        array.address(column, place).map_or(0, |at| at.0)
    }

    async fn append_to_journal(&self, len: Sectors) -> Result<(), IoError> {
        let capacity = self.device.capabilities().capacity;
        let journal = JOURNAL.0.min(capacity.0 / 4);
        let at = self.journal_at.get();
        let at = if at + len.0 > journal { 0 } else { at };
        self.journal_at.set(at + len.0);
        let start = capacity.0 / 2 / WRITE.0 * WRITE.0;
        self.write(start + at, len, false).await.map(drop)
    }

    fn write(&self, at: u64, len: Sectors, fua: bool) -> manylogs_block::Completion {
        let extent = Extent::new(at, len.0);
        let payload = Payload::tags(at, len);
        self.device.submit(Request::Write { extent, payload, fua, hint: Hint::None })
    }
}
