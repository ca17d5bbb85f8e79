//! Metadata that stays in the logs: what recovery finds of it when it moved, or was freed.

use manylogs_block::{Extent, Payload, Rng, Sectors};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Batch, Logs, NewEntry, Place, Store, Versions};
use manylogs_logstore::{Class, EntryKind, Floors, Log, LogId, Record, RecordShape};
#[cfg(feature = "plant")]
use manylogs_plant::{self as plant, Bug, NEAR_LAZY_STORE};

const FIRST: LogId = LogId(0);
const SECOND: LogId = LogId(1);
const RECORD: Sectors = Sectors(32);
/// A block of metadata that a case is about.
const BLOCK: Extent = Extent::new(0, 8);
/// Another one, which stays and holds the floor of kept versions down.
const STAYS: Extent = Extent::new(80, 8);

/// A store with what was written to its logs.
struct World {
    store: Store,
    records: Vec<(LogId, Record)>,
}

impl World {
    fn new() -> Self {
        let regions: Vec<Extent> = (0..2).map(|i| Extent::new(i * 1000, 400)).collect();
        let logs = Logs::new(&regions, RECORD, RecordShape::in_log(Sectors(1)));
        let mut root = Root::first(regions.len());
        logs.ids().for_each(|log| root.open_around(log, regions.len()));
        let mut store = Store::new(*b"0123456789abcdef", logs, root, 0);
        store.keep();
        store.keep_metadata();
        Self { store, records: Vec::new() }
    }

    /// Writes an entry to a log, durably.
    fn put(&mut self, log: LogId, kind: EntryKind, extent: Extent) {
        let payload = (kind == EntryKind::Data).then(|| Payload::tags(extent.start.0, extent.len));
        let class = Class::KeptMetadata;
        let entry = NewEntry { extent, kind, class, version: 0, payload };
        let batch = Batch { entries: [entry].into_iter().collect(), after: None };
        let room = self.store.room_of(&batch);
        self.store.put(batch, room, None);
        let slots = self.store.gather(log, RECORD);
        let (sequence, slot) = self.store.append(log, slots);
        self.records.push((log, slot.record));
        self.store.record_written(log, sequence);
    }

    /// Raises the floor of what goes home over all, and that of kept versions up to the oldest.
    fn checkpoint(&mut self) -> Floors {
        let home = self.store.next_data();
        let floors = Floors { home, kept: self.store.oldest_kept().unwrap_or(home) };
        self.store.forget_below(floors);
        floors
    }

    /// What recovery finds, whatever of the logs that may begin anew is overwritten.
    fn recovered(&self, floors: Floors) -> Vec<(Extent, Option<LogId>)> {
        let mut versions = Versions::new(self.store.logs().blank());
        let is_there = |log: LogId| self.store.logs().get(log).is_some_and(|log| !log.may_reset());
        for (log, record) in self.records.iter().filter(|(log, _)| is_there(*log)) {
            versions.take_record(*log, record, floors, true);
        }
        versions.logged(floors).map(|(extent, mapped)| (extent, mapped.value.log())).collect()
    }
}

/// A block that was kept is freed, and what was freed goes home: the old version must not rise,
/// although its log and the floor of kept versions still have it.
fn freed_metadata_stays_dead() -> Option<&'static str> {
    let mut world = World::new();
    world.put(FIRST, EntryKind::Data, STAYS);
    world.put(FIRST, EntryKind::Data, BLOCK);
    world.put(SECOND, EntryKind::Supersede, BLOCK);
    assert_eq!(world.store.kept_metadata_sectors(), STAYS.len);
    let floors = world.checkpoint();
    let rises = world.recovered(floors) != [(STAYS, Some(FIRST))];
    rises.then_some("metadata of a freed block rises")
}

/// Kept metadata that moves is kept where it is then, below the floor of what goes home.
fn moved_metadata_is_kept() -> Option<&'static str> {
    let mut world = World::new();
    world.put(FIRST, EntryKind::Data, BLOCK);
    let records: Vec<Record> = world.records.iter().map(|(_, record)| record.clone()).collect();
    world.store.set_aside(FIRST);
    let live = world.store.live_in(FIRST, &records);
    let log = Payload::tags(0, Sectors(400));
    let chosen = (Extent::new(0, 400), &log);
    let moved = world.store.relocate((FIRST, SECOND), &live, chosen).unwrap();
    world.records.push((SECOND, moved.slot.record));
    world.store.record_written(SECOND, moved.sequence);
    world.store.put_back();
    let floors = world.checkpoint();
    assert!(world.store.logs().get(FIRST).is_some_and(Log::may_reset), "it is empty");
    let is_there = world.recovered(floors) == [(BLOCK, Some(SECOND))];
    (!is_there).then_some("metadata is lost by a move")
}

