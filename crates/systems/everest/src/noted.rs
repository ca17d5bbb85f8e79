//! A note on the base of what one store alone has, while that store cannot be reached or the base
//! volume is closed. By it, forgetting the store loses exactly that, although nobody has the
//! client's table any more.
//!
//! What must hold while a store has a note, whatever crashes: each range whose newest acknowledged
//! version only that store has is among the ranges of the note, unless the header notes it as void
//! for the store, and no version of the store hides an older one of another store from an opening.
//! So:
//!
//! * A store is noted when its session is over, or at an orderly close, when nothing is on its way
//!   to it. It gets no versions then.
//! * Before a session begins with any store, all notes are durably gone: that store may have lost
//!   what it shared with a noted one. An opening that fails for want of a store leaves them.
//! * A forgotten store takes the notes of all others with it: what it shared with them is theirs
//!   alone now.
//!
//! Without a note the whole base volume is lost. So a note may always be left out: where the header
//! has no room, or where versions of the store still hide others.

use std::rc::Rc;

use bytes::{Buf, BufMut};
use manylogs_block::{Extent, IoError, Lba, narrow};
use manylogs_plant::{self as plant, Bug};

use crate::call::StoreId;
use crate::forget::joined;
use crate::header::{Content, Header, STORES_MAX};
use crate::lost;
use crate::offload::Client;
use crate::versions::Range;

/// Most ranges of a note.
const RANGES_MAX: usize = 1024;
/// Bytes of a range, and of a note without its ranges.
const RANGE_BYTES: usize = 24;
const NOTE_BYTES: usize = 20;

/// What one store alone has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) store: StoreId,
    /// In order, in addresses of clients, each with its version: a newer one may be on its way to
    /// another store.
    pub(crate) ranges: Vec<Range>,
}

impl Note {
    const fn bytes(&self) -> usize {
        NOTE_BYTES + self.ranges.len() * RANGE_BYTES
    }
}

/// Appends the list: a count, and for each note its store, number of ranges, and those.
pub(crate) fn encode(notes: &[Note], out: &mut Vec<u8>) {
    out.put_u32_le(narrow(notes.len()));
    for Note { store, ranges } in notes {
        out.put_slice(store);
        lost::encode(ranges, out);
    }
}

/// The list at the start of `bytes`, and its length; `None` if it makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Vec<Note>, usize)> {
    let mut rest = bytes;
    let count = rest.try_get_u32_le().ok()? as usize;
    let mut notes = Vec::new();
    for _ in 0..Some(count).filter(|count| *count <= STORES_MAX)? {
        let mut store = StoreId::default();
        rest.try_copy_to_slice(&mut store).ok()?;
        let (ranges, used) = lost::decode(rest)?;
        if ranges.len() > RANGES_MAX {
            return None;
        }
        rest.advance(used);
        notes.push(Note { store, ranges });
    }
    Some((notes, bytes.len() - rest.len()))
}

impl Content {
    /// Bytes of the notes.
    pub(crate) fn note_bytes(&self) -> usize {
        self.notes.iter().map(Note::bytes).sum()
    }

    /// Whether the void and lost ranges fit into a header, if need be without notes.
    pub(crate) fn make_room(&mut self) -> bool {
        if !self.has_room() {
            self.notes.clear();
        }
        self.has_room()
    }

    /// Notes what a store alone has. False if there is no room, or if ranges of it are void.
    fn note(&mut self, store: StoreId, only: &[Range]) -> bool {
        self.notes.retain(|note| note.store != store);
        let room = self.room().saturating_sub(NOTE_BYTES) / RANGE_BYTES / 2;
        let is_void =
            |one: &Range| self.voids_of(store).any(|void| void.extent.overlaps(one.extent));
        if room == 0 || only.iter().any(is_void) {
            return false;
        }
        let extents = joined(only.iter().map(|one| one.extent).collect(), room.min(RANGES_MAX));
        let ranges = extents.into_iter().map(|extent| newest_in(extent, only)).collect();
        self.notes.push(Note { store, ranges });
        true
    }

