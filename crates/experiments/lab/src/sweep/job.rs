//! One run of a sweep.

use std::io;
use std::sync::Arc;

use manylogs_disk::Profile;
use manylogs_disk::profile::{self, Library};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::columns::{Column, Columns};
use super::file::Sweep;
use super::load::{LoadSpec, Shared};
use super::row::{Ask, Row};
use crate::ShapeError;
use crate::replay::{
    ArraySettings, DriveSettings, LatencyClass, NamedPolicy, Plan, Progress, Recorder, ReplayError,
    Requests, Served, run,
};
use crate::results::TraceSummary;
use crate::runs::{KeyBuilder, RunKey};
use crate::stats::Window;

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Job {
    /// Trace, drive, policy and seed of the run, by their names in tables.
    pub ask: Ask,
    /// The run's key: only one of several jobs with the same key needs to be run.
    pub key: RunKey,
    shared: Arc<Shared>,
    policy: NamedPolicy,
}

/// The results of a run that a comparison needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its row.
    pub row: Row,
    /// Measurements of each part of the replay.
    pub windows: Vec<Vec<Window>>,
    /// Counters of the trace.
    pub summary: TraceSummary,
}

/// Why a run has no result.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// A trace cannot be used.
    #[error("{trace}: {reason}")]
    Trace {
        /// The trace, or those of a mix.
        trace: String,
        /// Why not.
        reason: String,
        /// The kind of the system's error, if there is one.
        kind: Option<io::ErrorKind>,
    },
    /// The policy does not go with the drive.
    #[error("{0}")]
    Policy(String),
    /// A request failed, or the device stopped answering.
    #[error("{0}")]
    Failed(String),
}

impl JobError {
    /// The error of a run's replay.
    pub(super) fn of_replay(error: ReplayError) -> Self {
        let text = error.to_string();
        match error {
            ReplayError::Volume { .. }
            | ReplayError::Policy { .. }
            | ReplayError::NotShingled { .. } => Self::Policy(text),
            _ => Self::Failed(text),
        }
    }

    /// Whether the user's input is at fault, and not the program.
    #[must_use]
    pub const fn is_of_input(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    /// Whether this user may not read a file.
    #[must_use]
    pub const fn is_of_permission(&self) -> bool {
        matches!(self, Self::Trace { kind: Some(io::ErrorKind::PermissionDenied), .. })
    }
}

/// All runs of a sweep that can be tried, and the reasons why others cannot.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Ordered by trace, drive, policy and seed.
    pub jobs: Vec<Job>,
    /// Why runs are left out.
    pub left_out: Vec<JobError>,
}

/// All runs of `sweep`. Reads its traces from end to end, to identify them by their content.
///
/// # Errors
/// If a drive or a policy is unknown.
pub fn jobs(sweep: &Sweep) -> Result<Jobs, String> {
    let drives = drives(sweep)?;
    let policies = sweep.grid().map_err(|error| error.to_string())?;
    let mut found = Jobs::default();
    for load in sweep.loads()? {
        found.add(&Arc::new(load), &drives, &policies, &sweep.seeds.list());
    }
    Ok(found)
}

/// The drives of a sweep, or its arrays of them.
fn drives(sweep: &Sweep) -> Result<Vec<DriveSettings>, String> {
    let mut found = Vec::new();
    for name in &sweep.drives {
        let one = DriveSettings::new(drive(name)?, false);
        if sweep.arrays.is_empty() {
            found.push(one);
            continue;
        }
        if one.profile.shingled.is_some() {
            return Err(format!(
                "arrays: {name} is a shingled drive, and an array writes in place"
            ));
        }
        for array in &sweep.arrays {
            let shape = array.parse().map_err(|error: ShapeError| format!("arrays: {error}"))?;
            let array = Some(ArraySettings { shape, slow: None });
            found.push(DriveSettings { array, ..one.clone() });
        }
    }
    Ok(found)
}

impl Jobs {
    /// Adds the runs of a load on each of `drives`, under each of `policies`, from each seed.
    pub fn add(
        &mut self,
        load: &Arc<LoadSpec>,
        drives: &[DriveSettings],
        policies: &[NamedPolicy],
        seeds: &[u64],
    ) {
        let contents = match load.contents() {
            Ok(contents) => contents,
            Err(error) => return self.left_out.push(error),
        };
        for drive in drives {
            match Shared::new(load, &contents, drive, policies) {
                Ok(shared) => self.add_grid(&Arc::new(shared), &drive.name(), policies, seeds),
                Err(error) => self.left_out.push(error),
            }
        }
    }

