//! The metrics of a chain of drives.

use super::{Page, Row};
use crate::status::ChainStatus;

const COUNTERS: [Row<ChainStatus>; 6] = [
    ("chain_written_bytes_total", "Content that clients wrote.", |c| c.written_bytes),
    ("chain_renewed_bytes_total", "Content that cleaning appended again.", |c| c.renewed_bytes),
    ("chain_appended_bytes_total", "Records, with headers and padding.", |c| c.appended_bytes),
    ("chain_emptied_segments_total", "Segments that were emptied.", |c| c.emptied_segments),
    ("chain_hops_total", "How often the tail went to another drive.", |c| c.hops),
    ("chain_waited_writes_total", "How often clients waited for room.", |c| c.waited_writes),
];

/// Adds the metrics of the chain.
pub(super) fn of_chain(page: &mut Page, chain: &ChainStatus) {
    let read_only = u8::from(chain.read_only.is_some());
    page.single("chain_read_only", "gauge", "Whether writes are refused.", read_only);
    page.single("chain_tail_drive", "gauge", "The drive at the tail, from 0.", chain.tail);
    page.single("table_bytes", "gauge", "Memory of the chain's map.", chain.table_bytes);
    for (name, help, value) in COUNTERS {
        page.single(name, "counter", help, value(chain));
    }
}
