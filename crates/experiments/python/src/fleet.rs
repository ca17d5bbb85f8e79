//! Functions for a fleet's workers: single runs whose measurements can be sent to another process
//! and compared there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manylogs_disk::{LinkSettings, Profile};
use manylogs_lab::advise::{Apart, Ask, Brief, Halt, Next, fitted_policies};
use manylogs_lab::load::{Load, LoadOptions};
use manylogs_lab::prepare::{TraceSpec, prepare_unplaced};
use manylogs_lab::replay::{DriveSettings, parse_policies};
use manylogs_lab::results::TraceSummary;
use manylogs_lab::runs::content_of;
use manylogs_lab::stats::{Window, compare};
use manylogs_lab::sweep::{Column, Job, Jobs, LoadSpec, Row, columns};
use manylogs_workload::{IoFailure, OpenOptions, TraceError, files_of};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value, json};

use crate::drive::Drive;
use crate::failure::Failure;
use crate::interrupt::free;
use crate::options::{Named, durability, rate, window};

/// Requests read from a trace to estimate how many it has.
const LOOKED_AT: u64 = 20_000;

/// More requests a byte than any recorded trace has.
const REQUESTS_A_BYTE_MAX: u64 = 100;
/// Above this share, buffers may hold the rest of the file, so that no estimate is possible.
const READ_SHARE_MAX: f64 = 0.9;

/// A measured run.
#[pyclass(frozen, module = "manylogs")]
#[derive(Clone, Debug)]
pub(crate) struct Measured(manylogs_lab::sweep::Measured);

#[pymethods]
impl Measured {
    /// The run as text, for another process.
    fn dump(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.0).map_err(Failure::program)?)
    }

    /// Reads the text of `dump`.
    #[staticmethod]
    fn load(text: &str) -> PyResult<Self> {
        Ok(Self(serde_json::from_str(text).map_err(Failure::program)?))
    }

    /// The counters of the trace, as text: see [`advice_next`].
    #[getter]
    fn summary(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.0.summary).map_err(Failure::program)?)
    }

    /// Bytes that the trace writes.
    #[getter]
    fn written_bytes(&self) -> u64 {
        self.0.summary.written_bytes
    }
}

/// The runs of one trace on one drive, as in a sweep: one for each policy and seed.
#[pyclass(frozen, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Runs(Jobs);

#[pymethods]
impl Runs {
    #[new]
    #[pyo3(signature = (file, drive, policies, seeds, **options))]
    fn new(
        py: Python<'_>,
        file: PathBuf,
        drive: PyRef<'_, Drive>,
        policies: Vec<String>,
        seeds: Vec<u64>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let named = Named::of(options.as_ref());
        let name = named.get("name")?.unwrap_or_else(|| file.display().to_string());
        let load = LoadSpec {
            name,
            files: vec![file],
            window: window(&named)?,
            windows: Vec::new(),
            opens: Vec::new(),
            limit: named.get("limit")?,
            fit: named.get("fit")?.unwrap_or(false),
            rate: rate(&named)?,
            durability: durability(&named)?,
            outstanding: None,
        };
        let profile = drive.profile.clone();
        free(py, |_| runs(load, profile, &policies, &seeds).map(Self))
    }

    /// Policy and seed of each run, in order, and whether it runs on the plain drive.
    fn asks(&self) -> Vec<(&str, u64, bool)> {
        let ask = |job| -> (&str, u64, bool) {
            let job: &Job = job;
            (&job.ask.policy, job.ask.seed, job.is_plain())
        };
        self.0.jobs.iter().map(ask).collect()
    }

    /// Does the `nth` run.
    fn run(&self, py: Python<'_>, nth: usize) -> PyResult<Measured> {
        let job = self.0.jobs.get(nth);
        let job = job.ok_or_else(|| Failure::input(format!("there is no run {nth}")))?;
        free(py, |progress| {
            let done = job.measure(progress)?;
            Ok(Measured(done.ok_or_else(|| Failure::program("interrupted"))?))
        })
    }
}

