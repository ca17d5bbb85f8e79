//! nbdkit with this project's plugin, as a child process: NBD with TLS.

mod command;
mod plugin;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use thiserror::Error;

use crate::address::NbdAddress;
use crate::listen::ListenError;
use crate::notify::notify;
use manylogs_operate::control::{Order, connect};

pub use command::{NbdkitOptions, Tls};
pub use plugin::find_plugin;

/// Pause between two checks of a starting server.
const LOOK: Duration = Duration::from_millis(20);

/// Why nbdkit does not serve, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NbdkitError {
    /// The named plugin does not exist.
    #[error("no plugin at {}", path.display())]
    NoPluginAt {
        /// The file.
        path: PathBuf,
    },
    /// No plugin was found where plugins are searched for.
    #[error("no plugin for nbdkit at {}; give --nbdkit-plugin", list(places))]
    NoPlugin {
        /// The files that were looked for.
        places: Vec<PathBuf>,
    },
    /// The program is missing.
    #[error("nbdkit is not installed (Debian: apt install nbdkit)")]
    NotInstalled,
    /// The program cannot be started, waited for, or sent signals.
    #[error("cannot run nbdkit: {0}")]
    Run(#[source] io::Error),
    /// The address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// It ended with an error.
    #[error(
        "nbdkit ended with {0}: if it does not say why above, the next opening recovers what was \
         acknowledged"
    )]
    Ended(ExitStatus),
}

fn list(places: &[PathBuf]) -> String {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(", ")
}

/// A running nbdkit. Its socket is removed when this is dropped: nbdkit leaves the socket behind,
/// and the next server would have to find it stale.
#[derive(Debug)]
pub struct Nbdkit {
    child: Child,
    address: NbdAddress,
    device: PathBuf,
}

impl Nbdkit {
    /// Starts nbdkit. Each message on `signalled` orders it to end.
    ///
    /// # Errors
    /// See [`NbdkitError`].
    pub fn start(options: &NbdkitOptions, signalled: Receiver<()>) -> Result<Self, NbdkitError> {
        let child = options.command().spawn().map_err(spawn_error)?;
        let (address, device) = (options.address.clone(), options.device.clone());
        let nbdkit = Self { child, address, device };
        forward(&nbdkit.child, &nbdkit.device, signalled).map_err(NbdkitError::Run)?;
        Ok(nbdkit)
    }

    /// Blocks until clients are served (true) or nbdkit has ended (false). nbdkit listens before it
    /// starts the engine, so this waits until the engine answers orders.
    ///
    /// # Errors
    /// If nbdkit cannot be watched, or its socket cannot be made private.
    pub fn wait_until_serving(&mut self) -> Result<bool, NbdkitError> {
        let pid = u64::from(self.child.id());
        loop {
            if self.child.try_wait().map_err(NbdkitError::Run)?.is_some() {
                return Ok(false);
            }
            let status = connect(&self.device).and_then(|mut server| server.ask(&Order::Status));
            if status.is_ok_and(|status| status["pid"].as_u64() == Some(pid)) {
                make_private(&self.address)?;
                return Ok(true);
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits until nbdkit has ended.
    ///
    /// # Errors
    /// [`NbdkitError::Ended`] if it did not end in order.
    pub fn wait(mut self) -> Result<(), NbdkitError> {
        let status = self.child.wait().map_err(NbdkitError::Run)?;
        if status.success() { Ok(()) } else { Err(NbdkitError::Ended(status)) }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.address.remove_socket();
    }
}

fn spawn_error(error: io::Error) -> NbdkitError {
    match error.kind() {
        io::ErrorKind::NotFound => NbdkitError::NotInstalled,
        _ => NbdkitError::Run(error),
    }
}

/// Passes signals on as orders to stop, because on a signal nbdkit would wait until its clients
/// leave. As long as no server takes orders nbdkit itself gets the signal, through a descriptor of
/// the process: its number may belong to another process by then.
fn forward(child: &Child, device: &Path, signalled: Receiver<()>) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    let device = device.to_owned();
    thread::spawn(move || {
        for () in signalled {
            notify("STOPPING=1");
            let stop = Order::Stop { force: true };
            if connect(&device).and_then(|mut server| server.ask(&stop)).is_err() {
                let _ = pidfd_send_signal(&child, Signal::TERM);
            }
        }
    });
    Ok(())
}

/// Makes the socket private, because nbdkit sets its own umask. Before this other users could not
/// connect either: that needs the right to write.
fn make_private(address: &NbdAddress) -> Result<(), ListenError> {
    let NbdAddress::Unix(path) = address else { return Ok(()) };
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, private).map_err(|source| address.refused(source))
}
