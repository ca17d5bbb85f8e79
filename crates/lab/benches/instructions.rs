//! Instructions per replayed request, held against a budget.
//!
//! Wall time depends on what else the machine does; the number of instructions does not. Each case
//! runs under valgrind with one and with three passes over the sample trace: the difference is what
//! requests cost, without start-up and reading the trace. Requests per second are printed too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use manylogs_block::Sectors;
use manylogs_lab::prepare::{TraceSpec, prepare};
use manylogs_lab::replay::{
    Control, DriveSettings, Durability, Loop, Outcome, Plan, PumpSettings, Workload,
    exported_capacity, parse_policies, run_all,
};
use manylogs_workload::OpenOptions;

const DRIVE: &str = "exos-x20";
const PASSES: [u64; 2] = [1, 3];
const REQUESTS_TIMED: u64 = 1_000_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let result = match arguments.as_slice() {
        [case, passes] => passes.parse().map_err(Failure::from).and_then(|passes| {
            replay(case, passes)?;
            Ok(true)
        }),
        _ => measure_all(),
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Measures every case of the budget; whether all keep within it.
fn measure_all() -> Result<bool, Failure> {
    let mut within = true;
    for (case, budget) in budget()? {
        let passes = PASSES.map(|passes| instructions(&case, passes));
        let [few, many] = passes;
        let added = workload(1)?.requests() * (PASSES[1] - PASSES[0]);
        let each = (many? - few?) / added;
        let verdict = if each <= budget { "ok" } else { "OVER BUDGET" };
        within &= each <= budget;
        let outcome = replay(&case, REQUESTS_TIMED / workload(1)?.requests())?;
        let rate = outcome.pump.requests as f64 / outcome.wall.as_secs_f64();
        eprintln!(
            "{case:<12} {each:>6} instructions a request, budget {budget}: {verdict}; {rate:.0} \
             requests/s now on this machine, peak memory {} kB",
            peak_memory_kb()
        );
    }
    Ok(within)
}

/// Cases and what each may cost.
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
    Ok(DriveSettings { profile: Arc::new(profile), write_cache: false, queue: Default::default() })
}

fn workload(passes: u64) -> Result<Workload, Failure> {
    let spec = TraceSpec {
        files: vec![root().join("traces/pgbench-beside-reader.trace.zst")],
        open: OpenOptions::default(),
        window: None,
        limit: None,
        seed: 1,
    };
    let policies = parse_policies(&["mlb-256"])?;
    let capacity = exported_capacity(&settings()?, &policies[0].policy)?;
    Ok(Workload::measure(prepare(&spec, capacity, true)?.open)?.repeated(passes))
}

fn replay(case: &str, passes: u64) -> Result<Outcome, Failure> {
    let plan = Plan {
        workload: workload(passes)?,
        drive: settings()?,
        rate: 1.0,
        pump: PumpSettings {
            mode: Loop::Open { outstanding_max: 4096, stop_at_overload: false },
            durability: Durability::EveryWrite,
        },
        small_write_max: Sectors(512),
        checkpoint_after: false,
        seed: 1,
    };
    let policies = parse_policies(&[case])?;
    let outcomes = run_all(&plan, &policies, &[Arc::<Control>::default()], 1);
    Ok(outcomes.into_iter().next().ok_or("one policy, one outcome")??)
}

/// The most memory this process ever had, as Linux counts it.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
