//! The index of a directory: a tree over the hashes of its names.

use crate::bytes::{crc32c, le16, le32};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::hash::Function;
use crate::inodes::Directory;
use crate::layout::incompat;
use crate::structures::Structure;
use crate::units::{BLOCK_BYTES, Ino};

/// Where the entries begin in the root; see [`NODE`] for other nodes.
const ROOT: usize = 32;
/// See [`ROOT`].
const NODE: usize = 8;
const ENTRY: usize = 8;
/// The greatest hash.
const LAST: u32 = 0xFFFF_FFFE;

/// The hashes that the names in a block may have.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u32,
    /// The first hash of the next block.
    next: u32,
    /// Whether names with the hash `next` may be in this block, too.
    goes_on: bool,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Unknown,
    Inner,
    Leaf(Range),
}

/// The index of one directory, as far as it was read.
#[derive(Debug)]
pub(crate) struct Index {
    function: Function,
    seed: [u32; 4],
    unsigned: bool,
    roles: Vec<Role>,
    misplaced: u64,
    problems: Vec<&'static str>,
}

impl Index {
    /// Whether a block is a node.
    pub(crate) fn is_inner(&self, block: usize) -> bool {
        matches!(self.roles.get(block), Some(Role::Inner))
    }

    /// Checks the hash of a name in a block.
    pub(crate) fn note_name(&mut self, block: usize, name: &[u8]) {
        let hash = self.function.hash(name, self.seed, self.unsigned);
        if let Some(Role::Leaf(range)) = self.roles.get(block) {
            let below = hash < range.next || range.goes_on && hash == range.next;
            self.misplaced += u64::from(hash < range.first || !below);
        }
    }

    /// Gives a block a role. Returns false if it has one already, or does not exist.
    fn assign(&mut self, block: u32, role: Role) -> bool {
        match self.roles.get_mut(block as usize) {
            Some(place @ Role::Unknown) => {
                *place = role;
                true
            }
            _ => {
                self.problems.push("a block is named twice, or is not there");
                false
            }
        }
    }
}

/// Place and value of the checksum of a node whose entries begin at `start`; `None` if there is no
/// room for one.
pub(crate) fn node_sum(seed: u32, bytes: &[u8], start: usize) -> Option<(usize, u32)> {
    let (limit, count) = (usize::from(le16(bytes, start)), usize::from(le16(bytes, start + 2)));
    let tail = start + limit * ENTRY;
    let entries = bytes.get(..start + count * ENTRY)?;
    let kept = bytes.get(tail..tail + 8)?;
    Some((tail + 4, crc32c(seed, &[entries, &kept[..4], &[0; 4]])))
}

/// Where the entries of a node begin.
pub(crate) const fn entries_at(root: bool) -> usize {
    if root { ROOT } else { NODE }
}

impl Checker<'_> {
    /// Reads the nodes of an index. Returns `None` if there is none; reports it if it is broken.
    pub(crate) fn read_index(&mut self, directory: &Directory) -> Checked<Option<Index>> {
        let ino = directory.ino;
        let Some(Some(block)) = directory.blocks.first().copied() else { return Ok(None) };
        let bytes = self.read(block)?;
        let (version, levels) = (bytes[28], bytes[30]);
        let most = if self.layout.has_incompat(incompat::LARGE_DIR) { 2 } else { 1 };
        let function = Function::of(version).filter(|_| version <= 2);
        let sound = le32(&*bytes, 24) == 0 && bytes[29] == 8 && levels <= most;
        let (Some(function), true) = (function, sound) else {
            self.find(Location::Inode(ino), Problem::Index("its root"));
            return Ok(None);
        };
        let mut index = Index {
            function,
            seed: self.layout.hash_seed,
            unsigned: self.layout.hashes_unsigned,
            roles: vec![Role::Unknown; directory.blocks.len()],
            misplaced: 0,
            problems: Vec::new(),
        };
        index.assign(0, Role::Inner);
        let all = Range { first: 0, next: LAST, goes_on: true };
        self.read_node(directory, &mut index, 0, levels, all)?;
        Ok(Some(index))
    }

    /// Reads a node and the nodes below it. The hashes of its children must be within `range`.
    fn read_node(
        &mut self,
        directory: &Directory,
        index: &mut Index,
        number: u32,
        levels: u8,
        range: Range,
    ) -> Checked<()> {
        let Some(Some(block)) = directory.blocks.get(number as usize).copied() else {
            return Ok(());
        };
        let bytes = self.read(block)?;
        let (root, place) = (number == 0, Location::Block(directory.ino, block));
        let start = entries_at(root);
        self.note(Structure::IndexNode { block, seed: directory.seed, root });
        let (limit, count) =
            (usize::from(le16(&*bytes, start)), usize::from(le16(&*bytes, start + 2)));
        let room = (BLOCK_BYTES - start) / ENTRY - usize::from(directory.seed.is_some());
        let is_record =
            root || (le32(&*bytes, 0) == 0 && usize::from(le16(&*bytes, 4)) == BLOCK_BYTES);
        if limit != room || !(1..=limit).contains(&count) || !is_record {
            self.find(place, Problem::Index("the counts of a node"));
            return Ok(());
        }
        let whole =
            |seed| node_sum(seed, &*bytes, start).is_some_and(|(at, sum)| le32(&*bytes, at) == sum);
        if !directory.seed.is_none_or(whole) {
            self.find(place, Problem::Checksum("a node of an index"));
        }
        let child = |at: usize| {
            let entry = start + at * ENTRY;
            let hash = if at == 0 { range.first } else { le32(&*bytes, entry) };
            (hash, le32(&*bytes, entry + 4) & 0x0FFF_FFFF)
        };
        for at in 0..count {
            let (hash, block) = child(at);
            let (next, goes_on) = if at + 1 < count {
                (child(at + 1).0 & !1, child(at + 1).0 & 1 == 1)
            } else {
                (range.next, range.goes_on)
            };
            let below = Range { first: hash & !1, next, goes_on };
            if below.first > below.next || below.first < range.first {
                self.find(place, Problem::Index("hashes out of order"));
            }
            let role = if levels == 0 { Role::Leaf(below) } else { Role::Inner };
            if index.assign(block, role) && levels > 0 {
                self.read_node(directory, index, block, levels - 1, below)?;
            }
        }
        Ok(())
    }

    /// Reports problems of the index: a block that is not named once, a name that a search would
    /// miss.
    pub(crate) fn judge_index(&mut self, ino: Ino, index: &Index) {
        for problem in &index.problems {
            self.find(Location::Inode(ino), Problem::Index(problem));
        }
        if index.roles.iter().any(|role| matches!(role, Role::Unknown)) {
            self.find(Location::Inode(ino), Problem::Index("a block is not in it"));
        }
        if index.misplaced > 0 {
            self.find(
                Location::Inode(ino),
                Problem::Index("a name is in another block than its hash"),
            );
        }
    }
}