    fn add_grid(
        &mut self,
        shared: &Arc<Shared>,
        drive: &str,
        policies: &[NamedPolicy],
        seeds: &[u64],
    ) {
        for policy in policies {
            let meant =
                policy.on(shared.drive.capacity()).unwrap_or_else(|_| policy.policy.clone());
            let (cache, placement) = (policy.cache, policy.placement);
            let of_policy = shared
                .add_to(KeyBuilder::new("replay"))
                .with("policy", format!("{} {meant:?} {cache:?} {placement:?}", policy.name));
            self.jobs.extend(seeds.iter().map(|&seed| Job {
                ask: Ask {
                    trace: shared.spec.name.clone(),
                    drive: drive.to_owned(),
                    policy: policy.name.clone(),
                    seed,
                },
                key: of_policy.clone().with("seed", seed).key(),
                shared: Arc::clone(shared),
                policy: policy.clone(),
            }));
        }
    }
}

/// The drive of this name, or of this profile file.
///
/// # Errors
/// If there is no such drive; the error lists the known ones.
pub fn drive(name: &str) -> Result<Arc<Profile>, String> {
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
    /// Does the run and returns its row, with one line for each request if these are kept. `None`
    /// if `progress` ended the run.
    ///
    /// # Errors
    /// If a trace cannot be read, the policy does not fit the drive, or a request fails.
    pub fn run(
        &self,
        keep_requests: bool,
        progress: &Arc<Progress>,
    ) -> Result<Option<(Row, Columns)>, JobError> {
        let done = self.outcome(keep_requests, progress)?;
        Ok(done.map(|(row, mut recorder)| (row, requests(recorder.take_requests()))))
    }

    /// Does the run and returns its row, with the measurements that [`compare`] takes.
    /// `None` if `progress` ended the run.
    ///
    /// [`compare`]: crate::stats::compare
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn measure(&self, progress: &Arc<Progress>) -> Result<Option<Measured>, JobError> {
        let summary = *self.shared.load()?.workload.summary();
        let done = self.outcome(false, progress)?;
        Ok(done.map(|(row, recorder)| Measured {
            row,
            windows: recorder.windows().to_vec(),
            summary,
        }))
    }

    /// Whether the run is one of the plain drive.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.policy.is_plain()
    }

    fn outcome(
        &self,
        keep_requests: bool,
        progress: &Arc<Progress>,
    ) -> Result<Option<(Row, Recorder)>, JobError> {
        let load = self.shared.load()?;
        let plan = self.shared.plan(&load, self.ask.seed);
        let plan = Plan { checkpoint_after: true, keep_requests, ..plan };
        let outcome = run(&plan, &self.policy, progress).map_err(JobError::of_replay)?;
        if outcome.interrupted {
            return Ok(None);
        }
        let contents: Vec<String> = self.shared.contents.iter().map(ToString::to_string).collect();
        let row = Row {
            trace_content: contents.join(" + "),
            ..Row::of(self.ask.clone(), &plan, &outcome, load.aim)
        };
        Ok(Some((row, outcome.recorder)))
    }
}

/// One line for each request; `docs/sweeps.md` describes the columns.
#[must_use]
pub fn requests(kept: Requests) -> Columns {
    let names =
        |names: &[&str]| -> Arc<[String]> { names.iter().map(|&name| name.to_owned()).collect() };
    let (kinds, places) = (names(&LatencyClass::NAMES), names(&Served::NAMES));
    let column_names = ["arrived_s", "kind", "latency_us", "request", "lba", "sectors", "served"];
    let chunks = kept.into_chunks().into_iter().map(|chunk| {
        vec![
            Column::Exact(chunk.arrived_s),
            Column::Named(Arc::clone(&kinds), chunk.kind),
            Column::Exact(chunk.latency_us),
            Column::Small(chunk.request),
            Column::Whole(chunk.lba),
            Column::Whole(chunk.sectors),
            Column::Named(Arc::clone(&places), chunk.served),
        ]
    });
    Columns::of_chunks(column_names, chunks.collect())
}
