//! The engine's state, and the changes that several operations share.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use manylogs_block::{
    Capabilities, Completer, Extent, Handle, IoError, Lba, Payload, Sectors, Signal, Time,
};
use manylogs_logstore::{
    DataSequence, Entry, EntryKind, ExtentMap, LogId, LogOffset, MapValue, RecordSequence,
    RecordShape, VolumeId,
};
use smallvec::SmallVec;

use crate::checkpoint::{Futility, Suspects};
use crate::config::EngineConfig;
use crate::home_lock::HomeLocks;
use crate::logs::Logs;
use crate::maintenance::Turn;
use crate::nvram::NvTable;
use crate::ondisk::layout::Layout;
use crate::ondisk::root::Root;
use crate::ondisk::touched::Touched;
use crate::phase::Below;
use crate::place::{Displaced, Place};
use crate::room::Room;
use crate::slots::{InFlightRecord, Origin, Slot, SlotId, Slots, Ticket, Tickets};
use crate::stats::Counters;
use manylogs_plant::{self as plant, Bug};

/// What every part of the engine shares.
pub(crate) struct Inner {
    pub(crate) runtime: Handle,
    pub(crate) device: Below,
    pub(crate) below: Capabilities,
    /// What of a record is in the log.
    pub(crate) shape: RecordShape,
    pub(crate) volume: VolumeId,
    pub(crate) layout: Layout,
    pub(crate) config: Cell<EngineConfig>,
    pub(crate) state: RefCell<State>,
    pub(crate) locks: HomeLocks,
    /// Something may be ready to be written into a record.
    pub(crate) commit: Signal,
    /// A ticket is done, room was freed, or the volume failed.
    pub(crate) progress: Signal,
    /// Somebody waits for room.
    pub(crate) wanted: Signal,
    /// Placement asks for a log that is not opened.
    pub(crate) log_wanted: Signal,
    /// One of checkpoint, swap and snapshot at a time.
    pub(crate) turn: Turn,
    /// One flush of the whole volume at a time.
    pub(crate) flush_turn: Turn,
    /// Somebody asked for a flush.
    pub(crate) flush_asked: Signal,
    /// One root update at a time.
    pub(crate) root_turn: Turn,
    /// One change of the superblock at a time.
    pub(crate) superblock_turn: Turn,
    /// Held by every foreground request in flight: more than one holder means not idle.
    pub(crate) activity: Rc<()>,
}

/// See the module.
pub(crate) struct State {
    pub(crate) map: ExtentMap<Place>,
    pub(crate) logs: Logs,
    /// Where the headers of records are, if not in the logs.
    pub(crate) nvram: Option<NvTable>,
    pub(crate) slots: Slots,
    pub(crate) tickets: Tickets,
    /// Slots that wait for a record, in order of their tickets.
    pub(crate) pending: VecDeque<SlotId>,
    /// How many of them have a waiter.
    pub(crate) pending_waiters: usize,
    /// Everything up to this ticket must go into records now.
    pub(crate) force: Option<Ticket>,
    /// Sectors of answered writes that are only in memory, and until when.
    pub(crate) volatile: u64,
    pub(crate) volatile_until: Option<Time>,
    /// Room promised to slots and to bypassing writes.
    pub(crate) reserved: Room,
    pub(crate) records: BTreeMap<RecordSequence, InFlightRecord>,
    /// When the committer submitted its last record.
    pub(crate) last_append: Time,
    /// A timer is set for the next.
    pub(crate) stagger_armed: bool,
    pub(crate) next_data: DataSequence,
    pub(crate) next_record: RecordSequence,
    /// More sequences must be set aside.
    pub(crate) sequences_low: Signal,
    /// The root as it is on the disk.
    pub(crate) root: Root,
    /// The newest generation that was ever sent to the disk.
    pub(crate) root_generation: u64,
    /// The slot that holds the newest root.
    pub(crate) root_slot: usize,
    /// While a snapshot is captured and written: the logs appended to since.
    pub(crate) capturing: Option<Touched>,
    /// While the root that names the snapshot is written: the set of opened logs it will have.
    pub(crate) next_touched: Option<Touched>,
    /// The end of the last I/O that was not logged (section III-D).
    pub(crate) head: Lba,
    pub(crate) last_activity: Time,
    /// Home writes were acknowledged that a power cut may still take.
    pub(crate) dirty_home: bool,
    /// Supersede slots that wait for the flush that makes their home writes durable.
    pub(crate) deferred: Vec<SlotId>,
    /// Supersede slots that are not durable yet, deferred or not, and their extents.
    pub(crate) unsettled_supersedes: Vec<(SlotId, Extent)>,
    /// Completers of flushes that wait for the flusher.
    pub(crate) flushes: Vec<Completer>,
    pub(crate) read_only: Option<&'static str>,
    /// Log that placement would like to use but may not before it is marked in the root.
    pub(crate) unopened: Option<LogId>,
    /// Whether checkpoints come to anything.
    pub(crate) futility: Futility,
    /// Logged copies that the last checkpoints could not read.
    pub(crate) suspects: Suspects,
    /// How far the checkpoint under way has come.
    pub(crate) pass_at: Lba,
    /// Requests that wait for room in the logs.
    pub(crate) starved: usize,
    /// Logs that clients' records have filled above the swap threshold. One that is full of moved
    /// content is not among them: to move that again would gain nothing.
    pub(crate) hot: BTreeSet<LogId>,
    /// Entries that displaced versions of the log whose content moves now, and how much.
    pub(crate) overtakers: Vec<(SlotId, Ticket, u64)>,
    /// Logs that lost live sectors: freed when the change under way is complete.
    pub(crate) reset_candidates: Vec<LogId>,
    /// No requests are accepted any more.
    pub(crate) closing: bool,
    /// The engine's tasks end.
    pub(crate) closed: bool,
    pub(crate) counters: Counters,
}

