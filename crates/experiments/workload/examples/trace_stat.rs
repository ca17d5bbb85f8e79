//! Prints the statistics of a trace as JSON, and the cost of reading it.
//!
//! `cargo run --release -p manylogs-workload --example trace_stat -- TRACE [as-stands]`

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use manylogs_workload::{Echoes, MobileDiscards, OpenOptions, TraceSource, TraceStats, open};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: trace_stat TRACE [as-stands]")?);
    let mut options = OpenOptions::default();
    if arguments.next().as_deref() == Some("as-stands") {
        options.echoes = Echoes::Keep;
        options.mobile_discards = MobileDiscards::AsRead;
    }
    for pass in 0..3 {
        let started = Instant::now();
        let mut source = open(&path, &options)?;
        let mut requests = 0_u64;
        while let Some(request) = source.next_request() {
            request?;
            requests += 1;
        }
        let nanos = started.elapsed().as_nanos() as f64 / requests as f64;
        eprintln!("pass {pass}: {requests} requests, {nanos:.0} ns each");
    }
    let stats = TraceStats::collect(&mut open(&path, &options)?)?;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &stats)?;
    Ok(())
}
