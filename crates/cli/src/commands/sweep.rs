//! `manylogs sweep`: every combination of a file's traces, drives, policies, parameters and seeds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use manylogs_lab::runs::Kept;
use manylogs_lab::sweep::{
    Ask, Columns, Job, JobError, Jobs, Row, Runs, Sweep, SweepError, columns, jobs, summary,
};

use super::kept::{kept_failure, told};
use super::load::stop_on_ctrl_c;
use crate::args::lab::SweepArgs;
use crate::failure::Failure;
use crate::output::{Output, print};
use crate::progress::Bars;

pub(crate) fn run(args: &SweepArgs) -> Result<(), Failure> {
    let sweep = Sweep::load(&args.file).map_err(|error| match error {
        SweepError::Read { ref source, .. } => Failure::of_given(source, &error),
        other => Failure::input(other),
    })?;
    let outputs = Outputs::reserve(&sweep)?;
    let Jobs { jobs, left_out } =
        jobs(&sweep).map_err(|e| Failure::input(format!("{}: {e}", args.file.display())))?;
    let runs = Runs::new(kept(&outputs)?, left_out, Arc::default());
    stop_on_ctrl_c(vec![Arc::clone(&runs.progress)])?;
    let began = Instant::now();
    let left = runs.left(&jobs);
    let shown = Bars::show(&["runs".to_owned()], &[Arc::clone(&runs.counted)], left.len() as u64);
    let requests = sweep.output.requests.as_deref();
    let store = |job: &Job, columns: &Columns| match requests {
        Some(dir) => write_requests(dir, job, columns),
        None => Ok(()),
    };
    let unkept = |error| kept_failure(&error);
    runs.run(&left, args.threads(), requests.is_some(), store, unkept);
    drop(shown);
    let rows = runs.rows(&jobs);
    outputs.write(&columns(&rows))?;
    let cost = format!(
        "computing took: {} runs in {:.1} s, {} kept from before\n",
        runs.counted.done.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
        jobs.len() - left.len()
    );
    print(&(summary(&rows) + &told_of(&runs.left_out()) + &outputs.names() + &cost))?;
    end(runs, rows.len() == jobs.len())
}

/// The rows that an earlier command wrote.
fn kept(outputs: &Outputs) -> Result<Kept<Row>, Failure> {
    let Some(path) = &outputs.journal else { return Ok(Kept::in_memory()) };
    told(path, Kept::open(path))
}

/// Names the runs without a result.
fn told_of(left_out: &[JobError]) -> String {
    left_out.iter().map(|error| format!("not run: {error}\n")).collect()
}

fn end(runs: Runs<Failure>, complete: bool) -> Result<(), Failure> {
    if let Some(failure) = runs.failure() {
        return Err(failure);
    }
    if runs.is_stopped() && !complete {
        return Err(Failure::Interrupted);
    }
    let left_out = runs.left_out();
    if left_out.is_empty() {
        runs.remove_kept();
        return Ok(());
    }
    let reasons: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    let message = format!("the sweep is not complete: {}", reasons.join("; "));
    Err(incomplete(&left_out.iter().map(Some).collect::<Vec<_>>(), message))
}

/// The failure of a command if some runs have no result. `None` is an error of the program itself.
pub(super) fn incomplete(errors: &[Option<&JobError>], message: String) -> Failure {
    let all = |of: fn(&JobError) -> bool| errors.iter().all(|error| error.is_some_and(of));
    if all(JobError::is_of_permission) {
        Failure::Permission(message)
    } else if all(JobError::is_of_input) {
        Failure::Input(message)
    } else {
        Failure::Failed(message)
    }
}

/// The files that the sweep writes.
struct Outputs {
    csv: Option<Output>,
    parquet: Option<Output>,
    /// The journal of results, beside the first of these files.
    journal: Option<PathBuf>,
}

impl Outputs {
    fn reserve(sweep: &Sweep) -> Result<Self, Failure> {
        let files = &sweep.output;
        let reserve = |path: &Option<PathBuf>| path.as_deref().map(Output::reserve).transpose();
        let (csv, parquet) = (reserve(&files.csv)?, reserve(&files.parquet)?);
        if let Some(dir) = &files.requests {
            std::fs::create_dir_all(dir).map_err(|error| {
                let message = format!(
                    "cannot write {}: {error}; choose another directory (nothing has been run yet)",
                    dir.display()
                );
                Failure::of_given(&error, message)
            })?;
        }
        let journal = files.csv.as_ref().or(files.parquet.as_ref()).map(|path| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(".journal");
            path.with_file_name(name)
        });
        Ok(Self { csv, parquet, journal })
    }

    fn write(&self, columns: &Columns) -> Result<(), Failure> {
        if let Some(output) = &self.csv {
            output.write(columns.csv().as_bytes())?;
        }
        if let Some(output) = &self.parquet {
            let mut bytes = Vec::new();
            columns.parquet(&mut bytes).map_err(Failure::failed)?;
            output.write(&bytes)?;
        }
        Ok(())
    }

    fn names(&self) -> String {
        let files = [&self.csv, &self.parquet].into_iter().flatten();
        files.map(|output| format!("rows: {}\n", output.path().display())).collect()
    }
}

/// Writes one file for each run, named after its trace, drive, policy, seed and key.
fn write_requests(dir: &Path, job: &Job, requests: &Columns) -> Result<(), Failure> {
    let Ask { trace, drive, policy, seed } = &job.ask;
    let short = job.key.short();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.=+".contains(c) { c } else { '_' };
    let name: String =
        format!("{trace}-{drive}-{policy}-{seed}-{short}").chars().map(plain).collect();
    let mut bytes = Vec::new();
    requests.parquet(&mut bytes).map_err(Failure::failed)?;
    Output::reserve(&dir.join(name + ".parquet"))?.write(&bytes)
}
