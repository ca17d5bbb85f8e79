//! Instructions per replayed request, held against a budget.
//!
//! Wall time depends on what else the machine does; the number of instructions does not. Each case
//! is a policy on a trace. It runs under valgrind with one and with three passes over the trace:
//! the difference is what requests cost, without start-up and reading the trace. Requests per
//! second are printed too. Cases on traces that are not here are skipped and counted;
//! `MANYLOGS_SHARED` says where to look for them.
//!
//! Two loads are no traces. `calm` is that of a mail server without a peak, on a drive or on a
//! volume; with `+stores` the same is a base volume that could borrow two stores, and does not.
//! `mlfs` makes syncs of small writes to ordinary files; with `+kept` the logs keep content of
//! another file meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use manylogs_block::Nanos;
use manylogs_lab::episodes::{self, Episode, OffloadPolicy, On, OursOptions};
use manylogs_lab::mlfs::keeping::write_plain;
use manylogs_lab::prepare::{TraceSpec, prepare};
use manylogs_lab::replay::{
    DriveSettings, Durability, Loop, Plan, Progress, Workload, exported_capacity, parse_policies,
    run_all,
};
use manylogs_lab::synthetic::Phone;
use manylogs_workload::{BoxedSource, OpenOptions};

const DRIVE: &str = "exos-x20";
const PASSES: [u64; 2] = [1, 3];
const REQUESTS_TIMED: u64 = 1_000_000;
const PHONE_REQUESTS: u64 = 50_000;
/// The load without a peak, on a drive of the Everest paper: what its name in the budget is, which
/// requests there are, of which one in four goes to the one drive, and for how long.
const CALM: &str = "calm";
const CALM_DRIVE: &str = "cheetah-15k5";
const CALM_REQUESTS: u64 = 80_000;
const CALM_SPAN: Nanos = Nanos::from_secs(1000);
/// The syncs of files.
const MLFS: &str = "mlfs";
const SYNCS: u64 = 2_000;
/// The ends of the names of cases that have something more, and what that may cost of the
/// instructions of the case without, per cent.
const KEPT: (&str, u64) = ("+kept", 101);
/// What it was. The goal is 105.
const STORES: (&str, u64) = ("+stores", 112);

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let result = match arguments.as_slice() {
        [case, passes] => passes.parse().map_err(Failure::from).and_then(|passes| {
            replay(case, passes)?;
            Ok(true)
        }),
        [only] => measure_all(Some(only)),
        _ => measure_all(None),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("benchmark: {error}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Measures the cases of the budget, or those of one trace; returns whether all keep within it.
fn measure_all(only: Option<&str>) -> Result<bool, Failure> {
    let (mut within, mut skipped) = (true, 0);
    let mut measured = BTreeMap::new();
    for (case, budget) in budget()? {
        let (_, trace) = parse(&case)?;
        if only.is_some_and(|only| only != trace) {
            continue;
        }
        if !is_here(trace) {
            eprintln!("{case:<18} skipped: the trace is not here");
            skipped += 1;
            continue;
        }
        let each = measure(&case, budget)?;
        within &= each <= budget;
        measured.insert(case, each);
    }
    within &= is_cheap(&measured);
    if skipped > 0 {
        eprintln!("{skipped} cases skipped");
    }
    Ok(within)
}

/// Whether each case with something more takes little more than the one without.
fn is_cheap(measured: &BTreeMap<String, u64>) -> bool {
    let mut all = true;
    for (end, percent) in [KEPT, STORES] {
        for (case, each) in measured.iter().filter(|(case, _)| case.contains(end)) {
            let without = case.replace(end, "");
            let Some(plain) = measured.get(&without) else { continue };
            let holds = each * 100 <= plain * percent;
            let verdict = if holds { "ok" } else { "TOO MUCH" };
            let times = *each as f64 / *plain as f64;
            eprintln!("{case:<18} {times:.4} times {without}: {verdict}");
            all &= holds;
        }
    }
    all
}

/// The instructions of a request of `case`.
fn measure(case: &str, budget: u64) -> Result<u64, Failure> {
    let (_, trace) = parse(case)?;
    let requests = match trace {
        CALM => calm(case, 1)?,
        MLFS => SYNCS,
        _ => workload(trace, 1)?.requests(),
    };
    let [few, many] = PASSES.map(|passes| instructions(case, passes));
    let each = (many? - few?) / (requests * (PASSES[1] - PASSES[0]));
    let verdict = if each <= budget { "ok" } else { "OVER BUDGET" };
    let began = Instant::now();
    let passes = if trace == MLFS { 1 } else { REQUESTS_TIMED.div_ceil(requests) };
    let replayed = replay(case, passes)?;
    let rate = replayed as f64 / began.elapsed().as_secs_f64();
    eprintln!(
        "{case:<18} {each:>6} instructions a request, budget {budget}: {verdict}; {rate:.0} \
         requests/s now on this machine, peak memory {} kB",
        peak_memory_kb()
    );
    Ok(each)
}

/// The policy and the trace of a case.
fn parse(case: &str) -> Result<(&str, &str), Failure> {
    Ok(case.split_once('@').ok_or("expected: policy@trace")?)
}

/// Cases, and the most instructions of each.
fn budget() -> Result<BTreeMap<String, u64>, Failure> {
    let text = std::fs::read_to_string(root().join("benches/budget.txt"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (case, budget) = line.split_once(' ').ok_or("expected: case instructions")?;
            Ok((case.to_owned(), budget.trim().parse()?))
        })
        .collect()
}

/// Instructions that this program takes for a case, counted by valgrind.
fn instructions(case: &str, passes: u64) -> Result<u64, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args([case, &passes.to_string()])
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = count.ok_or_else(|| format!("valgrind said: {said}"))?;
    Ok(count.trim().parse()?)
}

fn settings() -> Result<DriveSettings, Failure> {
    let profile = manylogs_disk::profile::find(DRIVE)?.ok_or("the default drive exists")?;
    Ok(DriveSettings::new(Arc::new(profile), false))
}

/// The file of a trace; `None` if the trace is generated.
fn file_of(trace: &str) -> Option<PathBuf> {
    let shared = || {
        let elsewhere = std::env::var_os("MANYLOGS_SHARED").map(PathBuf::from);
        elsewhere.unwrap_or_else(|| root().join("../shared")).join("data/traces")
    };
    match trace {
        "sample" => Some(root().join("traces/pgbench-beside-reader.trace.zst")),
        "telegram" => Some(shared().join("mob_telegram_exec.csv.gz")),
        _ => None,
    }
}

fn is_here(trace: &str) -> bool {
    file_of(trace).is_none_or(|file| file.exists())
}

fn workload(trace: &str, passes: u64) -> Result<Workload, Failure> {
    let Some(file) = file_of(trace) else {
        let open = || Ok(Box::new(Phone::new(1, PHONE_REQUESTS)) as BoxedSource);
        return Ok(Workload::measure(Arc::new(open))?.repeated(passes));
    };
    let spec = TraceSpec {
        opens: Vec::new(),
        files: vec![file],
        open: OpenOptions::default(),
        window: None,
        windows: Vec::new(),
        read: Vec::new(),
        limit: None,
        seed: 1,
    };
    let policies = parse_policies(&["mlb-256"])?;
    let capacity = exported_capacity(&settings()?, &policies[0])?;
    Ok(Workload::measure(prepare(&spec, capacity, true)?.open)?.repeated(passes))
}

/// Replays a case. Returns the number of requests.
fn replay(case: &str, passes: u64) -> Result<u64, Failure> {
    let (policy, trace) = parse(case)?;
    if trace == CALM {
        return calm(case, passes);
    }
    if trace == MLFS {
        write_plain(policy.ends_with(KEPT.0), passes * SYNCS)?;
        return Ok(passes * SYNCS);
    }
    let mut plan = Plan::new(workload(trace, passes)?, settings()?, Durability::All);
    plan.pump.mode = Loop::Open { outstanding_max: 4096, stop_at_overload: false };
    let policies = parse_policies(&[policy])?;
    let outcomes = run_all(&plan, &policies, &[Arc::<Progress>::default()], 1);
    let outcome = outcomes.into_iter().next().ok_or("one policy, one outcome")??;
    Ok(outcome.pump.requests)
}

/// Runs a load without a peak. Returns the number of requests.
fn calm(case: &str, passes: u64) -> Result<u64, Failure> {
    let (base, _) = parse(case)?;
    let on = if base.starts_with("volume") { On::Volume } else { On::Drive };
    // So that no few requests that come together by chance are a peak.
    let threshold = Nanos::from_secs(10_000);
    let policy = match base.ends_with(STORES.0) {
        true => OffloadPolicy::Ours(OursOptions { threshold, ..OursOptions::default() }),
        false => OffloadPolicy::None,
    };
    // Hardly any requests go to the volumes that lend.
    let episode = Episode {
        requests: CALM_REQUESTS * passes,
        span: Nanos(CALM_SPAN.0 * passes),
        burst: Nanos(CALM_SPAN.0 * passes / 3),
        hot_outside: 1000,
        ..Episode::ALL[0]
    };
    let profile = manylogs_disk::profile::find(CALM_DRIVE)?.ok_or("the paper's drive exists")?;
    let drive = Arc::new(DriveSettings::new(Arc::new(profile), false));
    let figures = episodes::run(&episode, &drive, on, policy, 1)?;
    if figures.offloaded_percent > 0.0 || figures.held_max_mb > 0.0 {
        return Err(format!("there was a peak: {figures:?}").into());
    }
    Ok(figures.requests)
}

/// The most memory this process ever had, as Linux counts it.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
