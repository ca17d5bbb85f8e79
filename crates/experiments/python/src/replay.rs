//! Replays and advice.

use std::sync::Arc;

use manylogs_lab::advise::{Asked as AskedFor, advise as advise_load, fitted_policies};
use manylogs_lab::load::Load;
use manylogs_lab::replay::{NamedPolicy, Plan, PolicyListError, Progress, parse_policies, run_all};
use manylogs_lab::report;
use manylogs_lab::sweep::requests as rows_of;
use manylogs_lab::table::text;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::drive::Drive;
use crate::failure::Failure;
use crate::interrupt::free_showing;
use crate::options::{Letting, Named, load_options, threads};
use crate::own::{Asked, Failed};
use crate::table::Table;
use crate::trace::Trace;

/// The results of a replay: JSON, a table of text, a report in HTML, and tables of requests by
/// policy.
type Replayed = (String, String, String, Vec<(String, Table)>);

/// Replays `traces` on `drive` under each of `policies`; if there are none, under the default
/// policies of `manylogs replay`.
#[pyfunction]
#[pyo3(signature = (traces, drive, policies, command, **options))]
pub(crate) fn replay(
    py: Python<'_>,
    traces: Vec<PyRef<'_, Trace>>,
    drive: PyRef<'_, Drive>,
    policies: Vec<Asked>,
    command: &str,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<Replayed> {
    let named = Named::of(options.as_ref());
    let (loading, letting) = (load_options(&traces, &named)?, Letting::of(&named)?);
    let (profile, threads) = (drive.profile.clone(), threads(&named)?);
    free_showing(py, named.get("show")?, |progress| {
        let failed = Arc::<Failed>::default();
        let given = named_policies(policies, &failed, progress)?;
        let (load, policies) = Load::compared(profile, &loading.until(progress), given)?;
        let plan = load.plan(&policies);
        let mut pump = plan.pump;
        (pump.mode, pump.small_write_max) =
            (letting.mode, letting.small.unwrap_or(pump.small_write_max));
        let (checkpoint_after, keep_requests) = (letting.checkpoint, letting.requests);
        let mut plan = Plan { pump, checkpoint_after, keep_requests, ..plan };
        // A search for a rate needs no single requests.
        let mut probe = Plan { keep_requests: false, ..plan.clone() };
        let rate = load.choose_rate(&mut probe, progress)?;
        plan.rate = probe.rate;
        let outcomes = all(&plan, &policies, progress, threads);
        // Checked first: a failed policy has ended all replays.
        failed.result()?;
        let outcomes = outcomes?;
        let (result, mut finished) = load.result(&plan, rate, command, outcomes);
        let mut requests = Vec::new();
        for outcome in finished.iter_mut().filter(|_| keep_requests) {
            let table = Table::new(rows_of(outcome.recorder.take_requests()))?;
            requests.push((outcome.policy.name.clone(), table));
        }
        let json = result.to_json().map_err(Failure::program)? + "\n";
        let page = report::html(&result).map_err(Failure::program)?;
        Ok((json, text(&result), page, requests))
    })
}

/// The policies in order; fails if two have the same name.
fn named_policies(
    asked: Vec<Asked>,
    failed: &Arc<Failed>,
    progress: &Arc<Progress>,
) -> Result<Vec<NamedPolicy>, Failure> {
    let mut found: Vec<NamedPolicy> = Vec::new();
    for one in asked {
        let policies = match one {
            Asked::Ours(text) => parse_policies(&[text]).map_err(Failure::input)?,
            Asked::Own(own) => vec![own.named(failed, progress).map_err(Failure::input)?],
        };
        for policy in policies {
            if found.iter().any(|other| other.name == policy.name) {
                return Err(Failure::input(PolicyListError::Twice(policy.name)));
            }
            found.push(policy);
        }
    }
    Ok(found)
}

fn all(
    plan: &Plan,
    policies: &[NamedPolicy],
    progress: &Arc<Progress>,
    threads: usize,
) -> Result<Vec<manylogs_lab::replay::Outcome>, Failure> {
    let progresses: Vec<Arc<Progress>> = policies.iter().map(|_| Arc::clone(progress)).collect();
    let outcomes = run_all(plan, policies, &progresses, threads);
    Ok(outcomes.into_iter().collect::<Result<Vec<_>, _>>()?)
}

/// Advises whether a volume helps the load: returns the advice as JSON, as a sentence, and the
/// table that it is based on.
#[pyfunction]
#[pyo3(signature = (traces, drive, device, command, **options))]
pub(crate) fn advise(
    py: Python<'_>,
    traces: Vec<PyRef<'_, Trace>>,
    drive: PyRef<'_, Drive>,
    device: String,
    command: String,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<(String, String, String)> {
    let named = Named::of(options.as_ref());
    let loading = load_options(&traces, &named)?;
    let (profile, threads) = (drive.profile.clone(), threads(&named)?);
    free_showing(py, named.get("show")?, |progress| {
        let ours = fitted_policies().map_err(Failure::input)?;
        let load = Load::read(profile, &loading.until(progress), &ours)?;
        let mut plan = load.plan(&ours);
        let rate = load.choose_rate(&mut plan, progress)?;
        let asked = AskedFor { load: &load, plan, rate, device, command, threads };
        let advised = advise_load(asked, progress, |_| ())?;
        let advised = advised.ok_or_else(|| Failure::program("interrupted"))?;
        let json = advised.advice.to_json().map_err(Failure::program)? + "\n";
        Ok((json, advised.advice.sentence(), text(&advised.replay)))
    })
}
