//! Failures of commands, with their messages and exit codes.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use manylogs_lab::load::Blame;
use manylogs_operate::log::{Level, line};

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or an input is bad: exit code 2.
    Input(String),
    /// Something went wrong while working: exit code 1.
    Failed(String),
    /// A volume is damaged, but nothing is lost: exit code 3.
    Damage(String),
    /// Acknowledged data is lost: exit code 4.
    Loss(String),
    /// The device is in use, or holds content: exit code 5.
    Busy(String),
    /// The user lacks the permission: exit code 6.
    Permission(String),
    /// Written by a newer version that this one does not know: exit code 7.
    TooNew(String),
    /// A child process has reported the failure, and ended with this exit code.
    Told(u8),
    /// The user pressed Ctrl-C: exit code 130, as a shell reports it.
    Interrupted,
}

impl Failure {
    pub(crate) fn input(message: impl Display) -> Self {
        Self::Input(message.to_string())
    }

    pub(crate) fn failed(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// A failure with this message, caused by the system's error `source`.
    pub(crate) fn of_io(source: &io::Error, message: impl Display) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission(message.to_string()),
            _ => Self::failed(message),
        }
    }

    /// A file that the user named cannot be used, caused by the system's error `source`.
    pub(crate) fn of_given(source: &io::Error, message: impl Display) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission(message.to_string()),
            _ => Self::input(message),
        }
    }

    /// Like [`Failure::of_given`], for the file at `path`.
    pub(crate) fn at(path: &Path, source: &io::Error) -> Self {
        Self::of_given(source, format!("{}: {source}", path.display()))
    }

    /// The failure for an error with this blame.
    pub(crate) fn of_blame(blame: Blame, error: impl Display) -> Self {
        match blame {
            Blame::Input => Self::input(error),
            Blame::Permission => Self::Permission(error.to_string()),
            Blame::Program => Self::failed(error),
        }
    }

    /// Prints the message and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Told(code) => return ExitCode::from(code),
            Self::Input(message) => (message, 2),
            Self::Failed(message) => (message, 1),
            Self::Damage(message) => (message, 3),
            Self::Loss(message) => (message, 4),
            Self::Busy(message) => (message, 5),
            Self::Permission(message) => (message, 6),
            Self::TooNew(message) => (message, 7),
            Self::Interrupted => ("interrupted".to_owned(), 130),
        };
        line(Level::Error, None, &message, &[("code", code.into())]);
        ExitCode::from(code)
    }
}
