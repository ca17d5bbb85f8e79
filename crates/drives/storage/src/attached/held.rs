//! A drive's write cache, set for as long as a server runs.
//!
//! The old setting is noted beside the locks of volumes before it is changed. A server that holds
//! the setting has a lock on the note, and the lock goes with the process. So an unlocked note is
//! from a killed server, and the next opening puts the setting back. The directory of notes is
//! empty after a boot, so a setting is forgotten with the machine.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use manylogs_block::on_off;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;

use super::cache::{CacheError, CacheSwitch, NoSwitch};
use super::note::{Note, note_path};
use crate::volume_lock::{DirectoryLock, VolumeLockError, runtime_dir};

/// Why a cache was not set for a server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The cache cannot be set from here.
    #[error("the write cache cannot be set: {0}")]
    NoSwitch(#[from] NoSwitch),
    /// The kernel or the drive did not set the cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Another server on the same disk has set it the other way.
    #[error(
        "process {pid}, which serves {} on the same disk, has turned its write cache {}: a setting \
         is the whole disk's",
        device.display(),
        on_off(*on)
    )]
    Other {
        /// Id of the other server's process.
        pid: u32,
        /// The device that the other server serves.
        device: PathBuf,
        /// The setting of the other server.
        on: bool,
    },
    /// There is no directory for notes.
    #[error(transparent)]
    Directory(#[from] VolumeLockError),
    /// The old setting cannot be noted.
    #[error("cannot note in {} what the write cache was: {source}", path.display())]
    Note {
        /// The note.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Result of releasing a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The cache was put back to this setting.
    PutBack {
        /// On, or off.
        on: bool,
    },
    /// The cache had this setting before.
    AsBefore,
    /// Another server on the same disk still needs the setting, and puts it back later.
    Shared,
    /// The setting was changed by others meanwhile, and stays as it is.
    Changed,
}

/// The note of a disk's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Whether the cache was on before.
    pub former: bool,
    /// The setting that a server made.
    pub set: bool,
    /// The server's process.
    pub pid: u32,
    /// Whether a server holds the setting. If not, the server was killed.
    pub is_held: bool,
}

/// Held as long as a server needs the setting. Dropping it releases the setting.
#[derive(Debug)]
pub struct HeldCache {
    directory: PathBuf,
    switch: CacheSwitch,
    note: Note,
    /// The note, locked; `None` once it is released.
    file: Option<File>,
}

impl HeldCache {
    /// Turns the write cache of the disk at `device` on or off, and notes the old setting. If a
    /// killed server left a note, the old setting is taken from that. Other servers of this user
    /// may hold the same setting.
    ///
    /// # Errors
    /// See [`HoldError`]. The cache is then as before. If the kernel believes otherwise, the note
    /// stays, and the next opening corrects it.
    pub fn take(device: &Path, on: bool) -> Result<Self, HoldError> {
        Self::take_in(&runtime_dir()?, CacheSwitch::at(device)?, device, on)
    }

