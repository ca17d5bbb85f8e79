//! The sizes of requests.

use std::collections::BTreeMap;

use manylogs_block::Sectors;

use super::percent;

/// Distinct sizes counted exactly; more are rounded up to a power of two.
const MAX_DISTINCT: usize = 1 << 16;

/// Quantiles of request sizes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SizeQuantiles {
    /// Half of the requests are no larger.
    pub p50: u64,
    /// 90 % are no larger.
    pub p90: u64,
    /// 99 % are no larger.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

/// Sizes of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct SizeStats {
    /// Number of requests.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Mean size in KiB.
    pub mean_kib: f64,
    /// Share of the requests of at most 32 KiB, in per cent of the count.
    pub small_32k_percent: f64,
    /// Share of the requests of at most 32 KiB, in per cent of the bytes.
    pub small_32k_bytes_percent: f64,
    /// Share of the requests of at most 256 KiB, in per cent of the count.
    pub small_256k_percent: f64,
    /// Share of the requests of at most 256 KiB, in per cent of the bytes.
    pub small_256k_bytes_percent: f64,
    /// Quantiles, in bytes.
    pub quantiles: SizeQuantiles,
}

/// Counts sizes.
#[derive(Default)]
pub(super) struct Sizes {
    by_sectors: BTreeMap<u64, u64>,
}

impl Sizes {
    pub(super) fn add(&mut self, size: Sectors) {
        let exact = self.by_sectors.len() < MAX_DISTINCT || self.by_sectors.contains_key(&size.0);
        let key = if exact { size.0 } else { size.0.next_power_of_two() };
        *self.by_sectors.entry(key).or_default() += 1;
    }

    pub(super) fn finish(&self) -> SizeStats {
        let (count, bytes) = self.up_to(u64::MAX);
        let (count_32k, bytes_32k) = self.up_to(32 << 10);
        let (count_256k, bytes_256k) = self.up_to(256 << 10);
        SizeStats {
            count,
            bytes,
            mean_kib: if count == 0 { 0.0 } else { bytes as f64 / count as f64 / 1024.0 },
            small_32k_percent: percent(count_32k, count),
            small_32k_bytes_percent: percent(bytes_32k, bytes),
            small_256k_percent: percent(count_256k, count),
            small_256k_bytes_percent: percent(bytes_256k, bytes),
            quantiles: SizeQuantiles {
                p50: self.quantile(count, 50),
                p90: self.quantile(count, 90),
                p99: self.quantile(count, 99),
                max: self.quantile(count, 100),
            },
        }
    }

    /// Count and bytes of the requests of at most `limit` bytes.
    fn up_to(&self, limit: u64) -> (u64, u64) {
        let small =
            self.by_sectors.iter().filter(|(sectors, _)| Sectors(**sectors).bytes() <= limit);
        small.fold((0, 0), |(count, bytes), (&sectors, &times)| {
            (count + times, bytes + Sectors(sectors).bytes().saturating_mul(times))
        })
    }

    /// The size in bytes that `percent` of the `count` requests do not exceed.
    fn quantile(&self, count: u64, percent: u64) -> u64 {
        let wanted = (u128::from(count) * u128::from(percent)).div_ceil(100);
        let mut seen = 0_u128;
        for (&sectors, &times) in &self.by_sectors {
            seen += u128::from(times);
            if seen >= wanted {
                return Sectors(sectors).bytes();
            }
        }
        0
    }
}