/// The load options for advice in parts.
fn load_of(file: PathBuf, named: &Named<'_, '_>) -> PyResult<LoadOptions> {
    Ok(LoadOptions {
        traces: TraceSpec { limit: named.get("limit")?, ..whole(file) },
        link: LinkSettings::default(),
        array: None,
        smr_cache: None,
        fit: named.get("fit")?.unwrap_or(false),
        rate: rate(named)?,
        repeat: 1,
        durability: durability(named)?,
        seeds: 3,
    })
}

/// The summary and the hash of a trace, which [`advice_next`] needs. Also does the replays `asks`
/// of the trace, and returns the text of each.
#[pyfunction]
#[pyo3(signature = (file, drive, asks, **options))]
pub(crate) fn advice_replays(
    py: Python<'_>,
    file: PathBuf,
    drive: PyRef<'_, Drive>,
    asks: Vec<String>,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<(String, String, Vec<String>)> {
    let loading = load_of(file.clone(), &Named::of(options.as_ref()))?;
    let profile = drive.profile.clone();
    free(py, |progress| {
        let asks: Result<Vec<Ask>, _> = asks.iter().map(|text| text.parse()).collect();
        let asks = asks.map_err(Failure::program)?;
        let content = hash(&file)?;
        let ours = fitted_policies().map_err(Failure::input)?;
        let load = Load::read(profile, &loading, &ours)?;
        let plan = load.plan(&ours);
        let mut done = Vec::new();
        for ask in asks {
            let brief = ask.done(&plan, progress).map_err(|halt| match halt {
                Halt::Failed(error) => Failure::from(error),
                other => Failure::program(other),
            })?;
            done.push(serde_json::to_string(&brief).map_err(Failure::program)?);
        }
        let summary = serde_json::to_string(load.workload.summary()).map_err(Failure::program)?;
        Ok((summary, content, done))
    })
}

/// The replays that advice about a load with this `summary` needs next, if the replays `known` are
/// done (each with its text), with the policy that the advice is likely to be about; or the advice.
/// See [`Apart`].
#[pyfunction]
#[pyo3(signature = (drive, summary, known, guesses, **options))]
pub(crate) fn advice_next(
    py: Python<'_>,
    drive: PyRef<'_, Drive>,
    summary: &str,
    known: Vec<(String, String)>,
    guesses: bool,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<(Vec<String>, Option<String>, Option<String>)> {
    let loading = load_of(PathBuf::new(), &Named::of(options.as_ref()))?;
    let summary: TraceSummary = serde_json::from_str(summary).map_err(Failure::program)?;
    let profile = drive.profile.clone();
    free(py, |_| {
        let known: Result<HashMap<String, Brief>, _> = known
            .into_iter()
            .map(|(ask, text)| Ok::<_, serde_json::Error>((ask, serde_json::from_str(&text)?)))
            .collect();
        let ours = fitted_policies().map_err(Failure::input)?;
        let apart = Apart::new(Load::of_summary(profile, &loading, summary), ours);
        match apart.next(&known.map_err(Failure::program)?, guesses)? {
            Next::Wanted(asks, likely) => Ok((asks, likely, None)),
            Next::Done(advised) => {
                let advice = advised.advice;
                let told = json!({
                    "decision": advice.decision,
                    "policy": advice.policy,
                    "sentence": advice.sentence(),
                    "durable_mean": advice.gain.durable_mean,
                    "too_much": advice.too_much.is_some(),
                });
                Ok((Vec::new(), None, Some(told.to_string())))
            }
        }
    })
}

fn runs(
    load: LoadSpec,
    profile: Profile,
    policies: &[String],
    seeds: &[u64],
) -> Result<Jobs, Failure> {
    let policies = parse_policies(policies).map_err(Failure::input)?;
    let mut jobs = Jobs::default();
    jobs.add(&Arc::new(load), &[DriveSettings::new(Arc::new(profile), false)], &policies, seeds);
    match jobs.left_out.pop() {
        Some(error) => Err(error.into()),
        None => Ok(jobs),
    }
}

/// The rows of `measured`, as a list of JSON with the columns of a sweep.
#[pyfunction]
pub(crate) fn rows(measured: Vec<PyRef<'_, Measured>>) -> PyResult<String> {
    let rows: Vec<Row> = measured.iter().map(|measured| measured.0.row.clone()).collect();
    let columns = columns(&rows);
    let cell = |column: &Column, row: usize| match column {
        Column::Text(values) => Value::from(values[row].as_str()),
        Column::Named(names, values) => Value::from(names[usize::from(values[row])].as_str()),
        Column::Whole(values) => Value::from(values[row]),
        Column::Small(values) => Value::from(values[row]),
        Column::Real(values) => Value::from(values[row]),
        Column::Exact(values) => Value::from(values[row]),
        Column::Flag(values) => Value::from(values[row]),
    };
    let object = |row| -> Map<String, Value> {
        let cells = columns.chunks().iter().flatten().map(|column| cell(column, row));
        columns.names().map(str::to_owned).zip(cells).collect()
    };
    let objects: Vec<_> = (0..rows.len()).map(object).collect();
    Ok(serde_json::to_string(&objects).map_err(Failure::program)?)
}

/// The columns of such rows, with their types: `text`, `whole`, `real` or `flag`.
#[pyfunction]
pub(crate) fn columns_of_rows() -> Vec<(String, &'static str)> {
    let kind = |column: &Column| match column {
        Column::Text(_) | Column::Named(..) => "text",
        Column::Whole(_) | Column::Small(_) => "whole",
        Column::Real(_) | Column::Exact(_) => "real",
        Column::Flag(_) => "flag",
    };
    let columns = columns(&[]);
    let kinds = columns.chunks().iter().flatten().map(kind);
    columns.names().map(str::to_owned).zip(kinds).collect()
}

/// How many times as fast the runs `other` are as the runs `base` from the same seeds, in the form
/// of a policy's `gain` in the JSON of a replay.
#[pyfunction]
pub(crate) fn gain(
    base: Vec<PyRef<'_, Measured>>,
    other: Vec<PyRef<'_, Measured>>,
    seed: u64,
) -> PyResult<String> {
    let windows = |runs: &[PyRef<'_, Measured>]| -> Vec<Vec<Window>> {
        runs.iter().flat_map(|run| run.0.windows.iter().cloned()).collect()
    };
    let gain = compare(&windows(&base), &windows(&other), seed);
    Ok(serde_json::to_string(&gain).map_err(Failure::program)?)
}

/// Hash of a trace's content, the number of its requests, and whether that number is exact.
#[pyfunction]
pub(crate) fn look(py: Python<'_>, file: PathBuf) -> PyResult<(String, u64, bool)> {
    free(py, |_| {
        let content = hash(&file)?;
        let (requests, exact) = counted(&file)?;
        Ok((content, requests, exact))
    })
}

fn hash(file: &Path) -> Result<String, Failure> {
    let content = content_of(file).map_err(|(path, error)| {
        let failed = IoFailure { file: path, action: "read it", source: error };
        Failure::from(TraceError::Io(Box::new(failed)))
    })?;
    Ok(content.to_string())
}

/// The whole of a trace.
fn whole(file: PathBuf) -> TraceSpec {
    TraceSpec {
        files: vec![file],
        open: OpenOptions::default(),
        opens: Vec::new(),
        window: None,
        windows: Vec::new(),
        read: Vec::new(),
        limit: None,
        seed: 1,
    }
}

fn counted(file: &Path) -> Result<(u64, bool), Failure> {
    let bytes = files_of(file).into_iter().flatten().filter_map(|file| file.metadata().ok());
    let bytes: u64 = bytes.map(|metadata| metadata.len()).sum();
    let most = bytes.saturating_mul(REQUESTS_A_BYTE_MAX).max(LOOKED_AT);
    let mut source = (prepare_unplaced(&whole(file.to_owned()), file)?.open)()?;
    for read in 0..=most {
        match source.next_request() {
            None => return Ok((read, true)),
            Some(request) => _ = request?,
        }
        // Buffered bytes count as read; of a small file those are all.
        let share = source.progress().filter(|share| read >= LOOKED_AT && *share < READ_SHARE_MAX);
        if let Some(share) = share.filter(|share| *share > 0.0) {
            let estimate = (read as f64 / share).round();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive"
            )]
            return Ok((estimate as u64, false));
        }
    }
    Err(Failure::input(format!(
        "{}: a compressed bomb: more than {most} requests in {bytes} bytes",
        file.display()
    )))
}
