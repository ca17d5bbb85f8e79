//! Each format read from a tiny fixture made by hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

mod common;

use common::{fixture, read_all, read_bytes, request};
use manylogs_workload::TraceOp::{Discard, Flush, Read, Write};
use manylogs_workload::{
    BlockEvent, Devices, Echoes, Format, MobileDiscards, OpenOptions, TimeUnit, TraceError,
};

fn options() -> OpenOptions {
    OpenOptions::default()
}

#[test]
fn msr_is_sorted_and_counts_from_the_first() {
    let (requests, counts) = read_bytes(fixture(Format::Msr), &options());
    let expected = [
        request(0, Write, 8, 16, 0),
        request(100, Read, 0, 1, 0),
        request(5_000_000_000, Read, 2048, 128, 1),
    ];
    assert_eq!(requests, expected);
    assert_eq!((counts.skipped, counts.late), (0, 0));
}

#[test]
fn etw_finds_columns_by_name_and_arrivals_before_completions() {
    let (requests, _) = read_bytes(fixture(Format::Etw), &options());
    let expected = [
        request(0, Read, 0x1000 / 512, 16, 2),
        request(100_000, Write, 8, 1, 0),
        request(150_000, Flush, 0, 0, 0),
    ];
    assert_eq!(requests, expected);
}

#[test]
fn spc_keeps_asus_apart() {
    let (requests, _) = read_bytes(fixture(Format::Spc), &options());
    let expected = [
        request(0, Read, 303_567, 7, 0),
        request(26_214_000, Write, 240_840, 6, 1),
        request(1_000_000_000, Write, 10, 8, 0),
    ];
    assert_eq!(requests, expected);
    let only = OpenOptions { devices: Devices::Only(1), ..options() };
    assert_eq!(read_bytes(fixture(Format::Spc), &only).0, expected[1..2]);
}

#[test]
fn devices_are_laid_out_one_after_another() {
    let file = common::file(fixture(Format::Spc), ".spc");
    let options = OpenOptions { devices: Devices::OneAfterAnother, ..options() };
    let (requests, _) = read_all(file.path(), &options);
    // ASU 0 ends at 303574, so ASU 1 begins at the next multiple of 2048 sectors.
    assert_eq!(requests[1].extent.start.0, 149 * 2048 + 240_840);
    assert_eq!(requests[2].extent.start.0, 10);
}

#[test]
fn disksim_guesses_its_unit_and_can_be_told() {
    let (requests, _) = read_bytes(fixture(Format::DiskSim), &options());
    assert_eq!(requests[1], request(1_500_000, Write, 55_590, 6, 1), "milliseconds");
    let nanos = b"0 0 303567 7 1\n26214000 1 240840 6 0\n";
    assert_eq!(read_bytes(nanos, &options()).0[1].at.0, 26_214_000, "whole numbers: nanoseconds");
    let told = OpenOptions { time_unit: Some(TimeUnit::Microseconds), ..options() };
    assert_eq!(read_bytes(nanos, &told).0[1].at.0, 26_214_000_000);
}

#[test]
fn replay_text_is_in_bytes() {
    let (requests, _) = read_bytes(fixture(Format::Replay), &options());
    let expected = [request(0, Write, 391_848, 8, 0), request(223_412_000, Read, 16, 72, 0)];
    assert_eq!(requests, expected);
}

#[test]
fn vscsi_of_both_versions() {
    let expected = [request(0, Write, 1000, 8, 0), request(7000, Read, 2000, 1, 0)];
    assert_eq!(read_bytes(fixture(Format::Vscsi1), &options()).0, expected);
    assert_eq!(read_bytes(fixture(Format::Vscsi2), &options()).0, expected);
}

#[test]
fn cloud_traces_disagree_about_op_codes() {
    let (requests, _) = read_bytes(fixture(Format::Alibaba), &options());
    let expected = [request(0, Write, 8, 8, 419), request(46_000, Read, 16, 32, 725)];
    assert_eq!(requests, expected);
    let (requests, _) = read_bytes(fixture(Format::Tencent), &options());
    let expected = [
        request(0, Read, 100, 8, 1283),
        request(500_000_000, Write, 200, 16, 1360),
        request(1_000_000_000, Write, 300, 8, 1283),
        request(1_333_333_333, Write, 301, 8, 1283),
        request(1_666_666_666, Read, 302, 8, 1283),
    ];
    assert_eq!(requests, expected, "n records of a second are 1/n of it apart");
}

