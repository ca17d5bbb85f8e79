//! The operator's end of the control socket. Whatever state the server is in, every wait ends, or
//! an error says why it would not.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Answer, ControlError, Line, Order};
use crate::runtime_dir::{at, socket_path};
use crate::status::{ArrangeStatus, CheckpointStatus, ScrubStatus, Status};

/// Interval at which a server that does not answer is checked.
const LOOK: Duration = Duration::from_millis(500);
/// How long a status may take: the engine answers it between any two requests.
const STATUS_PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the server of a device.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    /// ID of the server's process, if the kernel tells.
    pid: Option<i32>,
}

/// Connects to the server that has the device at `path` open.
///
/// # Errors
/// [`ControlError::NotServed`], or why the server cannot be asked.
pub fn connect(path: &Path) -> Result<Control, ControlError> {
    let failed = |source: io::Error| ControlError::Io { path: path.to_owned(), source };
    // A client does not create the directory: if it is missing there is no socket.
    let Ok(directory) = manylogs_storage::runtime_dir() else {
        return Err(ControlError::NoDirectory { path: path.to_owned() });
    };
    let socket = socket_path(&directory, path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ControlError::NoDevice { path: path.to_owned() },
        _ => failed(error),
    })?;
    Control::at(&socket, path)
}

/// Gets the status of the server that has the device at `path` open.
///
/// # Errors
/// As [`connect`] and [`Control::ask`].
pub fn status(path: &Path) -> Result<Status, ControlError> {
    connect(path)?.status()
}

impl Control {
    /// Connects to the server at `socket`. Errors name `path`.
    pub fn at(socket: &Path, path: &Path) -> Result<Self, ControlError> {
        let failed = |source: io::Error| ControlError::Io { path: path.to_owned(), source };
        let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ControlError::NotServed { path: path.to_owned() }
            }
            _ => failed(at(socket, &error)),
        })?;
        stream.set_read_timeout(Some(LOOK)).map_err(failed)?;
        stream.set_write_timeout(Some(STATUS_PATIENCE)).map_err(failed)?;
        let pid = socket_peercred(&stream).ok().map(|server| server.pid.as_raw_nonzero().get());
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream), pid })
    }

    /// Gets the status of the server.
    ///
    /// # Errors
    /// As [`Control::ask`], or if the server is of another version.
    pub fn status(&mut self) -> Result<Status, ControlError> {
        self.answer(&Order::Status)
    }

    /// ID of the server's process, if the kernel tells.
    #[must_use]
    pub const fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Has the server write all logged versions home, and waits until it has.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn checkpoint(&mut self) -> Result<CheckpointStatus, ControlError> {
        self.answer(&Order::Checkpoint)
    }

    /// Has the server write metadata that stays in the journal anew, in the order of a walk of the
    /// tree, and waits until it has.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn arrange(&mut self) -> Result<ArrangeStatus, ControlError> {
        self.answer(&Order::Arrange)
    }

    /// Has the server read all metadata that stays in the journal, and waits until it has.
    ///
    /// # Errors
    /// As [`Control::status`].
    pub fn scrub(&mut self) -> Result<ScrubStatus, ControlError> {
        self.answer(&Order::Scrub)
    }

    fn answer<T: DeserializeOwned>(&mut self, order: &Order) -> Result<T, ControlError> {
        serde_json::from_value(self.ask(order)?).map_err(|source| self.other(source))
    }

    /// Sends an order, and waits for the answer. A wait for a status ends after some seconds. A
    /// wait for other orders lasts as long as the server's process runs.
    ///
    /// # Errors
    /// If the server refuses, is gone, or [`ControlError::Silent`].
    pub fn ask(&mut self, order: &Order) -> Result<Value, ControlError> {
        let patience = matches!(order, Order::Status).then_some(STATUS_PATIENCE);
        self.ask_within(order, patience)
    }

    /// Sends an order, and waits at most `patience` for the answer.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn ask_within(
        &mut self,
        order: &Order,
        patience: Option<Duration>,
    ) -> Result<Value, ControlError> {
        let text = serde_json::to_string(order).map_err(|error| self.failed(error.into()))? + "\n";
        let sent = self.stream.get_mut().write_all(text.as_bytes());
        sent.map_err(|error| self.failed(error))?;
        let (began, mut line) = (Instant::now(), Vec::new());
        loop {
            match self.stream.read_until(b'\n', &mut line) {
                Ok(_) => break,
                Err(error) if is_timeout(&error) => self.look(began, patience)?,
                Err(error) => return Err(self.failed(error)),
            }
        }
        if line.is_empty() {
            // The server has ended without an answer.
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let line: Line = serde_json::from_slice(&line).map_err(|source| self.other(source))?;
        Ok(Answer::from(line)?)
    }

    /// Waits until the server's process has ended, for at most `patience`.
    ///
    /// # Errors
    /// [`ControlError::Silent`] if it has not ended by then.
    pub fn wait_for_end(mut self, patience: Duration) -> Result<(), ControlError> {
        let (began, mut rest) = (Instant::now(), Vec::new());
        loop {
            match self.stream.read_to_end(&mut rest) {
                Err(error) if is_timeout(&error) => self.look(began, Some(patience))?,
                // An error also means that the server has ended.
                _ => return Ok(()),
            }
        }
    }

    /// Checks a server that has not answered since `began`: an error says why to stop waiting for
    /// it.
    fn look(&self, began: Instant, patience: Option<Duration>) -> Result<(), ControlError> {
        let waited = began.elapsed();
        let silent = |why| ControlError::Silent { path: self.path.clone(), why };
        let process = self.pid.and_then(Process::of);
        let is_paused = process.as_ref().is_some_and(|process| process.state == 'T');
        if is_paused || patience.is_some_and(|patience| waited >= patience) {
            let why =
                process.map_or_else(|| "its process is unknown".to_owned(), Process::in_words);
            return Err(silent(format!("{why} (waited {} s)", waited.as_secs())));
        }
        Ok(())
    }

    fn other(&self, source: serde_json::Error) -> ControlError {
        ControlError::OtherVersion { path: self.path.clone(), source }
    }

    fn failed(&self, source: io::Error) -> ControlError {
        ControlError::Io { path: self.path.clone(), source }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A process as `/proc` describes it, see proc(5).
#[derive(Debug)]
struct Process {
    pid: i32,
    state: char,
}

impl Process {
    fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in brackets and may contain any character.
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        Some(Self { pid, state })
    }

    /// What its state means, for the operator who waits.
    fn in_words(self) -> String {
        let pid = self.pid;
        match self.state {
            'T' => format!("its process {pid} is stopped; kill -CONT {pid} lets it go on"),
            'D' => format!("its process {pid} waits in the kernel, likely for a device"),
            'Z' => format!("its process {pid} has ended, and its parent has not noticed"),
            _ => format!("its process {pid} is there, but busy or hung"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_state_of_a_process_is_known() {
        let this = i32::try_from(std::process::id()).unwrap();
        assert!("RS".contains(Process::of(this).unwrap().state));
        assert!(Process::of(i32::MAX).is_none());
        assert!(Process { pid: 7, state: 'T' }.in_words().contains("kill -CONT 7"));
    }
}
