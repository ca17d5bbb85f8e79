//! The control socket, by which an operator gives orders to a running server: one JSON object a
//! line.
//!
//! Clients find the socket by the device ([`connect`]). Only the user who runs the server may open
//! it.

mod client;
mod order;

use std::fmt::Display;
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use manylogs_storage::DirectoryLock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::log::{Level, line};
use crate::runtime_dir::{NOTE, note_device, runtime_dir, socket_path, sweep};

pub use client::{Control, connect, status};
pub use order::Order;

/// Longest line that is read from a client.
const LINE_MAX: u64 = 64 * 1024;
/// A client that is silent for this long is disconnected.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest time that an ending server waits until its answers are sent.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Why an order was not carried out. The operator reads it on the other side of a socket.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct OrderError {
    /// The reason in words.
    pub reason: String,
    /// The kind of failure.
    pub kind: OrderErrorKind,
}

/// Kind of an order's failure: decides the exit code of the operator's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderErrorKind {
    /// Something went wrong while it was carried out.
    #[default]
    Failed,
    /// The device is in use.
    InUse,
    /// The order makes no sense, in general or for this server.
    BadInput,
}

impl OrderErrorKind {
    fn is_failed(&self) -> bool {
        *self == Self::Failed
    }
}

impl OrderError {
    /// An order that failed for `reason`.
    pub fn new(reason: impl Display) -> Self {
        Self { reason: reason.to_string(), kind: OrderErrorKind::Failed }
    }

    /// An order that makes no sense, as `reason` says.
    pub fn bad_input(reason: impl Display) -> Self {
        Self { kind: OrderErrorKind::BadInput, ..Self::new(reason) }
    }

    /// An order that was refused because the device is in use, as `reason` says.
    pub fn in_use(reason: impl Display) -> Self {
        Self { kind: OrderErrorKind::InUse, ..Self::new(reason) }
    }
}

/// The answer to an order.
pub type Answer = Result<Value, OrderError>;

/// Executor of orders.
pub type Obey = dyn Fn(Order) -> Answer + Send + Sync;

/// Why a server did not answer an order.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Nobody serves the device.
    #[error("no server has {} open", path.display())]
    NotServed {
        /// The device.
        path: PathBuf,
    },
    /// There is no such device or file.
    #[error("{} does not exist: check the name", path.display())]
    NoDevice {
        /// The device.
        path: PathBuf,
    },
    /// This user has no directory where sockets of servers could be.
    #[error(
        "no server of this user can have {} open, for its socket has no directory: set \
         XDG_RUNTIME_DIR as it was set when the server was started",
        path.display()
    )]
    NoDirectory {
        /// The device.
        path: PathBuf,
    },
    /// The connection to the server cannot be made, or broke off.
    #[error("the server of {} cannot be asked: {source}", path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The server refused, or failed.
    #[error(transparent)]
    Refused(#[from] OrderError),
    /// This program does not understand the answer.
    #[error("the server of {} is of another version: {source}", path.display())]
    OtherVersion {
        /// The device.
        path: PathBuf,
        /// The fault in the answer.
        source: serde_json::Error,
    },
    /// The server has not answered in time.
    #[error("the server of {} does not answer: {why}", path.display())]
    Silent {
        /// The device.
        path: PathBuf,
        /// State of the process.
        why: String,
    },
}

/// The socket on which a server takes orders; removed when dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    /// Identifies the file: another server may have made one of the same name.
    inode: (u64, u64),
    orders: Arc<Orders>,
}

impl ControlSocket {
    /// Takes orders for the server of the device at `device`, in threads of its own; `obey` may
    /// block. The caller holds the lock of the device, so a socket found there is stale.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn listen(device: &Path, obey: Arc<Obey>) -> io::Result<Self> {
        let directory = runtime_dir()?;
        let path = socket_path(&directory, device)?;
        // A failure to clear away remains of other servers does not prevent a start.
        let _ = sweep(&directory);
        let listener = bind(&path)?;
        // An error is ignored: without the note only the list of killed servers is incomplete.
        let _ = note_device(&path, device);
        let inode = inode(&path)?;
        let device: Arc<Path> = device.into();
        let orders = Arc::new(Orders::default());
        let taken = Arc::clone(&orders);
        std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let (obey, device) = (Arc::clone(&obey), Arc::clone(&device));
                let orders = Arc::clone(&taken);
                // If no thread can be started, the client gets no answer and asks again.
                let _ = std::thread::Builder::new()
                    .name("control-client".to_owned())
                    .spawn(move || answer_client(&device, &stream, &orders, &*obey));
            }
        })?;
        Ok(Self { path, inode, orders })
    }
}

