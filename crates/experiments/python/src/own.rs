//! Policies written in Python: a volume calls their methods to decide which writes to log, and
//! where.

use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use manylogs::{LogId, LogsWithRoom, OwnPolicy, OwnWrite, PolicyError};
use manylogs_block::Lba;
use manylogs_lab::replay::{NamedPolicy, OwnPolicies, Progress};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::failure::Failure;

/// A policy in the form that the user gave.
#[derive(FromPyObject)]
pub(crate) enum Asked {
    /// One of ours, in the program's syntax.
    Ours(String),
    /// An object with methods.
    Own(Own),
}

/// The parts of a `manylogs.Policy`: its name, the policy that provides the volume, the object, and
/// whether the methods `logs` and `place` replace those of the volume.
#[derive(FromPyObject)]
pub(crate) struct Own(String, String, Py<PyAny>, bool, bool);

impl Own {
    /// Makes the named policy for replays. If a method fails, `progress` ends the replays, and
    /// `failed` gets the reason.
    ///
    /// # Errors
    /// If its volume cannot be made, or another policy has its name.
    pub(crate) fn named(
        self,
        failed: &Arc<Failed>,
        progress: &Arc<Progress>,
    ) -> Result<NamedPolicy, PolicyError> {
        let Self(name, base, policy, logs, place) = self;
        let (failed, progress) = (Arc::clone(failed), Arc::clone(progress));
        let maker = Maker { name: name.clone(), policy, logs, place, failed, progress };
        NamedPolicy::of_own(&name, &base, Arc::new(maker))
    }
}

/// The reason if a method of a policy has failed.
#[derive(Debug, Default)]
pub(crate) struct Failed(Mutex<Option<Failure>>);

impl Failed {
    /// # Errors
    /// The first failure.
    pub(crate) fn result(&self) -> Result<(), Failure> {
        let failure = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err)
    }
}

/// Makes a policy for each replay.
#[derive(Debug)]
struct Maker {
    name: String,
    policy: Py<PyAny>,
    logs: bool,
    place: bool,
    failed: Arc<Failed>,
    progress: Arc<Progress>,
}

/// The methods `logs` and `place` of a policy; `None` for the volume's own.
type Methods = (Option<Py<PyAny>>, Option<Py<PyAny>>);

impl Maker {
    /// Notes the failure and ends the replays.
    fn fail(&self, failure: Failure) {
        let mut failed = self.failed.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert(failure);
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    fn raised(&self, py: Python<'_>, method: &str, cause: PyErr) {
        let what = format!("policy {}: {method} raised {cause}", self.name);
        self.fail(Failure::raised_by(py, &what, cause));
    }

    fn begun(&self, py: Python<'_>, seed: u64) -> PyResult<Methods> {
        let own = self.policy.bind(py).call_method1("_begin", (seed,))?;
        let method =
            |name, is_own: bool| is_own.then(|| own.getattr(name).map(Bound::unbind)).transpose();
        Ok((method("logs", self.logs)?, method("place", self.place)?))
    }
}

impl OwnPolicies for Maker {
    fn begin(&self, seed: u64) -> Rc<dyn OwnPolicy> {
        // Made outside of the closure below, because it must be dropped without the GIL.
        let known = Known::to_python();
        let begun = Python::attach(|py| {
            let begun = self.begun(py, seed).and_then(|methods| {
                let view = Py::new(py, Logs::new())?;
                Ok((methods, view))
            });
            match begun {
                Ok(begun) => Some((begun, self.policy.clone_ref(py))),
                Err(cause) => {
                    self.raised(py, "a copy of it", cause);
                    None
                }
            }
        });
        let Some((((logs, place), view), policy)) = begun else { return Rc::new(Nobody) };
        let (name, failed, progress) =
            (self.name.clone(), Arc::clone(&self.failed), Arc::clone(&self.progress));
        let maker = Self { name, policy, failed, progress, ..*self };
        Rc::new(Decider { maker, logs, place, view, _known: known })
    }
}

/// Registers the thread of a replay with the interpreter as long as this lives. Otherwise each call
/// would register it and unregister it, which takes longer than the call.
#[derive(Debug)]
struct Known {
    state: ffi::PyGILState_STATE,
    thread: *mut ffi::PyThreadState,
}

impl Known {
    #[expect(unsafe_code, reason = "PyO3 has no guard that outlives a call")]
    fn to_python() -> Self {
        // SAFETY: the interpreter lives, as it waits for the replay. The first call takes the GIL,
        // and the second gives it up. What the thread does afterwards does not need the GIL.
        unsafe {
            let state = ffi::PyGILState_Ensure();
            Self { state, thread: ffi::PyEval_SaveThread() }
        }
    }
}

impl Drop for Known {
    #[expect(unsafe_code, reason = "as in to_python")]
    fn drop(&mut self) {
        // SAFETY: the state is that of this thread, as raw pointers keep `Known` on it, and the
        // thread does not have the GIL: a volume is dropped where no Python code runs. Both calls
        // undo those of `to_python`.
        unsafe {
            ffi::PyEval_RestoreThread(self.thread);
            ffi::PyGILState_Release(self.state);
        }
    }
}

/// The policy of a replay that has failed: decides as the volume itself does.
#[derive(Debug)]
struct Nobody;

impl OwnPolicy for Nobody {
    fn logs(&self, _: &OwnWrite) -> bool {
        true
    }

