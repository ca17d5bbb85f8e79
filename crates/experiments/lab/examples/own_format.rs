//! A trace format of one's own, replayed: `cargo run --example own_format [FILE]`.
//!
//! A format is whatever yields [`TraceRequest`]s in order of arrival. Formats that the program
//! itself should read go into `crates/experiments/workload/src/format`.

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::error::Error;
use std::sync::Arc;

use manylogs_block::{Extent, Time};
use manylogs_disk::profile;
use manylogs_lab::replay::{DriveSettings, Durability, NamedPolicy, Plan, Workload, run};
use manylogs_workload::{
    BoxedSource, SourceCounts, TraceError, TraceOp, TraceRequest, TraceSource,
};

/// Milliseconds, `r` or `w`, first sector, sectors.
const SAMPLE: &str = "0 w 1000 8\n4 r 0 256\n8 w 90000 8\n12 r 256 256\n16 w 5000 16\n";

/// Lines of that format.
struct Lines(std::vec::IntoIter<String>);

impl TraceSource for Lines {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        let line = self.0.find(|line| parse(line).is_some())?;
        parse(&line).map(Ok)
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
}

fn parse(line: &str) -> Option<TraceRequest> {
    let mut words = line.split_whitespace();
    let at = Time(words.next()?.parse::<u64>().ok()? * 1_000_000);
    let op = if words.next()? == "w" { TraceOp::Write } else { TraceOp::Read };
    let extent = Extent::new(words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(TraceRequest { at, op, extent, fua: false, device: 0 })
}

fn main() -> Result<(), Box<dyn Error>> {
    let text = match std::env::args().nth(1) {
        Some(file) => std::fs::read_to_string(file)?,
        None => SAMPLE.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let open = move || Ok(Box::new(Lines(lines.clone().into_iter())) as BoxedSource);
    let drive =
        DriveSettings::new(Arc::new(profile::find("exos-x20")?.ok_or("no such drive")?), false);
    let workload = Workload::measure(Arc::new(open))?;
    let plan = Plan { keep_requests: true, ..Plan::new(workload, drive, Durability::All) };
    for name in ["nologging", "mlb"] {
        let mut outcome = run(&plan, &NamedPolicy::parse(name)?, &Arc::default())?;
        for kept in outcome.recorder.take_requests().iter() {
            println!("{name}: {} took {:.2} ms", kept.kind, kept.latency_us / 1e3);
        }
    }
    Ok(())
}
