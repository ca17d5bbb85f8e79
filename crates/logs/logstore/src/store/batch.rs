//! Batches: groups of entries that survive a crash together or not at all, and the order between
//! batches.

use std::collections::BTreeMap;

use manylogs_block::{Completer, Extent, Payload, Sectors, narrow};
use smallvec::SmallVec;

use super::{Displaced, Origin, Place, Room, SlotId, Store, Ticket};
use crate::{
    Class, DataSequence, Entry, EntryKind, LogId, MAX_ENTRIES, Mapped, RECORD_PAYLOAD_MAX,
};
use manylogs_plant::{self as plant, Bug};

/// Batches of one stream keep their order over a crash: a batch survives only if all earlier
/// batches of the stream survive. Batches of different streams are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u32);

/// A new entry, without a sequence yet.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// The extent, as the store's map addresses it.
    pub extent: Extent,
    /// Meaning of the entry.
    pub kind: EntryKind,
    /// Class of the entry.
    pub class: Class,
    /// The owner's own number of the version.
    pub version: u64,
    /// Content of a data entry, exactly as long as the extent.
    pub payload: Option<Payload>,
}

/// Entries that go into one record. Recovery finds all of them or none.
///
/// A batch has at most [`MAX_ENTRIES`] entries and [`RECORD_PAYLOAD_MAX`] of payload. A record of
/// its own must fit the logs.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The entries; a later one displaces earlier ones that it overlaps.
    pub entries: SmallVec<[NewEntry; 1]>,
    /// The stream in which the batch keeps its order, if any.
    pub after: Option<Stream>,
}

impl Batch {
    /// One entry of the class [`Class::Data`], in no stream.
    #[must_use]
    pub fn of(kind: EntryKind, extent: Extent, payload: Option<Payload>) -> Self {
        let entry = NewEntry { extent, kind, class: Class::Data, version: 0, payload };
        Self { entries: SmallVec::from_buf([entry]), after: None }
    }

    /// Length of the content of all its entries.
    #[must_use]
    pub fn payload_sectors(&self) -> Sectors {
        let len = |entry: &NewEntry| entry.payload.as_ref().map_or(Sectors(0), Payload::len);
        self.entries.iter().fold(Sectors(0), |sum, entry| sum + len(entry))
    }

    /// Whether a record can take it, by its size.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        (1..=MAX_ENTRIES).contains(&self.entries.len())
            && self.payload_sectors() <= RECORD_PAYLOAD_MAX
    }
}

/// The log in which each stream has records in flight. Until these are durable, the next record of
/// the stream goes to the same log, because recovery believes a record only if all records before
/// it in the log are whole.
#[derive(Debug, Default)]
pub struct StreamsInFlight(BTreeMap<Stream, (LogId, u32)>);

impl StreamsInFlight {
    /// The log that the next record of the stream must go to; `None` if any log will do.
    #[must_use]
    pub fn bound_to(&self, stream: Option<Stream>) -> Option<LogId> {
        self.0.get(&stream?).map(|(log, _)| *log)
    }

    /// Notes that a record with batches of the stream is under way to `log`.
    pub(super) fn begin(&mut self, stream: Stream, log: LogId) {
        let (at, records) = self.0.entry(stream).or_insert((log, 0));
        debug_assert!(*at == log || plant::is(Bug::StreamSwitchesLog));
        *at = log;
        *records += 1;
    }

    /// Notes that such a record is durable, or has failed.
    pub(super) fn end(&mut self, stream: Stream) {
        if let Some((_, records)) = self.0.get_mut(&stream) {
            *records -= 1;
            if *records == 0 {
                self.0.remove(&stream);
            }
        }
    }
}

impl Store {
    /// Room that is reserved for a batch: enough for a record of its own.
    #[must_use]
    pub fn room_of(&self, batch: &Batch) -> Room {
        let entries: SmallVec<[Entry; 1]> = batch
            .entries
            .iter()
            .map(|new| Entry::new(new.extent, self.sequences.next_data, new.kind))
            .collect();
        Room::of(&entries, self.logs.shape())
    }

    /// Queues a batch for a record: its versions are the newest from now on. The caller asked
    /// [`Store::fits`] for `reserved`, which is [`Store::room_of`] the batch. `waiter` is answered
    /// when the batch is durable and the map says where it lies. Without a waiter, data entries
    /// count as volatile until then. Returns the ticket of the last entry.
    ///
    /// # Panics
    /// If the batch is not possible.
    pub fn put(&mut self, batch: Batch, reserved: Room, waiter: Option<Completer>) -> Ticket {
        assert!(batch.is_possible(), "a batch of {} entries is too large", batch.entries.len());
        let (mut room, mut waiter) = (reserved, waiter);
        let (count, stream) = (batch.entries.len(), batch.after);
        let volatile = waiter.is_none();
        let mut last = Ticket::default();
        for (index, new) in batch.entries.into_iter().enumerate() {
            let rest: u16 = narrow(count - 1 - index);
            let data_sequence = self.take_data_sequence();
            let NewEntry { extent, kind, class, version, payload } = new;
            let class = self.class_of(kind, class);
            let entry = Entry { extent, data_sequence, version, kind, class, over_kept: false };
            if volatile {
                self.entries.volatile_sectors += entry.payload_sectors().0;
            }
            // The waiter belongs to the last entry.
            let waiter = if rest == 0 { waiter.take() } else { None };
            let id = self.queue(entry, payload, waiter, std::mem::take(&mut room), Origin::Client);
            let slot = self.entries.slots.get_mut(id);
            (slot.rest, slot.stream, slot.volatile) = (rest, stream, volatile);
            last = slot.ticket;
            self.displace(id, entry);
            self.make_pending(id);
        }
        last
    }

    /// Removes versions of `extent` before `sequence` from the map, because a newer one is at home.
    pub fn displace_older(&mut self, extent: Extent, sequence: DataSequence) -> Displaced {
        let mut displaced = Displaced::of(self.logs.shape());
        self.map.remove_older(extent, sequence, |part, old| displaced.add(part, old));
        displaced
    }

    /// Makes the entry the newest version of its extent.
    fn displace(&mut self, id: SlotId, entry: Entry) {
        let Entry { extent, data_sequence: sequence, .. } = entry;
        let mut displaced = Displaced::of(self.logs.shape());
        if entry.kind == EntryKind::Supersede {
            self.map.remove_older(extent, sequence, |part, old| displaced.add(part, old));
        } else {
            let mapped = Mapped { sequence, value: Place::Buffered { slot: id, skip: 0 } };
            self.map.insert(extent, mapped, |part, old| displaced.add(part, old));
        }
        if entry.is_kept_content() {
            self.kept.put(extent.len);
        } else if entry.is_kept_metadata() {
            self.kept.put_metadata(extent.len);
        } else if !entry.is_kept() && entry.kind != EntryKind::Supersede {
            self.kept.put_other();
        }
        self.bury(id, &displaced);
        self.book_displaced(id, displaced);
    }
}
