//! Entries that are bound for home instead of a record: new versions that stay in memory until they
//! are at home. If they must be durable earlier, they go into a record after all.

use manylogs_block::{Extent, Payload};

use super::{Origin, Place, Room, SlotId, Store};
use crate::{Entry, EntryKind, Mapped};
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// Makes `payload` the newest version of `extent`, in which nothing is mapped. It waits for no
    /// record: [`Store::settle_home`] or [`Store::log_after_all`] must follow. `reserved` is room
    /// for its record, in case it needs one.
    ///
    /// # Panics
    /// If part of `extent` is mapped: the older version would outlive this one in its log.
    pub fn put_homebound(&mut self, extent: Extent, payload: Payload, reserved: Room) -> SlotId {
        let is_first = !self.map.overlaps(extent) || plant::is(Bug::RunOverOlderVersion);
        assert!(is_first, "an older version of {extent} is not at home");
        let sequence = self.take_data_sequence();
        let entry = Entry::new(extent, sequence, EntryKind::Data);
        let id = self.queue(entry, Some(payload), None, reserved, Origin::Client);
        self.map.insert(
            extent,
            Mapped { sequence, value: Place::Buffered { slot: id, skip: 0 } },
            |_, _| {},
        );
        id
    }

    /// Whether no newer version has displaced any part of a homebound entry. Only then may it be
    /// written home.
    #[must_use]
    pub fn is_newest(&self, id: SlotId) -> bool {
        self.entries.slots.get(id).heirs.is_empty()
    }

    /// Sends a homebound entry into the next record instead.
    pub fn log_after_all(&mut self, id: SlotId) {
        let ticket = self.entries.slots.get(id).ticket;
        self.entries.force = self.entries.force.max(Some(ticket));
        self.make_pending(id);
    }

    /// Notes that a homebound entry is at home: its parts that are still the newest are unmapped.
    pub fn settle_home(&mut self, id: SlotId) {
        let slot = self.entries.slots.remove(id);
        let ours = |place| matches!(place, Place::Buffered { slot, .. } if slot == id);
        self.map.remove_where(slot.entry.extent, |mapped| ours(mapped.value), |_, _| {});
        self.reserved -= slot.reserved;
        self.entries.tickets.finish(slot.ticket);
    }
}
