//! What the tail cache keeps, and for how long.

use manylogs_logstore::store::SlotId;
use manylogs_logstore::{EntryKind, Mapped};

use super::*;

/// A cache beside the map that it is asked with.
struct World {
    cache: TailCache,
    map: ExtentMap<Place>,
    next: u64,
}

impl World {
    /// A cache with room for `versions` of eight sectors.
    fn with_room_for(versions: u64) -> Self {
        let most = versions * size_of_version(Extent::new(0, 8));
        let cache = TailCache { most, ..TailCache::default() };
        Self { cache, map: ExtentMap::default(), next: 0 }
    }

    /// A client writes, or writes zeroes. Returns the sequence of the version.
    fn put(&mut self, extent: Extent) -> DataSequence {
        self.next += 1;
        let sequence = DataSequence(self.next);
        self.cache.displace(&self.map, extent);
        let place = Place::Buffered { slot: SlotId(0), skip: 0 };
        self.map.insert(extent, Mapped { sequence, value: place }, |_, _| ());
        sequence
    }

    /// The version of `extent` is appended, with tags from a hundred times its sequence on.
    fn append(&mut self, extent: Extent, sequence: DataSequence) {
        let entry = Entry::new(extent, sequence, EntryKind::Data);
        let content = Payload::tags(100 * sequence.0, extent.len);
        self.cache.keep(&self.map, &entry, &content);
    }

    fn write(&mut self, start: u64, len: u64) -> DataSequence {
        let extent = Extent::new(start, len);
        let sequence = self.put(extent);
        self.append(extent, sequence);
        sequence
    }

    fn find(&self, start: u64, len: u64, sequence: DataSequence) -> Option<Payload> {
        self.cache.find(Extent::new(start, len), sequence)
    }
}

#[test]
fn the_oldest_version_makes_room() {
    let mut world = World::with_room_for(3);
    let versions: Vec<_> = (0..4).map(|block| world.write(8 * block, 8)).collect();
    assert_eq!(world.find(0, 8, versions[0]), None);
    for (block, version) in (0..).zip(&versions).skip(1) {
        let tags = Payload::tags(100 * version.0, Sectors(8));
        assert_eq!(world.find(8 * block, 8, *version), Some(tags));
    }
    assert!(world.cache.bytes() <= world.cache.most);
}

#[test]
fn overwrites_merge() {
    let mut world = World::with_room_for(3);
    let kept = world.write(100, 8);
    for _ in 0..20 {
        world.write(0, 8);
    }
    // The block that was written over and over has one place, so the other one stays.
    assert!(world.find(100, 8, kept).is_some());
    assert_eq!(world.cache.versions.len(), 2);
    // One that was overwritten before it was appended is not kept.
    let older = world.put(Extent::new(50, 8));
    world.write(50, 8);
    world.append(Extent::new(50, 8), older);
    assert_eq!(world.find(50, 8, older), None);
    assert_eq!(world.cache.versions.len(), 3);
}

#[test]
fn parts_of_a_version_are_found_until_nothing_is_left_of_it() {
    let mut world = World::with_room_for(9);
    let version = world.write(10, 8);
    world.put(Extent::new(0, 13));
    assert_eq!(world.find(13, 5, version), Some(Payload::tags(100 * version.0 + 3, Sectors(5))));
    assert_eq!(world.find(9, 5, version), None);
    world.put(Extent::new(13, 8));
    assert_eq!(world.find(13, 5, version), None);
    assert_eq!(world.cache.bytes(), 0);
    // A version of the same extent is another one.
    let newer = world.write(10, 8);
    assert_eq!(world.find(13, 5, version), None);
    assert!(world.find(13, 5, newer).is_some());
}

#[test]
fn content_is_copied_out_of_larger_requests() {
    let request = Payload::bytes(vec![7; 1 << 20]);
    let part = request.slice(Sectors(16), Sectors(8));
    let own = own(&part);
    assert_eq!(own, part);
    let [Piece::Bytes(kept)] = own.pieces() else { panic!("{own:?}") };
    let [Piece::Bytes(all)] = request.pieces() else { panic!("{request:?}") };
    assert!(!all.as_ptr_range().contains(&kept.as_ptr()), "the request stays in memory");
}

#[test]
fn without_memory_nothing_is_kept() {
    let mut world = World::with_room_for(0);
    let version = world.write(0, 8);
    assert_eq!(world.find(0, 8, version), None);
    assert_eq!(world.cache.bytes(), 0);
}
