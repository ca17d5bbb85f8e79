//! One run of a sweep.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use manylogs_block::Sectors;
use manylogs_disk::Profile;
use manylogs_disk::profile::{self, Library};
use manylogs_workload::OpenOptions;

use super::columns::{Column, Columns};
use super::file::{Rate, Sweep};
use super::row::{Aim, Ask, Row};
use crate::prepare::{TraceSpec, prepare};
use crate::replay::{
    Answered, DriveSettings, Durability, NamedPolicy, Plan, Progress, Workload, exported_capacity,
    find_rate, run,
};

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Job {
    /// Trace, drive, policy and seed of the run.
    pub ask: Ask,
    trace: usize,
    drive: Arc<Profile>,
    policy: NamedPolicy,
}

/// Traces made ready for drives, each pair once.
#[derive(Debug, Default)]
pub struct Loads(Mutex<BTreeMap<(usize, String), Arc<Shared>>>);

type Shared = OnceLock<Result<Load, String>>;

/// A trace on a drive.
#[derive(Clone, Debug)]
struct Load {
    workload: Workload,
    durability: Durability,
    rate: f64,
    /// With a rate that was searched.
    aim: Option<Aim>,
}

/// All runs of `sweep`, ordered by trace, drive, policy and seed.
///
/// # Errors
/// If a drive or a policy is unknown.
pub fn jobs(sweep: &Sweep) -> Result<Vec<Job>, String> {
    let drives = sweep.drives.iter().map(|name| drive(name)).collect::<Result<Vec<_>, _>>()?;
    let policies = sweep.grid().map_err(|error| error.to_string())?;
    let mut jobs = Vec::new();
    for (trace, list) in sweep.traces.iter().enumerate() {
        for drive in &drives {
            for policy in &policies {
                jobs.extend(sweep.seeds.list().into_iter().map(|seed| Job {
                    ask: Ask {
                        trace: list.name(),
                        drive: drive.name.clone(),
                        policy: policy.name.clone(),
                        seed,
                    },
                    trace,
                    drive: Arc::clone(drive),
                    policy: policy.clone(),
                }));
            }
        }
    }
    Ok(jobs)
}

fn drive(name: &str) -> Result<Arc<Profile>, String> {
    let found = Library::of_user().find_or_load(name).map_err(|error| error.to_string())?;
    let known = || profile::drives().join(", ");
    found.map(Arc::new).ok_or_else(|| {
        format!(
            "unknown drive `{name}`; there are: {}, and those of `manylogs drive list --all`",
            known()
        )
    })
}

impl Job {
    /// Does the run and returns its row, with one line for each request if the sweep asks for
    /// these. `None` if `progress` ended the run.
    ///
    /// # Errors
    /// If a trace cannot be read, the policy does not fit the drive, or a request fails.
    pub fn run(
        &self,
        sweep: &Sweep,
        loads: &Loads,
        progress: &Arc<Progress>,
    ) -> Result<Option<(Row, Columns)>, String> {
        let load = self.load(sweep, loads)?;
        let plan = self.plan(&load, sweep.output.requests.is_some());
        let outcome = run(&plan, &self.policy, progress).map_err(|error| error.to_string())?;
        if outcome.interrupted {
            return Ok(None);
        }
        let requests = requests(outcome.recorder.requests());
        Ok(Some((Row::of(self.ask.clone(), &plan, &outcome, load.aim), requests)))
    }

    fn plan(&self, load: &Load, keep_requests: bool) -> Plan {
        let drive = self.settings(load.durability);
        Plan {
            rate: load.rate,
            checkpoint_after: true,
            keep_requests,
            seed: self.ask.seed,
            ..Plan::new(load.workload.clone(), drive, load.durability)
        }
    }

    fn settings(&self, durability: Durability) -> DriveSettings {
        DriveSettings::new(Arc::clone(&self.drive), durability.write_cache())
    }

    fn load(&self, sweep: &Sweep, loads: &Loads) -> Result<Load, String> {
        let shared = {
            let mut all = loads.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry((self.trace, self.ask.drive.clone())).or_default())
        };
        shared.get_or_init(|| self.prepare(sweep)).clone()
    }

    fn prepare(&self, sweep: &Sweep) -> Result<Load, String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", self.ask.trace);
        let mut capacity = Sectors(u64::MAX);
        for policy in sweep.grid().map_err(|error| error.to_string())? {
            let exported = exported_capacity(&self.settings(Durability::All), &policy)
                .map_err(|error| error.to_string())?;
            capacity = capacity.min(exported);
        }
        let spec = TraceSpec {
            files: sweep.traces[self.trace].files().to_vec(),
            open: OpenOptions::default(),
            window: sweep.window.as_ref().and_then(|window| window.choice()),
            limit: sweep.limit,
            seed: 1,
        };
        let prepared = prepare(&spec, capacity, sweep.fit).map_err(|error| named(&error))?;
        let workload = Workload::measure(prepared.open).map_err(|error| named(&error))?;
        if workload.requests() == 0 {
            return Err(named(&"no request is left of the trace"));
        }
        let durability = sweep.durability()?;
        let durability = durability.unwrap_or_else(|| Durability::of(workload.summary()));
        let mut load = Load { workload, durability, rate: 1.0, aim: None };
        load.rate = match sweep.rate {
            Rate::Factor(factor) => factor,
            Rate::Word(_) => {
                let plan = Plan { seed: 1, ..self.plan(&load, false) };
                let target = sweep.target()?;
                let found = find_rate(&plan, target, &Arc::default());
                let found = found.map_err(|error| named(&error))?;
                load.aim = Some(Aim { target, found: found.utilisation });
                found.factor
            }
        };
        Ok(load)
    }
}

/// One line a request.
fn requests(answered: &[Answered]) -> Columns {
    let real = |of: fn(&Answered) -> f64| {
        Column::Real(answered.iter().map(|answered| Some(of(answered))).collect())
    };
    let class = answered.iter().map(|answered| answered.class.name().to_owned()).collect();
    let mut columns = Columns::default();
    columns.add("arrived_s", real(|answered| answered.arrived.as_secs_f64()));
    columns.add("kind", Column::Text(class));
    columns.add("latency_us", real(|answered| answered.latency.0 as f64 / 1e3));
    columns
}
