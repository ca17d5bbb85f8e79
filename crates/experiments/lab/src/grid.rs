//! Runs that comparisons share: each is done once, however many cases are compared with it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::parallel::in_parallel;

/// Different runs, by their keys.
#[derive(Debug)]
pub(crate) struct Grid<C> {
    key: fn(&C) -> String,
    runs: BTreeMap<String, C>,
}

/// The results of runs.
#[derive(Debug)]
pub(crate) struct Found<C, R> {
    key: fn(&C) -> String,
    found: BTreeMap<String, R>,
}

impl<C: Sync> Grid<C> {
    /// A grid of `runs`, with one run for each key: runs with equal keys have equal results.
    pub(crate) fn of(runs: impl IntoIterator<Item = C>, key: fn(&C) -> String) -> Self {
        Self { key, runs: runs.into_iter().map(|run| (key(&run), run)).collect() }
    }

    /// Calls `work` for each run on up to `threads` threads, in the order of the keys. Runs that
    /// have not begun when `stop` is set have no result.
    ///
    /// # Errors
    /// The first in that order.
    pub(crate) fn run<R: Send, E: Send>(
        &self,
        threads: usize,
        stop: &AtomicBool,
        work: impl Fn(&C) -> Result<R, E> + Sync,
    ) -> Result<Found<C, R>, E> {
        let runs: Vec<&C> = self.runs.values().collect();
        let results = in_parallel(&runs, threads, stop, |run| work(run))?;
        let keyed = self.runs.keys().cloned().zip(results);
        let found = keyed.filter_map(|(key, result)| Some((key, result?)));
        Ok(Found { key: self.key, found: found.collect() })
    }
}

impl<C, R> Found<C, R> {
    /// The result of a run, if it was done.
    pub(crate) fn of(&self, run: &C) -> Option<&R> {
        self.found.get(&(self.key)(run))
    }
}

/// Values that runs share, each made when the first run needs it.
#[derive(Debug)]
pub(crate) struct MadeOnce<T>(Mutex<BTreeMap<String, Made<T>>>);

type Made<T> = Arc<OnceLock<Arc<T>>>;

impl<T> Default for MadeOnce<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> MadeOnce<T> {
    /// The value called `key`, made by `make` at the first call. Threads that need the same value
    /// wait for it; others do not.
    pub(crate) fn get(&self, key: String, make: impl FnOnce() -> T) -> Arc<T> {
        let made = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(key).or_default())
        };
        Arc::clone(made.get_or_init(|| Arc::new(make())))
    }
}
