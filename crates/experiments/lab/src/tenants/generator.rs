//! Requests of a server, by seed.

use manylogs_block::{Extent, Nanos, Rng, Time};
use manylogs_workload::{SourceCounts, TraceError, TraceOp, TraceRequest, TraceSource};

use super::{Server, Tenant};

/// Time span of the generated requests.
const SPAN: Nanos = Nanos::from_secs(3600);
const SECTORS_PER_GIB: u64 = 1 << 21;
const SECTORS_PER_KIB: u64 = 2;
const SECTORS_PER_MIB: u64 = 2048;
/// Requests begin at blocks of this length.
const BLOCK_SECTORS: u64 = 8;
/// Mean time between two requests of a burst.
const BURST_GAP_NS: u64 = 500_000;
/// The rate of a minute is one of these multiples of a quarter of the mean rate ...
const MINUTE_QUARTERS: [u64; 5] = [1, 2, 4, 8, 16];
/// ... whose mean is 31 fifths.
const QUARTERS_MEAN: (u64, u64) = (31, 5);
const MINUTE_NS: u64 = 60_000_000_000;

/// The requests of an hour of a [`Tenant`].
#[derive(Debug)]
pub struct TenantLoad {
    tenant: &'static Tenant,
    /// Addresses in use.
    footprint_sectors: u64,
    rng: Rng,
    at: u64,
    /// The rate of this minute.
    quarters: u64,
    /// Requests left of the burst, and their operation.
    burst: u64,
    op: TraceOp,
    /// Where the last read and the last write ended.
    ends: [u64; 2],
}

impl TenantLoad {
    /// An hour of `server`, generated from `seed`.
    #[must_use]
    pub fn new(server: Server, seed: u64) -> Self {
        let tenant = server.tenant;
        let footprint_sectors = server.in_use_gib * SECTORS_PER_GIB;
        let mut rng = Rng::new(seed);
        let quarters = one_of(&mut rng, &MINUTE_QUARTERS);
        Self {
            tenant,
            footprint_sectors,
            rng,
            at: 0,
            quarters,
            burst: 0,
            op: TraceOp::Read,
            ends: [0; 2],
        }
    }

    /// Goes to the arrival of the next request.
    fn advance(&mut self) {
        if self.burst == 0 {
            let mean = self.tenant.burst_requests;
            self.burst = 1 + self.rng.below(2 * mean - 1);
            let reads = self.rng.below(100) < self.tenant.read_percent;
            self.op = if reads { TraceOp::Read } else { TraceOp::Write };
            let mut pause = self.pause();
            // The rest of a pause that reaches into another minute is scaled to that minute's rate.
            while self.at / MINUTE_NS < (self.at + pause) / MINUTE_NS {
                let next = (self.at / MINUTE_NS + 1) * MINUTE_NS;
                let left = pause - (next - self.at);
                let before = self.quarters;
                self.at = next;
                self.quarters = one_of(&mut self.rng, &MINUTE_QUARTERS);
                pause = left * before / self.quarters;
            }
            self.at += pause;
        } else {
            self.at += self.rng.below(2 * BURST_GAP_NS);
        }
        self.burst -= 1;
    }

    /// Time from one burst to the next, at the rate of this minute.
    fn pause(&mut self) -> u64 {
        let Tenant { burst_requests, requests_per_second, .. } = self.tenant;
        let mean = burst_requests * 1_000_000_000 / requests_per_second;
        let (of, parts) = QUARTERS_MEAN;
        self.rng.below(2 * mean * of / parts / self.quarters)
    }

    fn extent(&mut self) -> Extent {
        let is_read = self.op == TraceOp::Read;
        let sizes = if is_read { &self.tenant.read_kib } else { &self.tenant.write_kib };
        let len = weighted(&mut self.rng, sizes) * SECTORS_PER_KIB;
        let end = self.ends[usize::from(is_read)];
        let goes_on = self.rng.below(100) < self.tenant.sequential_percent;
        let start = match goes_on && end + len <= self.footprint_sectors {
            true => end,
            false => self.place(is_read, len),
        };
        self.ends[usize::from(is_read)] = start + len;
        Extent::new(start, len)
    }

    /// A random address; for many writes in the hot part in the middle.
    fn place(&mut self, is_read: bool, len: u64) -> u64 {
        let hot = !is_read && self.rng.below(100) < self.tenant.hot_writes_percent;
        let middle = self.footprint_sectors / 2;
        let (from, room) = match hot {
            true => (middle, (self.tenant.hot_mib * SECTORS_PER_MIB).min(middle)),
            false => (0, self.footprint_sectors),
        };
        from + self.rng.below((room - len) / BLOCK_SECTORS + 1) * BLOCK_SECTORS
    }
}

impl TraceSource for TenantLoad {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        self.advance();
        if self.at >= SPAN.0 {
            return None;
        }
        let (op, extent) = (self.op, self.extent());
        let fua = op == TraceOp::Write;
        Some(Ok(TraceRequest { at: Time(self.at), op, extent, fua, device: 0 }))
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
}

fn one_of(rng: &mut Rng, values: &[u64]) -> u64 {
    values[manylogs_block::to_usize(rng.below(values.len() as u64))]
}

fn weighted(rng: &mut Rng, sizes: &[[u64; 2]]) -> u64 {
    let mut left = rng.below(sizes.iter().map(|[_, weight]| weight).sum());
    for [size, weight] in sizes {
        if left < *weight {
            return *size;
        }
        left -= weight;
    }
    unreachable!("a number below the sum of the weights");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::{named, table_one};
    use std::path::Path;

    fn hour(key: &str, seed: u64) -> Vec<TraceRequest> {
        hour_of(&format!("tenant:{key}"), seed)
    }

    fn hour_of(path: &str, seed: u64) -> Vec<TraceRequest> {
        let mut load = TenantLoad::new(named(Path::new(path)).unwrap(), seed);
        std::iter::from_fn(|| load.next_request()).map(Result::unwrap).collect()
    }

    #[test]
    fn an_hour_is_what_the_table_says() {
        for tenant in &table_one().tenants {
            let all = hour(&tenant.key, 1);
            let per_second = all.len() as f64 / SPAN.as_secs_f64();
            let meant = tenant.requests_per_second as f64;
            assert!((0.6..1.6).contains(&(per_second / meant)), "{}: {per_second}", tenant.key);
            let reads = all.iter().filter(|request| request.op == TraceOp::Read).count();
            let percent = reads as f64 * 100.0 / all.len() as f64;
            assert!((percent - tenant.read_percent as f64).abs() < 5.0, "{percent}");
            assert!(all.is_sorted_by_key(|request| request.at));
            let end = all.iter().map(|request| request.extent.end().0).max().unwrap();
            assert!(end <= 96 * SECTORS_PER_GIB);
        }
    }

    #[test]
    fn a_server_may_use_less_of_its_disk() {
        let end = |path| hour_of(path, 1).iter().map(|request| request.extent.end().0).max();
        assert!(end("tenant:T4/0").unwrap() > 95 * SECTORS_PER_GIB);
        let end = end("tenant:T4/0@1").unwrap();
        assert!((SECTORS_PER_GIB / 10 * 9..=SECTORS_PER_GIB).contains(&end), "{end}");
        assert!(named(Path::new("tenant:T4/0@0")).is_none());
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(hour("T7", 5), hour("T7", 5));
        assert_ne!(hour("T7", 5), hour("T7", 6));
    }
}
