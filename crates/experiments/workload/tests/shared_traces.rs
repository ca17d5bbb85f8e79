//! The numbers of real traces against those published for them; skipped where they are absent.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]
#![allow(clippy::print_stdout, reason = "deviations and skipped tests are to be seen")]

mod common;

use common::shared_trace;
use manylogs_workload::{Echoes, MobileDiscards, OpenOptions, TraceSource, TraceStats, open};

/// One line of the published table; windows of 5 minutes.
struct Published {
    file: &'static str,
    requests: u64,
    span_s: f64,
    read_percent: f64,
    mean_kib: [f64; 2],
    small_32k: [f64; 2],
    small_256k: f64,
    footprint_mib: f64,
    overwrite_percent: f64,
    most_writes: (f64, u64),
    most_reads: (f64, u64),
}

const TABLE: [Published; 8] = [
    Published {
        file: "cloudPhysicsIO.vscsi.zst",
        requests: 113_872,
        span_s: 7200.0,
        read_percent: 41.3,
        mean_kib: [37.4, 35.2],
        small_32k: [49.4, 8.0],
        small_256k: 100.0,
        footprint_mib: 815.0,
        overwrite_percent: 68.2,
        most_writes: (72.7, 1727),
        most_reads: (74.1, 5588),
    },
    Published {
        file: "umass_financial1_first10k.disksim.zst",
        requests: 10_000,
        span_s: 259.6,
        read_percent: 40.8,
        mean_kib: [6.1, 4.9],
        small_32k: [96.3, 63.8],
        small_256k: 100.0,
        footprint_mib: 14.6,
        overwrite_percent: 69.9,
        most_writes: (22.8, 0),
        most_reads: (15.7, 0),
    },
    Published {
        file: "msr10k.rw_20_80.105.trace.zst",
        requests: 10_000,
        span_s: 242.9,
        read_percent: 20.2,
        mean_kib: [1.8, 6.2],
        small_32k: [96.1, 73.5],
        small_256k: 100.0,
        footprint_mib: 22.7,
        overwrite_percent: 59.2,
        most_writes: (32.8, 0),
        most_reads: (8.3, 0),
    },
    Published {
        file: "hadoop_eternity9.Q.csv.zst",
        requests: 127_657,
        span_s: 171.9,
        read_percent: 98.6,
        mean_kib: [289.0, 17.1],
        small_32k: [97.4, 65.2],
        small_256k: 99.4,
        footprint_mib: 28.2,
        overwrite_percent: 9.3,
        most_writes: (10.8, 0),
        most_reads: (732.0, 0),
    },
    Published {
        file: "mob_telegram_exec.csv.gz",
        requests: 251_879,
        span_s: 7474.0,
        read_percent: 9.6,
        mean_kib: [61.4, 20.5],
        small_32k: [95.7, 24.2],
        small_256k: 97.1,
        footprint_mib: 3813.0,
        overwrite_percent: 16.5,
        most_writes: (128.8, 204),
        most_reads: (35.4, 3740),
    },
    Published {
        file: "mob_you_cut_exec.csv.gz",
        requests: 313_826,
        span_s: 1098.0,
        read_percent: 87.0,
        mean_kib: [118.9, 5.2],
        small_32k: [99.6, 79.8],
        small_256k: 99.8,
        footprint_mib: 51.0,
        overwrite_percent: 75.4,
        most_writes: (42.1, 2),
        most_reads: (458.0, 0),
    },
    Published {
        file: "mob_genshin_impact_exec.csv.gz",
        requests: 91_317,
        span_s: 6081.0,
        read_percent: 89.5,
        mean_kib: [47.1, 25.2],
        small_32k: [91.2, 21.0],
        small_256k: 96.6,
        footprint_mib: 193.0,
        overwrite_percent: 18.7,
        most_writes: (10.7, 85),
        most_reads: (105.3, 86),
    },
    Published {
        file: "mob_slideshow_exec.csv.gz",
        requests: 84_197,
        span_s: 65_426.0,
        read_percent: 92.3,
        mean_kib: [35.6, 25.2],
        small_32k: [87.3, 22.4],
        small_256k: 97.5,
        footprint_mib: 113.0,
        overwrite_percent: 29.0,
        most_writes: (4.2, 63_624),
        most_reads: (16.9, 62_939),
    },
];

fn stats(file: &str, options: &OpenOptions) -> Option<TraceStats> {
    let mut source = open(&shared_trace(file)?, options).unwrap();
    Some(TraceStats::collect(&mut source).unwrap())
}

/// Equal to the digits that were published.
fn close(name: &str, ours: f64, published: f64) {
    let tolerance = if published.fract() == 0.0 { 0.6 } else { 0.06 };
    assert!((ours - published).abs() <= tolerance, "{name}: {ours} here, {published} published");
}

