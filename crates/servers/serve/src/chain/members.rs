//! Finds the drives of a chain: the label of each drive says to which chain it belongs.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use manylogs_block::{Extent, SECTOR_BYTES, Sectors, to_usize};
use manylogs_gecko::{CacheLabel, ChainError, ChainMember, LABEL_BYTES, Roster};
use manylogs_operate::status::id_text;
use rustix::fs::SeekFrom;
use thiserror::Error;

/// Why the members of a chain were not found.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MembersError {
    /// A named drive cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The drive.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A named drive belongs to no chain.
    #[error("{}: no member of a chain: neither copy of a label is whole there", path.display())]
    NotAMember {
        /// The drive.
        path: PathBuf,
    },
    /// A drive's label has another version.
    #[error("{}: {source}", path.display())]
    Label {
        /// The drive.
        path: PathBuf,
        /// The reason.
        source: ChainError,
    },
    /// A named drive belongs to another chain.
    #[error(
        "{} is of the chain {}, and {} of the chain {}: leave one of them out",
        path.display(), id_text(found), first.display(), id_text(chain)
    )]
    Foreign {
        /// The drive.
        path: PathBuf,
        /// Its chain.
        found: [u8; 16],
        /// The drive that was named first.
        first: PathBuf,
        /// The chain of the first drive.
        chain: [u8; 16],
    },
    /// Two drives are the same member: one is a copy, or both are one drive reached in two ways.
    #[error(
        "{} and {} both say that they are member {} of {}: one is a copy, or the same drive by \
         another way; name the one that counts (--member PATH)",
        path.display(), other.display(), drive + 1, drives
    )]
    Twice {
        /// One of them.
        path: PathBuf,
        /// The other.
        other: PathBuf,
        /// Its number in the chain, from 0.
        drive: usize,
        /// Number of drives of the chain.
        drives: usize,
    },
    /// Members cannot be found.
    #[error(
        "of the {drives} members of the chain {} these are missing: {}; no disk of this machine \
         and no file in {} is one of them: attach it, or name it (--member PATH)",
        id_text(chain), counted(missing), searched.display()
    )]
    Missing {
        /// The chain.
        chain: [u8; 16],
        /// Number of drives of the chain.
        drives: usize,
        /// Numbers of the missing members, from 0.
        missing: Vec<usize>,
        /// The folder that was searched.
        searched: PathBuf,
    },
}

/// Names the members, counted from 1.
fn counted(missing: &[usize]) -> String {
    missing.iter().map(|drive| format!("member {}", drive + 1)).collect::<Vec<_>>().join(", ")
}

/// A drive of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it is.
    pub path: PathBuf,
    /// Content of its label.
    pub label: ChainMember,
}

impl Member {
    /// Its number in the chain, counted from 1, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let ChainMember { drive, drives, chain, .. } = &self.label;
        format!("member {} of {drives} of the chain {}", drive + 1, id_text(chain))
    }

    /// Reads the label of the file or disk at `path`; `None` if it belongs to no chain. It may be
    /// in use.
    ///
    /// # Errors
    /// If it cannot be read, or another version wrote its label.
    pub fn at(path: &Path) -> Result<Option<Self>, MembersError> {
        let failed = |source| MembersError::Io { path: path.to_owned(), source };
        if !fs::metadata(path).map_err(failed)?.may_be_a_drive() {
            return Ok(None);
        }
        let file = File::open(path).map_err(failed)?;
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| failed(e.into()))?;
        let sectors = Sectors(bytes / SECTOR_BYTES);
        if sectors < Sectors(16) {
            return Ok(None);
        }
        let mut refused = None;
        for place in ChainMember::places(sectors) {
            let bytes = label_bytes(&file, place).map_err(failed)?;
            match ChainMember::decode(&bytes) {
                Ok(Some(label)) => return Ok(Some(Self { path: path.to_owned(), label })),
                Ok(None) => {}
                Err(source) => refused = Some(source),
            }
        }
        match refused {
            Some(source) => Err(MembersError::Label { path: path.to_owned(), source }),
            None => Ok(None),
        }
    }

    /// Like [`Member::at`], for a drive that the user named as a member.
    fn named(path: &Path) -> Result<Self, MembersError> {
        let none = || MembersError::NotAMember { path: path.to_owned() };
        Self::at(path)?.ok_or_else(none)
    }

    /// Finds all members of the chain of `first` and `named`: the current drives in their order in
    /// the chain, then one that is being copied to. The other members are searched for among the
    /// files in the folder of `first` and the disks of this machine. Of a mirrored pair one half is
    /// enough.
    ///
    /// # Errors
    /// See [`MembersError`].
    pub fn all(first: &Path, named: &[PathBuf]) -> Result<Vec<Self>, MembersError> {
        let first = Self::named(first)?;
        let chain = first.label.chain;
        let mut found = Found { chain, members: Vec::new() };
        found.add(first.clone())?;
        for path in named {
            let member = Self::named(path)?;
            if member.label.chain != chain {
                let (path, first) = (member.path, first.path);
                return Err(MembersError::Foreign {
                    path,
                    found: member.label.chain,
                    first,
                    chain,
                });
            }
            found.add(member)?;
        }
        let folder = folder_of(&first.path);
        if !found.is_complete() {
            found.search(&folder)?;
        }
        found.complete(folder)
    }
}

