//! How a command fails: what is printed and with which exit code.

use std::fmt::Display;
use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or an input is bad: exit code 2.
    Input(String),
    /// Something went wrong while working: exit code 1.
    Failed(String),
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

    /// Tells the user and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Input(message) => (message, 2),
            Self::Failed(message) => (message, 1),
            Self::Interrupted => ("interrupted".to_owned(), 130),
        };
        eprintln!("manylogs: {message}");
        ExitCode::from(code)
    }
}
