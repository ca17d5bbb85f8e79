//! Truncated, malformed and empty traces: the place and the reason, or a count.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

mod common;

use common::{error_of, fixture, own_requests, read_all, read_bytes, recording, request, try_read};
use manylogs_workload::TraceOp::{Discard, Flush, Read, Write};
use manylogs_workload::{Format, OpenOptions, Position, TraceError, open, read_info};

fn skipping(format: Format) -> OpenOptions {
    OpenOptions { format: Some(format), skip_bad: true, ..OpenOptions::default() }
}

fn forced(format: Format) -> OpenOptions {
    OpenOptions { format: Some(format), ..OpenOptions::default() }
}

#[test]
fn a_bad_line_is_named_or_passed_over() {
    let text = b"0.0 0 0 512 0\n1.0 0 0 512 1\n2.0 0 zero 512 1\n3.0 0 0 512 7\n4.0 0 0 512 0";
    let error = error_of(text, &forced(Format::Replay));
    let TraceError::Malformed(record) = &error else { panic!("{error}") };
    assert_eq!(record.position, Position::Line(3));
    assert_eq!(
        error.to_string(),
        "fixture: line 3: expected an address as field 3, found \"zero\"; \
         --skip-bad passes over malformed records and counts them"
    );
    let (requests, counts) = read_bytes(text, &skipping(Format::Replay));
    assert_eq!((requests.len(), counts.skipped), (3, 2));
}

#[test]
fn requests_before_the_damage_come_first() {
    let text = b"0.0 0 0 512 0\n1.0 0 0 512 1\nbad\n";
    let mut source = manylogs_workload::open_reader(
        "fixture".as_ref(),
        std::io::Cursor::new(text.to_vec()),
        &forced(Format::Replay),
    )
    .unwrap();
    use manylogs_workload::TraceSource;
    assert!(source.next_request().unwrap().is_ok());
    assert!(source.next_request().unwrap().is_ok());
    assert!(source.next_request().unwrap().is_err());
    assert!(source.next_request().is_none());
}

#[test]
fn a_trace_without_requests_says_so() {
    for text in ["# nothing\n", "", "\n\n"] {
        let error = error_of(text, &forced(Format::Replay));
        assert!(matches!(error, TraceError::Empty { .. }), "{error}");
    }
    let error = error_of("bad\nbad\n", &skipping(Format::Msr));
    let message = error.to_string();
    assert!(message.contains("2 malformed") && message.contains("msr"), "{message}");
}

#[test]
fn overlong_lines_do_not_fill_the_memory() {
    let mut text = b"0 0 0 512 0\n".to_vec();
    text.extend(vec![b'1'; 1 << 20]);
    text.extend(b"\n1 0 0 512 0\n");
    let error = error_of(&text, &forced(Format::Replay));
    assert!(error.to_string().contains("line 2: expected a line of at most 64 KiB"), "{error}");
    let (requests, counts) = read_bytes(&text, &skipping(Format::Replay));
    assert_eq!((requests.len(), counts.skipped), (2, 1));
}

#[test]
fn late_records_are_moved_and_counted() {
    let mut text = String::new();
    for second in 10..20 {
        text += &format!("{second}000.0 0 0 512 0\n");
    }
    // One within the buffer's second, one far behind.
    text += "18500.0 0 512 512 0\n1000.0 0 1024 512 0\n";
    let (requests, counts) = read_bytes(&text, &forced(Format::Replay));
    assert_eq!(counts.late, 1);
    assert!(requests.is_sorted_by_key(|request| request.at));
    assert_eq!(requests.len(), 12);
}

#[test]
fn truncated_compression_is_told_from_bad_records() {
    // Several blocks of compressed data, so that something can be read before the cut.
    let whole = zstd::encode_all(&fixture(Format::Replay).repeat(20_000)[..], 3).unwrap();
    let cut = &whole[..whole.len() - 7];
    let error = error_of(cut, &forced(Format::Replay));
    assert!(matches!(error, TraceError::Truncated(_)), "{error}");
    let (requests, counts) = try_read(cut, &skipping(Format::Replay)).unwrap();
    assert_eq!(counts.skipped, 1);
    assert!(!requests.is_empty());
}

#[test]
fn a_recording_comes_back_as_written() {
    let (requests, counts) = read_bytes(recording(), &OpenOptions::default());
    assert_eq!(requests, own_requests());
    assert_eq!(counts.lost, 3);
    let file = common::file(recording(), ".trace");
    assert_eq!(read_info(file.path()).unwrap(), common::info());
    let packed = common::file(zstd::encode_all(&recording()[..], 3).unwrap(), ".trace.zst");
    assert_eq!(read_all(packed.path(), &OpenOptions::default()).0, own_requests());
}