/// Orders that were taken and are not answered yet.
#[derive(Debug, Default)]
struct Orders {
    open: Mutex<usize>,
    answered: Condvar,
}

impl Orders {
    fn begin(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn end(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.answered.notify_all();
    }

    /// Waits a while until all orders are answered, so that the operator who ordered the stop gets
    /// the answer.
    fn wait(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.answered.wait_timeout_while(open, LAST_ANSWERS, |open| *open > 0);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.orders.wait();
        // The device may be free already, and its next server may be making its socket.
        let _directory = self.path.parent().map(DirectoryLock::take).transpose();
        // If the socket stays, the next server finds it stale.
        if inode(&self.path).is_ok_and(|found| found == self.inode) {
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::remove_file(self.path.with_extension(NOTE));
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Binds the socket, and replaces a stale one.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // Held because a socket that is bound but does not listen yet looks stale to other servers.
    let _directory = path.parent().map(DirectoryLock::take).transpose()?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers line after line until the client disconnects.
fn answer_client(device: &Path, stream: &UnixStream, orders: &Orders, obey: &Obey) -> Option<()> {
    stream.set_read_timeout(Some(SILENCE)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        (&mut reader).take(LINE_MAX).read_line(&mut line).ok()?;
        if line.is_empty() {
            return None;
        }
        orders.begin();
        let answer = match serde_json::from_str::<Order>(&line) {
            Ok(order) => noted(device, order, obey),
            Err(error) => Err(OrderError::new(format!("no order that this server knows: {error}"))),
        };
        let text = serde_json::to_string(&Line::from(answer)).unwrap_or_default() + "\n";
        let sent = { stream }.write_all(text.as_bytes());
        orders.end();
        sent.ok()?;
    }
}

/// Carries out an order; one that changes something is logged.
fn noted(device: &Path, order: Order, obey: &Obey) -> Answer {
    let Some(what) = order.named() else { return obey(order) };
    let note = |level, state: &str, fields: &[_]| {
        let mut all = vec![("order", what.as_str().into())];
        all.extend_from_slice(fields);
        line(level, Some(device), &format!("order: {what}: {state}"), &all);
    };
    note(Level::Info, "begins", &[]);
    let began = Instant::now();
    let answer = obey(order);
    let took = ("seconds", began.elapsed().as_secs_f64().into());
    match &answer {
        // The answer lists all settings, unchanged ones too, so it is not logged.
        Ok(_) if what.starts_with("set") => note(Level::Info, "done", &[took]),
        Ok(value) => note(Level::Info, "done", &[took, ("answer", value.clone())]),
        Err(error) => note(Level::Warning, &error.to_string(), &[took]),
    }
    answer
}

/// An answer as sent over the socket: `ok` with a value, or `error` with the reason and the kind of
/// failure.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", untagged)]
enum Line {
    Error {
        error: String,
        #[serde(default, skip_serializing_if = "OrderErrorKind::is_failed")]
        kind: OrderErrorKind,
    },
    Ok {
        ok: Value,
    },
}

impl From<Answer> for Line {
    fn from(answer: Answer) -> Self {
        match answer {
            Ok(ok) => Self::Ok { ok },
            Err(OrderError { reason: error, kind }) => Self::Error { error, kind },
        }
    }
}

impl From<Line> for Answer {
    fn from(line: Line) -> Self {
        match line {
            Line::Ok { ok } => Ok(ok),
            Line::Error { error: reason, kind } => Err(OrderError { reason, kind }),
        }
    }
}

#[cfg(test)]
mod tests;