    pub(super) fn take_in(
        directory: &Path,
        switch: CacheSwitch,
        device: &Path,
        on: bool,
    ) -> Result<Self, HoldError> {
        let path = note_path(directory, switch.identity());
        let failed = |source| HoldError::Note { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let _directory = DirectoryLock::take(directory).map_err(failed)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        let is_free = try_lock(&file).map_err(failed)?;
        let found = Note::read(&file).filter(|note| note.identity == switch.identity());
        let directory = directory.to_owned();
        let note = match found {
            Some(note) if !is_free && note.set == on => note,
            Some(Note { pid, device, set, .. }) if !is_free => {
                return Err(HoldError::Other { pid, device, on: set });
            }
            found => set_anew(&switch, &path, &file, found, device, on)?,
        };
        // The exclusive lock becomes a shared one. Others take it only with the directory's lock.
        flock(&file, FlockOperation::LockShared).map_err(|errno| failed(errno.into()))?;
        Ok(Self { directory, switch, note, file: Some(file) })
    }

    /// The setting before the first server changed it.
    #[must_use]
    pub const fn former(&self) -> bool {
        self.note.former
    }

    /// The kernel's name of the disk.
    #[must_use]
    pub fn disk(&self) -> &str {
        self.switch.disk()
    }

    /// Puts the old setting back, unless another server needs the present one.
    ///
    /// # Errors
    /// If it was not put back. The note stays, and the next opening of the disk tries again.
    pub fn release(mut self) -> Result<Released, CacheError> {
        self.end()
    }

    fn end(&mut self) -> Result<Released, CacheError> {
        let Some(file) = self.file.take() else { return Ok(Released::AsBefore) };
        // The setting is put back even if the directory cannot be locked.
        let _directory = DirectoryLock::take(&self.directory);
        match try_lock(&file) {
            Ok(false) => Ok(Released::Shared),
            _ => put_back(&self.directory, &self.switch, &self.note),
        }
    }
}

impl Drop for HeldCache {
    fn drop(&mut self) {
        // If the note stays, the next opening finds it.
        let _ = self.end();
    }
}

/// Notes the present setting of a disk that no server holds, and changes it.
fn set_anew(
    switch: &CacheSwitch,
    path: &Path,
    file: &File,
    found: Option<Note>,
    device: &Path,
    on: bool,
) -> Result<Note, HoldError> {
    let undo = || match &found {
        Some(note) => drop(note.write(file)),
        None => drop(std::fs::remove_file(path)),
    };
    let now = switch.is_on().inspect_err(|_| undo())?;
    let former = found.as_ref().filter(|note| note.set == now).map_or(now, |note| note.former);
    let device = std::path::absolute(device).unwrap_or_else(|_| device.to_owned());
    let identity = switch.identity().to_owned();
    let note = Note { identity, former, set: on, pid: std::process::id(), device };
    if let Err(source) = note.write(file) {
        undo();
        return Err(HoldError::Note { path: path.to_owned(), source });
    }
    switch.set(on).inspect_err(|_| {
        // If the kernel believes in the new setting, the note must stay: it has the old one.
        if switch.is_on().is_ok_and(|is_on| is_on == now) {
            undo();
        }
    })?;
    Ok(note)
}

/// Puts back the setting in `note`, unless others have changed it since. Removes the note.
fn put_back(directory: &Path, switch: &CacheSwitch, note: &Note) -> Result<Released, CacheError> {
    let released = if note.former == note.set {
        Released::AsBefore
    } else if switch.is_on()? == note.set {
        switch.set(note.former)?;
        Released::PutBack { on: note.former }
    } else {
        Released::Changed
    };
    let _ = std::fs::remove_file(note_path(directory, switch.identity()));
    Ok(released)
}

/// Puts back the setting of the disk at `device` if a killed server left it changed; `None` if none
/// did.
///
/// # Errors
/// If it was not put back: the next opening tries again.
pub fn settle(device: &Path) -> Result<Option<Released>, CacheError> {
    let (Ok(directory), Ok(switch)) = (runtime_dir(), CacheSwitch::at(device)) else {
        return Ok(None);
    };
    settle_in(&directory, &switch)
}

pub(super) fn settle_in(
    directory: &Path,
    switch: &CacheSwitch,
) -> Result<Option<Released>, CacheError> {
    let looked = looking(directory, switch, |note, is_held| {
        (!is_held).then(|| put_back(directory, switch, &note))
    });
    looked.flatten().transpose()
}

/// The note of the disk at `device`, if there is one and this user may read it.
#[must_use]
pub fn noted(device: &Path) -> Option<Noted> {
    noted_in(&runtime_dir().ok()?, &CacheSwitch::at(device).ok()?)
}

pub(super) fn noted_in(directory: &Path, switch: &CacheSwitch) -> Option<Noted> {
    looking(directory, switch, |Note { former, set, pid, .. }, is_held| Noted {
        former,
        set,
        pid,
        is_held,
    })
}

/// Passes the note of a disk to `then`, and whether a server holds it. Meanwhile notes are neither
/// made nor removed.
fn looking<T>(
    directory: &Path,
    switch: &CacheSwitch,
    then: impl FnOnce(Note, bool) -> T,
) -> Option<T> {
    let path = note_path(directory, switch.identity());
    // Checked before taking the lock: most disks have no note.
    if !path.exists() {
        return None;
    }
    let _directory = DirectoryLock::take(directory).ok()?;
    let file = File::open(path).ok()?;
    let is_held = !try_lock(&file).ok()?;
    let note = Note::read(&file).filter(|note| note.identity == switch.identity())?;
    Some(then(note, is_held))
}

/// Tries to take an exclusive lock; false if others hold a lock.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