    /// What each noted store alone has.
    pub(crate) fn alone(&self) -> Vec<(StoreId, Vec<Extent>)> {
        let extents = |ranges: Vec<Range>| ranges.iter().map(|range| range.extent).collect();
        let of = |note: &Note| Some((note.store, extents(self.noted(note.store)?)));
        self.notes.iter().filter_map(of).collect()
    }

    /// The note of a store.
    pub(crate) fn note_of(&self, store: StoreId) -> Option<&Note> {
        self.notes.iter().find(|note| note.store == store)
    }

    /// What is lost with a store, if it was noted.
    pub(crate) fn noted(&self, store: StoreId) -> Option<Vec<Range>> {
        let believed = |_: &Range| !plant::is(Bug::NoteWithoutVoids);
        let mut lost = self.note_of(store)?.ranges.clone();
        for void in self.voids_of(store).filter(believed) {
            lost = lost.into_iter().flat_map(|range| range.outside(void.extent)).collect();
        }
        Some(lost)
    }
}

/// The extent with the newest version that is in it. The ranges are in order.
fn newest_in(extent: Extent, ranges: &[Range]) -> Range {
    let from = ranges.partition_point(|range| range.extent.end() <= extent.start);
    let inside = ranges[from..].iter().take_while(|range| range.extent.start < extent.end());
    let version = inside.map(|range| range.version).max().unwrap_or_default();
    Range { extent, version }
}

impl Range {
    /// Its parts that are not in `other`.
    pub(crate) fn outside(self, other: Extent) -> impl Iterator<Item = Self> {
        let Extent { start, .. } = self.extent;
        let end = self.extent.end();
        let pieces = [(start, other.start.min(end)), (other.end().max(start), end)];
        let length = |(from, to): (Lba, Lba)| Extent::new(from.0, to.0.saturating_sub(from.0));
        let pieces = pieces.map(length).into_iter().filter(|piece| !piece.is_empty());
        pieces.map(move |extent| Self { extent, ..self })
    }
}

impl Header {
    /// Drops all notes, durably: before a session begins.
    pub(crate) async fn drop_notes(&self) -> Result<(), IoError> {
        if !self.noted.get() || plant::is(Bug::NotesKept) {
            return Ok(());
        }
        // A note that is being written now is there when this change has its turn.
        let change = |content: &mut Content| {
            let some = !content.notes.is_empty();
            content.notes.clear();
            some
        };
        self.update(change).await?;
        self.noted.set(false);
        Ok(())
    }
}

impl Client {
    /// Notes what stores alone have that stay away.
    pub(crate) async fn run_notes(self: Rc<Self>) {
        while !self.is_over() {
            self.runtime.sleep(self.options.note_after).await;
            let is_away = |store: &usize| self.lost_for(*store) >= self.options.note_after;
            let away: Vec<usize> = (0..self.peers.len()).filter(is_away).collect();
            if !self.is_over() {
                drop(self.note_losses().await);
                self.look_for_missing().await;
                // Without it a store is forgotten at a higher price.
                drop(self.note(&away).await);
            }
        }
    }

    /// Notes for each store what it alone has: nothing is on its way to any of them any more.
    pub(crate) async fn note_all(&self) {
        let all: Vec<usize> = (0..self.peers.len()).collect();
        drop(self.note(&all).await);
    }

    /// Notes what each of these stores alone has, if its session is over or the client is closed.
    async fn note(&self, stores: &[usize]) -> Result<(), IoError> {
        let lacks = |content: &Content, store: usize| {
            let id = self.peers[store].id;
            content.stores.contains(&id) && !content.notes.iter().any(|note| note.store == id)
        };
        if !stores.iter().any(|&store| lacks(&self.header.content(), store)) {
            return Ok(());
        }
        // When the change has its turn, a session may have begun.
        let change = |content: &mut Content| {
            let (table, mut some) = (self.table.borrow(), false);
            let begins = self.peers.iter().any(|peer| peer.begins.get());
            for &store in stores.iter().filter(|_| !begins) {
                let peer = &self.peers[store];
                let is_still = self.closed.get() || !peer.is_live();
                some |= is_still
                    && lacks(content, store)
                    && (plant::is(Bug::NoteUncovers) || table.home_but_held(store).is_empty())
                    && content.note(peer.id, &table.only_in(store));
            }
            some
        };
        self.header.update(change).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use manylogs_block::{BlockDevice, Nanos, Sectors};
    use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, TaskOrder};

