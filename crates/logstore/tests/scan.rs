//! What a scan believes: records written to memory, then some of them lost, torn or replaced by
//! what was there before.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use manylogs_block::{BlockDevice, Extent, Hint, MemoryDevice, Payload, Request, Sectors};
use manylogs_logstore::{
    AppendOf, AppendSlot, Damage, DataSequence, Entry, EntryKind, Log, LogId,
    LogOffset, RecordSequence, RecordShape, ScanOf, Scanned, scan,
};

const REGION: Extent = Extent { start: manylogs_block::Lba(64), len: Sectors(256) };
const VOLUME: [u8; 16] = [7; 16];

/// A log on a device, written record by record.
struct World {
    device: Rc<dyn BlockDevice>,
    log: Log,
    next: u64,
    floor: u64,
}

impl World {
    fn new() -> Self {
        let log = Log::new(LogId(3), REGION, RecordShape::in_log(Sectors(1)));
        let device = Rc::new(MemoryDevice::new(Sectors(1024)));
        Self { device, log, next: 1, floor: 0 }
    }

    /// Appends a record of `len` sectors of data, not yet written.
    fn append(&mut self, len: u64) -> AppendSlot {
        let data_sequence = DataSequence(self.next);
        let of = AppendOf {
            volume: VOLUME,
            sequence: RecordSequence(self.next),
            floor: DataSequence(self.floor),
            next_data: DataSequence(self.next + 1),
        };
        self.next += 1;
        let extent = Extent::new(self.next % 64, len);
        let entry = Entry { extent, data_sequence, kind: EntryKind::Data };
        self.log.append(&of, vec![entry], vec![Payload::tags(self.next * 1000, Sectors(len))])
    }

    /// Writes a record, and books it as durable.
    fn write(&mut self, slot: &AppendSlot) {
        self.put(slot.target, slot.payload.clone());
        let _ = self.log.finish_append(slot.record.header.record_sequence);
    }

    fn put(&self, extent: Extent, payload: Payload) {
        let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
        ready(self.device.submit(write)).unwrap();
    }

    fn read(&self, extent: Extent) -> Payload {
        ready(self.device.submit(Request::Read { extent })).unwrap()
    }

    fn scan(&self) -> Scanned {
        let of = ScanOf {
            volume: VOLUME,
            log: LogId(3),
            region: REGION,
            physical: Sectors(1),
            floor: DataSequence(self.floor),
            capacity: Sectors(512),
        };
        let alone = ready(scan(&self.device, of, Payload::default())).unwrap();
        // What was read of the start before changes nothing.
        let start = self.read(Extent { len: Sectors(100), ..REGION });
        let led = ready(scan(&self.device, of, start)).unwrap();
        assert_eq!(offsets(&alone), offsets(&led));
        assert_eq!(alone.damage, led.damage);
        alone
    }
}

/// Memory answers at once.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("memory does not wait"),
    }
}

fn offsets(scanned: &Scanned) -> Vec<u32> {
    scanned.records.iter().map(|record| record.header.offset.0).collect()
}

fn damage(offset: u32, sectors: u64, known: bool) -> Vec<Damage> {
    vec![Damage { offset: LogOffset(offset), sectors: Sectors(sectors), known }]
}

#[test]
fn all_records_are_found_and_a_torn_last_one_is_the_end() {
    let mut world = World::new();
    for len in [3, 8, 1] {
        let slot = world.append(len);
        world.write(&slot);
    }
    let torn = world.append(5);
    world
        .put(Extent { len: Sectors(3), ..torn.target }, torn.payload.slice(Sectors(0), Sectors(3)));
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 4, 13]);
    assert_eq!(found.damage, []);
}

#[test]
fn records_in_flight_together_prove_nothing_of_one_another() {
    let mut world = World::new();
    let first = world.append(3);
    world.write(&first);
    let (_lost, behind) = (world.append(4), world.append(4));
    world.put(behind.target, behind.payload.clone());
    let found = world.scan();
    assert_eq!(offsets(&found), [0]);
    assert_eq!(found.damage, []);
}

#[test]
fn a_record_that_was_durable_and_is_gone_is_damage() {
    let mut world = World::new();
    let slots: Vec<AppendSlot> = [3, 4, 5, 2]
        .map(|len| {
            let slot = world.append(len);
            world.write(&slot);
            slot
        })
        .into();
    // All of it: nobody knows what it was.
    let whole = world.read(slots[1].target);
    world.put(slots[1].target, Payload::zeroes(slots[1].target.len));
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 9, 15]);
    assert_eq!(found.damage, damage(4, 5, false));
    // Its payload: the header tells what is lost.
    world.put(slots[1].target, whole);
    world.put(Extent::new(slots[1].target.start.0 + 2, 1), Payload::zeroes(Sectors(1)));
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 4, 9, 15]);
    assert_eq!(found.damage, damage(4, 5, true));
    // Below the floor nothing is missed.
    world.put(slots[1].target, Payload::zeroes(slots[1].target.len));
    world.floor = slots[2].record.header.next_data.0;
    assert_eq!(world.scan().damage, []);
}

#[test]
fn the_header_of_an_older_record_is_not_taken_for_the_one_that_was_lost() {
    let mut world = World::new();
    let first = world.append(3);
    world.write(&first);
    // In flight when the process was killed: its header arrived, and was never believed.
    let stale = world.append(20);
    let before = world.log_after(&first);
    world.put(
        Extent { len: Sectors(1), ..stale.target },
        stale.payload.slice(Sectors(0), Sectors(1)),
    );
    let uncovered = world.read(Extent { start: stale.target.start, len: Sectors(8) });
    // The next opening goes on behind the first record.
    (world.log, world.next) = (before, 1 << 32);
    let written: Vec<AppendSlot> = [7, 2, 2]
        .map(|len| {
            let slot = world.append(len);
            world.write(&slot);
            slot
        })
        .into();
    assert_eq!(offsets(&world.scan()), [0, 4, 12, 15]);
    assert_eq!(written[0].target.len, Sectors(8));
    world.put(written[0].target, uncovered);
    let found = world.scan();
    assert_eq!(found.damage, damage(4, 8, false));
    assert_eq!(offsets(&found), [0, 12, 15]);
}

impl World {
    /// The log as a recovery finds it when `first` is its only record.
    fn log_after(&self, first: &AppendSlot) -> Log {
        let mut log = Log::new(LogId(3), REGION, RecordShape::in_log(Sectors(1)));
        log.take_up(&first.record);
        log
    }
}
