//! `manylogs interfere`: small durable writes beside streams, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use manylogs_block::{Nanos, Sectors};
use manylogs_disk::{LinkSettings, Profile};
use manylogs_lab::interfere::{
    Bursts, Case, InterfereError, Interference, Place, StreamKind, StreamLoad, SyncLoad, SyncRate,
    html, run_all, text,
};
use manylogs_lab::replay::{DriveSettings, NamedPolicy, QueueSettings, parse_policies};

use super::arrays::arrays;
use super::command_line;
use super::measured::{ended, stopped_by_ctrl_c, threads, write_figures};
use crate::args::interfere::InterfereArgs;
use crate::failure::Failure;
use crate::output::{Output, print};

/// Default request sizes of a sequential and of a random stream.
const SEQUENTIAL: Sectors = Sectors(2048);
const RANDOM: Sectors = Sectors(8);
/// Default burst of a stream with a rate.
const BURST: Sectors = Sectors(8192);

pub(crate) fn run(args: &InterfereArgs) -> Result<(), Failure> {
    let policies = parse_policies(&args.policy).map_err(Failure::input)?;
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let report = args.report.as_deref().map(Output::reserve).transpose()?;
    let cases = cases(args, &policies)?;
    let (stop, threads) = (stopped_by_ctrl_c()?, threads(args.threads));
    let results = run_all(&cases, threads, &stop).map_err(|error| failure(&error))?;
    let interrupted = stop.load(Ordering::Relaxed);
    let command = command_line(std::env::args());
    let found = Interference { format: 1, command, interrupted, cases: results };
    print(&text(&found))?;
    write_figures(json, || found.to_json())?;
    if let Some(report) = report {
        report.write(html(&found).as_bytes())?;
        print(&format!("report: {}\n", report.path().display()))?;
    }
    ended(interrupted)
}

fn failure(error: &InterfereError) -> Failure {
    match error {
        InterfereError::Stream(_)
        | InterfereError::Volume { .. }
        | InterfereError::Policy { .. } => Failure::input(error),
        other => Failure::failed(other),
    }
}

/// Every combination of the lists; the policies of one load are adjacent.
fn cases(args: &InterfereArgs, policies: &[NamedPolicy]) -> Result<Vec<Case>, Failure> {
    check_loads(args)?;
    let mut cases = Vec::new();
    for drive in drives(args)? {
        for stream in streams(args) {
            if let Some(last) = stream.streams.checked_sub(1) {
                stream.region(last, drive.capacity()).map_err(Failure::input)?;
            }
            for syncs in syncs(args) {
                for &seed in &args.seed {
                    cases.extend(policies.iter().map(|policy| Case {
                        drive: drive.clone(),
                        policy: policy.clone(),
                        stream,
                        syncs,
                        seed,
                        span: Nanos::from_secs(args.seconds),
                    }));
                }
            }
        }
    }
    Ok(cases)
}

/// Refuses options of streams if no case has one, and a case without any load.
fn check_loads(args: &InterfereArgs) -> Result<(), Failure> {
    let none = |kind: &StreamKind| *kind == StreamKind::None;
    let (has_none, all_none) = (args.stream.iter().any(none), args.stream.iter().all(none));
    let given = [
        ("--stream-size", !args.stream_size.is_empty()),
        ("--stream-rate", !args.stream_rate.is_empty()),
        ("--stream-depth", args.stream_depth != [1]),
        ("--streams", args.streams != [1]),
        ("--at", args.at != [Place::Outer]),
    ];
    if let Some((option, _)) = given.iter().find(|(_, given)| all_none && *given) {
        let message = format!("{option} goes with a stream: leave it out, or --stream none");
        return Err(Failure::input(message));
    }
    if has_none && args.syncs.contains(&SyncRate::PerSecond(0.0)) {
        return Err(Failure::input("--stream none with --syncs 0: there is no load to measure"));
    }
    Ok(())
}

fn drives(args: &InterfereArgs) -> Result<Vec<DriveSettings>, Failure> {
    let least = args.arrays.array.iter().map(|shape| shape.columns()).min();
    if let (Some(column), Some(least)) = (args.sync_column, least)
        && column >= least
    {
        let message = format!("--sync-column {column}: columns are 0 to {}", least - 1);
        return Err(Failure::input(message));
    }
    let mut drives = Vec::new();
    for name in &args.drive {
        let profile: Arc<Profile> = Arc::new(super::drive(name)?);
        for &write_cache in &args.drive_cache {
            for link in links(args) {
                for queue in queues(args) {
                    let usual = DriveSettings::new(Arc::clone(&profile), write_cache);
                    let arrays = arrays(&args.arrays, &profile)?;
                    let on = |array| DriveSettings { link, queue, array, ..usual.clone() };
                    drives.extend(arrays.into_iter().map(on));
                }
            }
        }
    }
    super::link::say(&drives);
    Ok(drives)
}

fn links(args: &InterfereArgs) -> Vec<LinkSettings> {
    let mut links = Vec::new();
    for kind in or_profile(&args.drive_link) {
        links.extend(or_profile(&args.drive_fua).into_iter().map(|fua| LinkSettings { kind, fua }));
    }
    links
}

fn queues(args: &InterfereArgs) -> Vec<QueueSettings> {
    let mut queues = Vec::new();
    for age_limit in or_profile(&args.age_limit) {
        for policy in or_profile(&args.queue) {
            let queue = |&priority: &bool| QueueSettings { age_limit, policy, priority };
            queues.extend(args.priority.iter().map(queue));
        }
    }
    queues
}

/// The given values, or one `None` for the profile's own value.
fn or_profile<T: Copy>(given: &[T]) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given.iter().copied().map(Some).collect() }
}

fn streams(args: &InterfereArgs) -> Vec<StreamLoad> {
    let mut loads = Vec::new();
    for &kind in &args.stream {
        if kind == StreamKind::None {
            loads.push(StreamLoad::NONE);
            continue;
        }
        let default = [if kind == StreamKind::Random { RANDOM } else { SEQUENTIAL }];
        let sizes = if args.stream_size.is_empty() { &default } else { &*args.stream_size };
        for &at in &args.at {
            for &size in sizes {
                for bursts in bursts(args) {
                    for &streams in &args.streams {
                        let load = |&depth| StreamLoad { kind, depth, size, bursts, streams, at };
                        loads.extend(args.stream_depth.iter().map(load));
                    }
                }
            }
        }
    }
    loads
}

fn bursts(args: &InterfereArgs) -> Vec<Option<Bursts>> {
    if args.stream_rate.is_empty() {
        return vec![None];
    }
    let default = [BURST];
    let lengths = if args.stream_burst.is_empty() { &default } else { &*args.stream_burst };
    let mut all = Vec::new();
    for &bytes_per_second in &args.stream_rate {
        let of = |&burst: &Sectors| Some(Bursts { bytes_per_second, burst });
        all.extend(lengths.iter().map(of));
    }
    all
}

fn syncs(args: &InterfereArgs) -> Vec<SyncLoad> {
    let mut loads = Vec::new();
    for &mode in &args.sync_mode {
        for &writes in &args.writes_per_sync {
            let clients = args.sync_clients;
            let (column, checkpoint) = (args.sync_column, args.checkpoint);
            let load =
                |&rate: &SyncRate| SyncLoad { rate, clients, writes, mode, column, checkpoint };
            loads.extend(args.syncs.iter().map(load));
        }
    }
    loads
}
