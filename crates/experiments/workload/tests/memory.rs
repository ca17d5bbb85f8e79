//! Memory does not grow with the length of a trace. This test has a process of its own, so that no
//! other test's memory counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

use std::io::{Cursor, Read};
use std::path::Path;

use manylogs_workload::{Format, OpenOptions, TraceStats, open_reader};

const REQUESTS: u64 = 3_000_000;

/// A replay trace made up as it is read.
struct Endless {
    next: u64,
    line: Cursor<Vec<u8>>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.line.read(buffer)?;
        if count > 0 || self.next == REQUESTS {
            return Ok(count);
        }
        let mut lines = String::new();
        for number in self.next..(self.next + 1000).min(REQUESTS) {
            // 100 MB of disk, over and over, one request a millisecond.
            let offset = number * 7919 % 25_600 * 4096;
            lines += &format!("{number}.5 0 {offset} 4096 {}\n", number % 2);
        }
        self.next = (self.next + 1000).min(REQUESTS);
        self.line = Cursor::new(lines.into_bytes());
        self.line.read(buffer)
    }
}

/// The most memory that this process has had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_long_trace_needs_no_more_memory_than_a_short_one() {
    let before = peak_kib();
    let options = OpenOptions { format: Some(Format::Replay), ..OpenOptions::default() };
    let trace = Endless { next: 0, line: Cursor::new(Vec::new()) };
    let mut source = open_reader(Path::new("endless"), trace, &options).unwrap();
    let stats = TraceStats::collect(&mut source).unwrap();
    assert_eq!(stats.requests, REQUESTS);
    let grown = peak_kib() - before;
    assert!(grown < 8 << 10, "{grown} KiB for {REQUESTS} requests, 120 MB if they were kept");
}