/// The addresses of the versions that lie around that of `wanted`.
fn around(store: &mut Store, wanted: Extent, len: Sectors) -> Vec<u64> {
    let found = store.around(wanted, len).map(|around| around.parts).unwrap_or_default();
    let mut found: Vec<u64> = found.into_iter().map(|(extent, _)| extent.start.0).collect();
    found.sort_unstable();
    found
}

/// What lay in a log before newer versions came, or before it was freed, is not there any more.
fn what_lies_around_is_the_newest() -> Option<&'static str> {
    let mut world = World::new();
    let (all, freed) = (Sectors(400), Extent::new(160, 8));
    for extent in [BLOCK, freed, STAYS] {
        world.put(FIRST, EntryKind::Data, extent);
    }
    assert_eq!(around(&mut world.store, STAYS, all), [0, 80, 160]);
    world.put(SECOND, EntryKind::Data, BLOCK);
    world.put(SECOND, EntryKind::Supersede, freed);
    assert_eq!(around(&mut world.store, BLOCK, all), [0]);
    let is_newest = around(&mut world.store, STAYS, all) == [80];
    (!is_newest).then_some("an older version is read from its log")
}

/// In the order of [`NEAR_LAZY_STORE`].
const CASES: [fn() -> Option<&'static str>; 3] =
    [freed_metadata_stays_dead, moved_metadata_is_kept, what_lies_around_is_the_newest];

/// What a part of a log holds is what a search of the whole table finds there, at any time.
#[test]
fn what_lies_around_is_what_the_table_has_there() {
    let mut world = World::new();
    let mut rng = Rng::new(34);
    let (mut asked, mut brought) = (0, 0);
    for step in 0..80 {
        let log = if step < 40 { FIRST } else { SECOND };
        let block = |rng: &mut Rng| Extent::new(8 * rng.below(24), 8);
        world.put(log, EntryKind::Data, block(&mut rng));
        let wanted = block(&mut rng);
        let len = 8 * (1 + rng.below(20));
        let found = around(&mut world.store, wanted, Sectors(len));
        let Some((log, at)) = world.store.metadata_at(wanted) else {
            assert_eq!(found, [0; 0]);
            continue;
        };
        let part = u64::from(at.0) / len;
        let there = world.store.map().iter().filter_map(|(extent, mapped)| match mapped.value {
            Place::Log { log: of, offset, .. } => {
                (of == log && u64::from(offset.0) / len == part).then_some(extent.start.0)
            }
            _ => None,
        });
        assert_eq!(found, there.collect::<Vec<_>>(), "{wanted:?} of {len}");
        (asked, brought) = (asked + 1, brought + found.len());
    }
    assert!(asked > 40 && brought > 2 * asked, "{asked} {brought}");
}

#[test]
fn recovery_finds_what_is_kept_and_nothing_older() {
    for case in CASES {
        assert_eq!(case(), None);
    }
}

#[test]
fn metadata_is_kept_only_where_that_was_asked_for() {
    let mut world = World::new();
    world.put(FIRST, EntryKind::Data, BLOCK);
    assert!(world.store.keeps_metadata() && !world.store.waits_for_home());
    let floors = world.checkpoint();
    assert_eq!(world.recovered(floors), [(BLOCK, Some(FIRST))]);
    let mut other = World::new();
    other.store = Store::new(*b"0123456789abcdef", other.store.logs().blank(), Root::first(2), 0);
    other.store.keep();
    other.put(FIRST, EntryKind::Data, BLOCK);
    assert_eq!(other.store.kept_metadata_sectors(), Sectors(0));
    assert!(other.store.waits_for_home(), "it is logged as other metadata");
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_of_kept_metadata_are_noticed() {
    assert_eq!(NEAR_LAZY_STORE.len(), CASES.len());
    for (bug, case) in NEAR_LAZY_STORE.iter().zip(CASES) {
        let bug: Bug = *bug;
        plant::plant(Some(bug));
        let noticed = case();
        plant::plant(None);
        assert!(noticed.is_some(), "{bug:?} is not noticed");
    }
}
