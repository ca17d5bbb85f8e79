//! Runs of a sweep under way, on several threads.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::columns::Columns;
use super::job::{Job, JobError, Jobs};
use super::row::Row;
use crate::parallel::on_threads;
use crate::replay::Progress;
use crate::runs::{Kept, KeptError};

/// Runs under way. `E` is the error if a result cannot be stored, which ends all runs.
#[derive(Debug)]
pub struct Runs<E> {
    /// Ends the replays under way.
    pub progress: Arc<Progress>,
    /// Progress of the runs.
    pub counted: Arc<Progress>,
    done: Mutex<Kept<Row>>,
    /// Why runs have no result, each reason once.
    left_out: Mutex<Vec<JobError>>,
    failure: Mutex<Option<E>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E: Send> Runs<E> {
    /// New runs; `done` has earlier results, `left_out` the runs that cannot be tried.
    #[must_use]
    pub fn new(done: Kept<Row>, left_out: Vec<JobError>, progress: Arc<Progress>) -> Self {
        let (done, left_out) = (Mutex::new(done), Mutex::new(left_out));
        Self { progress, counted: Arc::default(), done, left_out, failure: Mutex::new(None) }
    }

    /// Those of `jobs` that have no result, one of each key.
    #[must_use]
    pub fn left<'a>(&self, jobs: &'a [Job]) -> Vec<&'a Job> {
        let (mut keys, done) = (BTreeSet::new(), locked(&self.done));
        let wanted = jobs.iter().filter(|job| keys.insert(job.key));
        wanted.filter(|job| done.get(job.key).is_none()).collect()
    }

    /// Runs `jobs`. If one fails the others go on. `store` gets the requests of each run, if they
    /// are kept; `unkept` makes the error for a row that cannot be stored.
    pub fn run(
        &self,
        jobs: &[&Job],
        threads: usize,
        keep_requests: bool,
        store: impl Fn(&Job, &Columns) -> Result<(), E> + Sync,
        unkept: impl Fn(KeptError) -> E + Sync,
    ) {
        on_threads(jobs.len(), threads, |index| {
            let job = jobs[index];
            if self.is_stopped() {
                return;
            }
            let (row, requests) = match job.run(keep_requests, &self.progress) {
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
            let stored = if keep_requests { store(job, &requests) } else { Ok(()) };
            let kept = stored.and_then(|()| locked(&self.done).keep(job.key, row).map_err(&unkept));
            match kept {
                Ok(()) => _ = self.counted.done.fetch_add(1, Ordering::Relaxed),
                Err(failure) => {
                    locked(&self.failure).get_or_insert(failure);
                    self.progress.stop.store(true, Ordering::Relaxed);
                }
            }
        });
    }

    /// Whether the runs were ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.progress.stop.load(Ordering::Relaxed)
    }

    /// The rows of finished runs, in the order of the sweep.
    #[must_use]
    pub fn rows(&self, jobs: &[Job]) -> Vec<Row> {
        let done = locked(&self.done);
        let row = |job: &Job| Some(Row { ask: job.ask.clone(), ..done.get(job.key)?.clone() });
        jobs.iter().filter_map(row).collect()
    }

    /// Why runs have no result.
    #[must_use]
    pub fn left_out(&self) -> Vec<JobError> {
        locked(&self.left_out).clone()
    }

    /// The first failure to store a result.
    #[must_use]
    pub fn failure(&self) -> Option<E> {
        locked(&self.failure).take()
    }

    /// Removes the stored results, because the sweep is complete.
    pub fn remove_kept(self) {
        self.done.into_inner().unwrap_or_else(PoisonError::into_inner).remove();
    }
}

/// Runs all of `jobs` in memory; returns the rows, and the reasons why runs have none.
#[must_use]
pub fn run_jobs(
    jobs: &Jobs,
    progress: &Arc<Progress>,
    threads: usize,
) -> (Vec<Row>, Vec<JobError>) {
    let kept = Kept::in_memory();
    let runs = Runs::<KeptError>::new(kept, jobs.left_out.clone(), Arc::clone(progress));
    let nothing = |_: &Job, _: &Columns| -> Result<(), KeptError> { Ok(()) };
    runs.run(&runs.left(&jobs.jobs), threads, false, nothing, std::convert::identity);
    (runs.rows(&jobs.jobs), runs.left_out())
}
