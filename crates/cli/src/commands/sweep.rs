//! `manylogs sweep`: every combination of a file's traces, drives, policies, parameters and seeds.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use manylogs_lab::parallel::on_threads;
use manylogs_lab::prepare::SYNTHETIC;
use manylogs_lab::replay::Progress;
use manylogs_lab::sweep::{
    Ask, Columns, Job, Journal, JournalError, Loads, Row, Sweep, SweepError, columns, jobs, summary,
};

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
    try_traces(&sweep)?;
    let outputs = Outputs::reserve(&sweep)?;
    let jobs = jobs(&sweep).map_err(|e| Failure::input(format!("{}: {e}", args.file.display())))?;
    let (journal, kept) = match &outputs.journal {
        Some(path) => {
            let (journal, rows) = Journal::open(path, &sweep).map_err(journal_failure)?;
            (Some(journal), rows)
        }
        None => (None, Vec::new()),
    };
    let work = Work {
        sweep: &sweep,
        loads: Loads::default(),
        progress: Arc::default(),
        runs: Arc::default(),
        done: Mutex::new(kept.into_iter().map(|row| (row.ask.clone(), row)).collect()),
        journal: Mutex::new(journal),
        failure: Mutex::default(),
    };
    stop_on_ctrl_c(vec![Arc::clone(&work.progress)])?;
    let began = Instant::now();
    let left: Vec<&Job> = jobs.iter().filter(|job| !work.is_done(&job.ask)).collect();
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
    print(&(summary(&rows) + &outputs.names() + &cost))?;
    work.end(rows.len() == jobs.len())
}

/// Whether the traces can be read: that one cannot is known before anything runs.
fn try_traces(sweep: &Sweep) -> Result<(), Failure> {
    let files = sweep.traces.iter().flat_map(|list| list.files());
    for file in files.filter(|file| file.as_os_str() != SYNTHETIC) {
        File::open(file).map_err(|error| {
            Failure::of_given(&error, format!("cannot read {}: {error}", file.display()))
        })?;
    }
    Ok(())
}

/// A sweep under way.
struct Work<'a> {
    sweep: &'a Sweep,
    loads: Loads,
    /// Ends the replays under way.
    progress: Arc<Progress>,
    /// Counts the runs that are done.
    runs: Arc<Progress>,
    done: Mutex<BTreeMap<Ask, Row>>,
    journal: Mutex<Option<Journal>>,
    /// The first.
    failure: Mutex<Option<Failure>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work<'_> {
    fn is_done(&self, ask: &Ask) -> bool {
        locked(&self.done).contains_key(ask)
    }

    fn one(&self, job: &Job) {
        if self.progress.stop.load(Ordering::Relaxed) {
            return;
        }
        let result = job.run(self.sweep, &self.loads, &self.progress).map_err(Failure::input);
        let kept = result.and_then(|found| match found {
            Some((row, requests)) => self.keep(row, &requests),
            None => Ok(()),
        });
        if let Err(failure) = kept {
            locked(&self.failure).get_or_insert(failure);
            self.progress.stop.store(true, Ordering::Relaxed);
        }
    }

    fn keep(&self, row: Row, requests: &Columns) -> Result<(), Failure> {
        if let Some(dir) = &self.sweep.output.requests {
            write_requests(dir, &row.ask, requests)?;
        }
        if let Some(journal) = &mut *locked(&self.journal) {
            journal.keep(&row).map_err(journal_failure)?;
        }
        locked(&self.done).insert(row.ask.clone(), row);
        self.runs.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What is done, in the order of the sweep.
    fn rows(&self, jobs: &[Job]) -> Vec<Row> {
        let done = locked(&self.done);
        jobs.iter().filter_map(|job| done.get(&job.ask).cloned()).collect()
    }

    fn end(self, complete: bool) -> Result<(), Failure> {
        if let Some(failure) = locked(&self.failure).take() {
            return Err(failure);
        }
        if !complete {
            return Err(Failure::Interrupted);
        }
        if let Some(journal) = locked(&self.journal).take() {
            journal.remove();
        }
        Ok(())
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

/// One file a run, named after what it is of.
fn write_requests(dir: &Path, ask: &Ask, requests: &Columns) -> Result<(), Failure> {
    let Ask { trace, drive, policy, seed } = ask;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.=+".contains(c) { c } else { '_' };
    let name: String = format!("{trace}-{drive}-{policy}-{seed}").chars().map(plain).collect();
    let mut bytes = Vec::new();
    requests.parquet(&mut bytes).map_err(Failure::failed)?;
    Output::reserve(&dir.join(name + ".parquet"))?.write(&bytes)
}

fn journal_failure(error: JournalError) -> Failure {
    match &error {
        JournalError::Io { source, .. } => Failure::of_given(source, &error),
        _ => Failure::input(error),
    }
}