#[test]
fn mobile_echoes_are_dropped_and_discards_recognised() {
    let (requests, counts) = read_bytes(fixture(Format::Mobile), &options());
    let device = 8_388_608;
    let expected = [
        request(0, Write, 65_006_512, 40, device),
        request(10_000_000, Discard, 4096, 64, device),
        request(20_000_000, Discard, 8192, 2048, device),
        request(30_000_000, Read, 100, 8, device),
        request(90_000_000, Read, 100, 8, device),
    ];
    assert_eq!(requests, expected);
    assert_eq!(counts.echoes, 2);
    let raw =
        OpenOptions { echoes: Echoes::Keep, mobile_discards: MobileDiscards::AsRead, ..options() };
    let (requests, counts) = read_bytes(fixture(Format::Mobile), &raw);
    assert_eq!((requests.len(), counts.echoes), (7, 0));
    assert_eq!(requests.iter().filter(|request| request.op == Read).count(), 5);
    let dropped = OpenOptions { mobile_discards: MobileDiscards::Drop, ..options() };
    assert_eq!(read_bytes(fixture(Format::Mobile), &dropped).0.len(), 3);
}

#[test]
fn fio_iologs() {
    let (requests, _) = read_bytes(fixture(Format::FioIolog2), &options());
    let expected = [
        request(0, Write, 0, 8, 0),
        request(500_000, Read, 16, 8, 1),
        request(500_000, Flush, 0, 0, 0),
        request(500_000, Discard, 8, 8, 0),
    ];
    assert_eq!(requests, expected, "waits below 100 us do not count");
    let (requests, _) = read_bytes(fixture(Format::FioIolog3), &options());
    let expected = [
        request(0, Write, 0, 8, 0),
        request(1_400_000, Read, 16, 8, 0),
        request(1_500_000, Flush, 0, 0, 0),
    ];
    assert_eq!(requests, expected);
}

#[test]
fn named_columns_in_any_order() {
    let (requests, _) = read_bytes(fixture(Format::Csv), &options());
    let expected = [request(0, Read, 8, 1, 3), request(1_371_163_000, Write, 16, 38, 3)];
    assert_eq!(requests, expected);
    let own = b"size,device,op,time_ms,lba,fua\n512,7,write,1.5,10,1\n1024,7,F,2,0,0\n";
    let (requests, _) = read_bytes(own, &options());
    assert!(requests[0].fua);
    assert_eq!(requests[0].extent, manylogs_block::Extent::new(10, 1));
    assert_eq!(requests[1], request(500_000, Flush, 0, 0, 7));
}

#[test]
fn blkparse_takes_one_event_and_stops_at_the_summary() {
    let (requests, _) = read_bytes(fixture(Format::Blkparse), &options());
    let device = 8 << 20 | 16;
    let mut fua = request(3_000_000, Write, 2048, 8, device);
    fua.fua = true;
    let expected = [
        request(0, Read, 488_386_593, 1, device),
        request(2_000_000, Flush, 0, 0, device),
        request(3_000_000, Flush, 0, 0, device),
        fua,
        request(4_000_000, Discard, 4096, 128, device),
    ];
    assert_eq!(requests, expected);
    let issued = OpenOptions { event: BlockEvent::Issue, ..options() };
    assert_eq!(read_bytes(fixture(Format::Blkparse), &issued).0.len(), 1);
}

#[test]
fn fiu_has_process_names_and_digests() {
    let (requests, _) = read_bytes(fixture(Format::Fiu), &options());
    let expected =
        [request(0, Write, 508_726_688, 8, 6 << 20), request(3_000, Read, 8, 16, 6 << 20 | 1)];
    assert_eq!(requests, expected);
}

#[test]
fn every_format_is_detected() {
    for format in Format::ALL {
        let (detected, _) = read_bytes(fixture(format), &options());
        let forced = OpenOptions { format: Some(format), ..options() };
        let (forced, _) = read_bytes(fixture(format), &forced);
        assert_eq!(detected, forced, "{format}");
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
}

#[test]
fn unknown_formats_say_what_is_known() {
    let error = common::error_of(b"lorem ipsum dolor\nsit amet\n", &options());
    assert!(matches!(error, TraceError::UnknownFormat(_)));
    let message = error.to_string();
    assert!(message.contains("lorem ipsum") && message.contains("blkparse"), "{message}");
    assert!(message.contains("--format"), "{message}");
    let error = common::error_of(b"\xfd7zXZ\0\0\0", &options()).to_string();
    assert!(error.contains("xz"), "{error}");
    let error = common::error_of(b"", &options()).to_string();
    assert!(error.contains("empty"), "{error}");
}
