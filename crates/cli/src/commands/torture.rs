//! `manylogs torture`: thousands of simulated crashes, with checks after each.

use std::fmt::Write;
use std::io::IsTerminal;
use std::ops::RangeInclusive;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use manylogs_lab::Shape;
use manylogs_torture::ext4::{Templates, has_room_on};
use manylogs_torture::{
    Campaign, Detected, Digest, Ext4Campaign, Fault, FaultCount, Progress, Summary, System, Tally,
};
use serde_json::{Value, json};

use crate::args::torture::{TortureArgs, TorturedSystem};
use crate::commands::measured::on_ctrl_c;
use crate::failure::Failure;
use crate::output::{Output, print};

const REDRAW: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &TortureArgs) -> Result<(), Failure> {
    let system = match args.system {
        TorturedSystem::Volume => System::Volume,
        TorturedSystem::Everest => System::Everest,
        TorturedSystem::Gecko => System::Gecko,
        TorturedSystem::Ext4 => System::Ext4,
        TorturedSystem::Lazy => System::Lazy,
        TorturedSystem::Adopt => System::Adopt,
        TorturedSystem::Mlfs if args.lazy => System::MlfsLazy,
        TorturedSystem::Mlfs => System::Mlfs,
    };
    check(args, system)?;
    let json = args.json.as_deref().map(Output::reserve).transpose()?;
    let digests = args.digests.as_deref().map(Output::reserve).transpose()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let campaign = Campaign {
        system,
        seeds: seeds(args),
        states: args.states,
        jobs: args.jobs.map_or(cores, manylogs_block::to_usize),
        faults: args.faults,
        trouble: args.trouble,
        array: args.array,
        ext4: ext4(args, system)?,
    };
    let progress = Arc::new(Progress::default());
    let stop = Arc::clone(&progress);
    on_ctrl_c(move || stop.stop.store(true, Ordering::Relaxed))?;
    let started = Instant::now();
    let summary = run_shown(&campaign, &progress);
    let elapsed = started.elapsed();
    if let Some(json) = json {
        let text = serde_json::to_string_pretty(&as_json(&summary)).unwrap_or_default();
        json.write((text + "\n").as_bytes())?;
    }
    if let Some(digests) = digests {
        digests.write(lines(&summary).as_bytes())?;
    }
    print(&told(system, &summary, elapsed))?;
    match &summary.failure {
        Some(failure) => Err(Failure::failed(format!(
            "seed {}: {}\nrepeat it with: {}",
            failure.seed,
            failure.problem,
            repeated(args, failure.seed),
        ))),
        None if summary.interrupted => Err(Failure::Interrupted),
        None => Ok(()),
    }
}

/// Refuses options that the system does not have.
fn check(args: &TortureArgs, system: System) -> Result<(), Failure> {
    if system != System::Volume && args.faults {
        let message = "--faults is for volumes: leave it out, or --system";
        return Err(Failure::input(message));
    }
    let may_fail =
        matches!(system, System::Volume | System::Mlfs | System::MlfsLazy | System::Everest);
    if !may_fail && args.trouble {
        let message =
            "--trouble is for volumes, --system mlfs and everest: leave it out, or --system";
        return Err(Failure::input(message));
    }
    if let Some(array) = &args.array {
        check_array(args, system, array)?;
    }
    if args.lazy && system != System::MlfsLazy {
        let message = "--lazy is for --system mlfs: leave it out, or --system lazy";
        return Err(Failure::input(message));
    }
    if args.mutate.is_some() && (system != System::Ext4 || args.states.is_some()) {
        let message = "--mutate is for --system ext4, and goes without --states";
        return Err(Failure::input(message));
    }
    Ok(())
}

/// Refuses arrays that the system cannot be on.
fn check_array(args: &TortureArgs, system: System, array: &Shape) -> Result<(), Failure> {
    let is_mlfs = matches!(system, System::Mlfs | System::MlfsLazy);
    if (system != System::Volume && !is_mlfs) || args.faults {
        let message = format!(
            "--array {array} is for volumes and --system mlfs, without --faults: leave it out"
        );
        return Err(Failure::input(message));
    }
    if is_mlfs {
        has_room_on(array).map_err(|why| Failure::input(format!("--array {why}")))?;
    }
    Ok(())
}

fn seeds(args: &TortureArgs) -> RangeInclusive<u64> {
    let first = *args.seeds.start();
    match args.mutate {
        Some(images) => first..=first.saturating_add(images - 1),
        None => args.seeds.clone(),
    }
}

fn ext4(args: &TortureArgs, system: System) -> Result<Option<Ext4Campaign>, Failure> {
    if matches!(system, System::Volume | System::Everest | System::Gecko) {
        return Ok(None);
    }
    let images = Templates::make();
    let images = images.map_err(|error| Failure::input(format!("no images: {error}")))?;
    let (e2fsck_every, mutate) = (args.e2fsck_every, args.mutate.is_some());
    Ok(Some(Ext4Campaign { images, e2fsck_every, mutate }))
}

