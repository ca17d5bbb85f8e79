//! State that all parts of a volume share: the store and the state of the policies over it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    Capabilities, Completer, Extent, Handle, IoError, Lba, Sectors, Signal, Time,
};
use manylogs_logstore::store::{Room, Store};
use manylogs_logstore::{EntryKind, RecordShape, VolumeId};

use crate::cleaning::checkpoint::futility::Futility;
use crate::cleaning::checkpoint::ration::{PACE, Ration};
use crate::cleaning::checkpoint::suspect::Suspects;
use crate::ondisk::layout::Layout;
use crate::phase::Below;
use crate::records::commit::RecordUnderWay;
use crate::records::hold::Pacing;
use crate::reports::counters::Counters;
use crate::requests::adaptive::Allowance;
use crate::requests::home_lock::HomeLocks;
use crate::requests::starved::Starved;
use crate::settings::config::VolumeConfig;
use manylogs_block::{TaskLock, Watchers};

/// The parts of a volume share this.
pub(crate) struct Inner {
    pub(crate) runtime: Handle,
    pub(crate) device: Below,
    pub(crate) below: Capabilities,
    /// Which parts of a record are in the log.
    pub(crate) shape: RecordShape,
    pub(crate) volume: VolumeId,
    pub(crate) label: String,
    pub(crate) layout: Layout,
    pub(crate) config: Cell<VolumeConfig>,
    pub(crate) state: RefCell<State>,
    pub(crate) locks: HomeLocks,
    /// Wait for the device's answers to records.
    pub(crate) record_watchers: Watchers<RecordUnderWay>,
    /// Something may be ready to be written into a record.
    pub(crate) commit: Signal,
    /// A ticket is done, room was freed, or the volume failed.
    pub(crate) progress: Signal,
    /// Somebody waits for room.
    pub(crate) wanted: Signal,
    /// Placement asks for a log that is not opened.
    pub(crate) log_wanted: Signal,
    /// One of checkpoint, swap and snapshot at a time.
    pub(crate) cleaning: TaskLock,
    /// One flush of the whole volume at a time.
    pub(crate) flush_lock: TaskLock,
    /// Somebody asked for a flush.
    pub(crate) flush_asked: Signal,
    /// Where records go, whatever the head does.
    pub(crate) logs_near: Cell<Option<Lba>>,
    /// The shortest `record=` that the owner of the volume can do with.
    pub(crate) record_least: Cell<Sectors>,
    /// One change of the superblock at a time.
    pub(crate) superblock_lock: TaskLock,
    /// Held by every foreground request in flight: more than one holder means not idle.
    pub(crate) activity: Rc<()>,
}

/// State that the parts of a volume share.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) pacing: Pacing,
    /// What may be logged before the threshold falls.
    pub(crate) allowance: Allowance,
    /// The end of the last I/O that was not logged (section III-D).
    pub(crate) head: Lba,
    pub(crate) last_activity: Time,
    /// Completers of flushes that wait for the flusher.
    pub(crate) flushes: Vec<Completer>,
    /// Whether checkpoints succeed in making room.
    pub(crate) futility: Futility,
    /// Logged copies that the last checkpoints could not read.
    pub(crate) suspects: Suspects,
    /// Progress of the running checkpoint.
    pub(crate) pass_at: Lba,
    /// What clients get of the room in the logs while a pass goes on.
    pub(crate) ration: Option<Ration>,
    /// Versions that came home a second, when a pass last hurried.
    pub(crate) home_pace: f64,
    /// Requests that wait for room in the logs.
    pub(crate) starved: Starved,
    /// No requests are accepted any more.
    pub(crate) closing: bool,
    /// The volume's own tasks are to end.
    pub(crate) closed: bool,
    pub(crate) counters: Counters,
}

impl State {
    /// The state of a volume over `store`, at rest since `now`.
    pub(crate) fn new(store: Store, now: Time) -> Self {
        Self {
            store,
            pacing: Pacing::default(),
            allowance: Allowance::new(now),
            head: Lba(0),
            last_activity: now,
            flushes: Vec::new(),
            futility: Futility::default(),
            suspects: Suspects::default(),
            pass_at: Lba(0),
            ration: None,
            home_pace: PACE,
            starved: Starved::default(),
            closing: false,
            closed: false,
            counters: Counters::default(),
        }
    }

    /// Whether entries must not wait for others to share their record: nobody is to come any more
    /// once the volume closes, and a full buffer cannot wait.
    pub(crate) fn entries_press(&self, buffer: Sectors) -> bool {
        let full = self.store.entries.volatile_sectors >= buffer.0 / 2;
        self.closing || full || !self.starved.is_empty()
    }

    /// Notes that a client writes now.
    ///
    /// # Errors
    /// [`IoError::ReadOnly`] if the volume takes no writes any more.
    pub(crate) fn admit_write(&mut self, now: Time) -> Result<(), IoError> {
        self.last_activity = now;
        self.store.writable()
    }
}

impl Inner {
    /// The parameters as they are now.
    pub(crate) fn config(&self) -> VolumeConfig {
        self.config.get()
    }

    /// Room that is reserved for an entry: that of a record with this entry alone.
    pub(crate) fn record_room(&self, kind: EntryKind, extent: Extent) -> Room {
        Room::of_one(kind, extent, self.shape)
    }

    /// Whether nothing has arrived for a while and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        Rc::strong_count(&self.activity) == 1
            && state.store.entries.pending.is_empty()
            && self.runtime.now().since(state.last_activity) >= self.config().idle
    }

    /// Wakes the tasks that wait for durability or room.
    pub(crate) fn notify_progress(&self) {
        self.progress.notify();
        self.commit.notify();
    }

    /// Wakes requests that wait for room. To be called wherever room becomes free: no other event
    /// may follow that would wake them.
    pub(crate) fn offer_room(&self) {
        if !self.state.borrow().starved.is_empty() {
            self.notify_progress();
        }
    }
}
