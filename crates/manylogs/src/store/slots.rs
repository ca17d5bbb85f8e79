//! Small writes between their submission and their durability.

use bytes::Bytes;
use manylogs_block::{Completer, Payload};
use manylogs_logstore::{Entry, LogId, Offsets};
use smallvec::SmallVec;

use super::room::Room;

/// A slot's number; reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId(pub(crate) u32);

/// The order of submission; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// An entry on its way into a record.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) entry: Entry,
    /// Content of a data entry.
    pub(crate) payload: Option<Payload>,
    pub(crate) ticket: Ticket,
    /// Who waits for durability; a write without FUA was answered when it was buffered.
    pub(crate) waiter: Option<Completer>,
    /// Room set aside for it: a record of its own would fit there.
    pub(crate) reserved: Room,
    /// Sectors in logs whose versions die when this one is durable.
    pub(crate) displaced: SmallVec<[(LogId, u64); 2]>,
    /// Newer versions that displaced parts of this one before it was durable, and how much.
    pub(crate) heirs: SmallVec<[(SlotId, Ticket, u64); 1]>,
    /// What the slot moves, when it moves a version rather than bringing one.
    pub(crate) origin: Origin,
}

/// The slots of a record: most records are short.
pub(crate) type RecordSlots = SmallVec<[SlotId; 4]>;

/// A record being written.
#[derive(Debug)]
pub(crate) struct InFlightRecord {
    pub(crate) log: LogId,
    pub(crate) slots: RecordSlots,
    /// Where the payload of each data entry begins.
    pub(crate) offsets: Offsets,
    /// Its header, where that is kept apart and not durable yet.
    pub(crate) header: Bytes,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client's write, buffered in the map.
    Client,
    /// Log swapping: the version is mapped to this log, or was.
    Swap(LogId),
}

/// All slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn insert(&mut self, slot: Slot) -> SlotId {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(slot);
            return SlotId(index);
        }
        let index = u32::try_from(self.slots.len()).unwrap_or_else(|_| panic!("2^32 slots"));
        self.slots.push(Some(slot));
        SlotId(index)
    }

    /// Slots in use.
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn get(&self, id: SlotId) -> &Slot {
        match &self.slots[id.0 as usize] {
            Some(slot) => slot,
            None => unreachable!("slot {} is in use while it is referred to", id.0),
        }
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> &mut Slot {
        match &mut self.slots[id.0 as usize] {
            Some(slot) => slot,
            None => unreachable!("slot {} is in use while it is referred to", id.0),
        }
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Slot {
        self.free.push(id.0);
        match self.slots[id.0 as usize].take() {
            Some(slot) => slot,
            None => unreachable!("slot {} is removed once", id.0),
        }
    }
}

/// Which tickets are done, and up to which all are.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// The oldest that is not done.
    first: u64,
    /// Done or not, from `first` on.
    done: std::collections::VecDeque<bool>,
}

impl Tickets {
    /// Tickets that are not done, and those that were done before an older one.
    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    pub(crate) fn take(&mut self) -> Ticket {
        self.done.push_back(false);
        Ticket(self.first + self.done.len() as u64 - 1)
    }

    /// The newest ticket handed out, if any was.
    pub(crate) fn last(&self) -> Option<Ticket> {
        (self.first + self.done.len() as u64).checked_sub(1).map(Ticket)
    }

    /// True when the oldest open ticket changed.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> bool {
        let Some(index) = ticket.0.checked_sub(self.first) else { return false };
        self.done[manylogs_block::to_usize(index)] = true;
        let before = self.first;
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.first += 1;
        }
        self.first != before
    }

    /// Whether this one is done.
    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        ticket
            .0
            .checked_sub(self.first)
            .is_none_or(|index| self.done.get(manylogs_block::to_usize(index)) == Some(&true))
    }

    /// Whether `ticket` and all before it are done.
    pub(crate) const fn all_done(&self, ticket: Ticket) -> bool {
        ticket.0 < self.first
    }
}
