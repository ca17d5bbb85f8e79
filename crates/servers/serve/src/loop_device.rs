//! A loop device over the exported file: a block device on any kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use manylogs_plant::{self as plant, Bug};
use thiserror::Error;

use crate::users::users_of;

/// The cache mode of a device that needs flushes.
const VOLATILE: &str = "write back";

/// A loop device over the export of a server that was killed. Its users see errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The loop device.
    pub device: PathBuf,
    /// Mounts, swap and layers above the device that still use it.
    pub users: Vec<String>,
}

/// Loop devices whose backing file is `file`, as far as sysfs tells.
pub(crate) fn orphans_of(file: &Path) -> Vec<Orphan> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over = devices.filter(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file)
    });
    let devices = over.map(|entry| Path::new("/dev").join(entry.file_name()));
    devices.map(|device| Orphan { users: users_of(&device), device }).collect()
}

/// Why there is no loop device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The program that sets it up is missing.
    #[error("losetup is missing: install util-linux (mount), or serve over NBD")]
    NoLosetup,
    /// That program failed.
    #[error("losetup: {0}")]
    Failed(String),
    /// The kernel may complete flushes without sending them to the server.
    #[error(
        "the kernel may drop flushes to {device}: {} does not say 'write back', and does not take \
         it: serve over NBD instead",
        path.display()
    )]
    DropsFlushes {
        /// The loop device.
        device: String,
        /// The sysfs file with its cache mode.
        path: PathBuf,
    },
    /// That program could not be started.
    #[error("cannot run losetup: {0}")]
    Io(#[from] io::Error),
}

/// An attached loop device.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `file` to a free loop device, with direct I/O.
    ///
    /// # Errors
    /// See [`LoopError`].
    pub fn attach(file: &Path, rotational: bool) -> Result<Self, LoopError> {
        // The device gets the file's length from the kernel's cache. Linux 6.1 does not ask the
        // server for it, and on a new mount the length is unknown until a program asks.
        fs::metadata(file)?;
        let arguments = ["--find", "--show", "--direct-io=on", "--sector-size=512"];
        let output = losetup(&arguments, file)?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let device = Self { path };
        if let Err(error) = device.make_cache_volatile() {
            // The error returned matters more than a failure to detach.
            let _ = device.detach();
            return Err(error);
        }
        if rotational {
            // Schedulers and file systems should see a rotational disk. If the kernel refuses,
            // serving works all the same.
            let _ = fs::write(device.sysfs("queue/rotational"), "1");
        }
        Ok(device)
    }

    /// Makes the kernel send flushes, by declaring a volatile cache, which the volume's buffer is.
    /// A new device has this mode unless somebody once wrote another one into its `write_cache`:
    /// that mode outlives detaching, and flushes then end in the kernel.
    fn make_cache_volatile(&self) -> Result<(), LoopError> {
        let path = self.sysfs("queue/write_cache");
        let is_volatile = || fs::read_to_string(&path).is_ok_and(|mode| mode.trim() == VOLATILE);
        if !is_volatile() && !plant::is(Bug::ServedLoopDropsFlushes) {
            // The mode is read back, because the kernel may ignore the write.
            let _ = fs::write(&path, VOLATILE);
            if !is_volatile() {
                let device = self.path.display().to_string();
                return Err(LoopError::DropsFlushes { device, path });
            }
        }
        Ok(())
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches the device; if it is in use, that happens when its last user closes it.
    ///
    /// # Errors
    /// See [`LoopError`].
    pub fn detach(&self) -> Result<(), LoopError> {
        losetup(&["--detach"], &self.path).map(drop)
    }

    /// Detaches the loop devices over `file`, which a killed server has left. Returns the devices
    /// in use, which the kernel keeps until their last user closes them.
    pub(crate) fn detach_from(file: &Path) -> Vec<Orphan> {
        let left = orphans_of(file);
        for Orphan { device, .. } in &left {
            let _ = Self { path: device.clone() }.detach();
        }
        left.into_iter().filter(|orphan| !orphan.users.is_empty()).collect()
    }

    fn sysfs(&self, file: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join(file)
    }
}

fn losetup(arguments: &[&str], path: &Path) -> Result<Output, LoopError> {
    let output = match Command::new("losetup").args(arguments).arg(path).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(LoopError::NoLosetup),
        output => output?,
    };
    if output.status.success() {
        return Ok(output);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(LoopError::Failed(message.trim().trim_start_matches("losetup: ").to_owned()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Attempts until a device number comes up again.
    const TRIES: u32 = 100;

    fn attached(file: &Path) -> Option<LoopDevice> {
        match LoopDevice::attach(file, false) {
            Ok(device) => Some(device),
            Err(error) => {
                manylogs_testkit::skip(error);
                None
            }
        }
    }

    /// The cache mode of a device after an earlier user has changed it.
    fn mode_after_another_user() -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        for _ in 0..TRIES {
            let first = attached(file.path())?;
            let mode = first.sysfs("queue/write_cache");
            fs::write(&mode, "write through").unwrap();
            first.detach().unwrap();
            let second = attached(file.path())?;
            let found = fs::read_to_string(&mode);
            // Restores the mode that other users of the device expect.
            fs::write(&mode, VOLATILE).unwrap();
            second.detach().unwrap();
            if second.path == first.path {
                return Some(found.unwrap().trim().to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no loop device was free again after {TRIES} tries");
    }

    #[test]
    fn a_device_is_flushed_whatever_its_last_user_said_of_its_cache() {
        let Some(mode) = mode_after_another_user() else { return };
        assert_eq!(mode, VOLATILE);
    }

    #[cfg(feature = "plant")]
    #[test]
    fn a_device_that_is_taken_as_it_is_found_is_noticed() {
        plant::plant(Some(Bug::ServedLoopDropsFlushes));
        let mode = mode_after_another_user();
        plant::plant(None);
        assert!(mode.is_none_or(|mode| mode != VOLATILE), "the bug was not noticed");
    }

    #[test]
    fn a_device_whose_cache_mode_cannot_be_seen_is_refused() {
        let device = LoopDevice { path: PathBuf::from("/dev/there-is-no-such-device") };
        let error = device.make_cache_volatile().unwrap_err().to_string();
        assert!(error.contains("/dev/there-is-no-such-device") && error.contains("NBD"), "{error}");
    }
}