    fn place(&self, _: Lba, _: &LogsWithRoom<'_>) -> Option<LogId> {
        None
    }
}

/// The policy of a replay: calls the Python methods; without a method the volume's own decision
/// counts.
#[derive(Debug)]
struct Decider {
    maker: Maker,
    logs: Option<Py<PyAny>>,
    place: Option<Py<PyAny>>,
    view: Py<Logs>,
    _known: Known,
}

impl OwnPolicy for Decider {
    fn logs(&self, write: &OwnWrite) -> bool {
        let Some(logs) = &self.logs else { return true };
        Python::attach(|py| {
            let answer = logs.call1(py, (Write::of(write),));
            let is_true = answer.and_then(|answer| answer.is_truthy(py));
            is_true.unwrap_or_else(|cause| {
                self.maker.raised(py, "logs()", cause);
                true
            })
        })
    }

    fn place(&self, head: Lba, logs: &LogsWithRoom<'_>) -> Option<LogId> {
        let place = self.place.as_ref()?;
        Python::attach(|py| {
            let answer = {
                let _seen = self.view.get().during(logs);
                place.call1(py, (head.0, &self.view))
            };
            match answer {
                Ok(answer) => self.checked(answer.bind(py), logs),
                Err(cause) => {
                    self.maker.raised(py, "place()", cause);
                    None
                }
            }
        })
    }
}

impl Decider {
    /// The log that the method has named, if it has room for the record.
    fn checked(&self, answer: &Bound<'_, PyAny>, logs: &LogsWithRoom<'_>) -> Option<LogId> {
        let wrong = |what: &str| {
            let text = answer.repr().map_or_else(|_| "something".to_owned(), |r| r.to_string());
            let what = format!("policy {}: place() named {text}, {what}", self.maker.name);
            self.maker.fail(Failure::input(what));
            None
        };
        let Ok(number) = answer.extract::<u32>() else {
            return wrong("which is not the number of a log");
        };
        let log = LogId(number);
        if logs.region(log).is_none() {
            return wrong(&format!("but there are {} logs, from 0 on", logs.count()));
        }
        if !logs.takes(log) {
            return wrong("but that log is full, or takes no record now");
        }
        Some(log)
    }
}

/// A write about which a policy decides whether it is logged.
#[pyclass(frozen, get_all, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Write {
    lba: u64,
    sectors: u64,
    fua: bool,
    head: u64,
}

