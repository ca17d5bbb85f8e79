//! Protection against deadlocks for a process whose served device is mounted on the same machine.

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
    /// Why the kernel may reclaim memory for this process by writing to the device that it serves,
    /// if so.
    pub flusher: Option<Errno>,
    /// Why this process may be paged out, perhaps to the device that it serves, if so.
    pub locked: Option<Errno>,
}

fn told(call: &str, refused: Option<Errno>) -> String {
    refused.map_or_else(String::new, |errno| format!(", {call}: {errno}"))
}

/// Protects the process against memory pressure: the kernel must not reclaim its memory by writing
/// to the device that it serves. Must be called before any thread is started, because threads
/// inherit it.
///
/// # Errors
/// The protections that were refused; both need privileges.
pub fn protect() -> Result<(), Unprotected> {
    let flusher = configure_io_flusher_behavior(true).err();
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    let refused = Unprotected { flusher, locked: locked.err() };
    if refused.flusher.or(refused.locked).is_some() { Err(refused) } else { Ok(()) }
}
