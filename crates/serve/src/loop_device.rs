//! A loop device over the exported file: a block device on any kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use thiserror::Error;

/// Why there is no loop device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The program that sets it up is missing.
    #[error("losetup is missing: install util-linux (mount), or serve over NBD")]
    NoLosetup,
    /// It failed.
    #[error("losetup: {0}")]
    Failed(String),
    /// It did not start.
    #[error("cannot run losetup: {0}")]
    Io(#[from] io::Error),
}

/// An attached loop device.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `file` to a free loop device, past the page cache.
    ///
    /// # Errors
    /// See [`LoopError`].
    pub fn attach(file: &Path, rotational: bool) -> Result<Self, LoopError> {
        // The device gets the length that the kernel knows of the file. Linux 6.1 does not ask for
        // it, and the file of a new mount has none until somebody does.
        fs::metadata(file)?;
        let arguments = ["--find", "--show", "--direct-io=on", "--sector-size=512"];
        let output = losetup(&arguments, file)?;
        let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let device = Self { path };
        if rotational {
            // Schedulers and file systems should see a disk. A kernel that does not take it serves
            // all the same.
            let _ = fs::write(device.sysfs("queue/rotational"), "1");
        }
        Ok(device)
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches it; if it is in use, when its last user has closed it.
    ///
    /// # Errors
    /// See [`LoopError`].
    pub fn detach(&self) -> Result<(), LoopError> {
        losetup(&["--detach"], &self.path).map(drop)
    }

    /// Detaches what is attached to `file`, as far as that can be found out: what a killed server
    /// has left. The kernel keeps a device that is in use until its last user has closed it.
    pub(crate) fn detach_from(file: &Path) {
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file) {
                let _ = Self { path: Path::new("/dev").join(entry.file_name()) }.detach();
            }
        }
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