#[test]
fn statistics_agree_with_the_published_table() {
    let as_the_file_stands = OpenOptions {
        echoes: Echoes::Keep,
        mobile_discards: MobileDiscards::AsRead,
        ..OpenOptions::default()
    };
    for line in &TABLE {
        let Some(ours) = stats(line.file, &as_the_file_stands) else { continue };
        assert_eq!(ours.requests, line.requests, "{}", line.file);
        close("span", ours.span_s, line.span_s);
        close("read share", ours.read_percent, line.read_percent);
        close("mean read", ours.reads.mean_kib, line.mean_kib[0]);
        close("mean write", ours.writes.mean_kib, line.mean_kib[1]);
        close("small by count", ours.writes.small_32k_percent, line.small_32k[0]);
        close("small by bytes", ours.writes.small_32k_bytes_percent, line.small_32k[1]);
        close("up to 256 KiB", ours.writes.small_256k_percent, line.small_256k);
        let footprint_mib = ours.written_footprint_bytes as f64 / f64::from(1 << 20);
        close("footprint", footprint_mib, line.footprint_mib);
        close("overwrites", ours.overwrite_percent, line.overwrite_percent);
        let windows = ours.busiest_5min;
        close("most writes", windows.writes.per_second, line.most_writes.0);
        close("most reads", windows.reads.per_second, line.most_reads.0);
        assert_eq!(windows.writes.start_s, line.most_writes.1, "{}", line.file);
        assert_eq!(windows.reads.start_s, line.most_reads.1, "{}", line.file);
        assert_eq!((ours.source.skipped, ours.source.late), (0, 0), "{}", line.file);
    }
}

#[test]
fn dropping_echoes_agrees_with_the_published_numbers() {
    // Requests, read share, overwrite share; discards still count as reads there.
    let published = [
        ("mob_telegram_exec.csv.gz", 204_916, 11.0, 9.7),
        ("mob_you_cut_exec.csv.gz", 284_190, 91.7, 61.8),
        ("mob_genshin_impact_exec.csv.gz", 79_695, 89.5, 7.5),
        ("mob_slideshow_exec.csv.gz", 57_052, 91.3, 5.6),
    ];
    for (file, requests, read_percent, overwrite_percent) in published {
        let as_reads =
            OpenOptions { mobile_discards: MobileDiscards::AsRead, ..OpenOptions::default() };
        let Some(ours) = stats(file, &as_reads) else { continue };
        let discards = stats(file, &OpenOptions::default()).map_or(0, |stats| stats.discards);
        println!(
            "{file}: {} requests, {:.1} % reads, {:.1} % overwrites, {discards} discards",
            ours.requests, ours.read_percent, ours.overwrite_percent
        );
        assert_eq!(ours.requests, requests, "{file}");
        close("read share", ours.read_percent, read_percent);
        close("overwrites", ours.overwrite_percent, overwrite_percent);
    }
}

#[test]
fn block_layer_traces_hold_what_was_published() {
    let data = |stats: &TraceStats| stats.reads.count + stats.writes.count;
    if let Some(text) = stats("hadoop_e9_first60k.blkparse.txt.zst", &OpenOptions::default()) {
        // 8,994 Q lines, of which some are flushes without data.
        println!("blkparse: {} data requests, {} flushes", data(&text), text.flushes);
        assert!(data(&text) <= 8994 && data(&text) + text.flushes >= 8994);
        close("span", text.span_s, 29.9);
    }
    if let Some(binary) = stats("hadoop_e9_cpu0-1.blktrace.tar.zst", &OpenOptions::default()) {
        println!("blktrace: {} data requests, {} flushes", data(&binary), binary.flushes);
        assert_eq!(binary.devices.keys().collect::<Vec<_>>(), [&(8 << 20 | 16)]);
        assert_eq!(binary.source.skipped, 0);
    }
}

/// The binary records of CPUs 0 and 1 and blkparse's text of all CPUs come from one run.
#[test]
fn binary_and_text_of_one_run_agree() {
    let binary = shared_trace("hadoop_e9_cpu0-1.blktrace.tar.zst");
    let text = shared_trace("hadoop_e9_first60k.blkparse.txt.zst");
    let (Some(binary), Some(text)) = (binary, text) else { return };
    let extents = |path: &std::path::Path| {
        let mut source = open(path, &OpenOptions::default()).unwrap();
        let mut extents = std::collections::HashSet::new();
        while let Some(request) = source.next_request() {
            let request = request.unwrap();
            if request.op.moves_data() {
                extents.insert((request.op, request.extent));
            }
        }
        extents
    };
    let (binary, text) = (extents(&binary), extents(&text));
    let common = binary.intersection(&text).count();
    println!("{} extents in binary, {} in text, {common} in both", binary.len(), text.len());
    assert!(common * 2 > text.len() / 20, "two of 40 CPUs, but the busy ones");
}
