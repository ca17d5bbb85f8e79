//! Entries between their submission and their durability.

use std::collections::VecDeque;

use crate::{Entry, LogId, Offsets, RecordSequence};
use bytes::Bytes;
use manylogs_block::{Completer, Payload};
use smallvec::SmallVec;

use super::batch::Stream;
use super::room::Room;

/// Number of a slot; reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// Number of an entry, in order of submission; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An entry on its way into a record.
#[derive(Debug)]
pub struct Slot {
    pub entry: Entry,
    /// Content of a data entry.
    pub payload: Option<Payload>,
    pub ticket: Ticket,
    /// Number of entries behind this one in the same batch.
    pub rest: u16,
    /// The stream in which the entry's batch keeps its order, if any.
    pub stream: Option<Stream>,
    /// Whether the write was answered when it was buffered: its payload then counts as volatile.
    pub volatile: bool,
    /// Task that waits until the entry is durable. `None` for a write without FUA, which was
    /// answered when it was buffered.
    pub waiter: Option<Completer>,
    /// Room set aside for it, as for a record of its own.
    pub reserved: Room,
    /// Logs with versions that this entry displaced, and their sectors: dead when it is durable.
    pub displaced: SmallVec<[(LogId, u64); 2]>,
    /// Newer versions that displaced parts of this one before it was durable, with the sectors.
    pub heirs: SmallVec<[(SlotId, Ticket, u64); 1]>,
    /// Origin of the entry: a client, or a version that moves.
    pub origin: Origin,
}

/// The slots of a record: most records are short.
pub type RecordSlots = SmallVec<[SlotId; 4]>;

/// A record being written.
#[derive(Debug)]
pub struct InFlightRecord {
    /// Place of the record.
    pub log: LogId,
    /// The entries in it, in order.
    pub slots: RecordSlots,
    /// Where the payload of each data entry begins.
    pub offsets: Offsets,
    /// Streams that have a batch in it.
    pub streams: SmallVec<[Stream; 1]>,
    /// Its header, if headers are kept apart and it is not durable yet.
    pub header: Bytes,
}

/// Records being written, in order of their sequences. They are few, and mostly end in that order.
/// A deque reuses its memory, while a tree would allocate for every record.
#[derive(Debug, Default)]
pub struct InFlightRecords(VecDeque<(RecordSequence, InFlightRecord)>);

impl InFlightRecords {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order of their sequences.
    pub fn iter(&self) -> impl Iterator<Item = &InFlightRecord> {
        self.0.iter().map(|(_, record)| record)
    }

    /// The newest record.
    pub fn last(&self) -> Option<&InFlightRecord> {
        self.0.back().map(|(_, record)| record)
    }

    /// Adds a record, which is newer than all others.
    pub fn push(&mut self, sequence: RecordSequence, record: InFlightRecord) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last < sequence), "sequences ascend");
        self.0.push_back((sequence, record));
    }

    /// The record of this sequence.
    pub fn get(&self, sequence: RecordSequence) -> Option<&InFlightRecord> {
        self.0.iter().find(|(other, _)| *other == sequence).map(|(_, record)| record)
    }

    /// The record of this sequence, to be changed.
    pub fn get_mut(&mut self, sequence: RecordSequence) -> Option<&mut InFlightRecord> {
        self.0.iter_mut().find(|(other, _)| *other == sequence).map(|(_, record)| record)
    }

    /// Removes the record of this sequence.
    pub fn remove(&mut self, sequence: RecordSequence) -> Option<InFlightRecord> {
        let index = self.0.iter().position(|(other, _)| *other == sequence)?;
        self.0.remove(index).map(|(_, record)| record)
    }
}

/// Origin of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client's write; the map points to its slot.
    Client,
    /// A move: the version is or was mapped to this log.
    Swap(LogId),
}

/// All slots.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    pub fn insert(&mut self, slot: Slot) -> SlotId {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(slot);
            return SlotId(index);
        }
        let index = u32::try_from(self.slots.len()).unwrap_or_else(|_| panic!("2^32 slots"));
        self.slots.push(Some(slot));
        SlotId(index)
    }

    /// The slots in use, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    /// Number of slots in use.
    pub const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn get(&self, id: SlotId) -> &Slot {
        match &self.slots[id.0 as usize] {
            Some(slot) => slot,
            None => unreachable!("slot {} is in use while it is referred to", id.0),
        }
    }

    pub fn get_mut(&mut self, id: SlotId) -> &mut Slot {
        match &mut self.slots[id.0 as usize] {
            Some(slot) => slot,
            None => unreachable!("slot {} is in use while it is referred to", id.0),
        }
    }

    pub fn remove(&mut self, id: SlotId) -> Slot {
        self.free.push(id.0);
        match self.slots[id.0 as usize].take() {
            Some(slot) => slot,
            None => unreachable!("slot {} is removed once", id.0),
        }
    }
}

/// The tickets that are done, and the oldest that is not.
#[derive(Debug, Default)]
pub struct Tickets {
    /// The oldest ticket that is not done.
    first: u64,
    /// Whether each ticket is done, from `first` on.
    done: VecDeque<bool>,
}

impl Tickets {
    /// Number of tickets from the oldest that is not done to the newest.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    pub fn take(&mut self) -> Ticket {
        self.done.push_back(false);
        Ticket(self.first + self.done.len() as u64 - 1)
    }

    /// The newest ticket handed out, if any was.
    pub fn last(&self) -> Option<Ticket> {
        (self.first + self.done.len() as u64).checked_sub(1).map(Ticket)
    }

    /// Marks a ticket as done. True if the oldest open ticket changed.
    pub fn finish(&mut self, ticket: Ticket) -> bool {
        let Some(index) = ticket.0.checked_sub(self.first) else { return false };
        self.done[manylogs_block::to_usize(index)] = true;
        let before = self.first;
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.first += 1;
        }
        self.first != before
    }

    /// Whether this ticket is done.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        ticket
            .0
            .checked_sub(self.first)
            .is_none_or(|index| self.done.get(manylogs_block::to_usize(index)) == Some(&true))
    }

    /// Whether `ticket` and all tickets before it are done.
    pub const fn all_done(&self, ticket: Ticket) -> bool {
        ticket.0 < self.first
    }
}
