//! Entries on their way into a log.

use std::collections::VecDeque;

use crate::Entry;
use manylogs_block::{Completer, IoError, Payload, Time};
use smallvec::SmallVec;

use super::batch::StreamsInFlight;
use super::slots::{InFlightRecords, Slot, Slots, Tickets};
use super::{Displaced, Origin, SlotId, Store, Ticket};
use crate::store::Room;
use manylogs_plant::{self as plant, Bug};

/// Entries that are not durable yet.
#[derive(Debug, Default)]
pub struct Entries {
    /// Every entry that is not durable yet.
    pub slots: Slots,
    /// Numbers entries in order of arrival, and knows which are durable.
    pub tickets: Tickets,
    /// Slots that wait for a record, in order of their tickets.
    pub pending: VecDeque<SlotId>,
    /// Number of slots in `pending` with a waiter.
    pub waiters: usize,
    /// All entries up to this ticket must go into records now.
    pub force: Option<Ticket>,
    /// Sectors of answered writes that are only in memory.
    pub volatile_sectors: u64,
    /// Time at which the oldest of these writes must be on its way.
    pub volatile_until: Option<Time>,
    /// Records in flight.
    pub records: InFlightRecords,
    /// Streams with records in flight.
    pub streams: StreamsInFlight,
}

impl Entries {
    /// Number of records in flight with new versions. Records of versions that move from one log
    /// to another do not count.
    #[must_use]
    pub fn new_in_flight(&self) -> usize {
        let is_new = |id: &SlotId| {
            self.slots.get(*id).origin == Origin::Client || plant::is(Bug::MovesHoldClientsBack)
        };
        let records = self.records.iter();
        records.filter(|record| record.slots.first().is_none_or(is_new)).count()
    }

    /// Inserts a slot into `pending`, in order of tickets. The oldest is always first, so an entry
    /// that a flush needs is never behind one that nobody waits for.
    pub fn line_up(&mut self, id: SlotId) {
        let slot = self.slots.get(id);
        self.waiters += usize::from(slot.waiter.is_some());
        let ticket = slot.ticket;
        let comes_before = |other: &SlotId| self.slots.get(*other).ticket < ticket;
        // The entry is the newest, unless its record failed.
        if self.pending.back().is_none_or(comes_before) {
            self.pending.push_back(id);
            return;
        }
        let at = self.pending.partition_point(comes_before);
        self.pending.insert(at, id);
    }
}

impl Store {
    /// Makes all present entries go into records without delay. Returns the ticket of the last
    /// entry, or `None` if there never was one.
    pub fn force_all(&mut self) -> Option<Ticket> {
        let last = self.entries.tickets.last().filter(|_| !plant::is(Bug::FlushSkipsBuffer));
        self.entries.force = self.entries.force.max(last);
        last
    }

    /// Sets the time at which answered entries that are only in memory must be on their way.
    pub const fn keep_volatile_until(&mut self, until: Time) {
        self.entries.volatile_until = Some(until);
    }

    /// Queues an entry for a record, with its reserved room. It does not wait for a record before
    /// [`Store::make_pending`].
    pub fn queue(
        &mut self,
        entry: Entry,
        payload: Option<Payload>,
        waiter: Option<Completer>,
        reserved: Room,
        origin: Origin,
    ) -> SlotId {
        let ticket = self.entries.tickets.take();
        self.reserved += reserved;
        self.entries.slots.insert(Slot {
            entry,
            payload,
            ticket,
            rest: 0,
            stream: None,
            volatile: false,
            waiter,
            reserved,
            displaced: SmallVec::new(),
            heirs: SmallVec::new(),
            origin,
        })
    }

    /// Lets a slot wait for a record.
    pub fn make_pending(&mut self, id: SlotId) {
        let slot = self.entries.slots.get_mut(id);
        if let Some(reason) = self.read_only
            && let Some(waiter) = slot.waiter.take()
        {
            // No record will be written any more.
            waiter.complete(Err(IoError::ReadOnly { reason }));
        }
        self.entries.line_up(id);
    }

    /// Books what `id` displaced. Displaced versions stay needed until `id` is durable, in logs or
    /// still on their way into a log.
    pub fn book_displaced(&mut self, id: SlotId, displaced: Displaced) {
        let ticket = self.entries.slots.get(id).ticket;
        for (older, sectors) in displaced.buffered {
            self.entries.slots.get_mut(older).heirs.push((id, ticket, sectors));
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
            self.entries.slots.get_mut(id).displaced.push((log, sectors));
        }
    }
}
