//! Versions that leave a log so that it can begin anew: either unchanged to another log, or as the
//! newest versions to the log that the next record goes to.

use std::cmp::Reverse;

use manylogs_block::{Extent, Lba, Payload, Sectors};
use smallvec::SmallVec;

use super::{Batch, NewEntry, Origin, Place, RecordSlots, Room, SlotId, Store, Ticket};
use crate::{AppendSlot, Class, Entry, EntryKind, LogId, MapValue, Mapped, Record, RecordSequence};
use manylogs_plant::{self as plant, Bug};

/// Most sectors of content that are read and moved at once.
const CHUNK: u64 = 2048;
/// Most supersede entries in one record.
const SUPERSEDES: usize = 64;
/// Most versions that are moved at once.
const CHUNK_VERSIONS: usize = 256;

/// A live version in a log.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// The extent, as the map addresses it.
    pub extent: Extent,
    /// The version's sequence and place.
    pub mapped: Mapped<Place>,
    /// The owner's number of the version; 0 if it was found without its record.
    pub version: u64,
}

impl Live {
    fn position(&self) -> u64 {
        match self.mapped.value {
            Place::Log { offset, .. } => offset.0.into(),
            Place::Zeroes { .. } | Place::Lost { .. } | Place::Buffered { .. } => 0,
        }
    }

    /// Cuts off the part before `end`, and sets `end` to the end of the rest; false if there is no
    /// rest.
    fn keep_from(&mut self, end: &mut Lba) -> bool {
        let this_end = self.extent.end();
        if this_end <= *end {
            return false;
        }
        let skip = Sectors(end.0.saturating_sub(self.extent.start.0));
        self.mapped.value = self.mapped.value.advance(skip);
        self.extent = Extent::between(self.extent.start + skip, this_end);
        *end = this_end;
        true
    }

    fn kind(&self) -> EntryKind {
        match self.mapped.value {
            Place::Log { .. } => EntryKind::Data,
            Place::Lost { .. } => EntryKind::Lost,
            Place::Zeroes { .. } | Place::Buffered { .. } => EntryKind::Zeroes,
        }
    }

    fn class(&self) -> Class {
        match self.mapped.value {
            Place::Log { class: Class::DurabilityOnly, .. } if plant::is(Bug::ClassLostByMove) => {
                Class::Data
            }
            place if place.is_kept_metadata() && plant::is(Bug::MetadataClassLostByMove) => {
                Class::Metadata
            }
            Place::Log { class, .. } => class,
            Place::Zeroes { .. } | Place::Lost { .. } | Place::Buffered { .. } => Class::Data,
        }
    }

    /// Its content, taken from `read`, which is the content of the log at `within`.
    fn content(&self, within: Extent, read: &Payload) -> Option<Payload> {
        let Place::Log { offset, .. } = self.mapped.value else { return None };
        let skip = Sectors(u64::from(offset.0) - within.start.0);
        Some(read.slice(skip, self.extent.len))
    }
}

/// Number of versions of `live`, from the first on, that one read of the log and one record take.
#[must_use]
pub fn chunk_len(live: &[Live]) -> usize {
    let is_data = |live: &Live| live.kind() == EntryKind::Data;
    let start = live.iter().find(|live| is_data(live)).map_or(0, Live::position);
    let mut payload = 0;
    let fits = live.iter().take(CHUNK_VERSIONS).take_while(|live| {
        if !is_data(live) {
            return true;
        }
        payload += live.extent.len.0;
        payload <= CHUNK && live.position() + live.extent.len.0 - start <= 2 * CHUNK
    });
    fits.count().max(1)
}

/// The part of the log that holds the content of `chunk`; `None` if it has no content.
#[must_use]
pub fn span_of(chunk: &[Live]) -> Option<Extent> {
    let data = chunk.iter().filter(|live| live.kind() == EntryKind::Data);
    let parts = data.map(|live| Extent::new(live.position(), live.extent.len.0));
    parts.reduce(|a, b| Extent::between(a.start.min(b.start), a.end().max(b.end())))
}

impl Store {
    /// Keeps `log` from taking records while its content moves.
    pub fn set_aside(&mut self, log: LogId) {
        self.logs.set_aside(log);
    }

    /// Ends the move: the log that was set aside takes records again.
    pub fn put_back(&mut self) {
        self.logs.put_back();
        self.overtakers.clear();
    }

