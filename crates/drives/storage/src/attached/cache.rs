//! The switch of a drive's own write cache: `scsi_disk/*/cache_type`.
//!
//! The kernel turns a write to this attribute into MODE SELECT, or SET FEATURES for ATA drives. It
//! is not `queue/write_cache`, which only changes the kernel's view of the drive.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manylogs_block::on_off;
use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use super::{Transport, whole_disk};
use crate::sysfs::{Disk, System};

/// The kernel's words, by whether the drive caches writes and whether it caches reads.
const WORDS: [(&str, bool, bool); 4] = [
    ("write through", false, true),
    ("none", false, false),
    ("write back", true, true),
    ("write back, no read (daft)", true, false),
];
/// Prefix of a word: the kernel believes the word, and the drive is not told.
const BELIEVED: &str = "temporary ";

/// Why the cache of the device at a path cannot be set from here.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSwitch {
    /// The path names a file, or nothing.
    #[error("it is no disk but a file: the cache is that of the disk that the file lies on")]
    NoDisk,
    /// A layer stands between the kernel and the drive.
    #[error("{0}")]
    Hidden(String),
    /// The kernel has no `cache_type` for the disk.
    #[error("the kernel offers no scsi_disk/*/cache_type for {disk}")]
    NotOffered {
        /// The kernel's name of the disk.
        disk: String,
    },
    /// The kernel reports neither `wwid` nor `diskseq`.
    #[error("the kernel tells nothing by which {disk} could be recognised when it is put back")]
    Nameless {
        /// The kernel's name of the disk.
        disk: String,
    },
}

