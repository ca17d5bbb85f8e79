//! Which records a scan believes. Records are written to memory, then some of them are lost, torn
//! or replaced by older content.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use manylogs_block::{
    BlockDevice, Extent, Hint, IoError, MemoryDevice, Payload, Request, RequestKind, Sectors,
};
use manylogs_filters::{Faults, Rule};
use manylogs_logstore::{
    AppendOf, AppendSlot, Damage, DataSequence, Entry, EntryKind, Log, LogId, LogOffset,
    RecordError, RecordSequence, RecordShape, ScanOf, Scanned, scan,
};
use smallvec::smallvec;

const REGION: Extent = Extent { start: manylogs_block::Lba(64), len: Sectors(256) };
const VOLUME: [u8; 16] = [7; 16];

/// How a read fails.
type Fail = fn(Extent) -> IoError;

const MEDIUM: Fail = |extent| IoError::Medium { extent };
const TRANSIENT: Fail = |extent| IoError::Transient { extent };

/// A log on a device, written record by record.
struct World {
    worn: Rc<Faults<MemoryDevice>>,
    device: Rc<dyn BlockDevice>,
    log: Log,
    next: u64,
    floor: u64,
}

impl World {
    fn new() -> Self {
        let log = Log::new(LogId(3), REGION, RecordShape::in_log(Sectors(1)));
        let worn = Rc::new(Faults::new(MemoryDevice::new(Sectors(1024))));
        Self { device: worn.clone(), worn, log, next: 1, floor: 0 }
    }

    /// Appends records of these lengths, one after the other, and makes each durable.
    fn written<const N: usize>(&mut self, lens: [u64; N]) -> [AppendSlot; N] {
        lens.map(|len| {
            let slot = self.append(len);
            self.write(&slot);
            slot
        })
    }

    /// Lets reads of a sector of the device fail from now on.
    fn fail(&self, sector: u64, error: Fail) {
        let rule = Rule::new(&[RequestKind::Read], error);
        self.worn.add(rule.within(Extent::new(sector, 1)));
    }

    /// Appends a record of `len` sectors of data, not yet written.
    fn append(&mut self, len: u64) -> AppendSlot {
        let data_sequence = DataSequence(self.next);
        let of = AppendOf {
            volume: VOLUME,
            sequence: RecordSequence(self.next),
            floor: DataSequence(self.floor),
            kept_floor: DataSequence(self.floor),
            next_data: DataSequence(self.next + 1),
        };
        self.next += 1;
        let extent = Extent::new(self.next % 64, len);
        let entry = Entry::new(extent, data_sequence, EntryKind::Data);
        self.log.append(&of, vec![entry], smallvec![Payload::tags(self.next * 1000, Sectors(len))])
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

    fn of(&self) -> ScanOf {
        ScanOf {
            volume: VOLUME,
            log: LogId(3),
            region: REGION,
            physical: Sectors(1),
            floor: DataSequence(self.floor),
            capacity: Sectors(512),
        }
    }

    fn scan(&self) -> Scanned {
        let of = self.of();
        let alone = ready(scan(&self.device, of, Payload::default())).unwrap();
        if self.worn.has_rules() {
            return alone;
        }
        // Passing in the start of the log, as read before, must not change the result.
        let start = self.read(Extent { len: Sectors(100), ..REGION });
        let led = ready(scan(&self.device, of, start)).unwrap();
        assert_eq!(offsets(&alone), offsets(&led));
        assert_eq!(alone.damage, led.damage);
        alone
    }
}

/// The result of a future on a device in memory, which answers at once.
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
    // The whole record is lost: its header cannot tell what it held.
    let whole = world.read(slots[1].target);
    world.put(slots[1].target, Payload::zeroes(slots[1].target.len));
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 9, 15]);
    assert_eq!(found.damage, damage(4, 5, false));
    // Its payload is lost: the header tells which blocks.
    world.put(slots[1].target, whole);
    world.put(Extent::new(slots[1].target.start.0 + 2, 1), Payload::zeroes(Sectors(1)));
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 4, 9, 15]);
    assert_eq!(found.damage, damage(4, 5, true));
    // Entries below the floor are dead, so their loss is no damage.
    world.put(slots[1].target, Payload::zeroes(slots[1].target.len));
    world.floor = slots[2].record.header.next_data.0;
    assert_eq!(world.scan().damage, []);
}