    /// The live versions in `log`, in the order of the log. The entries of its `records` lead to
    /// them.
    #[must_use]
    pub fn live_in(&self, log: LogId, records: &[Record]) -> Vec<Live> {
        let mut live: Vec<Live> = Vec::new();
        let entries = records.iter().flat_map(|record| &record.entries);
        for entry in entries.filter(|entry| entry.kind != EntryKind::Supersede) {
            for (extent, mapped) in self.map.lookup(entry.extent) {
                if let Some(mapped) = mapped
                    && mapped.value.log() == Some(log)
                    && mapped.sequence == entry.data_sequence
                {
                    live.push(Live { extent, mapped, version: entry.version });
                }
            }
        }
        // A version that moved here in parts, or twice, is found by each of its entries.
        live.sort_by_key(|live| (live.position(), live.extent.start, Reverse(live.extent.len)));
        live.dedup_by_key(|live| live.extent.start);
        live
    }

    /// From now on the logs keep the extents of their entries, each from its next epoch on, for
    /// [`Store::live_by_inverse`].
    pub fn keep_inverse(&mut self) {
        self.logs.keep_inverse();
    }

    /// The extents that entries of `log` name, each once, by address as the table is. `None` if the
    /// log does not keep them.
    pub(super) fn named_in(&self, log: LogId) -> Option<Vec<Extent>> {
        let mut named: Vec<Extent> = self.logs.get(log)?.inverse()?.iter().collect();
        named.sort_unstable_by_key(|extent| (extent.start, extent.len));
        named.dedup();
        Some(named)
    }

    /// As [`Store::live_in`], without a read of the log: by the kept extents of its entries. `None`
    /// if the logs do not keep them.
    #[must_use]
    pub fn live_by_inverse(&self, log: LogId) -> Option<Vec<Live>> {
        let mut live: Vec<Live> = Vec::new();
        for named in self.named_in(log)? {
            for (extent, mapped) in self.map.lookup(named) {
                if let Some(mapped) = mapped.filter(|mapped| mapped.value.log() == Some(log)) {
                    live.push(Live { extent, mapped, version: 0 });
                }
            }
        }
        // Entries that overlap find the same versions, or parts of them.
        live.sort_unstable_by_key(|live| (live.extent.start, Reverse(live.extent.len)));
        let mut end = Lba(0);
        live.retain_mut(|live| live.keep_from(&mut end));
        live.sort_unstable_by_key(|live| (live.position(), live.extent.start));
        Some(live)
    }

    /// As [`Store::live_in`], by a search of the whole table: for logs whose headers are kept
    /// apart.
    #[must_use]
    pub fn live_by_table(&self, log: LogId) -> Vec<Live> {
        let shape = self.logs.shape();
        let all = self.map.iter().map(|(extent, mapped)| Live { extent, mapped, version: 0 });
        let mut live: Vec<Live> =
            all.filter(|live| live.mapped.value.kept_by(shape) == Some(log)).collect();
        live.sort_by_key(|live| (live.position(), live.extent.start));
        live
    }

    /// Appends the versions of `chunk` to `to`, unchanged and with their sequences, as a record
    /// that the caller writes. `read` is the content of the log at `within`, which covers
    /// [`span_of`] the chunk. `None` if `to` has no room for them, or was reset since it was chosen
    /// and must begin its epoch first. The versions count in `from` until the record is durable.
    pub fn relocate(
        &mut self,
        (from, to): (LogId, LogId),
        chunk: &[Live],
        (within, read): (Extent, &Payload),
    ) -> Option<Relocated> {
        let entries = chunk.iter().map(|live| {
            let entry = Entry {
                extent: live.extent,
                data_sequence: live.mapped.sequence,
                version: live.version,
                kind: live.kind(),
                class: live.class(),
                // The mark moves separately, as a supersede entry.
                over_kept: false,
            };
            (entry, live.content(within, read))
        });
        self.append_as_they_are(from, to, entries.collect())
    }

    /// The parts of `chunk` that the map still names at their places. Others were overwritten since
    /// they were found, or moved.
    #[must_use]
    pub fn still_live(&self, chunk: &[Live]) -> Vec<Live> {
        if plant::is(Bug::StaleContentMoved) {
            return chunk.to_vec();
        }
        let parts = |live: &Live| {
            let live = *live;
            self.map.lookup(live.extent).filter_map(move |(extent, now)| {
                let skip = Sectors(extent.start.0 - live.extent.start.0);
                let mapped = Mapped { value: live.mapped.value.advance(skip), ..live.mapped };
                (now == Some(mapped)).then_some(Live { extent, mapped, ..live })
            })
        };
        chunk.iter().flat_map(parts).collect()
    }

    /// Room of a record that moves these versions.
    #[must_use]
    pub fn room_of_moved(&self, chunk: &[Live]) -> Room {
        let entry = |live: &Live| Entry::new(live.extent, live.mapped.sequence, live.kind());
        let entries: Vec<Entry> = chunk.iter().map(entry).collect();
        Room::of(&entries, self.logs.shape())
    }