    use super::*;
    use crate::header::VOIDS_MAX;
    use crate::versions::Version;

    const STORE: StoreId = [7; 16];

    const fn range(start: u64, len: u64, version: u64) -> Range {
        Range { extent: Extent::new(start, len), version: Version(version) }
    }

    fn content() -> Content {
        Content::new(*b"fedcba9876543210", Sectors(4096))
    }

    #[test]
    fn what_became_void_since_is_not_lost_with_a_noted_store() {
        let mut content = content();
        assert_eq!(content.noted(STORE), None);
        assert!(content.note(STORE, &[range(0, 8, 3), range(16, 8, 9)]));
        content.voids.push((STORE, range(4, 16, 5)));
        content.voids.push(([8; 16], range(0, 99, 5)));
        assert_eq!(content.noted(STORE), Some(vec![range(0, 4, 3), range(20, 4, 9)]));
        assert!(!content.note(STORE, &[range(8, 16, 4)]), "a part is void already");
        assert_eq!(content.noted(STORE), None, "so that nothing is known of it");
    }

    /// Else a session would begin, and the note would be believed although the store gets more.
    #[test]
    fn a_note_that_is_being_written_is_dropped_too() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let runtime = sim.handle(node);
        sim.block_on(node, async move {
            let config = CrashDiskConfig {
                capacity: Sectors(4096),
                physical_sector: Sectors(8),
                volatile_cache: true,
                native_fua: true,
                latency_max: Nanos::from_millis(1),
            };
            let disk = CrashDisk::new(runtime.clone(), config, DiskImage::default());
            let device: Rc<dyn BlockDevice> = Rc::new(disk);
            Header::create(Rc::clone(&device), content()).await.unwrap();
            let header = Rc::new(Header::find(&runtime, device).await.unwrap().unwrap());
            let noting = Rc::clone(&header);
            runtime.spawn(async move {
                let note = |content: &mut Content| content.note(STORE, &[range(0, 8, 3)]);
                noting.update(note).await.unwrap();
            });
            // The note is on its way.
            runtime.sleep(Nanos(1)).await;
            header.drop_notes().await.unwrap();
            runtime.sleep(Nanos::from_secs(1)).await;
            assert_eq!(header.content().notes, []);
        });
    }

    /// Each range keeps its own version: a newer one of it may be on its way to another store.
    #[test]
    fn ranges_are_joined_where_there_is_no_room_and_count_as_their_newest() {
        let ranges = [range(0, 8, 30), range(16, 8, 10), range(24, 8, 20), range(99, 1, 5)];
        let joined = [range(0, 32, 30), range(99, 1, 5)];
        for (extent, expected) in [(Extent::new(0, 32), joined[0]), (Extent::new(99, 1), joined[1])]
        {
            assert_eq!(newest_in(extent, &ranges), expected);
        }
        assert_eq!(newest_in(Extent::new(16, 8), &ranges), ranges[1]);
    }

    #[test]
    fn notes_give_way_to_voids() {
        let mut content = content();
        let many: Vec<Range> = (0..5000).map(|at| range(8 * at, 4, at)).collect();
        assert!(content.note(STORE, &many));
        assert!(content.notes[0].ranges.len() <= RANGES_MAX && content.has_room());
        content.voids = vec![([8; 16], range(0, 1, 1)); VOIDS_MAX];
        assert!(content.make_room(), "the voids are what counts");
        assert_eq!(content.notes, []);
        content.lose(&vec![range(0, 1, 1); content.room() / 24 + 1]);
        assert!(!content.make_room());
    }
}