#[test]
fn the_header_of_an_older_record_is_not_taken_for_the_one_that_was_lost() {
    let mut world = World::new();
    let first = world.append(3);
    world.write(&first);
    // In flight when the process was killed: only its header arrived; it was never acknowledged.
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

#[test]
fn a_record_of_another_past_does_not_follow() {
    let mut world = World::new();
    let [first] = world.written([3]);
    let mut other = World::new();
    (other.log, other.next, world.next) = (world.log_after(&first), 50, 100);
    let [second, _third] = world.written([5, 2]);
    let [unlike] = other.written([5]);
    assert_eq!(second.target, unlike.target);
    // The write of the second record was lost. The record that was there before is whole and older
    // than the third, but the third has another predecessor.
    world.put(unlike.target, unlike.payload.clone());
    assert_eq!(offsets(&world.scan()), [0, 4]);
}

#[test]
fn a_header_without_its_payload_is_not_the_record_that_was_lost() {
    let mut world = World::new();
    let [first] = world.written([3]);
    // In flight when the process was killed; just as long as the record written there later.
    let stale = world.append(5);
    (world.log, world.next) = (world.log_after(&first), 1 << 32);
    let [lost, _behind] = world.written([5, 2]);
    assert_eq!(stale.target, lost.target);
    world.put(lost.target, Payload::zeroes(lost.target.len));
    let header = Extent { len: Sectors(1), ..stale.target };
    world.put(header, stale.payload.slice(Sectors(0), Sectors(1)));
    let found = world.scan();
    assert_eq!(
        found.damage,
        damage(4, 6, false),
        "what the old header says was never acknowledged"
    );
    assert_eq!(offsets(&found), [0, 10]);
}

#[test]
fn where_a_record_may_begin_that_cannot_be_read_the_log_may_go_on() {
    let mut world = World::new();
    let [_, _, last] = world.written([3, 4, 5]);
    // The header of the last record: no record behind it proves that it was there.
    world.fail(last.target.start.0, MEDIUM);
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 4]);
    assert_eq!(found.damage, damage(9, 1, false));
    assert_eq!(found.end, Some(RecordError::Unreadable));
    assert_eq!(found.unreadable, [LogOffset(9)]);
    // The first sector; all records are below the floor: another epoch may have begun there.
    let mut world = World::new();
    let [first, ..] = world.written([3, 4, 5]);
    world.floor = world.next;
    world.fail(first.target.start.0, MEDIUM);
    let found = world.scan();
    assert_eq!(found.damage, damage(0, 4, false));
    assert_eq!(offsets(&found), [4, 9]);
    // In the middle, a record behind shows that no live entry is lost.
    world.worn.clear();
    world.fail(first.target.end().0, MEDIUM);
    assert_eq!(world.scan().damage, []);
}

#[test]
fn a_record_with_a_payload_that_cannot_be_read_keeps_its_entries() {
    let mut world = World::new();
    let [_, middle, last] = world.written([3, 20, 20]);
    for (slot, at) in [(&middle, 4), (&last, 25)] {
        world.fail(slot.target.start.0 + 3, MEDIUM);
        let found = world.scan();
        assert_eq!(offsets(&found), [0, 4, 25]);
        assert_eq!(found.damage, damage(at, 21, true));
        world.worn.clear();
    }
    // The readable part does not match the header, so a crash tore the record.
    let first_unit = Extent::new(last.target.start.0 + 2, 1);
    world.put(first_unit, Payload::zeroes(Sectors(1)));
    world.fail(last.target.start.0 + 19, MEDIUM);
    let found = world.scan();
    assert_eq!(offsets(&found), [0, 4]);
    assert_eq!(found.damage, []);
}

