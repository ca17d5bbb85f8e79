//! The switch of a drive's own write cache: `scsi_disk/*/cache_type`.
//!
//! The kernel makes MODE SELECT of what is written there, for ATA drives SET FEATURES. It is not
//! `queue/write_cache`, which only changes what the kernel takes the drive for.

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
/// Before a word: the kernel shall believe it, and the drive is told nothing.
const BELIEVED: &str = "temporary ";

/// Why the cache of what is at a path cannot be set from here.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSwitch {
    /// It is a file, or is not there.
    #[error("it is no disk but a file: the cache is that of the disk that the file lies on")]
    NoDisk,
    /// Something stands between.
    #[error("{0}")]
    Hidden(String),
    /// The kernel has no `cache_type` for it.
    #[error("the kernel offers no scsi_disk/*/cache_type for {disk}")]
    NotOffered {
        /// The kernel's name of the disk.
        disk: String,
    },
    /// Neither `wwid` nor `diskseq` is told.
    #[error("the kernel tells nothing by which {disk} could be recognised when it is put back")]
    Nameless {
        /// The kernel's name of the disk.
        disk: String,
    },
}

/// Why a cache was not set. It is as it was, unless the error says otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The kernel, or the drive, refuses.
    #[error("{disk} refuses to have its write cache turned {}: {source}", on_off(*.on))]
    Refused {
        /// The kernel's name of the disk.
        disk: String,
        /// What was asked for.
        on: bool,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It said yes and did nothing.
    #[error("{disk} took the order to turn its write cache {} and did not do it", on_off(*.on))]
    Unmoved {
        /// The kernel's name of the disk.
        disk: String,
        /// What was asked for.
        on: bool,
    },
    /// What it is now cannot be read.
    #[error("{disk} does not say whether its write cache is on")]
    Unreadable {
        /// The kernel's name of the disk.
        disk: String,
    },
    /// What it had acknowledged could not be made durable before.
    #[error("{disk} failed to flush before its write cache was to be turned off: {source}")]
    Flush {
        /// The kernel's name of the disk.
        disk: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The switch of the write cache of a drive that can be seen. A setting is the whole drive's, also
/// where a partition was named. ATA drives forget it without power; SCSI drives that can keep it
/// are told to.
#[derive(Clone, Debug)]
pub struct CacheSwitch {
    disk: String,
    identity: String,
    node: PathBuf,
    cache_type: PathBuf,
    /// Makes the kernel ask the drive again what it is like.
    rescan: PathBuf,
    store: Store,
}

/// Writes into an attribute of sysfs. Tests have kernels of their own.
pub(super) type Store = fn(&Path, &str) -> io::Result<()>;

fn store(attribute: &Path, text: &str) -> io::Result<()> {
    fs::write(attribute, text)
}

impl CacheSwitch {
    /// That of the disk, or of the disk of the partition, at `path`.
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

    /// The same over a kernel of a test's.
    #[cfg(test)]
    pub(super) fn through(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// The kernel's name of the disk.
    #[must_use]
    pub fn disk(&self) -> &str {
        &self.disk
    }

    /// What the disk is known by, as long as the machine is up.
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

    /// Turns the cache on or off, and reads whether it is so.
    ///
    /// Writes that the drive had acknowledged are durable before the cache is off. The kernel sends
    /// flushes again before the cache is on. So no flush is dropped while the cache is on, whoever
    /// uses the disk beside this program. After a failed attempt to turn the cache on, the kernel
    /// is made to ask the drive again. Where that is impossible, the kernel goes on to believe that
    /// the cache is on, and sends flushes that nobody needs.
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
            // What it believes since the write above is what was wished. An error here is no news.
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

    /// Of the disk, whoever else has it open.
    fn flush(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let node = rustix::fs::open(&self.node, flags, Mode::empty())?;
        Ok(rustix::fs::fsync(node)?)
    }
}

/// Whether the kernel lets the cache of the disk, or of that of a partition, be switched while the
/// disk is in use.
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
