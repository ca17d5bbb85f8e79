//! A rough estimate of how busy a trace keeps a 7200 rpm disk of 1 TB: one request after
//! another in order of arrival, nothing merged or reordered, no cache.
//!
//! It only guards the rates of the sample trace; the modelled drives are the real answer.
//!
//! `cargo run --release -p manylogs-workload --example busy_estimate -- TRACE`

use std::error::Error;
use std::path::PathBuf;

use manylogs_workload::{OpenOptions, TraceOp, TraceSource, open};

const SECTORS: f64 = 1_953_525_168.0;
const TURN_S: f64 = 60.0 / 7200.0;
/// Sequential rate at the first and the last sector, bytes per second.
const OUTER_RATE: f64 = 175e6;
const INNER_RATE: f64 = 80e6;

/// Seconds to seek over this part of all cylinders: 0.8 ms to a neighbour, 16.5 ms across.
fn seek_s(part: f64) -> f64 {
    if part < 0.3 { 0.0008 + 0.013 * part.sqrt() } else { 0.0054 + 0.0085 * part + 0.0026 }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("usage: busy_estimate TRACE")?);
    let mut source = open(&path, &OpenOptions::default())?;
    let (mut head, mut busy_s, mut free_s, mut last_s) = (0, 0.0, 0.0_f64, 0.0);
    let mut longest_s = 0.0_f64;
    while let Some(request) = source.next_request() {
        let request = request?;
        last_s = request.at.as_secs_f64();
        if !request.op.moves_data() {
            continue;
        }
        let start = request.extent.start.0;
        let rate = OUTER_RATE - (OUTER_RATE - INNER_RATE) * start as f64 / SECTORS;
        let mut service_s = request.extent.len.bytes() as f64 / rate;
        if start.abs_diff(head) > 0 {
            service_s += seek_s(start.abs_diff(head) as f64 / SECTORS) + TURN_S / 2.0;
        } else if request.op == TraceOp::Write {
            // The next sector of a log has just passed by when its write comes.
            service_s += TURN_S * 0.9;
        }
        head = request.extent.end().0;
        busy_s += service_s;
        free_s = free_s.max(last_s) + service_s;
        longest_s = longest_s.max(free_s - last_s);
    }
    eprintln!(
        "{}: busy {:.0} % of {last_s:.0} s; longest response {:.0} ms",
        path.display(),
        100.0 * busy_s / last_s,
        1000.0 * longest_s
    );
    Ok(())
}
