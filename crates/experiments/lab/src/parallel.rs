//! The same work for many items, on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls `work` for each number below `jobs` on up to `threads` threads, and returns the results in
/// order.
pub fn on_threads<T: Send>(
    jobs: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.max(1)) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs {
                        return;
                    }
                    let result = work(job);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((job, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(job, _)| *job);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Calls `work` for each of `items` on up to `threads` threads. The results keep the order of the
/// items. Items whose work has not begun when `stop` is set have none.
///
/// # Errors
/// The first in that order.
pub(crate) fn in_parallel<I: Sync, R: Send, E: Send>(
    items: &[I],
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(&I) -> Result<R, E> + Sync,
) -> Result<Vec<Option<R>>, E> {
    let found = on_threads(items.len(), threads, |index| {
        (!stop.load(Ordering::Relaxed)).then(|| work(&items[index]))
    });
    found.into_iter().map(Option::transpose).collect()
}
