//! Directories: the records of names, and the inode to which each name leads.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::bytes::{crc32c, le16, le32};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::inodes::{Directory, FileKind};
use crate::layout::incompat;
use crate::source::Block;
use crate::structures::Structure;
use crate::units::{BLOCK_BYTES, BlockNo, Ino};

/// Length of a record without its name.
const RECORD: usize = 8;
/// Length of the record at a block's end that holds its checksum.
const TAIL: usize = 12;
/// Place of the checksum of a block of names.
pub(crate) const NAMES_SUM: usize = BLOCK_BYTES - 4;

/// One record.
pub(crate) struct Record<'b> {
    at: usize,
    len: usize,
    ino: Ino,
    code: u8,
    pub(crate) name: &'b [u8],
    /// Whether a zero follows the name.
    is_ended: bool,
}

/// The checksum of a block of names.
pub(crate) fn names_sum(seed: u32, block: &[u8]) -> u32 {
    crc32c(seed, &[&block[..BLOCK_BYTES - TAIL]])
}

/// The records up to `end`; the last one is `None` if the records are broken.
fn records(block: &Block, end: usize) -> impl Iterator<Item = Option<Record<'_>>> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let at = next.filter(|at| *at < end)?;
        let record = record(block, at, end);
        next = record.as_ref().map(|record| at + record.len);
        Some(record)
    })
}

fn record(block: &Block, at: usize, end: usize) -> Option<Record<'_>> {
    let (ino, len) = (Ino(le32(block, at)), usize::from(le16(block, at + 4)));
    let name_len = usize::from(*block.get(at + 6)?);
    let name = block.get(at + RECORD..at + RECORD + name_len)?;
    let fits = len.is_multiple_of(4) && RECORD + name_len <= len && at + len <= end;
    // An unused record may be as short as its header.
    let sound = fits && len >= if ino.0 == 0 { RECORD } else { RECORD + 4 };
    let is_ended = block.get(at + RECORD + name_len).is_none_or(|byte| *byte == 0);
    sound.then_some(Record { at, len, ino, code: block[at + 7], name, is_ended })
}