/// Why a cache was not set. The cache is as before, unless the error says otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The kernel, or the drive, refuses.
    #[error("{disk} refuses to have its write cache turned {}: {source}", on_off(*.on))]
    Refused {
        /// The kernel's name of the disk.
        disk: String,
        /// The setting that was asked for.
        on: bool,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The drive accepted the order and did not follow it.
    #[error("{disk} took the order to turn its write cache {} and did not do it", on_off(*.on))]
    Unmoved {
        /// The kernel's name of the disk.
        disk: String,
        /// The setting that was asked for.
        on: bool,
    },
    /// The present setting cannot be read.
    #[error("{disk} does not say whether its write cache is on")]
    Unreadable {
        /// The kernel's name of the disk.
        disk: String,
    },
    /// Writes that the drive had acknowledged could not be made durable first.
    #[error("{disk} failed to flush before its write cache was to be turned off: {source}")]
    Flush {
        /// The kernel's name of the disk.
        disk: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The switch of the write cache of a visible drive. A setting applies to the whole drive, even if
/// a partition was named. ATA drives forget it when they lose power. SCSI drives that can save it
/// are told to.
#[derive(Clone, Debug)]
pub struct CacheSwitch {
    disk: String,
    identity: String,
    node: PathBuf,
    cache_type: PathBuf,
    /// Attribute that makes the kernel ask the drive for its properties again.
    rescan: PathBuf,
    store: Store,
}

/// Writes into an attribute of sysfs. Tests have kernels of their own.
pub(super) type Store = fn(&Path, &str) -> io::Result<()>;

fn store(attribute: &Path, text: &str) -> io::Result<()> {
    fs::write(attribute, text)
}

impl CacheSwitch {
    /// The switch of the disk at `path`, or of the disk of the partition there.
    ///
    /// # Errors
    /// See [`NoSwitch`].
    pub fn at(path: &Path) -> Result<Self, NoSwitch> {
        let system = System::this();
        Self::of(&system, &whole_disk(&system, path).ok_or(NoSwitch::NoDisk)?)
    }

    pub(super) fn of(system: &System, disk: &Disk) -> Result<Self, NoSwitch> {
        if let Some(why) = Transport::of(disk).hides_cache() {
            return Err(NoSwitch::Hidden(why));
        }
        let name = disk.name();
        let cache_type =
            attribute(disk).ok_or_else(|| NoSwitch::NotOffered { disk: name.clone() })?;
        let told = ["device/wwid", "diskseq"].into_iter().find_map(|name| disk.attribute(name));
        let identity = told.filter(|told| !told.is_empty());
        let identity = identity.ok_or_else(|| NoSwitch::Nameless { disk: name.clone() })?;
        let (node, rescan) = (system.dev.join(&name), disk.dir().join("device/rescan"));
        Ok(Self { disk: name, identity, node, cache_type, rescan, store })
    }

    /// The same switch over a test's kernel.
    #[cfg(test)]
    pub(super) fn through(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// The kernel's name of the disk.
    #[must_use]
    pub fn disk(&self) -> &str {
        &self.disk
    }

    /// Identifies the disk while the machine is up.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether the cache is on.
    ///
    /// # Errors
    /// [`CacheError::Unreadable`].
    pub fn is_on(&self) -> Result<bool, CacheError> {
        Ok(self.word()?.1)
    }

    /// Turns the cache on or off, and reads back the setting.
    ///
    /// Writes that the drive had acknowledged are durable before the cache goes off. The kernel
    /// sends flushes again before the cache goes on. So no flush is dropped while the cache is on,
    /// also for other users of the disk. After a failed attempt to turn the cache on, the kernel is
    /// made to ask the drive again. If that is impossible, the kernel keeps believing that the
    /// cache is on, and sends flushes that are not needed.
    ///
    /// # Errors
    /// See [`CacheError`].
    pub fn set(&self, on: bool) -> Result<(), CacheError> {
        let (_, is_on, reads) = self.word()?;
        if is_on == on {
            return Ok(());
        }
        let Some((word, ..)) = WORDS.iter().find(|word| (word.1, word.2) == (on, reads)) else {
            unreachable!("each combination has a word")
        };
        let disk = || self.disk.clone();
        let refused = |source| CacheError::Refused { disk: disk(), on, source };
        if on {
            self.write(&format!("{BELIEVED}{word}")).map_err(refused)?;
        } else {
            self.flush().map_err(|source| CacheError::Flush { disk: disk(), source })?;
        }
        if let Err(source) = self.write(word) {
            // Since the write above the kernel believes the requested setting. An error here adds
            // nothing.
            let _ = (self.store)(&self.rescan, "1\n");
            return Err(refused(source));
        }
        if self.is_on()? == on { Ok(()) } else { Err(CacheError::Unmoved { disk: disk(), on }) }
    }

    fn word(&self) -> Result<(&'static str, bool, bool), CacheError> {
        let told = fs::read_to_string(&self.cache_type).unwrap_or_default();
        let found = WORDS.into_iter().find(|(word, ..)| *word == told.trim());
        found.ok_or_else(|| CacheError::Unreadable { disk: self.disk.clone() })
    }

    fn write(&self, word: &str) -> io::Result<()> {
        (self.store)(&self.cache_type, &format!("{word}\n"))
    }

    /// Flushes the disk, even while others have it open.
    fn flush(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let node = rustix::fs::open(&self.node, flags, Mode::empty())?;
        Ok(rustix::fs::fsync(node)?)
    }
}

/// Whether the kernel lets the cache of the disk (of the whole disk, for a partition) be switched
/// while the disk is in use.
pub(crate) fn may_change(disk: &Disk) -> bool {
    disk.whole_disk().is_some_and(|disk| attribute(&disk).is_some())
}

/// Whether the drive's own cache is on; `None` if the kernel does not say.
pub(super) fn read(disk: &Disk) -> Option<bool> {
    let told = fs::read_to_string(attribute(disk)?).ok()?;
    WORDS.into_iter().find(|(word, ..)| *word == told.trim()).map(|word| word.1)
}

fn attribute(disk: &Disk) -> Option<PathBuf> {
    let dirs = fs::read_dir(disk.dir().join("device/scsi_disk")).ok()?.flatten();
    dirs.map(|dir| dir.path().join("cache_type")).find(|path| path.exists())
}
