//! A chain as its clients see it: a block device.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, IoError, Payload, Request, Sectors, completion,
};
use manylogs_engine::wait_durable;
use manylogs_plant::{self as plant, Bug};

use crate::cache::{Flash, FlashFigures};
use crate::policy::Cleaning;
use crate::state::Inner;

/// A chain that is open. Clones are the same chain. Its tasks run until [`Chain::close`], even if
/// all clones are dropped.
#[derive(Clone)]
pub struct Chain(pub(crate) Rc<Inner>);

/// What a chain did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainFigures {
    /// Content that clients wrote.
    pub written: Sectors,
    /// Content that cleaning appended again.
    pub renewed: Sectors,
    /// Length of all records: content, headers and padding.
    pub appended: Sectors,
    /// Segments that were emptied.
    pub emptied: u64,
    /// How often the tail went to another drive.
    pub hops: u64,
    /// How often clients had to wait for room, for cleaning, or for memory.
    pub waited: u64,
    /// What the opening wrote because halves of pairs might differ after a crash.
    pub settled: Sectors,
    /// Memory of the tail cache: content, and what finds it. Content that waits for the SSD, and
    /// the list of what the SSD holds, are not counted.
    pub cache_bytes: u64,
    /// Reads of the tail's drive by clients that the tail cache answered. Counted are parts: what
    /// one write left.
    pub tail_hits: u64,
    /// Reads of the tail's drive by clients that the drive answered.
    pub tail_misses: u64,
    /// Reads of other drives by clients that the tail cache answered.
    pub body_hits: u64,
    /// Memory of the map, of the checksums, and of what segments hold.
    pub table_bytes: u64,
    /// The map alone.
    pub map_bytes: u64,
    /// Segments of which a summary on another link told the opening what they hold.
    pub summarized: u64,
    /// Segments that the opening read, the blank ones left out.
    pub scanned: u64,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.engine.state.borrow();
        f.debug_struct("Chain")
            .field("tail", &state.tail)
            .field("waiting", &state.waiting.len())
            .field("pending", &state.store.entries().pending.len())
            .field("in_flight", &state.store.entries().records.len())
            .field("force", &state.store.entries().force)
            .field("room", &state.store.logs().room())
            .field("reserved", &state.store.reserved())
            .field("pace", &state.pace)
            .field("read_only", &state.store.read_only())
            .finish_non_exhaustive()
    }
}

impl Chain {
    /// Longest write that a crash keeps or loses as a whole. A longer write is split into several,
    /// in order.
    #[must_use]
    pub fn longest_atomic_write(&self) -> Sectors {
        self.0.geometry.piece()
    }

    /// What the chain did since it was opened.
    #[must_use]
    pub fn figures(&self) -> ChainFigures {
        let state = self.0.engine.state.borrow();
        let (ours, of_store) = (state.counters, state.store.counters());
        let cache = state.cache.counts;
        ChainFigures {
            written: ours.written,
            renewed: ours.renewed,
            appended: Sectors(of_store.record_sectors),
            emptied: of_store.log_resets,
            hops: ours.hops,
            waited: ours.waited,
            settled: self.0.settled.get(),
            cache_bytes: state.cache.bytes(),
            tail_hits: cache.tail_hits,
            tail_misses: cache.tail_misses,
            body_hits: cache.body_hits,
            table_bytes: state.store.table_bytes(),
            map_bytes: state.store.map().bytes() as u64,
            summarized: self.0.opened_by.summaries,
            scanned: self.0.opened_by.scanned,
        }
    }

    /// Content that clients wrote since the chain was opened.
    #[must_use]
    pub fn written(&self) -> Sectors {
        self.0.engine.state.borrow().counters.written
    }

    /// Id of the chain: its drives are found by it.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.0.engine.state.borrow().store.volume()
    }

    /// Why the chain takes no writes any more, if so.
    #[must_use]
    pub fn read_only(&self) -> Option<&'static str> {
        self.0.engine.state.borrow().store.read_only()
    }

    /// The way of cleaning that the chain was opened with.
    #[must_use]
    pub fn cleaning(&self) -> Cleaning {
        self.0.settings.cleaning
    }

    /// What the SSD of the tail cache did since the chain was opened, and holds; `None` without
    /// one.
    #[must_use]
    pub fn flash(&self) -> Option<FlashFigures> {
        self.0.engine.state.borrow().cache.flash.as_ref().map(Flash::figures)
    }

    /// The most memory that the tail cache may take: see [`crate::ChainSettings::cache`].
    #[must_use]
    pub fn cache_memory(&self) -> Sectors {
        self.0.settings.cache
    }

    /// The drive at the tail, by its number in the chain.
    #[must_use]
    pub fn tail_drive(&self) -> usize {
        self.0.engine.state.borrow().tail_drive().0.into()
    }

    /// Flushes, then ends the chain's tasks. Mirrored links are noted to have the same content on
    /// both halves, so that the next opening need not settle anything.
    ///
    /// # Errors
    /// If a drive fails.
    pub async fn close(&self) -> Result<(), IoError> {
        // What the close notes is noted on both halves.
        self.0.wake_all().await;
        let done = self.submit(Request::Flush).await;
        if done.is_ok() {
            self.0.summarize_all().await;
        }
        self.0.engine.close();
        self.0.tables_at_rest().await;
        self.0.cache_wanted.notify();
        self.0.keeper.left().notify();
        done?;
        self.0.at_rest().await;
        if self.0.is_mirrored() {
            self.0.note_clean().await?;
            self.0.note_awake().await?;
        }
        Ok(())
    }
}

impl BlockDevice for Chain {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            capacity: self.0.export,
            physical_sector: self.0.geometry.shape.physical,
            untorn: self.0.geometry.shape.physical,
            rotational: false,
            volatile_cache: true,
            native_fua: true,
            discard: true,
            fast_zero: true,
        }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Read { extent } => self.0.read(extent),
            Request::Write { extent, payload, fua, .. } => {
                self.0.change(extent, Some(payload), fua)
            }
            Request::Discard { extent, fua } | Request::WriteZeroes { extent, fua, .. } => {
                self.0.zero(extent, fua)
            }
            Request::Flush => self.0.flush(),
        }
    }
}

impl Inner {
    fn zero(self: &Rc<Self>, extent: Extent, fua: bool) -> Completion {
        if plant::is(Bug::TrimForgotten) {
            return Completion::ready(Ok(Payload::default()));
        }
        self.change(extent, None, fua)
    }

    /// Makes durable all changes that were answered before.
    fn flush(self: &Rc<Self>) -> Completion {
        let (completer, answer) = completion();
        self.engine.state.borrow_mut().flushes.push(completer);
        self.flush_asked.notify();
        answer
    }

    /// Answers flushes; those that arrive while one is under way share the next.
    pub(crate) async fn run_flusher(self: Rc<Self>) {
        loop {
            let asked = self.flush_asked.wait();
            let waiting = std::mem::take(&mut self.engine.state.borrow_mut().flushes);
            if waiting.is_empty() {
                if self.engine.is_closed() {
                    return;
                }
                asked.await;
                continue;
            }
            let last = self.engine.state.borrow_mut().store.force_all();
            self.engine.commit.notify();
            let result = match last {
                Some(last) => wait_durable(&*self, last).await,
                None => Ok(()),
            };
            for completer in waiting {
                completer.complete(result.clone().map(|()| Payload::default()));
            }
        }
    }
}
