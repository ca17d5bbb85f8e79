//! Finds streams among the requests of a trace.

use manylogs_workload::{TraceOp, TraceRequest};

/// Number of runs that are followed at a time.
const RUNS: usize = 32;
/// A run counts as a stream once it has moved this number of sectors (1 MiB).
const STREAM_SECTORS: u64 = 2048;
/// Smaller requests belong to no stream (32 KiB), because databases write their logs sequentially.
const REQUEST_SECTORS: u64 = 64;

/// Tells which requests continue a stream: reads or writes of at least 32 KiB that begin where an
/// earlier request of the same kind ended. The first mebibyte of such a run does not count.
#[derive(Clone, Debug)]
pub(super) struct StreamFinder {
    runs: [Run; RUNS],
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    writes: bool,
    /// Address at which the next request of the run begins.
    next: u64,
    sectors: u64,
    /// Number of the request that continued the run last.
    used: u64,
}

impl Default for StreamFinder {
    fn default() -> Self {
        Self { runs: [Run::default(); RUNS], clock: 0 }
    }
}

impl StreamFinder {
    /// Whether `request` continues a stream.
    pub(super) fn goes_on(&mut self, request: &TraceRequest) -> bool {
        let sectors = request.extent.len.0;
        if !request.op.moves_data() || sectors < REQUEST_SECTORS {
            return false;
        }
        self.clock += 1;
        let (writes, start) = (request.op == TraceOp::Write, request.extent.start.0);
        let end = start + sectors;
        let goes_on = |run: &&mut Run| run.next == start && run.writes == writes && run.used > 0;
        if let Some(run) = self.runs.iter_mut().find(goes_on) {
            let is_stream = run.sectors >= STREAM_SECTORS;
            *run = Run { next: end, sectors: run.sectors + sectors, used: self.clock, ..*run };
            return is_stream;
        }
        if let Some(oldest) = self.runs.iter_mut().min_by_key(|run| run.used) {
            *oldest = Run { writes, next: end, sectors, used: self.clock };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Extent, Time};

    use super::*;

    fn request(op: TraceOp, start: u64, len: u64) -> TraceRequest {
        let extent = Extent::new(start, len);
        TraceRequest { at: Time(0), op, extent, fua: false, device: 0 }
    }

    #[test]
    fn a_long_run_is_a_stream_whatever_comes_between() {
        let mut finder = StreamFinder::default();
        let mut found = 0;
        for i in 0..20 {
            finder.goes_on(&request(TraceOp::Write, 1_000_000 + i * 777_777, 512));
            found += u64::from(finder.goes_on(&request(TraceOp::Read, i * 512, 512)));
        }
        assert_eq!(found, 16, "all behind the first mebibyte");
    }

    #[test]
    fn small_requests_and_other_kinds_are_no_stream() {
        let mut finder = StreamFinder::default();
        for i in 0..100 {
            assert!(!finder.goes_on(&request(TraceOp::Write, i * 16, 16)));
            let op = if i % 2 == 0 { TraceOp::Read } else { TraceOp::Write };
            assert!(!finder.goes_on(&request(op, 1 << 30 | (i * 512), 512)));
        }
    }
}