#[test]
fn a_recording_matches_the_documented_bytes() {
    // The example of docs/traces.md: change both or neither.
    let bytes = recording();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let documented = include_str!("../../../../docs/traces.md");
    let shown: String = documented
        .lines()
        .skip_while(|line| !line.contains("<!-- golden -->"))
        .skip(2)
        .take_while(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('|').next().unwrap_or("").split_whitespace())
        .collect();
    assert_eq!(shown, hex);
}

#[test]
fn every_truncation_of_a_recording_is_noticed() {
    let whole = recording();
    for end in 0..whole.len() {
        let error = error_of(&whole[..end], &forced(Format::Manylogs));
        let noticed = matches!(error, TraceError::Truncated(_) | TraceError::Malformed(_));
        assert!(noticed, "{end}: {error}");
    }
}

#[test]
fn every_flipped_bit_of_a_recording_is_noticed() {
    let whole = recording();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let result = try_read(&bytes, &forced(Format::Manylogs));
        assert!(result.is_err(), "bit {bit}");
    }
}

#[test]
fn damage_to_a_recording_stays_in_its_block() {
    let mut writer = manylogs_workload::RecordingWriter::new(Vec::new(), &common::info()).unwrap();
    // Far-apart addresses, so that 50,000 records fill several blocks.
    for number in 0..50_000 {
        writer.push(&request(number * 1000, Read, number * 7919 % 1_000_003, 8, 0)).unwrap();
    }
    let mut bytes = writer.finish().unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let (requests, counts) = read_bytes(&bytes, &skipping(Format::Manylogs));
    assert_eq!(counts.skipped, 1);
    assert!((30_000..50_000).contains(&requests.len()), "{}", requests.len());
}

#[test]
fn blktrace_files_of_any_cpus_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let queue = |at, sector, cpu| common::blktrace_record(at, sector, 512, 0x1 << 16 | 1, cpu);
    let write = |name: &str, records: &[Vec<u8>]| {
        std::fs::write(directory.path().join(name), records.concat()).unwrap();
    };
    write("sdb.blktrace.0", &[queue(1000, 1, 0), queue(4000, 4, 0)]);
    write("sdb.blktrace.7", &[queue(2000, 2, 7), queue(3000, 3, 7)]);
    std::fs::write(
        directory.path().join("sdb.blktrace.11.zst"),
        zstd::encode_all(&queue(2500, 9, 11)[..], 3).unwrap(),
    )
    .unwrap();
    let device = 8 << 20 | 16;
    let expected = [
        request(0, Read, 1, 1, device),
        request(1000, Read, 2, 1, device),
        request(1500, Read, 9, 1, device),
        request(2000, Read, 3, 1, device),
        request(3000, Read, 4, 1, device),
    ];
    let options = OpenOptions::default();
    assert_eq!(read_all(directory.path(), &options).0, expected);
    assert_eq!(read_all(&directory.path().join("sdb.blktrace.7"), &options).0, expected);
    write("sdb.blktrace.8", &[queue(1, 1, 7)]);
    let error = open(directory.path(), &options).err().unwrap().to_string();
    assert!(error.contains("sdb.blktrace.8: byte 0") && error.contains("CPU 7"), "{error}");
}

#[test]
fn blktrace_records_of_no_request_are_told_apart() {
    let (requests, _) = read_bytes(fixture(Format::Blktrace), &OpenOptions::default());
    let device = 8 << 20 | 16;
    let mut fua = request(1000, Write, 4096, 16, device);
    fua.fua = true;
    let expected = [
        request(0, Read, 2048, 8, device),
        fua,
        request(2000, Flush, 0, 0, device),
        request(3000, Discard, 8192, 16, device),
    ];
    assert_eq!(requests, expected);
    // Big-endian machines write big-endian records.
    let mut big = Vec::new();
    for record in fixture(Format::Blktrace).chunks(50) {
        for (at, len) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)] {
            big.extend(record[at..at + len].iter().rev());
        }
        for (at, len) in [(40, 4), (44, 2), (46, 2)] {
            big.extend(record[at..at + len].iter().rev());
        }
        big.extend(b"xy");
    }
    assert_eq!(read_bytes(&big, &OpenOptions::default()).0, expected);
}
