//! Listening at an address, and removing the socket again.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::umask;
use thiserror::Error;

use crate::address::{MetricsAddress, NbdAddress};
use crate::stack::RESTART_PATIENCE;

/// Pause between two attempts at an address that is taken.
const RETRY: Duration = Duration::from_millis(200);

/// Why a server cannot listen at an address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The kernel refused.
    #[error("cannot listen at {address}: {source}")]
    Refused {
        /// The address.
        address: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another kind of file is at the path of the socket.
    #[error("{} exists and is no socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Another server listens at the path.
    #[error("{}: a server listens there", path.display())]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// A socket without a server is at the path, and cannot be removed.
    #[error("{}: {source}", path.display())]
    Stale {
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl ListenError {
    /// Whether another process has the address.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Refused { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::NotASocket { .. } | Self::Taken { .. } => true,
            Self::Stale { .. } => false,
        }
    }

    /// Whether the user lacks the permission.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Refused { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Stale { .. } => true,
            Self::NotASocket { .. } | Self::Taken { .. } => false,
        }
    }
}

impl NbdAddress {
    /// Listens at the address, for this user alone if it is a path. If another process has the
    /// address this retries for [`RESTART_PATIENCE`]: the kernel may take a moment to close the
    /// socket of a killed server.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn bind(&self) -> Result<OwnedFd, ListenError> {
        let began = Instant::now();
        loop {
            match self.try_bind() {
                Err(error) if error.is_taken() && began.elapsed() < RESTART_PATIENCE => {
                    thread::sleep(RETRY);
                }
                bound => return bound,
            }
        }
    }

    fn try_bind(&self) -> Result<OwnedFd, ListenError> {
        let bound = match self {
            Self::Unix(path) => {
                remove_stale(path)?;
                // The umask keeps other users out from the beginning.
                let others = umask(Mode::RWXG | Mode::RWXO);
                let bound = UnixListener::bind(path).map(OwnedFd::from);
                umask(others);
                bound
            }
            Self::Tcp { host, port } => {
                TcpListener::bind((host.as_str(), *port)).map(OwnedFd::from)
            }
        };
        bound.map_err(|source| self.refused(source))
    }

    /// The error that the kernel refused with `source`.
    #[must_use]
    pub fn refused(&self, source: io::Error) -> ListenError {
        ListenError::Refused { address: self.to_string(), source }
    }

    /// Removes the socket, if the address is a path. If the socket stays, the next server finds it
    /// stale.
    pub fn remove_socket(&self) {
        if let Self::Unix(path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

impl MetricsAddress {
    /// Listens at the address.
    ///
    /// # Errors
    /// [`ListenError::Refused`].
    pub fn bind(&self) -> Result<TcpListener, ListenError> {
        let refused = |source| ListenError::Refused { address: self.to_string(), source };
        TcpListener::bind((self.host.as_str(), self.port)).map_err(refused)
    }
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let path = path.to_owned();
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket { path });
    }
    match UnixStream::connect(&path) {
        Ok(_) => Err(ListenError::Taken { path }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(&path).map_err(|source| ListenError::Stale { path, source })
        }
        Err(source) => Err(ListenError::Stale { path, source }),
    }
}
