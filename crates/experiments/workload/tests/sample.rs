//! The shipped sample trace: complete, small, and as its page describes it.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

use std::path::Path;

use manylogs_workload::{OpenOptions, TraceStats, open, read_info};

#[test]
fn the_sample_is_as_described() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../traces/pgbench-beside-reader.trace.zst");
    assert!(path.metadata().unwrap().len() < 3 << 20);
    let info = read_info(&path).unwrap();
    assert_eq!(info.sectors * 512, 1_000_204_886_016);
    let stats = TraceStats::collect(&mut open(&path, &OpenOptions::default()).unwrap()).unwrap();
    assert_eq!(stats.requests, 28_747);
    assert_eq!((stats.reads.count, stats.writes.count, stats.flushes), (11_444, 12_274, 5_029));
    assert_eq!(stats.fua_writes, 82);
    assert!((stats.span_s - 300.0).abs() < 0.1);
    assert!(stats.writes.small_32k_percent > 99.0);
    assert_eq!((stats.source.lost, stats.source.late), (0, 0));
}
