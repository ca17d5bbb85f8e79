//! `manylogs serve --nbd`: where clients come to.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use manylogs_serve::{Engine, RESTART_PATIENCE};
use rustix::fs::Mode;
use rustix::process::umask;

use super::nbdkit;
use crate::args::nbd::{Address, NbdArgs};
use crate::failure::Failure;

/// How often an address that is taken is tried.
const RETRY: Duration = Duration::from_millis(200);

/// An export to clients of a socket; its socket goes with it.
pub(super) struct NbdExport {
    address: Address,
    connections: Arc<AtomicUsize>,
}

/// The socket that the arguments ask for, unless nbdkit makes it.
pub(super) fn listen(args: &NbdArgs) -> Result<Option<OwnedFd>, Failure> {
    let Some(address) = args.nbd.as_ref().filter(|_| !nbdkit::is_wanted(args)) else {
        return Ok(None);
    };
    check_security(args, address)?;
    bind(address).map(Some)
}

impl NbdExport {
    pub(super) fn new(address: &Address, engine: &Engine) -> Self {
        Self { address: address.clone(), connections: engine.connections() }
    }

    pub(super) fn uri(&self) -> String {
        uri(&self.address, false)
    }

    pub(super) fn users(&self) -> Vec<String> {
        match self.connections.load(Ordering::SeqCst) {
            0 => Vec::new(),
            count => vec![format!("{count} NBD connections")],
        }
    }
}

impl Drop for NbdExport {
    fn drop(&mut self) {
        remove_socket(&self.address);
    }
}

/// Whoever can connect can overwrite everything: over a network that takes a decision.
pub(super) fn check_security(args: &NbdArgs, address: &Address) -> Result<(), Failure> {
    if matches!(address, Address::Unix(_)) || args.has_tls() || args.nbd_insecure {
        return Ok(());
    }
    Err(Failure::input(
        "whoever reaches the TCP port could overwrite everything: give --tls-certificates or \
         --tls-psk, or --nbd-insecure if the network is yours",
    ))
}

/// Listens at the address, for this user alone if it is a path. The kernel may take a moment to
/// close the socket of a killed server.
pub(super) fn bind(address: &Address) -> Result<OwnedFd, Failure> {
    let began = Instant::now();
    loop {
        match try_bind(address) {
            Err(Failure::Busy(_)) if began.elapsed() < RESTART_PATIENCE => thread::sleep(RETRY),
            bound => return bound,
        }
    }
}

fn try_bind(address: &Address) -> Result<OwnedFd, Failure> {
    let bound = match address {
        Address::Unix(path) => {
            remove_stale(path)?;
            // Nobody else connects in the moment before its mode could be changed.
            let others = umask(Mode::RWXG | Mode::RWXO);
            let bound = UnixListener::bind(path).map(OwnedFd::from);
            umask(others);
            bound
        }
        Address::Tcp { host, port } => TcpListener::bind((host.as_str(), *port)).map(OwnedFd::from),
    };
    bound.map_err(|error| address_failure(address, &error))
}

pub(super) fn remove_socket(address: &Address) {
    if let Address::Unix(path) = address {
        // The next server finds it stale if this fails.
        let _ = fs::remove_file(path);
    }
}

fn remove_stale(path: &Path) -> Result<(), Failure> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let name = path.display();
    if !found.file_type().is_socket() {
        return Err(Failure::Busy(format!("{name} exists and is no socket")));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Failure::Busy(format!("{name}: a server listens there"))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| Failure::Permission(format!("{name}: {error}")))
        }
        Err(error) => Err(Failure::Permission(format!("{name}: {error}"))),
    }
}

pub(super) fn address_failure(address: &Address, error: &io::Error) -> Failure {
    let message = match address {
        Address::Unix(path) => format!("cannot listen at {}: {error}", path.display()),
        Address::Tcp { host, port } => format!("cannot listen at {host} port {port}: {error}"),
    };
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Permission(message),
        io::ErrorKind::AddrInUse => Failure::Busy(message),
        _ => Failure::Input(message),
    }
}

/// The URI of the export, as libnbd and qemu take it.
pub(super) fn uri(address: &Address, tls: bool) -> String {
    let scheme = if tls { "nbds" } else { "nbd" };
    match address {
        Address::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let path = escaped(path.as_os_str().as_encoded_bytes());
            format!("{scheme}+unix:///?socket={path}")
        }
        Address::Tcp { host, port } if host.contains(':') => format!("{scheme}://[{host}]:{port}/"),
        Address::Tcp { host, port } => format!("{scheme}://{host}:{port}/"),
    }
}

fn escaped(path: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.iter()
        .map(|&byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_say_where_in_every_case() {
        let tcp = |host: &str| Address::Tcp { host: host.to_owned(), port: 99 };
        assert_eq!(uri(&tcp("::1"), false), "nbd://[::1]:99/");
        assert_eq!(uri(&tcp("disk.example"), true), "nbds://disk.example:99/");
        let unix = Address::Unix("/run/a b&c.sock".into());
        assert_eq!(uri(&unix, false), "nbd+unix:///?socket=/run/a%20b%26c.sock");
    }
}