/// The members found so far.
struct Found {
    chain: [u8; 16],
    members: Vec<Member>,
}

impl Found {
    /// The newest roster: it says which drives are current.
    fn roster(&self) -> Roster {
        let newest = self.members.iter().max_by_key(|member| member.label.age());
        newest.map(|member| member.label.roster).unwrap_or_default()
    }

    fn has(&self, id: u64) -> bool {
        self.members.iter().any(|member| member.label.id == id)
    }

    /// Ids of the current drives of a link.
    fn current(&self, link: usize) -> impl Iterator<Item = u64> {
        let halves = self.roster().links.get(link).copied().unwrap_or_default();
        halves.into_iter().map(|half| half.id).filter(|id| *id != 0)
    }

    /// Whether nothing is left to search for.
    fn is_complete(&self) -> bool {
        let roster = self.roster();
        let joining = roster.joining.map(|joining| joining.id);
        roster.in_use().flat_map(|link| self.current(link)).chain(joining).all(|id| self.has(id))
    }

    /// Links of which no current drive is there.
    fn missing(&self) -> Vec<usize> {
        let is_missing = |link: &usize| !self.current(*link).any(|id| self.has(id));
        self.roster().in_use().filter(is_missing).collect()
    }

    /// Adds a member; fails if another drive says that it is the same one.
    fn add(&mut self, member: Member) -> Result<(), MembersError> {
        let (drive, drives) = (member.label.drive, member.label.drives);
        match self.members.iter().find(|other| other.label.id == member.label.id) {
            Some(other) if is_same(&other.path, &member.path) => Ok(()),
            Some(other) => {
                let (path, other) = (other.path.clone(), member.path);
                Err(MembersError::Twice { path, other, drive, drives })
            }
            None => {
                self.members.push(member);
                Ok(())
            }
        }
    }

    /// Searches for the other members. A copy of a named member is ignored.
    fn search(&mut self, folder: &Path) -> Result<(), MembersError> {
        let named: Vec<u64> = self.members.iter().map(|member| member.label.id).collect();
        for path in candidates(folder) {
            // Drives that cannot be read, or have another version, are not members.
            let Ok(Some(member)) = Member::at(&path) else { continue };
            let is_new = !named.contains(&member.label.id);
            if member.label.chain == self.chain && is_new {
                self.add(member)?;
            }
        }
        Ok(())
    }

    /// All members in their order. A drive that left its pair is none, whatever its label says.
    /// Neither is a drive of a link that was removed.
    fn complete(self, searched: PathBuf) -> Result<Vec<Member>, MembersError> {
        let (missing, chain, drives) = (self.missing(), self.chain, self.roster().places());
        if !missing.is_empty() {
            return Err(MembersError::Missing { chain, drives, missing, searched });
        }
        let roster = self.roster();
        let rank = |member: &Member| match roster.place(member.label.id) {
            Some(place) => Some(place),
            None => roster.joins(member.label.id).then_some((usize::MAX, 0)),
        };
        let mut members = self.members;
        members.retain(|member| rank(member).is_some());
        members.sort_by_key(rank);
        Ok(members)
    }
}

trait MayBeADrive {
    fn may_be_a_drive(&self) -> bool;
}

impl MayBeADrive for Metadata {
    fn may_be_a_drive(&self) -> bool {
        let kind = self.file_type();
        kind.is_file() || kind.is_block_device()
    }
}

/// The SSD whose label says that it is the tail cache of this chain, among the files beside `first`
/// and the disks of this machine.
pub(super) fn cache_of(chain: [u8; 16], first: &Path) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| {
        let found = File::open(path).and_then(|file| label_bytes(&file, CacheLabel::PLACE));
        let label = found.ok().and_then(|bytes| CacheLabel::decode(&bytes));
        label.is_some_and(|label| label.chain == chain)
    };
    candidates(&folder_of(first)).into_iter().find(is_it)
}

fn label_bytes(file: &File, place: Extent) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(place.len.bytes()).min(LABEL_BYTES)];
    match file.read_exact_at(&mut bytes, Sectors(place.start.0).bytes()) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn folder_of(path: &Path) -> PathBuf {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    whole.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// Files of `folder` and all disks, each once.
fn candidates(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let disks = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let disks = disks.map(|entry| Path::new("/dev").join(entry.file_name()));
    let mut paths: Vec<PathBuf> = files.chain(disks).collect();
    paths.sort();
    let mut seen = BTreeSet::new();
    paths.retain(|path| identity(path).is_some_and(|identity| seen.insert(identity)));
    paths
}

/// Identifies a file or disk, whatever its path.
#[must_use]
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok().filter(MayBeADrive::may_be_a_drive)?;
    Some(match metadata.file_type().is_block_device() {
        true => (u64::MAX, metadata.rdev()),
        false => (metadata.dev(), metadata.ino()),
    })
}

/// Whether both are the same file or disk.
#[must_use]
pub fn is_same(path: &Path, other: &Path) -> bool {
    identity(path).is_some_and(|found| identity(other) == Some(found))
}
