//! State that all parts of a volume share: the store and the state of the policies over it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use manylogs_block::{
    Capabilities, Completer, Extent, Geometry, IoError, Lba, Sectors, Signal, TaskLock, Time,
};
use manylogs_engine::{Engine, Member, Shared};
use manylogs_logstore::store::{Room, Store};
use manylogs_logstore::{EntryKind, RecordShape, VolumeId};

use crate::cleaning::checkpoint::futility::Futility;
use crate::cleaning::checkpoint::ration::{PACE, Ration};
use crate::cleaning::checkpoint::suspect::Suspects;
use crate::cleaning::checkpoint::{HomeForm, Owners};
use crate::cleaning::swap::FullLogs;
use crate::ondisk::layout::Layout;
use crate::records::columns::ColumnsSeen;
use crate::records::hold::Pacing;
use crate::records::own::OwnPolicy;
use crate::reports::counters::Counters;
use crate::reports::home_pace::{HomePace, PassesSeen};
use crate::requests::adaptive::Allowance;
use crate::requests::ahead::{Ahead, AheadMemory};
use crate::requests::home_lock::HomeLocks;
use crate::requests::home_writes::HomeWrites;
use crate::requests::runs::Runs;
use crate::requests::starved::Starved;
use crate::settings::config::VolumeConfig;

/// State that all parts of a volume share.
pub(crate) struct Inner {
    pub(crate) engine: Engine<Self>,
    /// The only member: homes and logs are on it.
    pub(crate) device: Member,
    /// The array that the volume was made for, if the device is that array now.
    pub(crate) array: Option<Geometry>,
    pub(crate) below: Capabilities,
    /// Parameters of the lengths of records.
    pub(crate) shape: RecordShape,
    pub(crate) volume: VolumeId,
    pub(crate) label: String,
    pub(crate) layout: Layout,
    pub(crate) config: Cell<VolumeConfig>,
    pub(crate) locks: HomeLocks,
    /// Whether a move of a log does not wait for idle time.
    pub(crate) hurries: Cell<bool>,
    /// Held by a checkpoint, swap or snapshot: one at a time.
    pub(crate) cleaning: TaskLock,
    /// Held by a flush of the whole volume: one at a time.
    pub(crate) flush_lock: TaskLock,
    /// A client has asked for a flush.
    pub(crate) flush_asked: Signal,
    /// The caller's policy that decides in place of the settings, if there is one.
    pub(crate) own: OnceCell<Rc<dyn OwnPolicy>>,
    /// The form that the homes of leading versions have while content is kept.
    pub(crate) home_form: OnceCell<Rc<dyn HomeForm>>,
    /// Who has what is kept, if the volume's user tells.
    pub(crate) owners: OnceCell<Rc<dyn Owners>>,
    /// Who lends memory for kept content that is read ahead; without it, nothing is.
    pub(crate) ahead_memory: OnceCell<Rc<dyn AheadMemory>>,
    /// If set, records go to the logs near this address, not near the head.
    pub(crate) logs_near: Cell<Option<Lba>>,
    /// See [`crate::OpenOptions::pace`].
    pub(crate) pace: Cell<Option<HomePace>>,
    /// Longest payload that the owner's records need: `record=` must not be shorter.
    pub(crate) record_least: Cell<Sectors>,
    /// Held by a change of the superblock: one at a time.
    pub(crate) superblock_lock: TaskLock,
    /// Each client request in flight holds a clone: a volume with more than one holder is not idle.
    pub(crate) activity: Rc<()>,
}

