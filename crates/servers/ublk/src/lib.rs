//! Volumes as block devices of the kernel's ublk driver, `/dev/ublkbN`.
//!
//! ```text
//!   /dev/ublkbN -> ublk_drv -> one queue thread -> Port -> the engine's thread
//!                                   ^                            |
//!                                   |__ event: answers are there |
//! ```
//!
//! Data is copied between the requests and the engine's buffers by the queue's thread, with reads
//! and writes of the driver's character device (user copy): no buffers wait for requests.
//!
//! A device outlives a server that is killed. The kernel holds requests back until a successor
//! takes it over, and sends again those that were not answered. The users of the device notice
//! nothing, so that all acknowledged writes must still be there: see [`Cache`].
//!
//! Without the feature `driver` nothing can be served, and [`check`] says so.

#[cfg(feature = "driver")]
mod device;
#[cfg(any(feature = "driver", test))]
mod limits;
#[cfg(feature = "driver")]
mod queue;
#[cfg(any(feature = "driver", test))]
mod translate;
#[cfg(not(feature = "driver"))]
mod without_driver;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use manylogs_block::{Capabilities, Sectors};
use manylogs_serve::{FrontEnd, Port};
use thiserror::Error;

#[cfg(feature = "driver")]
pub use device::{UblkDevice, remove_orphan};
#[cfg(not(feature = "driver"))]
pub use without_driver::{UblkDevice, remove_orphan};

/// Path of the driver's control device.
const CONTROL: &str = "/dev/ublk-control";

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Once it is durable. A killed server loses nothing that was acknowledged, and its successor
    /// goes on with the device.
    WriteThrough,
    /// As soon as the volume has it; flushes and FUA make writes durable. Other writes are lost
    /// with a killed server, so that its device ends with it.
    WriteBack,
}

/// Description of an export.
#[derive(Clone, Debug)]
pub struct UblkOptions {
    /// The way to the engine.
    pub port: Port,
    /// What the engine exports.
    pub capabilities: Capabilities,
    /// When writes are acknowledged.
    pub cache: Cache,
    /// Where the number of the device is noted, for a successor.
    pub note: PathBuf,
    /// Identity of the served volume, which the kernel keeps with the device: see [`identity`].
    pub identity: u64,
}

/// The reason why a device cannot be made or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The program was built without the driver's library.
    #[error(
        "this program was built without ublk: build it with `cargo build --release --package \
         manylogs-cli --features ublk` (Debian: needs libclang-dev), or serve with --loop or --nbd"
    )]
    NotBuilt,
    /// The kernel has no ublk driver, or the driver is not loaded.
    #[error(
        "there is no {CONTROL}: load the module (modprobe ublk_drv, of Linux 6.4 or later), or \
         serve with --loop or --nbd"
    )]
    NoDriver,
    /// The user may not use the driver.
    #[error("cannot open {CONTROL}: {0}")]
    Control(#[source] io::Error),
    /// The driver is too old: it lacks the named feature.
    #[error("the kernel's ublk driver cannot {0}: it takes Linux 6.4; serve with --loop or --nbd")]
    TooOld(&'static str),
    /// A command of the driver failed.
    #[error("ublk: cannot {what}: {reason}")]
    Command {
        /// The command in words.
        what: &'static str,
        /// The error of the kernel or of the library.
        reason: String,
    },
    /// The device that a killed server left promises more than the new server would keep.
    #[error(
        "{} waits for its server, and its users rely on writes through the cache: serve without \
         --write-back, or give the device up (manylogs stop --force)",
        path.display()
    )]
    OtherCache {
        /// The device.
        path: PathBuf,
    },
    /// The device that a killed server left is larger than what is served now.
    #[error(
        "{} waits for its server and has {} sectors, but there are only {}",
        path.display(), is.0, capacity.0
    )]
    Smaller {
        /// The device.
        path: PathBuf,
        /// Its size.
        is: Sectors,
        /// What can be served.
        capacity: Sectors,
    },
}

impl FrontEnd for UblkDevice {
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn device(&self) -> Option<&Path> {
        Some(self.path())
    }

    fn end(self: Box<Self>, in_use: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.stop(in_use)?)
    }
}

/// Whether devices can be made, as far as that is known without making one.
///
/// # Errors
/// If devices cannot be made, with the reason.
pub fn check() -> Result<(), UblkError> {
    if cfg!(not(feature = "driver")) {
        return Err(UblkError::NotBuilt);
    }
    match std::fs::File::options().read(true).write(true).open(CONTROL) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(UblkError::NoDriver),
        Err(error) => Err(UblkError::Control(error)),
    }
}

/// Identity of a served device: from the volume's ID and its disk's name, because a copy of a disk
/// has the ID of the original.
#[must_use]
pub fn identity(note: &Path, volume: Option<[u8; 16]>) -> u64 {
    let place = note.file_name().unwrap_or_default().as_encoded_bytes();
    let volume = volume.unwrap_or_default();
    u64::from(crc32c::crc32c(place)) << 32 | u64::from(crc32c::crc32c(&volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_place_and_another_volume_are_another_identity() {
        let here = Path::new("/run/manylogs/file-1-2.ublk");
        let moved = Path::new("/run/user/0/manylogs/file-1-2.ublk");
        let there = Path::new("/run/manylogs/file-1-3.ublk");
        assert_eq!(identity(here, Some([1; 16])), identity(moved, Some([1; 16])));
        assert_ne!(identity(here, Some([1; 16])), identity(there, Some([1; 16])));
        assert_ne!(identity(here, Some([1; 16])), identity(here, Some([2; 16])));
        assert_ne!(identity(here, None), identity(here, Some([2; 16])));
    }

    #[test]
    fn what_is_missing_is_named() {
        let words = match check() {
            Err(error @ UblkError::NotBuilt) => (error.to_string(), "--features ublk"),
            Err(error @ UblkError::NoDriver) => (error.to_string(), "modprobe ublk_drv"),
            // This machine has the driver.
            _ => return,
        };
        assert!(words.0.contains(words.1) && words.0.contains("--loop"), "{}", words.0);
    }
}
