//! Each format reads back the written requests, as far as it can hold them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Cursor;

use manylogs_block::{Extent, Time};

use super::*;
use crate::{OpenOptions, open_reader};

/// Requests of every kind with times that no unit but nanoseconds holds. The first is a read at
/// zero, which every format holds.
fn requests() -> Vec<TraceRequest> {
    let mut seed = 7_u64;
    let mut draw = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let mut at = Time(0);
    let read =
        TraceRequest { at, op: TraceOp::Read, extent: Extent::new(9, 3), fua: false, device: 0 };
    let mut all = vec![read];
    for _ in 0..2000 {
        at.0 += draw(700_001);
        let op = TraceOp::ALL[usize::try_from(draw(5)).unwrap()];
        // Some exceed 32 bits, in sectors or in bytes.
        let start = if draw(9) == 0 { 1 << 40 } else { draw(1 << 31) };
        let len = if op == TraceOp::Discard && draw(9) == 0 { 1 << 24 } else { 1 + draw(2048) };
        let device = u32::try_from(draw(3)).unwrap();
        let fua = op == TraceOp::Write && draw(2) == 0;
        all.push(match op {
            TraceOp::Flush => TraceRequest::flush(at, device),
            _ => TraceRequest { at, op, extent: Extent::new(start, len), fua, device },
        });
    }
    all
}

fn written(format: Format, requests: &[TraceRequest]) -> (Vec<u8>, Losses, u64) {
    let mut writer = TraceWriter::new(format, Vec::new()).unwrap();
    requests.iter().for_each(|request| writer.push(request).unwrap());
    let (losses, records) = (writer.losses(), writer.records());
    (writer.finish().unwrap(), losses, records)
}

fn read(bytes: Vec<u8>, format: Option<Format>) -> Vec<TraceRequest> {
    let options = OpenOptions { format, ..OpenOptions::default() };
    let mut source = open_reader(Path::new("t"), Cursor::new(bytes), &options).unwrap();
    std::iter::from_fn(|| source.next_request()).map(Result::unwrap).collect()
}

/// The requests expected back: those whose operation is among `ops`, changed by `change`.
fn expected(
    ops: &[TraceOp],
    change: impl FnMut(TraceRequest) -> TraceRequest,
) -> Vec<TraceRequest> {
    let all = requests();
    all.into_iter().filter(|request| ops.contains(&request.op)).map(change).collect()
}

const PLAIN: &[TraceOp] = &[TraceOp::Read, TraceOp::Write];
const NO_ZEROES: &[TraceOp] = &[TraceOp::Read, TraceOp::Write, TraceOp::Discard, TraceOp::Flush];

fn plain(step_ns: u64) -> impl FnMut(TraceRequest) -> TraceRequest {
    move |request| {
        let at = Time(request.at.0 / step_ns * step_ns);
        TraceRequest { at, fua: false, ..request }
    }
}

#[test]
fn formats_that_hold_everything_lose_nothing() {
    for format in [Format::Manylogs, Format::Csv, Format::Blkparse] {
        let (bytes, losses, records) = written(format, &requests());
        assert_eq!((losses, records), (Losses::default(), 2001), "{format}");
        assert_eq!(losses.reasons(), Vec::<String>::new());
        assert_eq!(read(bytes, None), requests(), "{format} is detected and holds all");
    }
}

#[test]
fn formats_of_reads_and_writes_keep_those_up_to_their_clock() {
    let clocks = [
        (Format::Msr, 100),
        (Format::Spc, 1),
        (Format::DiskSim, 1),
        (Format::Replay, 1),
        (Format::Alibaba, 1000),
        (Format::Fiu, 1),
    ];
    for (format, step_ns) in clocks {
        let (bytes, losses, records) = written(format, &requests());
        let kept = expected(PLAIN, plain(step_ns));
        assert_eq!(records, kept.len() as u64, "{format}");
        assert_eq!(read(bytes, None), kept, "{format}");
        let count = |op| requests().iter().filter(|request| request.op == op).count() as u64;
        let left_out = TraceOp::ALL.map(|op| if PLAIN.contains(&op) { 0 } else { count(op) });
        assert_eq!(losses.left_out, left_out, "{format}");
        assert_eq!(losses.fua, requests().iter().filter(|request| request.fua).count() as u64);
        assert_eq!(losses.earlier > 0, step_ns > 1, "{format}");
        assert!(losses.most_earlier_ns < step_ns, "{format}: {losses:?}");
        let reasons = losses.reasons().join("; ");
        assert!(reasons.contains("flushes are left out"), "{reasons}");
        assert!(reasons.contains("no longer durable"), "{reasons}");
    }
}

#[test]
fn vscsi_has_one_device_and_microseconds() {
    for format in [Format::Vscsi1, Format::Vscsi2] {
        let (bytes, losses, _) = written(format, &requests());
        let mut micros = plain(1000);
        let kept = expected(PLAIN, |request| TraceRequest { device: 0, ..micros(request) });
        assert_eq!(read(bytes, None), kept, "{format}");
        let elsewhere = expected(PLAIN, |request| request);
        let elsewhere = elsewhere.iter().filter(|request| request.device != 0).count();
        assert_eq!(losses.renumbered, elsewhere as u64);
    }
}