/// State that changes together with the store, under one borrow.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) pacing: Pacing,
    /// Effects of records on each column, if the device is an array.
    pub(crate) columns: ColumnsSeen,
    /// Writes that bypassed the logs.
    pub(crate) home: HomeWrites,
    /// Small writes that go home as parts of runs.
    pub(crate) runs: Runs,
    /// Kept content that was read ahead.
    pub(crate) ahead: Ahead,
    /// Logs that clients have filled: they are swapped in idle time.
    pub(crate) full: FullLogs,
    /// Sectors that may be logged before the threshold falls.
    pub(crate) allowance: Allowance,
    pub(crate) last_activity: Time,
    /// Completers of flushes that wait for the flusher.
    pub(crate) flushes: Vec<Completer>,
    /// Results of recent checkpoints: whether they made room.
    pub(crate) futility: Futility,
    /// Logged copies that the last checkpoints could not read.
    pub(crate) suspects: Suspects,
    /// Address that the present checkpoint has reached.
    pub(crate) pass_at: Lba,
    /// The clients' share of the room in the logs during a checkpoint.
    pub(crate) ration: Option<Ration>,
    /// Versions that came home in a second during the last pass that hurried.
    pub(crate) home_pace: f64,
    /// Measured times of passes, for the estimate of the time to drain.
    pub(crate) passes_seen: PassesSeen,
    /// Share of the log space that kept versions took when the last pass ended.
    pub(crate) pinned_share: f64,
    /// Whether kept content went home since a pass looked at what leads to it.
    pub(crate) kept_left: bool,
    /// Requests that wait for room in the logs.
    pub(crate) starved: Starved,
    /// Whether requests are refused because the volume closes.
    pub(crate) closing: bool,
    pub(crate) counters: Counters,
}

impl State {
    /// The state of a volume over `store`, at rest since `now`, on a device of `columns` columns.
    pub(crate) fn new(store: Store, columns: usize, now: Time) -> Self {
        Self {
            store,
            pacing: Pacing::default(),
            columns: ColumnsSeen::of(columns),
            home: HomeWrites::default(),
            runs: Runs::default(),
            ahead: Ahead::default(),
            full: FullLogs::default(),
            allowance: Allowance::new(now),
            last_activity: now,
            flushes: Vec::new(),
            futility: Futility::default(),
            suspects: Suspects::default(),
            pass_at: Lba(0),
            ration: None,
            home_pace: PACE,
            passes_seen: PassesSeen::default(),
            pinned_share: 0.0,
            // A volume that was just opened does not know.
            kept_left: true,
            starved: Starved::default(),
            closing: false,
            counters: Counters::default(),
        }
    }

    /// Whether records must not wait for other writes to share them: no more writes come once the
    /// volume closes, and a full buffer cannot wait, nor can starved requests.
    pub(crate) fn entries_press(&self, buffer: Sectors) -> bool {
        let full = self.store.entries().volatile_sectors >= buffer.0 / 2;
        self.closing || full || !self.starved.is_empty()
    }

    /// Sectors of answered writes that are only in memory.
    pub(crate) const fn volatile_sectors(&self) -> u64 {
        self.store.entries().volatile_sectors + self.runs.sectors()
    }

    /// Counts a write of a client that is logged.
    pub(crate) const fn note_logged(&mut self, len: Sectors) {
        self.counters.logged_writes += 1;
        self.counters.logged_sectors += len.0;
        self.counters.logged_since_checkpoint += 1;
        self.counters.logged_sectors_since_checkpoint += len.0;
    }

    /// Notes the time of a client's write, and checks that writes are accepted.
    ///
    /// # Errors
    /// [`IoError::ReadOnly`] if the volume takes no more writes.
    pub(crate) fn admit_write(&mut self, now: Time) -> Result<(), IoError> {
        self.last_activity = now;
        self.store.writable()
    }
}

impl Inner {
    /// The present parameters.
    pub(crate) fn config(&self) -> VolumeConfig {
        self.config.get()
    }

    /// Room that is reserved for an entry: enough for a record with this entry alone.
    pub(crate) fn record_room(&self, kind: EntryKind, extent: Extent) -> Room {
        Room::of_one(kind, extent, self.shape)
    }

    /// Whether no request has arrived for a while and none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.engine.state.borrow();
        Rc::strong_count(&self.activity) == 1
            && state.store.entries().pending.is_empty()
            && state.runs.sectors() == 0
            && self.engine.runtime.now().since(state.last_activity) >= self.config().idle
    }
}

impl Shared for State {
    fn store(&self) -> &Store {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}
