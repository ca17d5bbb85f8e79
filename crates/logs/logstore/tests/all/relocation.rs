//! Versions that move from one log to another, and copies that newer versions overtake.

use manylogs_block::{Extent, Lba, Payload, Sectors};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Batch, Logs, Store};
use manylogs_logstore::{EntryKind, Log, LogId, RecordShape};
#[cfg(feature = "plant")]
use manylogs_plant::{self as plant, Bug};

const SOURCE: LogId = LogId(0);
const TARGET: LogId = LogId(1);
const OTHER: LogId = LogId(2);
const RECORD: Sectors = Sectors(32);

fn store() -> Store {
    let regions: Vec<Extent> = (0..3).map(|i| Extent::new(i * 1000, 400)).collect();
    let logs = Logs::new(&regions, RECORD, RecordShape::apart(Sectors(1)));
    let mut root = Root::first(regions.len());
    logs.ids().for_each(|log| root.open_around(log, regions.len()));
    Store::new(*b"0123456789abcdef", logs, root, 0)
}

fn put(store: &mut Store, tag: u64) {
    let payload = Payload::tags(tag, Sectors(30));
    let batch = Batch::of(EntryKind::Data, Extent::new(100, 30), Some(payload));
    let room = store.room_of(&batch);
    assert!(store.fits(room));
    store.put(batch, room, None);
}

fn is_free(store: &Store, log: LogId) -> bool {
    store.logs().get(log).is_some_and(|log| log.used() == Sectors(0))
}

/// A copy arrives after a newer version displaced the version. Recovery may choose the copy until
/// the newer one is durable. With headers kept apart, it would find the copy's header even after
/// the target has begun anew.
fn an_overtaken_copy_is_kept() -> bool {
    let mut store = store();
    put(&mut store, 1);
    let slots = store.gather(SOURCE, RECORD);
    let (first, _) = store.append(SOURCE, slots);
    store.record_written(SOURCE, first);
    store.set_aside(SOURCE);
    let live = store.live_by_table(SOURCE);
    let read = Payload::tags(1, Sectors(30));
    let within = Extent::new(0, 30);
    let moved = store.relocate((SOURCE, TARGET), &live, (within, &read)).unwrap();
    put(&mut store, 2);
    store.record_written(TARGET, moved.sequence);
    let kept = !is_free(&store, TARGET);
    store.put_back();
    let slots = store.gather(OTHER, RECORD);
    let (newer, _) = store.append(OTHER, slots);
    store.record_written(OTHER, newer);
    // Now nothing needs either copy.
    assert!(is_free(&store, SOURCE) && is_free(&store, TARGET));
    assert_eq!(store.logs().get(OTHER).map(Log::live), Some(30));
    kept
}

#[test]
fn the_copy_of_an_overtaken_version_keeps_its_log() {
    assert!(an_overtaken_copy_is_kept());
}

fn with_one_version() -> Store {
    let mut store = store();
    put(&mut store, 1);
    let slots = store.gather(SOURCE, RECORD);
    let (first, _) = store.append(SOURCE, slots);
    store.record_written(SOURCE, first);
    store
}

/// Clients overwrite the middle of a version that was found and read. Returns the extents of what
/// is moved.
fn still_moved() -> Vec<Extent> {
    let mut store = with_one_version();
    let live = store.live_by_table(SOURCE);
    let payload = Payload::tags(50, Sectors(10));
    let batch = Batch::of(EntryKind::Data, Extent::new(110, 10), Some(payload));
    let room = store.room_of(&batch);
    store.put(batch, room, None);
    let still = store.still_live(&live);
    let (within, read) = (Extent::new(0, 30), Payload::tags(1, Sectors(30)));
    let moved = store.relocate((SOURCE, TARGET), &still, (within, &read)).unwrap();
    if moved.slot.record.entries.len() == 2 {
        let content = |from: u64| read.slice(Sectors(from), Sectors(10));
        let mut both = content(0);
        both.append(content(20));
        assert_eq!(moved.slot.payload, both, "each part has its own content");
    }
    moved.slot.record.entries.iter().map(|entry| entry.extent).collect()
}

#[test]
fn what_was_overwritten_since_it_was_found_is_not_moved() {
    assert_eq!(still_moved(), [Extent::new(100, 10), Extent::new(120, 10)]);
}

/// Moves the version of sector 100 from one log to another.
fn relocate(store: &mut Store, from: LogId, to: LogId) {
    let live = store.live_by_table(from);
    let moved: Vec<_> = live.into_iter().filter(|live| live.extent.start == Lba(100)).collect();
    let read = (Extent::new(0, 60), Payload::tags(1, Sectors(60)));
    let moved = store.relocate((from, to), &moved, (read.0, &read.1)).unwrap();
    store.record_written(to, moved.sequence);
}

/// A version is looked up in a log, moved to another log, and then moved back into the first log,
/// to a later place. What the look-up found is not live any more.
#[test]
fn what_came_back_to_another_place_is_not_what_was_found() {
    let mut store = with_one_version();
    let found = store.live_by_table(SOURCE);
    assert_eq!(store.still_live(&found).len(), found.len());
    relocate(&mut store, SOURCE, TARGET);
    assert!(store.still_live(&found).is_empty());
    let payload = Payload::tags(90, Sectors(20));
    let batch = Batch::of(EntryKind::Data, Extent::new(900, 20), Some(payload));
    let room = store.room_of(&batch);
    store.put(batch, room, None);
    let slots = store.gather(SOURCE, RECORD);
    let (other, _) = store.append(SOURCE, slots);
    store.record_written(SOURCE, other);
    relocate(&mut store, TARGET, SOURCE);
    assert_eq!(store.live_by_table(SOURCE).len(), 2);
    assert!(store.still_live(&found).is_empty());
}

/// Records in flight with new versions, while one of them and one of moved versions are.
fn new_in_flight() -> usize {
    let mut store = with_one_version();
    let live = store.live_by_table(SOURCE);
    let read = Payload::tags(1, Sectors(30));
    store.relocate((SOURCE, TARGET), &live, (Extent::new(0, 30), &read)).unwrap();
    put(&mut store, 2);
    let slots = store.gather(OTHER, RECORD);
    let _ = store.append(OTHER, slots);
    assert_eq!(store.entries().records.len(), 2);
    store.entries().new_in_flight()
}

#[test]
fn records_of_moved_versions_are_not_new() {
    assert_eq!(new_in_flight(), 1);
}

#[cfg(feature = "plant")]
#[test]
fn bugs_of_moves_are_noticed() {
    plant::plant(Some(Bug::StaleContentMoved));
    let moved = still_moved();
    plant::plant(Some(Bug::MovesHoldClientsBack));
    let count = new_in_flight();
    plant::plant(None);
    assert_eq!((moved, count), (vec![Extent::new(100, 30)], 2));
}

#[cfg(feature = "plant")]
#[test]
fn that_it_does_not_is_noticed() {
    plant::plant(Some(Bug::OvertakenCopyNotKept));
    let kept = an_overtaken_copy_is_kept();
    plant::plant(None);
    assert!(!kept);
}