/// The command that repeats the history of a seed.
fn repeated(args: &TortureArgs, seed: u64) -> String {
    let mut command = format!("manylogs torture --seeds {seed}..{seed}");
    command += match args.system {
        TorturedSystem::Volume => "",
        TorturedSystem::Everest => " --system everest",
        TorturedSystem::Gecko => " --system gecko",
        TorturedSystem::Ext4 => " --system ext4",
        TorturedSystem::Lazy => " --system lazy",
        TorturedSystem::Adopt => " --system adopt",
        TorturedSystem::Mlfs => " --system mlfs",
    };
    if let Some(array) = &args.array {
        let _ = write!(command, " --array {}:{}", array.level, array.members);
    }
    let others = [TorturedSystem::Volume, TorturedSystem::Everest, TorturedSystem::Gecko];
    if !others.contains(&args.system) {
        let _ = write!(command, " --e2fsck-every {}", args.e2fsck_every);
    }
    let flags = [
        (args.mutate.is_some(), " --mutate 1"),
        (args.faults, " --faults"),
        (args.trouble, " --trouble"),
        (args.lazy, " --lazy"),
    ];
    command.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag));
    command
}

/// Runs the campaign; on a terminal a line shows the progress.
fn run_shown(campaign: &Campaign, progress: &Progress) -> Summary {
    // A panic in a history is a failure of that history, reported at the end like any other.
    panic::set_hook(Box::new(|_| ()));
    let terminal = std::io::stderr().is_terminal();
    let ended = AtomicBool::new(false);
    let started = Instant::now();
    let summary = std::thread::scope(|scope| {
        if terminal {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let states = progress.states.load(Ordering::Relaxed);
                    let histories = progress.histories.load(Ordering::Relaxed);
                    let rate = states as f64 / started.elapsed().as_secs_f64();
                    eprint!("\r{states} crash states, {histories} histories, {rate:.0} states/s ");
                    std::thread::sleep(REDRAW);
                }
                eprintln!();
            });
        }
        let summary = campaign.run(progress);
        ended.store(true, Ordering::Relaxed);
        summary
    });
    let _ = panic::take_hook();
    summary
}

fn told(system: System, summary: &Summary, elapsed: Duration) -> String {
    let tally = &summary.tally;
    let (states, seconds) = (tally.phases.total(), elapsed.as_secs_f64());
    let mut text = match tally.mutated {
        0 => format!("{states} distinct crash states in {} histories", tally.histories),
        images => format!("{images} damaged images"),
    };
    let _ = writeln!(text, ", {seconds:.1} s");
    if states > 0 {
        text.push('\n');
    }
    // Other systems have only some of a volume's phases.
    let is_told = |count: u64| count > 0 || system == System::Volume;
    for (phase, count) in tally.phases.iter().filter(|(_, count)| is_told(*count)) {
        let _ = writeln!(text, "{:>12}  {}", count, phase.name());
    }
    text.push('\n');
    for (what, count) in tally.counts().filter(|(_, count)| is_told(*count)) {
        let _ = writeln!(text, "{count:>12}  {}", what.replace('_', " "));
    }
    if tally.all_faults().injected > 0 {
        faults(&mut text, tally);
    }
    text
}

fn lines(summary: &Summary) -> String {
    let mut text = String::new();
    for Digest { seed, states, hash } in &summary.digests {
        let _ = writeln!(text, "{seed} {states} {hash:016x}");
    }
    text
}

fn faults(text: &mut String, tally: &Tally) {
    let _ = writeln!(
        text,
        "\n{:<12}{:>10}{:>10}{:>10}{:>10}",
        "faults", "injected", "detected", "harmless", "listed"
    );
    let mut line = |name: &str, count: FaultCount| {
        let FaultCount { injected, detected, harmless, listed, .. } = count;
        let _ = writeln!(text, "{name:<12}{injected:>10}{detected:>10}{harmless:>10}{listed:>10}");
    };
    for (fault, count) in Fault::ALL.into_iter().zip(tally.faults) {
        line(&name(&format!("{fault:?}")), count);
    }
    let all = tally.all_faults();
    line("all", all);
    let by = Detected::ALL.into_iter().zip(all.detected_by);
    let by: Vec<String> = by
        .map(|(by, count)| format!("{count} by {}", name(&format!("{by:?}")).replace('-', " ")))
        .collect();
    let _ = writeln!(text, "detected first: {}", by.join(", "));
    text.push_str("listed: lost without a trace, as docs/semantics.md says\n");
}

/// A variant's name as separate words.
fn name(variant: &str) -> String {
    let mut words = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn as_json(summary: &Summary) -> Value {
    let tally = &summary.tally;
    let key = |name: String| name.replace('-', "_");
    let phases = tally.phases.iter();
    let phases = phases.map(|(phase, count)| (key(phase.name().to_owned()), json!(count)));
    let faults = Fault::ALL.into_iter().zip(tally.faults).map(|(fault, count)| {
        let FaultCount { injected, detected, detected_by, harmless, listed } = count;
        let by = Detected::ALL.into_iter().zip(detected_by);
        let by = by.map(|(by, count)| (key(name(&format!("{by:?}"))), json!(count)));
        let count = json!({
            "injected": injected, "detected": detected, "harmless": harmless, "listed": listed,
            "detected_by": Value::Object(by.collect()),
        });
        (key(name(&format!("{fault:?}"))), count)
    });
    json!({
        "states": tally.phases.total(),
        "phases": Value::Object(phases.collect()),
        "counts": Value::Object(tally.counts().map(|(n, c)| (n.to_owned(), json!(c))).collect()),
        "faults": Value::Object(faults.collect()),
        "failure": summary.failure.as_ref().map(|f| json!({"seed": f.seed, "problem": f.problem})),
        "interrupted": summary.interrupted,
    })
}