impl Checker<'_> {
    /// Checks every block of every directory.
    pub(crate) fn check_directories(&mut self) -> Checked<()> {
        if let Some(root) = self.directory_at(Ino::ROOT) {
            self.directories[root].parent = Some(Ino::ROOT);
        } else {
            self.find(Location::Inode(Ino::ROOT), Problem::Impossible("it is no directory"));
        }
        for at in 0..self.directories.len() {
            let directory = self.directories[at].clone();
            self.check_directory(&directory, at)?;
        }
        Ok(())
    }

    fn check_directory(&mut self, directory: &Directory, at: usize) -> Checked<()> {
        let place = Location::Inode(directory.ino);
        let mut index = if directory.indexed { self.read_index(directory)? } else { None };
        let mut hashes = Vec::new();
        for (number, block) in directory.blocks.iter().enumerate() {
            let Some(block) = *block else {
                self.find(place, Problem::Impossible("a hole"));
                continue;
            };
            let inner = index.as_ref().is_some_and(|index| index.is_inner(number));
            if inner && number > 0 {
                continue;
            }
            let bytes = self.read(block)?;
            let end = if inner { BLOCK_BYTES } else { self.names_end(directory, block, &bytes) };
            for (count, record) in records(&bytes, end).enumerate() {
                let Some(record) = record else {
                    let place = Location::Block(directory.ino, block);
                    self.find(place, Problem::Impossible("a record of names"));
                    break;
                };
                match (number, count) {
                    (0, 0) => self.check_own(directory, &record),
                    (0, 1) => self.check_above(at, &record),
                    _ if record.ino.0 == 0 => {}
                    _ => {
                        let mut hasher = DefaultHasher::new();
                        record.name.hash(&mut hasher);
                        hashes.push(hasher.finish());
                        self.check_name(directory.ino, block, &record);
                        if let Some(index) = &mut index {
                            index.note_name(number, record.name);
                        }
                    }
                }
            }
        }
        if directory.blocks.is_empty() {
            self.find(place, Problem::Impossible("a directory without blocks"));
        }
        if let Some(index) = index {
            self.judge_index(directory.ino, &index);
        }
        hashes.sort_unstable();
        if hashes.windows(2).any(|two| two[0] == two[1]) {
            self.find(place, Problem::NameTwice);
        }
        Ok(())
    }

    /// Checks the checksum of a leaf. Returns the end of its records.
    fn names_end(&mut self, directory: &Directory, block: BlockNo, bytes: &Block) -> usize {
        self.note(Structure::Names(block, directory.seed));
        let Some(seed) = directory.seed else { return BLOCK_BYTES };
        let end = BLOCK_BYTES - TAIL;
        let place = Location::Block(directory.ino, block);
        let is_tail = le32(bytes, end) == 0
            && usize::from(le16(bytes, end + 4)) == TAIL
            && le16(bytes, end + 6) == 0xDE00;
        if !is_tail {
            self.find(place, Problem::Impossible("no room for the checksum of names"));
        } else if names_sum(seed, bytes) != le32(bytes, NAMES_SUM) {
            self.find(place, Problem::Checksum("a block of names"));
        }
        end
    }

    fn check_own(&mut self, directory: &Directory, record: &Record<'_>) {
        if record.name != b"."
            || record.ino != directory.ino
            || record.len != 12
            || !record.is_ended
        {
            self.find(
                Location::Inode(directory.ino),
                Problem::Impossible("no '.' at its beginning"),
            );
        }
        self.check_own_kind(directory.ino, record);
        self.add_name(directory.ino);
    }

    fn check_above(&mut self, at: usize, record: &Record<'_>) {
        let ino = self.directories[at].ino;
        if record.name != b".." || record.at != 12 || !record.is_ended {
            self.find(Location::Inode(ino), Problem::Impossible("no '..' behind '.'"));
        }
        self.directories[at].above = Some(record.ino);
        self.check_own_kind(ino, record);
        self.add_name(record.ino);
    }

    fn check_name(&mut self, directory: Ino, block: BlockNo, record: &Record<'_>) {
        let place = Location::Block(directory, block);
        let is_bad =
            |name: &[u8]| name.is_empty() || name == b"." || name == b".." || name.contains(&b'/');
        if is_bad(record.name) || record.name.contains(&0) {
            self.find(place, Problem::Impossible("a name that no file can have"));
        }
        let reserved = record.ino.0 < self.layout.first_inode && record.ino != Ino::ROOT;
        if reserved || record.ino.0 > self.layout.inodes {
            self.find(place, Problem::Misplaced("the inode of a name"));
            return;
        }
        let Some(kind) = self.inode(record.ino).map(|inode| inode.kind) else {
            self.find(place, Problem::DeadName(record.ino.0));
            return;
        };
        self.check_kind(directory, record, kind);
        self.add_name(record.ino);
        if let Some(at) = self.directory_at(record.ino) {
            let named = self.directories[at].parent.replace(directory);
            if named.is_some() {
                self.find(Location::Inode(record.ino), Problem::Parent);
            }
        }
    }

    fn check_own_kind(&mut self, directory: Ino, record: &Record<'_>) {
        let known = self.layout.has_incompat(incompat::FILETYPE);
        if record.code != if known { FileKind::Directory.code() } else { 0 } {
            self.find(Location::Inode(directory), Problem::Impossible("the kind of '.' or '..'"));
        }
    }

    fn check_kind(&mut self, directory: Ino, record: &Record<'_>, kind: FileKind) {
        let known = self.layout.has_incompat(incompat::FILETYPE);
        let expected = if known { kind.code() } else { 0 };
        if record.code != expected {
            self.find(Location::Inode(directory), Problem::WrongKind(record.ino.0));
        }
    }

    fn add_name(&mut self, ino: Ino) {
        if let Ok(at) = self.inodes.binary_search_by_key(&ino, |inode| inode.ino) {
            self.inodes[at].names += 1;
        }
    }

    /// Checks that every directory is below the root, where its `..` says, and that the number of
    /// names of every inode is the one it says.
    pub(crate) fn check_connections(&mut self) {
        let own = |checker: &Self, ino: Ino| {
            ino == checker.layout.orphan_file
                || ino.0 < checker.layout.first_inode && ino != Ino::ROOT
        };
        for at in 0..self.directories.len() {
            let Directory { ino, parent, above, .. } = self.directories[at];
            if parent.is_none() || !self.reaches_root(at) {
                self.find(Location::Inode(ino), Problem::Unreachable);
            } else if above != parent {
                self.find(Location::Inode(ino), Problem::Parent);
            }
        }
        for inode in std::mem::take(&mut self.inodes) {
            let (place, kept) = (Location::Inode(inode.ino), u64::from(inode.links));
            let is_directory = inode.kind == FileKind::Directory;
            // A directory with more links than fit has the count 1.
            let many = is_directory && kept == 1 && self.may_have_many_links(inode.ino);
            if !own(self, inode.ino) && !many {
                if inode.names == 0 && !is_directory {
                    self.find(place, Problem::Unreachable);
                }
                self.count(place, "links", kept, inode.names);
            }
            self.inodes.push(inode);
        }
    }

    fn may_have_many_links(&self, ino: Ino) -> bool {
        let at = self.directory_at(ino);
        self.layout.has_ro_compat(crate::layout::ro_compat::DIR_NLINK)
            && at.is_some_and(|at| self.directories[at].indexed)
    }

    fn reaches_root(&self, at: usize) -> bool {
        let (mut ino, mut steps) = (self.directories[at].ino, 0);
        while ino != Ino::ROOT {
            let parent = self.directory_at(ino).and_then(|at| self.directories[at].parent);
            steps += 1;
            match parent {
                Some(parent) if steps <= self.directories.len() => ino = parent,
                _ => return false,
            }
        }
        true
    }
}
