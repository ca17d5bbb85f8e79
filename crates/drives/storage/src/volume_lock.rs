//! Allows one opening of a volume at a time, however many names its device has.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use thiserror::Error;

/// Longest note that is read: a number and a path.
const NOTE_MAX: u64 = 8192;

/// Why a volume was not locked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VolumeLockError {
    /// The volume is open already, on this or another device: a copy of a volume has the same name.
    #[error(
        "volume {volume} is open already on {} by process {pid}: stop that first, or give a copy \
         of a volume an id of its own (manylogs drain COPY --new-id)", path.display()
    )]
    Taken {
        /// The volume's name.
        volume: String,
        /// The device it is open on.
        path: PathBuf,
        /// The process that has it open; zero if it has not been noted yet.
        pid: u32,
    },
    /// There is no directory for locks.
    #[error(
        "no directory for locks and sockets: set XDG_RUNTIME_DIR to a directory of yours that \
         exists"
    )]
    NoDirectory,
    /// Something else went wrong.
    #[error("cannot lock the volume at {}: {source}", path.display())]
    Io {
        /// The lock file or its directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Held while a volume is open. The lock goes with the process, however that ends. A killed process
/// leaves the lock's file behind.
#[derive(Debug)]
pub struct VolumeLock {
    path: PathBuf,
    _file: File,
}

impl VolumeLock {
    /// Locks the volume on this machine, and notes where it is open.
    ///
    /// # Errors
    /// See [`VolumeLockError`].
    pub fn take(volume: [u8; 16], device: &Path) -> Result<Self, VolumeLockError> {
        Self::take_in(&runtime_dir()?, volume, device)
    }

    /// As [`VolumeLock::take`], in `directory`, which is made if it does not exist.
    ///
    /// # Errors
    /// See [`VolumeLockError`].
    pub fn take_in(
        directory: &Path,
        volume: [u8; 16],
        device: &Path,
    ) -> Result<Self, VolumeLockError> {
        let name: String = volume.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = directory.join(&name);
        let failed = |source| VolumeLockError::Io { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let _directory = DirectoryLock::take(directory).map_err(failed)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(taken(name, &mut file)),
            Err(errno) => return Err(failed(errno.into())),
        }
        note(&mut file, device).map_err(failed)?;
        Ok(Self { path, _file: file })
    }

    /// Removes the lock files that ended processes left behind.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn sweep(directory: &Path) -> io::Result<()> {
        let _directory = DirectoryLock::take(directory)?;
        for entry in std::fs::read_dir(directory)?.flatten() {
            let is_ours = entry.file_name().to_str().is_some_and(is_name);
            let free = |file: File| {
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            };
            if is_ours && File::open(entry.path()).is_ok_and(free) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        // A file that stays behind is harmless.
        if let Some(Ok(_directory)) = self.path.parent().map(DirectoryLock::take) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The name of a lock's file: a volume's id.
fn is_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lock of a runtime directory. Held while a file is made in the directory or removed from it:
/// otherwise one process could remove a file that another has just made.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Waits until no other process holds the lock.
    ///
    /// # Errors
    /// If there is no such directory, or it cannot be locked.
    pub fn take(directory: &Path) -> io::Result<Self> {
        let directory = File::open(directory)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        Ok(Self { _file: directory })
    }
}

/// Writes process and device of the holder into the lock's file.
fn note(file: &mut File, device: &Path) -> io::Result<()> {
    let device = std::path::absolute(device)?;
    let mut text = format!("{}\n", std::process::id()).into_bytes();
    text.extend_from_slice(device.as_os_str().as_bytes());
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

fn taken(volume: String, file: &mut File) -> VolumeLockError {
    let mut text = Vec::new();
    // A note that cannot be read counts as not written.
    let _ = file.take(NOTE_MAX).read_to_end(&mut text);
    let mut lines = text.splitn(2, |byte| *byte == b'\n');
    let pid = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.parse().ok());
    let path = lines.next().filter(|line| !line.is_empty());
    VolumeLockError::Taken {
        volume,
        path: path.map_or_else(
            || PathBuf::from("another device"),
            |path| PathBuf::from(std::ffi::OsStr::from_bytes(path)),
        ),
        pid: pid.unwrap_or(0),
    }
}

/// The directory of this user's locks and of other files that last until the machine is shut down.
/// It need not exist yet.
///
/// # Errors
/// [`VolumeLockError::NoDirectory`].
pub fn runtime_dir() -> Result<PathBuf, VolumeLockError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/manylogs"));
    }
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    let found = [given, Some(usual)].into_iter().flatten().find(|dir| dir.is_dir());
    found.map(|dir| dir.join("manylogs")).ok_or(VolumeLockError::NoDirectory)
}