#[test]
fn what_the_medium_is_not_to_blame_for_ends_the_scan() {
    let mut world = World::new();
    let [_, last] = world.written([3, 4]);
    for sector in last.target.range() {
        world.fail(sector, TRANSIENT);
        let found = ready(scan(&world.device, world.of(), Payload::default()));
        assert!(matches!(found, Err(IoError::Transient { .. })), "sector {sector}: {found:?}");
        world.worn.clear();
    }
}

/// A log of `region` sectors full of records without their payload, where only the last records
/// prove others durable, each one more than the last: the most expensive log for a scan.
fn hostile(region: u64) -> Scanned {
    let device: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(region)));
    let region = Extent::new(0, region);
    let mut log = Log::new(LogId(3), region, RecordShape::in_log(Sectors(1)));
    let (mut slots, mut durable) = (Vec::new(), 0);
    while log.free().0 >= 2 {
        if log.used().0 * 2 >= region.len.0 {
            // Each record states that one more record is durable.
            let done: &AppendSlot = &slots[durable];
            let _ = log.finish_append(done.record.header.record_sequence);
            durable += 1;
        }
        let sequence = slots.len() as u64 + 1;
        let of = AppendOf {
            volume: VOLUME,
            sequence: RecordSequence(sequence),
            floor: DataSequence(0),
            kept_floor: DataSequence(0),
            next_data: DataSequence(sequence + 1),
        };
        let data_sequence = DataSequence(sequence);
        let entry = Entry::new(Extent::new(7, 1), data_sequence, EntryKind::Data);
        slots.push(log.append(&of, vec![entry], smallvec![Payload::tags(sequence, Sectors(1))]));
    }
    for slot in &slots {
        let extent = Extent { len: Sectors(1), ..slot.target };
        let payload = slot.payload.slice(Sectors(0), Sectors(1));
        ready(device.submit(Request::write_fua(extent, payload))).unwrap();
    }
    let of = ScanOf {
        volume: VOLUME,
        log: LogId(3),
        region,
        physical: Sectors(1),
        floor: DataSequence(0),
        capacity: Sectors(512),
    };
    ready(scan(&device, of, Payload::default())).unwrap()
}

#[test]
fn a_hostile_log_costs_no_more_than_its_length_allows() {
    for sectors in [2_000, 8_000] {
        let found = hostile(sectors);
        assert!(found.damage.len() as u64 > sectors / 8, "{} places", found.damage.len());
        let work = found.work;
        assert!(work.headers <= 3 * sectors, "{work:?} in {sectors} sectors");
        assert!(work.read.0 <= 3 * sectors, "{work:?} in {sectors} sectors");
        assert!(work.checked.0 <= 4 * sectors + 4300, "{work:?} in {sectors} sectors");
    }
}

impl World {
    /// The log as recovery leaves it if `first` is its only record.
    fn log_after(&self, first: &AppendSlot) -> Log {
        let mut log = Log::new(LogId(3), REGION, RecordShape::in_log(Sectors(1)));
        log.take_up(&first.record);
        log
    }
}

/// Each of these bugs makes one of the tests above fail.
#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    let cases: [(Bug, fn()); 7] = [
        (Bug::NoDurableTail, a_record_that_was_durable_and_is_gone_is_damage),
        (Bug::PredecessorIgnored, a_record_of_another_past_does_not_follow),
        (Bug::PredecessorIgnored, a_header_without_its_payload_is_not_the_record_that_was_lost),
        (Bug::UnreadableIsTheEnd, where_a_record_may_begin_that_cannot_be_read_the_log_may_go_on),
        (
            Bug::UnreadablePayloadIsTorn,
            a_record_with_a_payload_that_cannot_be_read_keeps_its_entries,
        ),
        (Bug::AnyErrorIsTheMedium, what_the_medium_is_not_to_blame_for_ends_the_scan),
        (Bug::LookAheadForgets, a_hostile_log_costs_no_more_than_its_length_allows),
    ];
    for (bug, test) in cases {
        plant(Some(bug));
        let noticed = std::panic::catch_unwind(test).is_err();
        plant(None);
        test();
        assert!(noticed, "{bug:?} is not noticed");
        println!("{bug:?}: noticed");
    }
}