impl Write {
    const fn of(write: &OwnWrite) -> Self {
        let OwnWrite { extent, fua, head } = write;
        Self { lba: extent.start.0, sectors: extent.len.0, fua: *fua, head: head.0 }
    }
}

#[pymethods]
impl Write {
    fn __repr__(&self) -> String {
        let Self { lba, sectors, fua, head } = self;
        let fua = if *fua { "True" } else { "False" };
        format!("Write(lba={lba}, sectors={sectors}, fua={fua}, head={head})")
    }
}

/// The logs with room for a record, valid during a call of `place`.
#[pyclass(frozen, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Logs(AtomicPtr<LogsWithRoom<'static>>);

/// Keeps the logs visible until it is dropped.
struct Seen<'a>(&'a Logs);

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.0.store(ptr::null_mut(), Ordering::Release);
    }
}

impl Logs {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Shows `logs` until the result is dropped. The caller must have the GIL now and then.
    fn during<'a>(&'a self, logs: &'a LogsWithRoom<'a>) -> Seen<'a> {
        self.0.store(ptr::from_ref(logs).cast_mut().cast(), Ordering::Release);
        Seen(self)
    }

    #[expect(unsafe_code, reason = "a Python object cannot borrow, so it has a pointer")]
    fn look<T>(&self, look: impl FnOnce(&LogsWithRoom<'_>) -> T) -> PyResult<T> {
        let seen = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or one of `during` to logs that are borrowed until it is
        // null again. It becomes null in a thread that has the GIL, and this one has it until it
        // returns. The thread that borrows them waits for Python meanwhile, so nothing changes
        // them, and only who has the GIL looks.
        match unsafe { seen.cast_const().as_ref() } {
            Some(seen) => Ok(look(seen)),
            None => Err(PyRuntimeError::new_err("logs can be looked at only during place()")),
        }
    }

    fn of_log<T>(
        &self,
        log: u32,
        look: impl FnOnce(&LogsWithRoom<'_>, LogId) -> Option<T>,
    ) -> PyResult<T> {
        let (found, count) = self.look(|seen| (look(seen, LogId(log)), seen.count()))?;
        found.ok_or_else(|| {
            PyIndexError::new_err(format!("there is no log {log}: there are {count}, from 0 on"))
        })
    }
}

#[pymethods]
impl Logs {
    /// The nearest logs with room: one that begins at or before `head`, and one after it.
    fn around(&self, head: u64) -> PyResult<(Option<u32>, Option<u32>)> {
        let number = |log: Option<LogId>| log.map(|log| log.0);
        self.look(|seen| {
            let (below, above) = seen.around(Lba(head));
            (number(below), number(above))
        })
    }

    /// The address at which a log begins.
    fn start(&self, log: u32) -> PyResult<u64> {
        self.of_log(log, |seen, log| Some(seen.region(log)?.start.0))
    }

    /// The size of a log in sectors.
    fn sectors(&self, log: u32) -> PyResult<u64> {
        self.of_log(log, |seen, log| Some(seen.region(log)?.len.0))
    }

    /// The filled sectors of a log.
    fn used(&self, log: u32) -> PyResult<u64> {
        self.of_log(log, |seen, log| Some(seen.used(log)?.0))
    }

    /// The address of the next append to a log.
    fn tail(&self, log: u32) -> PyResult<u64> {
        self.of_log(log, |seen, log| Some((seen.region(log)?.start + seen.used(log)?).0))
    }

    /// Number of all logs, full ones too.
    #[getter]
    fn count(&self) -> PyResult<usize> {
        self.look(|seen| seen.count())
    }

    fn __contains__(&self, log: u32) -> PyResult<bool> {
        self.look(|seen| seen.takes(LogId(log)))
    }

    /// Numbers of all logs with room, in order of address.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let numbers = self.look(|seen| seen.iter().map(|log| log.0).collect::<Vec<_>>())?;
        let list = PyList::new(py, numbers)?;
        list.call_method0(intern!(py, "__iter__"))
    }
}
