//! Errors for Python: `manylogs.Error` with file, line and exit code.

use std::fmt::Display;

use manylogs_disk::profile::ProfileError;
use manylogs_lab::known::UnknownDisk;
use manylogs_lab::load::{Blame, LoadError};
use manylogs_lab::prepare::PrepareError;
use manylogs_lab::replay::ReplayError;
use manylogs_lab::sweep::JobError;
use manylogs_workload::{Position, TraceError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTraceback};

/// The reason of a failure, from which an exception is made.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    exit_code: u8,
    /// The file at fault.
    file: Option<String>,
    /// The line at fault in that file.
    line: Option<u64>,
    /// The class of the exception.
    class: &'static str,
    /// The exception that caused it.
    cause: Option<Box<PyErr>>,
}

impl Failure {
    /// A failure by the user's input.
    pub(crate) fn input(message: impl Display) -> Self {
        Self::blamed(Blame::Input, message)
    }

    /// A failure by a defect of the program.
    pub(crate) fn program(message: impl Display) -> Self {
        Self::blamed(Blame::Program, message)
    }

    /// A panic of the program, with its message.
    pub(crate) fn panic(message: impl Display) -> Self {
        let message = format!("this is a defect of manylogs: {message}");
        Self { class: "Panic", ..Self::program(message) }
    }

    fn blamed(blame: Blame, message: impl Display) -> Self {
        let exit_code = match blame {
            Blame::Input => 2,
            Blame::Permission => 6,
            Blame::Program => 1,
        };
        let message = message.to_string();
        Self { message, exit_code, file: None, line: None, class: "Error", cause: None }
    }

    /// A failure because the user's code raised `cause`; the file and line are those of `cause`.
    pub(crate) fn raised_by(py: Python<'_>, what: &str, cause: PyErr) -> Self {
        let (file, line) = cause.traceback(py).and_then(last_line).unzip();
        Self { file, line, cause: Some(Box::new(cause)), ..Self::input(what) }
    }

    /// The failure with the file and line of a trace's error.
    fn at(self, error: Option<&TraceError>) -> Self {
        let (file, line) = match error {
            Some(TraceError::Malformed(bad) | TraceError::Truncated(bad)) => {
                let line = match bad.position {
                    Position::Line(line) => Some(line),
                    Position::Byte(_) => None,
                };
                (Some(&bad.file), line)
            }
            Some(TraceError::Io(failed)) => (Some(&failed.file), None),
            Some(TraceError::UnknownFormat(unknown)) => (Some(&unknown.file), None),
            Some(TraceError::Empty { file, .. }) => (Some(&**file), None),
            _ => (None, None),
        };
        Self { file: file.map(|file| file.display().to_string()), line, ..self }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let failure = Self::blamed(error.blame(), &error);
        match &error {
            LoadError::Prepare(PrepareError::BeyondDrive { file, .. }) => {
                Self { file: Some(file.display().to_string()), ..failure }
            }
            other => failure.at(other.of_trace()),
        }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        LoadError::Replay(error).into()
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        LoadError::Prepare(PrepareError::Trace(error)).into()
    }
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Self {
        LoadError::Prepare(error).into()
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Self {
        let failure = match &error {
            ProfileError::TooNew { .. } => Self { exit_code: 7, ..Self::input(&error) },
            ProfileError::Read { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Self::blamed(Blame::Permission, &error)
            }
            _ => Self::input(&error),
        };
        match &error {
            ProfileError::Read { path, .. } => {
                Self { file: Some(path.display().to_string()), ..failure }
            }
            _ => failure,
        }
    }
}

impl From<UnknownDisk> for Failure {
    fn from(error: UnknownDisk) -> Self {
        match error {
            UnknownDisk::Profile(error) => error.into(),
            other => Self::input(other),
        }
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        match error {
            _ if error.is_of_permission() => Self::blamed(Blame::Permission, &error),
            _ if error.is_of_input() => Self::input(&error),
            _ => Self::program(&error),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.raised(py).unwrap_or_else(|error| error))
    }
}

impl Failure {
    fn raised(&self, py: Python<'_>) -> PyResult<PyErr> {
        let class = py.import("manylogs._errors")?.getattr(self.class)?;
        let named = PyDict::new(py);
        named.set_item("exit_code", self.exit_code)?;
        named.set_item("file", &self.file)?;
        named.set_item("line", self.line)?;
        let raised = PyErr::from_value(class.call((&self.message,), Some(&named))?);
        raised.set_cause(py, self.cause.as_ref().map(|cause| cause.clone_ref(py)));
        Ok(raised)
    }
}

/// The file and the line that raised the exception.
fn last_line(traceback: Bound<'_, PyTraceback>) -> Option<(String, u64)> {
    let mut last = traceback.into_any();
    while let Some(next) = last.getattr("tb_next").ok().filter(|next| !next.is_none()) {
        last = next;
    }
    let line = last.getattr("tb_lineno").and_then(|line| line.extract()).ok()?;
    let code = last.getattr("tb_frame").and_then(|frame| frame.getattr("f_code"));
    let file = code.and_then(|code| code.getattr("co_filename")?.extract());
    Some((file.ok()?, line))
}
