//! The state of a chain in memory while it is open.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{Completer, IoError, Sectors, TaskLock};
use manylogs_engine::Engine;
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Batch, Device, Room, Store, Stream};

use crate::admit::Asked;
use crate::cache::TailCache;
use crate::differ::Looked;
use crate::heaps::Heaps;
use crate::join::Copied;
use crate::keeper::Keeper;
use crate::limit::Geometry;
use crate::link::Places;
use crate::links::LinkError;
use crate::ondisk::Superblock;
use crate::pace::Pace;
use crate::policy::ChainSettings;
use crate::sleep::{Beds, Rota};
use crate::summaries::Tables;

/// The stream of all changes by clients. They stay in order over a crash: a crash loses only a
/// suffix of them.
pub(crate) const ORDER: Stream = Stream(0);

/// The store, and the state that changes together with it.
pub(crate) struct State {
    pub(crate) store: Store,
    /// The segment that is appended to.
    pub(crate) tail: LogId,
    /// The link that leaves: no segment of it is taken any more.
    pub(crate) leaving: Option<Device>,
    /// A segment of that link that cannot be read, and why. The link is emptied no further.
    pub(crate) unreadable: Option<(LogId, IoError)>,
    /// Changes that wait for room, in the order in which they came.
    pub(crate) waiting: VecDeque<Asked>,
    /// Flushes that the flusher task has not taken yet.
    pub(crate) flushes: Vec<Completer>,
    /// Content of the entries that wait for a record.
    pub(crate) queued: Sectors,
    /// Content of the last record that was appended.
    pub(crate) last_record: Sectors,
    pub(crate) pace: Pace,
    pub(crate) heaps: Heaps,
    pub(crate) cache: TailCache,
    pub(crate) counters: Counters,
    /// Segments that take no more records, and have no summary on another link yet.
    pub(crate) closing: VecDeque<LogId>,
}

/// How an opening learned what segments hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenedBy {
    /// Segments of which a summary said it.
    pub(crate) summaries: u64,
    /// Segments that were read and are not blank.
    pub(crate) scanned: u64,
}

/// Counters of an opening.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Content of clients' writes.
    pub(crate) written: Sectors,
    /// Content that cleaning appended again.
    pub(crate) renewed: Sectors,
    /// How often the tail went to another drive.
    pub(crate) hops: u64,
    /// Changes that had to wait for room.
    pub(crate) waited: u64,
}

/// A chain that is open.
pub(crate) struct Inner {
    pub(crate) engine: Engine<Self>,
    pub(crate) geometry: Geometry,
    pub(crate) settings: ChainSettings,
    pub(crate) export: Sectors,
    /// The label of a drive of the first link.
    pub(crate) label: Superblock,
    /// Knows which drives are current.
    pub(crate) keeper: Rc<Keeper>,
    /// The links, by their places.
    pub(crate) places: Places,
    /// Which summaries of segments count; `None` if the chain keeps none.
    pub(crate) tables: Option<Tables>,
    /// What the opening took from summaries, and what it read.
    pub(crate) opened_by: OpenedBy,
    /// Whether a link is being added or removed.
    pub(crate) is_changing: Cell<bool>,
    /// Why the last removal of a link ended before the link had left, if it did.
    pub(crate) stopped: RefCell<Option<LinkError>>,
    /// Commands the power of drives that come later.
    pub(crate) beds: Beds,
    /// When halves sleep.
    pub(crate) rota: Rota,
    /// Whether it is being noted that halves may sleep.
    pub(crate) is_noting_sleepers: Cell<bool>,
    /// Tasks that clean.
    pub(crate) cleaners: Cell<usize>,
    /// What was copied to a drive that joins, while it is copied to.
    pub(crate) copying: Cell<Option<Copied>>,
    /// Held while a root is written that names other segments.
    pub(crate) naming: TaskLock,
    /// What was last looked at for segments to name.
    pub(crate) looked: Cell<Option<Looked>>,
    /// What the opening wrote to make the halves of pairs the same.
    pub(crate) settled: Cell<Sectors>,
    /// Room that only cleaning may use.
    pub(crate) spared: Room,
    /// Most content of the next record.
    pub(crate) longest: Cell<Sectors>,
    /// When the committer will be woken for a write that nobody waits for.
    pub(crate) alarm: Cell<Option<manylogs_block::Time>>,
    /// A stripe of the tail cache's SSD can be written.
    pub(crate) cache_wanted: manylogs_block::Signal,
    /// A flush was asked for.
    pub(crate) flush_asked: manylogs_block::Signal,
}

impl Inner {
    /// Whether each link is two drives.
    pub(crate) const fn is_mirrored(&self) -> bool {
        self.label.halves > 1
    }
}

impl State {
    pub(crate) fn new(store: Store, tail: LogId, settings: ChainSettings) -> Self {
        Self {
            store,
            tail,
            leaving: None,
            unreadable: None,
            waiting: VecDeque::new(),
            flushes: Vec::new(),
            queued: Sectors(0),
            last_record: Sectors(0),
            pace: Pace::default(),
            heaps: Heaps::default(),
            cache: TailCache::new(settings.cache),
            counters: Counters::default(),
            closing: VecDeque::new(),
        }
    }

    /// Queues a batch: see [`Store::put`]. What it displaces leaves the tail cache first.
    pub(crate) fn put(&mut self, batch: Batch, room: Room, client: Option<Completer>) {
        for entry in &batch.entries {
            self.cache.displace(self.store.map(), entry.extent);
        }
        self.store.put(batch, room, client);
    }

    /// The drive at the tail.
    pub(crate) fn tail_drive(&self) -> Device {
        self.store.logs().device(self.tail)
    }
}
