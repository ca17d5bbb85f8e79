//! Settles entries when their record is durable.

use crate::{Entry, EntryKind, LogId, LogOffset, MapValue, RecordSequence};
use manylogs_block::{Payload, Sectors};

use super::slots::Slot;
use super::{Origin, Place, SlotId, Store};
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// Makes the entries of a durable record take effect, and answers their waiters.
    pub fn settle_record(&mut self, sequence: RecordSequence) {
        let Some(record) = self.entries.records.remove(sequence) else { return };
        self.note_sequences();
        for stream in record.streams {
            self.entries.streams.end(stream);
        }
        let mut offsets = record.offsets.into_iter();
        for id in record.slots {
            let offset = match self.entries.slots.get(id).entry.kind {
                EntryKind::Data => offsets.next().unwrap_or_default(),
                EntryKind::Zeroes | EntryKind::Supersede | EntryKind::Lost => LogOffset(0),
            };
            self.settle_slot(id, record.log, offset);
        }
    }

    fn settle_slot(&mut self, id: SlotId, log: LogId, offset: LogOffset) {
        let slot = self.entries.slots.remove(id);
        let mapped = self.map_durable(id, &slot, log, offset);
        let keeps = place_of(&slot.entry, log, offset)
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
            // A newer version displaced this one in memory. Until the newer one is durable,
            // recovery after a crash needs this one.
            if keeps && !self.entries.tickets.is_done(ticket) {
                live += sectors;
                self.entries.slots.get_mut(heir).displaced.push((log, sectors));
            }
        }
        self.logs.adjust(log, |log| log.add_live(live));
        for (older, sectors) in slot.displaced {
            self.sub_live(older, sectors);
        }
        self.entries.tickets.finish(slot.ticket);
        if slot.volatile {
            self.entries.volatile_sectors -= slot.entry.payload_sectors().0;
        }
        if let Some(waiter) = slot.waiter {
            waiter.complete(Ok(Payload::default()));
        }
        // The log may be free: if the version was displaced before it was durable, nothing maps to
        // it.
        self.reset_candidates.push(log);
    }

    /// Points the map at the durable copy. Returns the number of sectors whose newest version it
    /// is.
    fn map_durable(&mut self, id: SlotId, slot: &Slot, log: LogId, offset: LogOffset) -> u64 {
        let entry = slot.entry;
        let Some(target) = place_of(&entry, log, offset) else { return 0 };
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
                let place = target.advance(Sectors(part.start.0 - entry.extent.start.0));
                self.by_place.note(part, place);
                place
            })
        });
        sectors
    }
}

/// The place of the blocks of a durable entry; `None` for a supersede entry.
const fn place_of(entry: &Entry, log: LogId, offset: LogOffset) -> Option<Place> {
    match entry.kind {
        EntryKind::Supersede => None,
        EntryKind::Data => Some(Place::Log { log, offset, class: entry.class }),
        EntryKind::Zeroes => Some(Place::Zeroes { log }),
        EntryKind::Lost => Some(Place::Lost { log }),
    }
}