impl State {
    /// Whether versions of `extent` were taken out of the map by a large write whose supersede
    /// entry a crash would still lose.
    pub(crate) fn has_unsettled_supersede(&self, extent: Extent) -> bool {
        self.unsettled_supersedes.iter().any(|(_, other)| other.overlaps(extent))
    }

    /// Queues an entry for a record. `displaced` is what it displaced in the map.
    pub(crate) fn queue(
        &mut self,
        entry: Entry,
        payload: Option<Payload>,
        waiter: Option<Completer>,
        reserved: Room,
        origin: Origin,
    ) -> SlotId {
        let ticket = self.tickets.take();
        self.reserved += reserved;
        self.slots.insert(Slot {
            entry,
            payload,
            ticket,
            waiter,
            reserved,
            displaced: SmallVec::new(),
            heirs: SmallVec::new(),
            origin,
        })
    }

    /// Lets a slot wait for a record.
    pub(crate) fn make_pending(&mut self, id: SlotId) {
        let slot = self.slots.get_mut(id);
        if let Some(reason) = self.read_only
            && let Some(waiter) = slot.waiter.take()
        {
            // No record will be written any more.
            waiter.complete(Err(IoError::ReadOnly { reason }));
        }
        self.line_up(id);
    }

    /// Puts a slot where its ticket belongs among those that wait: the first is always the oldest,
    /// so that what a flush waits for is never behind what nobody waits for.
    pub(crate) fn line_up(&mut self, id: SlotId) {
        let slot = self.slots.get(id);
        self.pending_waiters += usize::from(slot.waiter.is_some());
        let ticket = slot.ticket;
        let at = self.pending.partition_point(|other| self.slots.get(*other).ticket < ticket);
        self.pending.insert(at, id);
    }

    /// Books what `id` displaced: versions in logs stay needed until it is durable, and so do
    /// versions that are themselves still on their way into a log.
    pub(crate) fn book_displaced(&mut self, id: SlotId, displaced: Displaced) {
        let ticket = self.slots.get(id).ticket;
        for (older, sectors) in displaced.buffered {
            self.slots.get_mut(older).heirs.push((id, ticket, sectors));
        }
        if plant::is(Bug::DeadBeforeSuccessorDurable) {
            for (log, sectors) in displaced.logged {
                self.sub_live(log, sectors);
            }
            self.reset_what_can_be();
            return;
        }
        for (log, sectors) in displaced.logged {
            if self.logs.aside() == Some(log) {
                self.overtakers.push((id, ticket, sectors));
            }
            self.slots.get_mut(id).displaced.push((log, sectors));
        }
    }

    /// The entries of a durable record take effect; answers their waiters.
    pub(crate) fn settle_record(&mut self, sequence: RecordSequence) {
        let Some(record) = self.records.remove(&sequence) else { return };
        self.note_sequences();
        let mut offsets = record.offsets.into_iter();
        for id in record.slots {
            let offset = match self.slots.get(id).entry.kind {
                EntryKind::Data => offsets.next().unwrap_or_default(),
                EntryKind::Zeroes | EntryKind::Supersede | EntryKind::Lost => LogOffset(0),
            };
            self.settle_slot(id, record.log, offset);
        }
    }

    fn settle_slot(&mut self, id: SlotId, log: LogId, offset: LogOffset) {
        let slot = self.slots.remove(id);
        if slot.entry.kind == EntryKind::Supersede {
            self.unsettled_supersedes.retain(|(unsettled, _)| *unsettled != id);
        }
        let mapped = self.map_durable(id, &slot, log, offset);
        let keeps = place_of(slot.entry.kind, log, offset)
            .is_some_and(|place| place.kept_by(self.logs.shape()).is_some());
        let mut live = if keeps { mapped } else { 0 };
        if let Origin::Swap(from) = slot.origin
            && !plant::is(Bug::SwapFreesSourceEarly)
        {
            self.sub_live(from, live);
            if keeps && mapped < slot.entry.extent.len.0 {
                self.keep_overtaken(log);
            }
        }
        for (heir, ticket, sectors) in slot.heirs {
            // A newer version displaced this one in memory. Until that is durable, this is what a
            // crash falls back to.
            if keeps && !self.tickets.is_done(ticket) {
                live += sectors;
                self.slots.get_mut(heir).displaced.push((log, sectors));
            }
        }
        self.logs.adjust(log, |log| log.add_live(live));
        for (older, sectors) in slot.displaced {
            self.sub_live(older, sectors);
        }
        self.tickets.finish(slot.ticket);
        match slot.waiter {
            Some(waiter) => waiter.complete(Ok(Payload::default())),
            None if slot.origin == Origin::Client => {
                self.volatile = self.volatile.saturating_sub(slot.entry.payload_sectors().0);
            }
            None => {}
        }
        // Nothing points there if it was overwritten before it was durable.
        self.reset_candidates.push(log);
    }

