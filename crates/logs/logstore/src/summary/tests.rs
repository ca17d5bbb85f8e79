//! Summaries survive encoding, and take few bytes.

use super::*;
use manylogs_block::{Payload, Rng};
use proptest::prelude::*;

const SHAPE: RecordShape = RecordShape::in_log(Sectors(8));
const OF: SummaryOf = SummaryOf {
    volume: [7; 16],
    log: LogId(3),
    len: Sectors(1 << 20),
    capacity: Sectors(1 << 40),
    shape: SHAPE,
};
const MOST: usize = 1 << 20;

/// Records one behind the other, of these entries each.
fn records(all: Vec<Vec<Entry>>) -> Vec<Record> {
    let (mut offset, mut previous_checksum) = (Sectors(0), 0);
    let entries = all.iter().flatten();
    let next_data = entries.map(|entry| entry.data_sequence.next()).max().unwrap_or_default();
    let build = |(number, entries): (u64, Vec<Entry>)| {
        let header = RecordHeader {
            volume: OF.volume,
            log: OF.log,
            epoch: Epoch(100),
            offset: LogOffset(narrow(offset.0)),
            record_sequence: RecordSequence(100 + 3 * number),
            floor: DataSequence(0),
            previous_checksum,
            durable_tail: LogOffset(0),
            next_data,
        };
        let has_content = |entry: &&Entry| entry.kind == EntryKind::Data;
        let content = |entry: &Entry| Payload::tags(1 + entry.extent.start.0, entry.extent.len);
        let payloads: Vec<Payload> = entries.iter().filter(has_content).map(content).collect();
        let (record, _) = Record::build(header, entries, &payloads, SHAPE);
        offset += record.record_sectors;
        previous_checksum = record.checksum;
        record
    };
    (0..).zip(all).map(build).collect()
}

fn summary(records: &[Record]) -> Summary {
    let mut summary = Summary::new(MOST);
    records.iter().for_each(|record| summary.push(record));
    summary
}

/// What a decoder returns of a record that is not the last: some fields are not kept.
fn kept(records: &[Record]) -> Vec<Record> {
    let count = records.len();
    let kept = |(i, record): (usize, &Record)| {
        let header = RecordHeader { previous_checksum: 0, ..record.header };
        let checksum = if i + 1 == count { record.checksum } else { 0 };
        Record { header, checksum, ..record.clone() }
    };
    records.iter().enumerate().map(kept).collect()
}

fn data(block: u64, sequence: u64) -> Entry {
    Entry::new(Extent::new(block * BLOCK, BLOCK), DataSequence(sequence), EntryKind::Data)
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let kinds = [EntryKind::Data, EntryKind::Zeroes, EntryKind::Supersede, EntryKind::Lost];
    let any = (0..1u64 << 30, 1..40u64, 1..1u64 << 50, prop::sample::select(kinds.to_vec()));
    let any = any.prop_map(|(start, len, sequence, kind)| {
        Entry::new(Extent::new(start, len), DataSequence(sequence), kind)
    });
    let plain = (0..1u64 << 37, 1..1u64 << 50).prop_map(|(block, at)| data(block, at));
    prop_oneof![any, plain]
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(any_entry(), 0..20)
}

proptest! {
    #[test]
    fn records_come_back(all in prop::collection::vec(any_entries(), 1..9)) {
        let records = records(all);
        let bytes = summary(&records).encode(OF.volume, OF.log).unwrap();
        let last = records.last().unwrap().header.record_sequence;
        prop_assert_eq!(Summary::decode(&bytes, &OF), Some((last, kept(&records))));
        let other = SummaryOf { log: LogId(4), ..OF };
        prop_assert_eq!(Summary::decode(&bytes, &other), None);
        let bits = bytes.len() * 8;
        for bit in (0..bits).step_by(1 + bits / 50) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Summary::decode(&bad, &OF), None, "bit {}", bit);
        }
        prop_assert_eq!(Summary::decode(&bytes[..bytes.len() - 1], &OF), None);
    }

    #[test]
    fn arbitrary_records_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..200),
        records in 0..9u32,
    ) {
        let at = Mark { records, ..Mark::default() };
        let spoilt = Summary { at, body, ..Summary::new(MOST) };
        let bytes = spoilt.encode(OF.volume, OF.log).unwrap();
        let _ = Summary::decode(&bytes, &OF);
    }
}

#[test]
fn a_summary_that_misses_a_record_or_is_too_long_says_nothing() {
    let records = records((0..40).map(|block| vec![data(block, block + 1)]).collect());
    let mut gap = summary(&records[..3]);
    gap.push(&records[4]);
    assert!(!gap.is_whole() && gap.encode([7; 16], OF.log).is_none());
    let mut long = Summary::new(SUMMARY_HEADER + 100);
    records.iter().for_each(|record| long.push(record));
    assert!(!long.is_whole() && long.bytes() == 0);
}

/// Bytes for each block of 4 KiB: written at random on 10 TB, and moved by cleaning.
#[test]
fn an_entry_takes_few_bytes() {
    let mut rng = Rng::new(1);
    let blocks = 10_000_000_000_000 / 4096;
    let mut sequence = 1 << 44;
    let mut entries = |gap: u64| {
        let mut one = || {
            sequence += 1 + rng.below(gap);
            data(rng.below(blocks), sequence)
        };
        (0..64).map(|_| (0..512).map(|_| one()).collect()).collect::<Vec<Vec<Entry>>>()
    };
    for (gap, most) in [(1, 9.1), (6, 10.1)] {
        let all = entries(gap);
        let bytes = summary(&records(all)).encode(OF.volume, OF.log).unwrap().len();
        let each = bytes as f64 / (64.0 * 512.0);
        assert!(each <= most, "{each} bytes, gap {gap}");
    }
}
