//! Entries on their way into a record.

use manylogs_block::{Completer, Extent, IoError, Payload};
use manylogs_logstore::Entry;
use smallvec::SmallVec;

use super::slots::Slot;
use super::{Displaced, Origin, SlotId, Store};
use crate::room::Room;
use manylogs_plant::{self as plant, Bug};

impl Store {
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
}
