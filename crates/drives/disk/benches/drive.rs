//! Measures how many requests the model serves in a second of processor time.
//!
//! `cargo bench -p manylogs-disk`
#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use manylogs_block::Rng;
use manylogs_block::{Extent, Time};
use manylogs_disk::{Command, CommandKind, Drive, Event, Options, Profile, profile};

const REQUESTS: u64 = 1_000_000;

fn main() {
    for name in profile::drives() {
        let Ok(Some(drive)) = profile::find(name) else { continue };
        for depth in [1, 8, 32] {
            let rate = |write_share, cache| random(&drive, depth, write_share, cache) / 1e6;
            println!(
                "{name:18} depth {depth:2}: reads {:.2} M/s, half writes {:.2} M/s, \
                 cached {:.2} M/s",
                rate(0, false),
                rate(50, false),
                rate(50, true)
            );
        }
    }
}

/// Random 4 KiB requests, `write_percent` of them writes. Returns the requests simulated per
/// second.
fn random(profile: &Profile, depth: u32, write_percent: u64, write_cache: bool) -> f64 {
    let options = Options { depth, write_cache, ..Options::of(profile) };
    let mut drive = Drive::new(profile, &options);
    let mut rng = Rng::new(1);
    let places = profile.geometry.capacity_sectors / 8;
    let started = processor_seconds();
    let (mut now, mut submitted) = (Time(0), 0);
    loop {
        while submitted < REQUESTS && drive.has_room() {
            let write = rng.below(100) < write_percent;
            let kind = if write { CommandKind::Write { fua: false } } else { CommandKind::Read };
            let extent = Extent::new(rng.below(places) * 8, 8);
            if drive.submit(now, Command { tag: submitted, kind, extent }).is_err() {
                break;
            }
            submitted += 1;
        }
        let Some(at) = drive.next_event() else { break };
        drive.advance(at, &mut |event| {
            if let Event::Completed(completion) = event {
                now = completion.at;
            }
        });
        now = now.max(at);
    }
    REQUESTS as f64 / (processor_seconds() - started)
}

/// Time this thread has spent on a processor, so that other load on the machine counts less. Falls
/// back to the time of day if the system does not report it.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    let today = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
    nanos.map_or_else(today, |nanos| nanos / 1e9)
}
