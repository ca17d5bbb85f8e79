//! Instructions per replayed request, held against a budget.
//!
//! Wall time depends on what else the machine does; the number of instructions does not. Each case
//! is a policy on a trace. It runs under valgrind with one and with three passes over the trace:
//! the difference is what requests cost, without start-up and reading the trace. Requests per
//! second are printed too. The cases `@mlfs` write to ordinary files of MLFS, alone and while the
//! logs keep content of another file, which may cost 1 % at most. Cases on traces that are not here
//! are skipped and counted; `MANYLOGS_SHARED` says where to look for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use manylogs_lab::mlfs::keeping::write_plain;
use manylogs_lab::prepare::{TraceSpec, prepare};
use manylogs_lab::replay::{
    DriveSettings, Durability, Loop, Outcome, Plan, Progress, Workload, exported_capacity,
    parse_policies, run_all,
};
use manylogs_lab::synthetic::Phone;
use manylogs_workload::{BoxedSource, OpenOptions};

const DRIVE: &str = "exos-x20";
const PASSES: [u64; 2] = [1, 3];
const REQUESTS_TIMED: u64 = 1_000_000;
const PHONE_REQUESTS: u64 = 50_000;
/// In place of a trace: a file system, whose cases count syncs.
const MLFS: &str = "mlfs";
const SYNCS: u64 = 2_000;
/// The case beside kept content takes at most this many hundredths of the other.
const BESIDE_KEPT_MOST: u64 = 101;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let result = match arguments.as_slice() {
        [case, passes] => passes.parse().map_err(Failure::from).and_then(|passes| {
            run(case, passes)?;
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
    if only.is_none_or(|only| only == MLFS) {
        within &= measure_mlfs()?;
    }
    for (case, budget) in budget()? {
        let (_, trace) = parse(&case)?;
        if trace == MLFS || only.is_some_and(|only| only != trace) {
            continue;
        }
        if !is_here(trace) {
            eprintln!("{case:<18} skipped: the trace is not here");
            skipped += 1;
            continue;
        }
        within &= measure(&case, budget)?;
    }
    if skipped > 0 {
        eprintln!("{skipped} cases skipped");
    }
    Ok(within)
}

/// Whether syncs of ordinary files keep within their budget, and cost about the same beside content
/// that the logs keep.
fn measure_mlfs() -> Result<bool, Failure> {
    let (mut within, mut found) = (true, Vec::new());
    for case in ["alone@mlfs", "beside-kept@mlfs"] {
        let budget = *budget()?.get(case).ok_or("the budget has no such case")?;
        let [few, many] = PASSES.map(|passes| instructions(case, passes));
        let each = (many? - few?) / (SYNCS * (PASSES[1] - PASSES[0]));
        let verdict = if each <= budget { "ok" } else { "OVER BUDGET" };
        eprintln!("{case:<18} {each:>6} instructions a sync, budget {budget}: {verdict}");
        within &= each <= budget;
        found.push(each);
    }
    let ratio = found[1] as f64 / found[0] as f64;
    let holds = 100 * found[1] <= BESIDE_KEPT_MOST * found[0];
    let verdict = if holds { "ok" } else { "MORE THAN 1 %" };
    eprintln!("beside kept content a sync takes {ratio:.4} of the instructions: {verdict}");
    Ok(within && holds)
}

/// Whether `case` keeps within its budget.
fn measure(case: &str, budget: u64) -> Result<bool, Failure> {
    let (_, trace) = parse(case)?;
    let requests = workload(trace, 1)?.requests();
    let [few, many] = PASSES.map(|passes| instructions(case, passes));
    let each = (many? - few?) / (requests * (PASSES[1] - PASSES[0]));
    let verdict = if each <= budget { "ok" } else { "OVER BUDGET" };
    let outcome = replay(case, REQUESTS_TIMED.div_ceil(requests))?;
    let rate = outcome.pump.requests as f64 / outcome.wall.as_secs_f64();
    eprintln!(
        "{case:<18} {each:>6} instructions a request, budget {budget}: {verdict}; {rate:.0} \
         requests/s now on this machine, peak memory {} kB",
        peak_memory_kb()
    );
    Ok(each <= budget)
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

/// Runs a case without a look at what it takes.
fn run(case: &str, passes: u64) -> Result<(), Failure> {
    let (what, on) = parse(case)?;
    if on == MLFS {
        return Ok(write_plain(what == "beside-kept", passes * SYNCS)?);
    }
    replay(case, passes).map(drop)
}

fn replay(case: &str, passes: u64) -> Result<Outcome, Failure> {
    let (policy, trace) = parse(case)?;
    let mut plan = Plan::new(workload(trace, passes)?, settings()?, Durability::All);
    plan.pump.mode = Loop::Open { outstanding_max: 4096, stop_at_overload: false };
    let policies = parse_policies(&[policy])?;
    let outcomes = run_all(&plan, &policies, &[Arc::<Progress>::default()], 1);
    Ok(outcomes.into_iter().next().ok_or("one policy, one outcome")??)
}

/// The most memory this process ever had, as Linux counts it.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