    /// As [`Store::relocate`], for supersede entries of `from` behind the first `skip`: as many as
    /// a record may hold.
    pub fn relocate_supersedes(
        &mut self,
        from: LogId,
        to: LogId,
        skip: usize,
    ) -> Option<Relocated> {
        let log = self.logs.get(from)?;
        let entries = log.supersedes().iter().skip(skip).take(SUPERSEDES).map(|supersede| {
            let (extent, sequence) = (supersede.extent, supersede.data_sequence);
            let entry = Entry::new(extent, sequence, EntryKind::Supersede);
            let over_kept = supersede.kept && !plant::is(Bug::MoveDropsBurials);
            (Entry { over_kept, ..entry }, None)
        });
        let entries: Vec<_> = entries.collect();
        self.append_as_they_are(from, to, entries)
    }

    fn append_as_they_are(
        &mut self,
        from: LogId,
        to: LogId,
        entries: Vec<(Entry, Option<Payload>)>,
    ) -> Option<Relocated> {
        let all: Vec<Entry> = entries.iter().map(|(entry, _)| *entry).collect();
        let room = Room::of(&all, self.logs.shape());
        let is_shut = self.logs.is_shut_for(to);
        let accepts =
            !is_shut && self.logs.with(to, |log| log.accepts(room.log)) && self.is_ready(to);
        if all.is_empty() || !accepts || !self.fits(room) {
            return None;
        }
        let slots: RecordSlots = entries
            .into_iter()
            .map(|(entry, payload)| self.moved_slot(from, entry, payload))
            .collect();
        let count = slots.len();
        let (sequence, slot) = self.append(to, slots);
        Some(Relocated { sequence, slot, count, last: self.entries.tickets.last()? })
    }

    fn moved_slot(&mut self, from: LogId, entry: Entry, payload: Option<Payload>) -> SlotId {
        let mut entry = entry;
        if plant::is(Bug::SwapFreshSequence) {
            entry.data_sequence = self.take_data_sequence();
        }
        if entry.is_kept_metadata() {
            self.counters.kept_metadata_moved_sectors += entry.extent.len.0;
        } else if entry.is_kept() {
            self.counters.kept_moved_sectors += entry.extent.len.0;
        }
        let reserved = Room::of_one(entry.kind, entry.extent, self.logs.shape());
        let id = self.queue(entry, payload, None, reserved, Origin::Swap(from));
        if plant::is(Bug::SwapFreesSourceEarly) && entry.kind != EntryKind::Supersede {
            self.sub_live(from, entry.extent.len.0);
            self.reset_what_can_be();
        }
        // The entry goes into a record at once, so it needs no reserved room.
        self.reserved -= reserved;
        id
    }

    /// The parts of a version that still count, as a batch that makes them the newest, with new
    /// sequences. `read` is the content of the log at `within`. `None` if no part counts any more.
    #[must_use]
    pub fn renewal(&self, live: &Live, within: Extent, read: &Payload) -> Option<Batch> {
        let content = live.content(within, read);
        let still = |now: &Mapped<Place>| {
            now.sequence == live.mapped.sequence && now.value.log() == live.mapped.value.log()
        };
        let parts = self.map.lookup(live.extent).filter(|(_, now)| now.as_ref().is_some_and(still));
        let entries: SmallVec<[NewEntry; 1]> = parts
            .map(|(part, _)| NewEntry {
                extent: part,
                kind: live.kind(),
                class: live.class(),
                version: live.version,
                payload: content.as_ref().map(|content| {
                    content.slice(Sectors(part.start.0 - live.extent.start.0), part.len)
                }),
            })
            .collect();
        (!entries.is_empty()).then_some(Batch { entries, after: None })
    }

    /// Keeps `log` because a moved copy of a version became durable there after newer versions had
    /// displaced it. Until the newer ones are durable, recovery may choose the copy. If headers are
    /// kept apart, recovery finds the copy's header even after `log` has begun another epoch. So
    /// the log must not begin one before.
    pub fn keep_overtaken(&mut self, log: LogId) {
        if plant::is(Bug::OvertakenCopyNotKept) {
            return;
        }
        let mut kept = 0;
        for (id, ticket, sectors) in &self.overtakers {
            if !self.entries.tickets.is_done(*ticket) {
                self.entries.slots.get_mut(*id).displaced.push((log, *sectors));
                kept += sectors;
            }
        }
        self.logs.adjust(log, |log| log.add_live(kept));
    }
}

/// A record of versions that move.
#[derive(Debug)]
pub struct Relocated {
    /// Sequence number of the record.
    pub sequence: RecordSequence,
    /// The write that the caller submits.
    pub slot: AppendSlot,
    /// Number of versions that the record moves.
    pub count: usize,
    /// Ticket that is done when the versions are durable.
    pub last: Ticket,
}
