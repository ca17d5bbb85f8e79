//! Protection against deadlocks of a process that serves a device that is mounted on the same
//! machine.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use thiserror::Error;

/// Protection that was refused. The server works, but may hang when memory runs out.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "not protected from memory pressure{}{}",
    told("PR_SET_IO_FLUSHER", self.flusher),
    told("mlockall", self.locked)
)]
pub struct Unprotected {
    /// Why the kernel may wait for this process while it reclaims memory for it.
    pub flusher: Option<Errno>,
    /// Why this process may be paged out, to the device that it serves perhaps.
    pub locked: Option<Errno>,
}

fn told(call: &str, refused: Option<Errno>) -> String {
    refused.map_or_else(String::new, |errno| format!(", {call}: {errno}"))
}

/// Keeps the kernel from waiting for this process when it needs memory: it would have to write to
/// the device that the process serves. Called before any thread is started, which inherit it.
///
/// # Errors
/// What was refused: both take privileges.
pub fn protect() -> Result<(), Unprotected> {
    let flusher = configure_io_flusher_behavior(true).err();
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    let refused = Unprotected { flusher, locked: locked.err() };
    if refused.flusher.or(refused.locked).is_some() { Err(refused) } else { Ok(()) }
}
