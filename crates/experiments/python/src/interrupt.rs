//! Long work: other Python threads continue, Ctrl-C ends the work, and a panic becomes an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use manylogs_lab::replay::{OpenTrace, Progress};
use manylogs_workload::{BoxedSource, SourceCounts, TraceError, TraceRequest, TraceSource};
use pyo3::prelude::*;

use crate::failure::Failure;

/// Interval at which the interpreter is asked whether the user pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A source checks once in so many requests whether it is to end.
const REQUESTS_BETWEEN: u32 = 1024;

/// Does `work` on another thread, with the interpreter released. `work` must end soon after
/// `Progress::stop` is set.
///
/// # Errors
/// What `work` returns, its panic, or what a signal's handler raised.
pub(crate) fn free<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Arc<Progress>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    free_showing(py, None, work)
}

/// Like [`free`], and calls `show` now and then with the number of requests replayed so far.
///
/// # Errors
/// Those of [`free`], or what `show` raised.
pub(crate) fn free_showing<T: Send>(
    py: Python<'_>,
    show: Option<Py<PyAny>>,
    work: impl FnOnce(&Arc<Progress>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let progress = Arc::<Progress>::default();
    let (sender, receiver) = channel();
    let shared = &progress;
    let (result, signal) = py.detach(move || {
        let progress = shared;
        std::thread::scope(|scope| {
            let of_worker = Arc::clone(progress);
            scope.spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| work(&of_worker)));
                // Cannot fail: the receiver waits for it.
                let _ = sender.send(result.unwrap_or_else(|panic| Err(said(&*panic))));
            });
            let mut signal = None;
            loop {
                match receiver.recv_timeout(LOOK_EVERY) {
                    Ok(result) => return (result, signal),
                    Err(RecvTimeoutError::Timeout) if signal.is_none() => {
                        signal = Python::attach(|py| look(py, show.as_ref(), progress)).err();
                        progress.stop.store(signal.is_some(), Ordering::Relaxed);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return (Err(Failure::program("a thread was lost")), signal);
                    }
                }
            }
        })
    });
    match signal {
        Some(signal) => Err(signal),
        None => Ok(result?),
    }
}

/// Handles signals, and shows the progress.
fn look(py: Python<'_>, show: Option<&Py<PyAny>>, progress: &Progress) -> PyResult<()> {
    py.check_signals()?;
    let done = progress.done.load(Ordering::Relaxed);
    show.map_or(Ok(()), |show| show.call1(py, (done,)).map(drop))
}

fn said(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::panic(text.unwrap_or_else(|| "it panicked".to_owned()))
}

/// The same trace, whose reading ends with an error once `progress` says so.
pub(crate) fn stoppable(open: OpenTrace, progress: &Arc<Progress>) -> OpenTrace {
    let progress = Arc::clone(progress);
    Arc::new(move || {
        let (source, progress) = (open()?, Arc::clone(&progress));
        Ok(Box::new(Stoppable { source, progress, until: 0 }) as BoxedSource)
    })
}

struct Stoppable {
    source: BoxedSource,
    progress: Arc<Progress>,
    until: u32,
}

impl TraceSource for Stoppable {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if self.until == 0 {
            self.until = REQUESTS_BETWEEN;
            if self.progress.stop.load(Ordering::Relaxed) {
                return Some(Err(TraceError::Options("interrupted".into())));
            }
        }
        self.until -= 1;
        self.source.next_request()
    }

    fn counts(&self) -> SourceCounts {
        self.source.counts()
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}

/// Panics as a defect would, for tests of the resulting error.
#[pyfunction]
pub(crate) fn panics(py: Python<'_>, message: &str) -> PyResult<()> {
    let message = message.to_owned();
    free(py, move |_| std::panic::panic_any(message))
}