#[test]
fn blktrace_holds_all_but_zeroes_and_requests_of_four_gigabytes() {
    let (bytes, losses, _) = written(Format::Blktrace, &requests());
    let mut kept = expected(NO_ZEROES, |request| request);
    let all = kept.len();
    kept.retain(|request| request.extent.len.bytes() <= u64::from(u32::MAX));
    assert_eq!(losses.too_long, (all - kept.len()) as u64);
    assert!(losses.too_long > 0 && losses.fua == 0, "{losses:?}");
    assert_eq!(read(bytes, None), kept);
}

#[test]
fn iologs_number_devices_anew_and_know_microseconds() {
    // Devices in the order they appear, as the reader numbers them.
    let mut seen = Vec::new();
    let mut number = |device: u32| {
        if !seen.contains(&device) {
            seen.push(device);
        }
        u32::try_from(seen.iter().position(|known| *known == device).unwrap()).unwrap()
    };
    let mut micros = plain(1000);
    let kept = expected(NO_ZEROES, |request| {
        let device = number(request.device);
        TraceRequest { device, ..micros(request) }
    });
    let (bytes, losses, _) = written(Format::FioIolog3, &requests());
    assert_eq!(read(bytes, None), kept);
    assert!(losses.left_out[TraceOp::WriteZeroes as usize] > 0 && losses.fua > 0);

    // Version 2 knows waits of 100 us at least: a request is earlier by less than that and 1 us.
    let (bytes, losses, _) = written(Format::FioIolog2, &requests());
    let found = read(bytes, None);
    assert_eq!(found.len(), kept.len());
    for (found, kept) in found.iter().zip(&kept) {
        assert_eq!(*found, TraceRequest { at: found.at, ..*kept });
        assert!(found.at <= kept.at && kept.at.0 - found.at.0 < 100_000, "{found:?} {kept:?}");
    }
    assert!((1..101_000).contains(&losses.most_earlier_ns), "{losses:?}");
}

#[test]
fn tencent_knows_whole_seconds() {
    let slow: Vec<TraceRequest> = requests()
        .into_iter()
        .map(|request| TraceRequest { at: Time(request.at.0 * 100), ..request })
        .collect();
    let (bytes, losses, _) = written(Format::Tencent, &slow);
    let found = read(bytes, None);
    let kept: Vec<_> = slow.iter().filter(|request| PLAIN.contains(&request.op)).collect();
    assert_eq!(found.len(), kept.len());
    for (found, kept) in found.iter().zip(kept) {
        let same = TraceRequest { at: found.at, fua: false, ..*kept };
        assert_eq!((*found, found.at.0 / 1_000_000_000), (same, kept.at.0 / 1_000_000_000));
    }
    assert!(losses.most_earlier_ns < 1_000_000_000);
}

#[test]
fn lines_are_as_other_programs_write_them() {
    let write = TraceRequest {
        at: Time(1_234_567_890),
        op: TraceOp::Write,
        extent: Extent::new(2048, 8),
        fua: true,
        device: 8 << 20 | 16,
    };
    let line = |format| String::from_utf8(written(format, &[write]).0).unwrap();
    assert_eq!(line(Format::Blkparse), "8,16 0 1 1.234567890 1 Q WF 2048 + 8 [manylogs]\n");
    let msr = "116444736012345678,manylogs,8388624,Write,1048576,4096,0\n";
    assert_eq!(line(Format::Msr), msr);
    assert_eq!(line(Format::Spc), "8388624,2048,4096,w,1.234567890\n");
    assert_eq!(line(Format::DiskSim), "1234.567890 8388624 2048 8 0\n");
    assert_eq!(line(Format::Replay), "1234.567890 8388624 1048576 4096 0\n");
    assert_eq!(line(Format::Alibaba), "8388624,W,1048576,4096,1234567\n");
    assert_eq!(line(Format::Tencent), "1,2048,8,1,8388624\n");
    let fio = "fio version 3 iolog\n1234567 device-8388624 add\n1234567 device-8388624 open\n\
               1234567 device-8388624 write 1048576 4096\n";
    assert_eq!(line(Format::FioIolog3), fio);
}

#[test]
fn names_of_files_ask_for_formats() {
    let of = |name: &str| Format::of_output(Path::new(name)).map_err(|error| error.to_string());
    assert_eq!(of("o.csv"), Ok(Format::Csv));
    assert_eq!(of("o.MSR"), Ok(Format::Msr));
    assert_eq!(of("o.iolog"), Ok(Format::FioIolog3));
    assert_eq!(of("o.vscsi"), Ok(Format::Vscsi1));
    assert_eq!(of("o.trace"), Ok(Format::Manylogs));
    assert_eq!(of("o"), Ok(Format::Manylogs));
    assert!(of("o.csv.zst").unwrap_err().contains("pack the file afterwards"));
    assert!(of("o.mobile").unwrap_err().contains("only read"));
    for format in Format::ALL {
        let written = TraceWriter::new(format, Vec::new()).is_ok();
        assert_eq!(written, Format::WRITTEN.contains(&format), "{format}");
    }
}
