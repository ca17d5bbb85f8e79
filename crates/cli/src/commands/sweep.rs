//! `manylogs sweep`: every combination of a file's traces, drives, policies, parameters and seeds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use manylogs_lab::parallel::on_threads;
use manylogs_lab::replay::Progress;
use manylogs_lab::runs::{Kept, RunKey};
use manylogs_lab::sweep::{
    Ask, Columns, Job, JobError, Jobs, Row, Sweep, SweepError, columns, jobs, summary,
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
    let work = Work {
        requests: sweep.output.requests.as_deref(),
        progress: Arc::default(),
        runs: Arc::default(),
        done: Mutex::new(kept(&outputs)?),
        left_out: Mutex::new(left_out),
        failure: Mutex::default(),
    };
    stop_on_ctrl_c(vec![Arc::clone(&work.progress)])?;
    let began = Instant::now();
    let mut keys = BTreeSet::new();
    let wanted = jobs.iter().filter(|job| keys.insert(job.key));
    let left: Vec<&Job> = wanted.filter(|job| !work.is_done(job.key)).collect();
    let shown = Bars::show(&["runs".to_owned()], &[Arc::clone(&work.runs)], left.len() as u64);
    on_threads(left.len(), args.threads(), |index| work.one(left[index]));
    drop(shown);
    let rows = work.rows(&jobs);
    outputs.write(&columns(&rows))?;
    let cost = format!(
        "computing took: {} runs in {:.1} s, {} kept from before\n",
        work.runs.done.load(Ordering::Relaxed),
        began.elapsed().as_secs_f64(),
        jobs.len() - left.len()
    );
    print(&(summary(&rows) + &work.told() + &outputs.names() + &cost))?;
    work.end(rows.len() == jobs.len())
}

/// The rows that an earlier command left.
fn kept(outputs: &Outputs) -> Result<Kept<Row>, Failure> {
    let Some(path) = &outputs.journal else { return Ok(Kept::in_memory()) };
    told(path, Kept::open(path))
}

/// A sweep under way.
struct Work<'a> {
    /// Where files with one row a request go.
    requests: Option<&'a Path>,
    /// Ends the replays under way.
    progress: Arc<Progress>,
    /// Counts the runs that are done.
    runs: Arc<Progress>,
    done: Mutex<Kept<Row>>,
    /// Why runs have no result, each reason once.
    left_out: Mutex<Vec<JobError>>,
    /// Results that cannot be kept: the first ends the sweep.
    failure: Mutex<Option<Failure>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work<'_> {
    fn is_done(&self, key: RunKey) -> bool {
        locked(&self.done).get(key).is_some()
    }

    /// One that fails leaves the others to run.
    fn one(&self, job: &Job) {
        if self.progress.stop.load(Ordering::Relaxed) {
            return;
        }
        let found = match job.run(self.requests.is_some(), &self.progress) {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => {
                let mut left_out = locked(&self.left_out);
                if !left_out.contains(&error) {
                    left_out.push(error);
                }
                return;
            }
        };
        if let Err(failure) = self.keep(job, found) {
            locked(&self.failure).get_or_insert(failure);
            self.progress.stop.store(true, Ordering::Relaxed);
        }
    }

    fn keep(&self, job: &Job, (row, requests): (Row, Columns)) -> Result<(), Failure> {
        if let Some(dir) = self.requests {
            write_requests(dir, job, &requests)?;
        }
        locked(&self.done).keep(job.key, row).map_err(|error| kept_failure(&error))?;
        self.runs.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What is done, in the order of the sweep.
    fn rows(&self, jobs: &[Job]) -> Vec<Row> {
        let done = locked(&self.done);
        let row = |job: &Job| Some(Row { ask: job.ask.clone(), ..done.get(job.key)?.clone() });
        jobs.iter().filter_map(row).collect()
    }

    /// What has no result.
    fn told(&self) -> String {
        locked(&self.left_out).iter().map(|error| format!("not run: {error}\n")).collect()
    }

    fn end(self, complete: bool) -> Result<(), Failure> {
        if let Some(failure) = locked(&self.failure).take() {
            return Err(failure);
        }
        if self.progress.stop.load(Ordering::Relaxed) && !complete {
            return Err(Failure::Interrupted);
        }
        let left_out = self.left_out.into_inner().unwrap_or_else(PoisonError::into_inner);
        if left_out.is_empty() {
            self.done.into_inner().unwrap_or_else(PoisonError::into_inner).remove();
            return Ok(());
        }
        let reasons: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        let message = format!("the sweep is not complete: {}", reasons.join("; "));
        Err(incomplete(&left_out.iter().map(Some).collect::<Vec<_>>(), message))
    }
}

/// The failure of a command some of whose runs have no result. `None` stands for an error that is
/// the program's own.
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
    /// Beside the first of them.
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

/// One file a run, named after what it is of, and told apart by its key.
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
