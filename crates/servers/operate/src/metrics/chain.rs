//! The metrics of a chain of drives.

use super::{Page, Row};
use crate::status::{ChainStatus, FlashStatus, PowerStatus};

const COUNTERS: [Row<ChainStatus>; 9] = [
    ("chain_written_bytes_total", "Content that clients wrote.", |c| c.written_bytes),
    ("chain_renewed_bytes_total", "Content that cleaning appended again.", |c| c.renewed_bytes),
    ("chain_appended_bytes_total", "Records, with headers and padding.", |c| c.appended_bytes),
    ("chain_emptied_segments_total", "Segments that were emptied.", |c| c.emptied_segments),
    ("chain_hops_total", "How often the tail went to another drive.", |c| c.hops),
    ("chain_waited_writes_total", "How often clients waited for room.", |c| c.waited_writes),
    ("chain_tail_hits_total", "Reads of the tail's drive from the cache.", |c| c.tail_hits),
    ("chain_tail_misses_total", "Reads that the tail's drive answered.", |c| c.tail_misses),
    ("chain_body_hits_total", "Reads of other drives from the cache.", |c| c.body_hits),
];

const OF_FLASH: [Row<FlashStatus>; 4] = [
    ("chain_ssd_written_bytes_total", "Written to the cache's SSD.", |f| f.written_bytes),
    ("chain_ssd_written_ever_bytes_total", "The same, ever.", |f| f.written_ever_bytes),
    ("chain_ssd_hits_total", "Reads that the cache's SSD answered.", |f| f.hits),
    ("chain_ssd_faults_total", "Failed or wrong answers of that SSD.", |f| f.faults),
];

type OfPower = (&'static str, &'static str, &'static str, fn(&PowerStatus) -> u64);
const OF_POWER: [OfPower; 6] = [
    ("chain_halves_asleep", "gauge", "Halves in standby.", |p| u64::from(p.state == "standby")),
    ("chain_starts_left", "gauge", "Starts left of 24 hours, all halves.", |p| p.starts_left),
    ("chain_starts_total", "counter", "Starts of all halves.", |p| p.starts),
    ("chain_standby_seconds_total", "counter", "Time in standby.", |p| p.standby_seconds),
    ("chain_waited_for_start_total", "counter", "Requests that waited.", |p| p.waited),
    ("chain_milliwatt_hours_total", "counter", "Energy, of drives with a profile.", |p| {
        p.milliwatt_hours.unwrap_or(0)
    }),
];

/// Adds those of halves that may sleep, all of them together.
fn of_power(page: &mut Page, chain: &ChainStatus) {
    let halves: Vec<&PowerStatus> =
        chain.halves.iter().filter_map(|half| half.power.as_ref()).collect();
    for (name, kind, help, value) in OF_POWER.iter().filter(|_| !halves.is_empty()) {
        let all: u64 = halves.iter().map(|half| value(half)).sum();
        page.single(name, kind, help, all);
    }
}

/// Adds the metrics of the chain.
pub(super) fn of_chain(page: &mut Page, chain: &ChainStatus) {
    let read_only = u8::from(chain.read_only.is_some());
    page.single("chain_read_only", "gauge", "Whether writes are refused.", read_only);
    page.single("chain_tail_drive", "gauge", "The drive at the tail, from 0.", chain.tail);
    page.single("table_bytes", "gauge", "Memory of the chain's map.", chain.table_bytes);
    page.single("chain_cache_bytes", "gauge", "Memory of the tail cache.", chain.cache_bytes);
    for (name, help, value) in COUNTERS {
        page.single(name, "counter", help, value(chain));
    }
    of_power(page, chain);
    let Some(flash) = &chain.flash else { return };
    let is_used = u8::from(flash.problem.is_none() && !flash.given_up);
    page.single("chain_ssd_used", "gauge", "Whether the cache's SSD is used.", is_used);
    page.single("chain_ssd_held_bytes", "gauge", "Content on the cache's SSD.", flash.held_bytes);
    for (name, help, value) in OF_FLASH {
        page.single(name, "counter", help, value(flash));
    }
}
