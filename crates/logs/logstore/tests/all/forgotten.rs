//! What is dead in a log is forgotten, but not while it is read.

use manylogs_block::{Extent, IoError, Payload, Sectors};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Batch, Logs, Store};
use manylogs_logstore::{EntryKind, LogId, RecordShape};

const OLD: LogId = LogId(0);
const NEW: LogId = LogId(1);
const RECORD: Sectors = Sectors(256);
const BLOCK: u64 = 8;
const BLOCKS: u64 = 16;

fn store() -> Store {
    let regions: Vec<Extent> = (0..2).map(|i| Extent::new(i * 1000, 600)).collect();
    let logs = Logs::new(&regions, RECORD, RecordShape::in_log(Sectors(8))).with_inverse();
    let mut root = Root::first(regions.len());
    logs.ids().for_each(|log| root.open_around(log, regions.len()));
    Store::new(*b"0123456789abcdef", logs, root, 0)
}

const fn block(number: u64) -> Extent {
    Extent { start: manylogs_block::Lba(number * BLOCK), len: Sectors(BLOCK) }
}

/// Writes these blocks to `log`, as one record.
fn write(store: &mut Store, log: LogId, blocks: std::ops::Range<u64>, tag: u64) {
    for number in blocks {
        let payload = Payload::tags(tag + number * BLOCK, Sectors(BLOCK));
        let batch = Batch::of(EntryKind::Data, block(number), Some(payload));
        let room = store.room_of(&batch);
        store.put(batch, room, None);
    }
    let slots = store.gather(log, RECORD);
    let (record, _) = store.append(log, slots);
    store.record_written(log, record);
}

fn listed(store: &Store) -> (usize, usize) {
    let log = store.logs().get(OLD).unwrap();
    (log.units().iter().len(), log.inverse().unwrap().iter().count())
}

#[test]
fn dead_versions_are_forgotten_and_live_ones_are_not() {
    let mut store = store();
    write(&mut store, OLD, 0..BLOCKS, 1000);
    assert_eq!(listed(&store), (16, 16));
    write(&mut store, NEW, 0..1, 2000);
    assert_eq!(listed(&store), (16, 16), "one of 16 is not worth it");
    write(&mut store, NEW, 4..9, 2000);
    assert_eq!(listed(&store), (10, 10));
    let live = store.live_by_inverse(OLD).unwrap();
    let live: Vec<Extent> = live.iter().map(|live| live.extent).collect();
    let expected: Vec<Extent> = (1..4).chain(9..BLOCKS).map(block).collect();
    assert_eq!(live, expected);
    for number in [3, 9, 15] {
        assert!(is_verified(&mut store, number), "block {number}");
    }
}

#[test]
fn a_part_of_a_block_keeps_the_checksum_of_the_block() {
    let mut store = store();
    write(&mut store, OLD, 0..BLOCKS, 1000);
    let payload = Payload::tags(5000, Sectors(100));
    let batch = Batch::of(EntryKind::Data, Extent::new(4, 100), Some(payload));
    let room = store.room_of(&batch);
    store.put(batch, room, None);
    let slots = store.gather(NEW, RECORD);
    let (record, _) = store.append(NEW, slots);
    store.record_written(NEW, record);
    // Of block 0 the beginning lives, blocks 1 to 12 are dead.
    assert_eq!(listed(&store), (4, 4));
    assert!(is_verified(&mut store, 0));
}

/// Whether the beginning of a block that `OLD` has is held against a checksum.
fn is_verified(store: &mut Store, number: u64) -> bool {
    let part = Extent::new(number * BLOCK, 1);
    let place = store.parts(part)[0].1.unwrap();
    assert_eq!(place.log(), Some(OLD));
    let manylogs_logstore::store::Source::Log(read) = store.begin(part, place) else {
        panic!("block {number} is not in a log")
    };
    let damaged = Payload::tags(1 << 40, read.within.len);
    let refused = store.end_read(&read, Ok(damaged), part);
    read.within.len == Sectors(BLOCK) && refused == Err(IoError::Checksum { extent: part })
}

#[test]
fn what_dies_while_it_is_read_is_held_against_its_checksum() {
    let mut store = store();
    write(&mut store, OLD, 0..BLOCKS, 1000);
    let place = store.parts(block(5))[0].1.unwrap();
    let manylogs_logstore::store::Source::Log(read) = store.begin(block(5), place) else {
        panic!("the block is in a log")
    };
    write(&mut store, NEW, 2..12, 2000);
    let damaged = Payload::tags(1 << 40, Sectors(BLOCK));
    let refused = store.end_read(&read, Ok(damaged), block(5));
    assert_eq!(refused, Err(IoError::Checksum { extent: block(5) }));
    assert_eq!(listed(&store), (6, 6), "when the read has ended the dead are forgotten");
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::ForgottenUnderRead));
    let case = what_dies_while_it_is_read_is_held_against_its_checksum;
    let noticed = catch_unwind(AssertUnwindSafe(case)).is_err();
    plant(None);
    assert!(noticed, "a checksum is forgotten while its block is read");
}