    /// Points the map at the durable copy; returns how many sectors now have it as their newest.
    fn map_durable(&mut self, id: SlotId, slot: &Slot, log: LogId, offset: LogOffset) -> u64 {
        let entry = slot.entry;
        let Some(target) = place_of(entry.kind, log, offset) else { return 0 };
        let mut sectors = 0;
        self.map.update(entry.extent, |part, mapped| {
            let ours = mapped.sequence == entry.data_sequence
                && match (slot.origin, mapped.value) {
                    (Origin::Client, Place::Buffered { slot, .. }) => slot == id,
                    (Origin::Swap(from), place) => place.log() == Some(from),
                    _ => false,
                };
            ours.then(|| {
                sectors += part.len.0;
                target.advance(Sectors(part.start.0 - entry.extent.start.0))
            })
        });
        sectors
    }

    /// A log holds `sectors` fewer that recovery needs.
    pub(crate) fn sub_live(&mut self, log: LogId, sectors: u64) {
        self.logs.adjust(log, |log| log.sub_live(sectors));
        self.reset_candidates.push(log);
    }

    /// Frees the logs that recovery needs nothing of any more.
    pub(crate) fn reset_what_can_be(&mut self) {
        while let Some(log) = self.reset_candidates.pop() {
            self.try_reset(log);
        }
    }

    /// An epoch is not ended for a few records.
    fn try_reset(&mut self, id: LogId) {
        if plant::is(Bug::ResetDropsSupersedes) && self.logs.get(id).is_some() {
            self.logs.adjust(id, manylogs_logstore::Log::clear_supersedes);
        }
        let worth = self
            .logs
            .get(id)
            .is_some_and(|log| log.may_reset() && log.used().0 > log.region().len.0 / 16);
        if worth {
            self.logs.with(id, manylogs_logstore::Log::reset);
            self.hot.remove(&id);
            self.counters.log_resets += 1;
        }
    }
}

/// Where a durable entry says that its blocks are; a supersede entry says nothing of that.
const fn place_of(kind: EntryKind, log: LogId, offset: LogOffset) -> Option<Place> {
    match kind {
        EntryKind::Supersede => None,
        EntryKind::Data => Some(Place::Log { log, offset }),
        EntryKind::Zeroes => Some(Place::Zeroes { log }),
        EntryKind::Lost => Some(Place::Lost { log }),
    }
}

impl State {
    /// A volume on which nothing is logged yet.
    pub(crate) fn new(logs: Logs, root: Root, root_slot: usize, now: Time) -> Self {
        let first = manylogs_logstore::SequenceLimit::NONE_USED.0;
        Self {
            map: ExtentMap::new(),
            logs,
            nvram: None,
            slots: Slots::default(),
            tickets: Tickets::default(),
            pending: VecDeque::new(),
            pending_waiters: 0,
            force: None,
            volatile: 0,
            volatile_until: None,
            reserved: Room::default(),
            records: BTreeMap::new(),
            last_append: Time(0),
            stagger_armed: false,
            next_data: DataSequence(first),
            next_record: RecordSequence(first),
            sequences_low: Signal::default(),
            root_generation: root.generation,
            root,
            root_slot,
            capturing: None,
            next_touched: None,
            head: Lba(0),
            last_activity: now,
            dirty_home: false,
            deferred: Vec::new(),
            unsettled_supersedes: Vec::new(),
            flushes: Vec::new(),
            read_only: None,
            unopened: None,
            futility: Futility::default(),
            suspects: Suspects::default(),
            pass_at: Lba(0),
            starved: 0,
            hot: BTreeSet::new(),
            overtakers: Vec::new(),
            reset_candidates: Vec::new(),
            closing: false,
            closed: false,
            counters: Counters::default(),
        }
    }
}

impl Inner {
    /// Whether nothing has arrived for a while and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        Rc::strong_count(&self.activity) == 1
            && state.pending.is_empty()
            && self.runtime.now().since(state.last_activity) >= self.config().idle
    }

    /// Wakes whoever waits for durability or room.
    pub(crate) fn notify_progress(&self) {
        self.progress.notify();
        self.commit.notify();
    }

    /// There may be more room than before: writes that wait for it look again. Whoever frees room
    /// calls this, as no other event need follow.
    pub(crate) fn offer_room(&self) {
        if self.state.borrow().starved > 0 {
            self.notify_progress();
        }
    }
}
