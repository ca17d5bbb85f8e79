//! Errors as Python has them: `manylogs.Error` with file, line and exit code.

use std::fmt::Display;

use manylogs_disk::profile::ProfileError;
use manylogs_lab::known::UnknownDisk;
use manylogs_lab::load::{Blame, LoadError};
use manylogs_lab::prepare::PrepareError;
use manylogs_lab::replay::ReplayError;
use manylogs_lab::sweep::JobError;
use manylogs_workload::{Position, TraceError};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Why something failed, before it is an exception.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    exit_code: u8,
    /// The file that is to blame.
    file: Option<String>,
    /// The line of it.
    line: Option<u64>,
    /// What class of exception it is.
    class: &'static str,
}

impl Failure {
    /// What was asked for makes no sense.
    pub(crate) fn input(message: impl Display) -> Self {
        Self::blamed(Blame::Input, message)
    }

    /// The program is to blame.
    pub(crate) fn program(message: impl Display) -> Self {
        Self::blamed(Blame::Program, message)
    }

    /// A panic of the program, with what it said.
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
        Self { message: message.to_string(), exit_code, file: None, line: None, class: "Error" }
    }

    /// The same of this trace's error.
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
        Ok(PyErr::from_value(class.call((&self.message,), Some(&named))?))
    }
}

/// The exception of work that the user ended.
pub(crate) fn interrupted() -> PyErr {
    PyKeyboardInterrupt::new_err(())
}
