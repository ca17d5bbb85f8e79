//! The blocks of an inode: extents, or the older maps of block numbers.

use crate::bytes::{crc32c, join, le16, le32};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::inodes::{EXTENTS, FileKind, Raw};
use crate::layout::compat;
use crate::structures::Structure;
use crate::units::{BLOCK_BYTES, BlockNo};

/// Length of a header, and of each entry.
const ENTRY: usize = 12;
/// Place of the checksum of a node in a block.
pub(crate) const NODE_SUM: usize = 4092;
/// The end of the longest file, in blocks.
const FILE_END: u64 = 1 << 32;
/// The greatest length of a written extent: a greater value marks unwritten blocks.
const WRITTEN_MOST: u32 = 32_768;
/// The deepest tree of extents.
const DEPTH_MOST: u16 = 5;
/// Number of block numbers in a block.
pub(crate) const NUMBERS: usize = BLOCK_BYTES / 4;

/// The result of reading a map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapped {
    /// Number of blocks of data and of the map.
    pub(crate) blocks: u64,
    /// The last block of the file that holds data.
    pub(crate) last_written: Option<u64>,
    /// First block of the file, first of the device, length.
    runs: Vec<(u64, u64, u32)>,
}

impl Mapped {
    /// All blocks up to the last, `None` for holes. Meant for small files.
    pub(crate) fn in_order(&self) -> Vec<Option<BlockNo>> {
        let mut blocks = Vec::new();
        for (file, start, len) in &self.runs {
            let Ok(first) = usize::try_from(*file) else { break };
            // A damaged map may name any block of a file.
            if first > blocks.len() + IN_ORDER_GAP {
                break;
            }
            blocks.resize(first.max(blocks.len()), None);
            blocks.extend((*start..start + u64::from(*len)).map(|block| Some(BlockNo(block))));
        }
        blocks
    }
}

/// The longest hole that a directory, or a file of the file system's own, may have: 1 GiB.
const IN_ORDER_GAP: usize = 1 << 18;

/// State of a walk through a map.
struct Walk<'r> {
    raw: Raw<'r>,
    kind: FileKind,
    seed: Option<u32>,
    mapped: Mapped,
    /// The first block of the file that the walk has not passed yet.
    next: u64,
}

impl Walk<'_> {
    /// Whether the order of the file's blocks is needed later.
    fn is_kept(&self, checker: &Checker<'_>) -> bool {
        let layout = &checker.layout;
        self.kind != FileKind::File
            || self.raw.ino == layout.journal
            || (layout.has_compat(compat::ORPHAN_FILE) && self.raw.ino == layout.orphan_file)
    }
}

impl Checker<'_> {
    /// Takes the blocks of an inode, data and map.
    pub(crate) fn walk(&mut self, raw: Raw<'_>, kind: FileKind) -> Checked<Mapped> {
        let seed = raw.seed(&self.layout);
        let mut walk = Walk { raw, kind, seed, mapped: Mapped::default(), next: 0 };
        if raw.has_flag(EXTENTS) {
            let depth = le16(raw.map(), 6);
            self.node(&mut walk, raw.map(), depth, (0, FILE_END), None)?;
        } else {
            self.block_map(&mut walk)?;
        }
        Ok(walk.mapped)
    }

    /// Reads a node whose first entry must be for block `range.0` of the file; in the root a later
    /// one will do.
    fn node(
        &mut self,
        walk: &mut Walk<'_>,
        bytes: &[u8],
        depth: u16,
        range: (u64, u64),
        block: Option<BlockNo>,
    ) -> Checked<()> {
        let ino = walk.raw.ino;
        let place = block.map_or(Location::Inode(ino), |block| Location::Block(ino, block));
        let (used, room) = (usize::from(le16(bytes, 2)), usize::from(le16(bytes, 4)));
        let most = bytes.len() / ENTRY - 1;
        if used == 0 && block.is_none() && depth > 0 {
            self.find(place, Problem::Impossible("a depth of a tree without extents"));
            return Ok(());
        }
        let sound = le16(bytes, 0) == 0xF30A
            && used <= room
            && (most - 2..=most).contains(&room)
            && depth <= DEPTH_MOST
            && (used > 0 || block.is_none());
        if !sound {
            self.find(place, Problem::Impossible("a node of extents"));
            return Ok(());
        }
        if le16(bytes, 6) != depth {
            self.find(place, Problem::Impossible("another depth than its parent says"));
        }
        let entries: Vec<&[u8]> = bytes[ENTRY..].chunks_exact(ENTRY).take(used).collect();
        if block.is_some() && entries.first().is_some_and(|at| u64::from(le32(at, 0)) != range.0) {
            self.find(place, Problem::Order("a node does not begin where its parent says"));
        }
        for (number, entry) in entries.iter().enumerate() {
            let first = u64::from(le32(entry, 0));
            let end = entries.get(number + 1).map_or(range.1, |next| u64::from(le32(next, 0)));
            if first < walk.next || first >= end.max(1) || end > range.1 {
                self.find(place, Problem::Order("extents overlap"));
                return Ok(());
            }
            if depth == 0 {
                self.extent(walk, entry, end, place);
            } else {
                let child = BlockNo(join(le32(entry, 4), le16(entry, 8).into()));
                self.child(walk, child, depth - 1, (first, end))?;
            }
        }
        Ok(())
    }

    fn extent(&mut self, walk: &mut Walk<'_>, entry: &[u8], end: u64, place: Location) {
        let (first, len) = (u64::from(le32(entry, 0)), u32::from(le16(entry, 4)));
        let written = len <= WRITTEN_MOST;
        let len = if written { len } else { len - WRITTEN_MOST };
        let start = join(le32(entry, 8), le16(entry, 6).into());
        if len == 0 || first + u64::from(len) > end {
            self.find(place, Problem::Order("extents overlap, or are empty"));
            return;
        }
        if start == 0 || start + u64::from(len) > self.layout.blocks {
            self.find(place, Problem::Misplaced("an extent"));
            return;
        }
        let unwritten = match walk.kind {
            FileKind::File => None,
            FileKind::Symlink => Some("a target that was not written"),
            _ => Some("blocks that were not written"),
        };
        if let Some(what) = unwritten.filter(|_| !written) {
            self.find(place, Problem::Impossible(what));
        }
        for block in start..start + u64::from(len) {
            self.take(walk.raw.ino, BlockNo(block));
        }
        walk.mapped.blocks += u64::from(len);
        walk.next = first + u64::from(len);
        if written {
            walk.mapped.last_written = Some(walk.next - 1);
        }
        if walk.is_kept(self) {
            walk.mapped.runs.push((first, start, len));
        }
    }

    fn child(
        &mut self,
        walk: &mut Walk<'_>,
        child: BlockNo,
        depth: u16,
        range: (u64, u64),
    ) -> Checked<()> {
        let ino = walk.raw.ino;
        if !self.take(ino, child) {
            return Ok(());
        }
        walk.mapped.blocks += 1;
        self.note(Structure::ExtentNode(child, walk.seed));
        let bytes = self.read(child)?;
        let whole = |seed| crc32c(seed, &[&bytes[..NODE_SUM]]) == le32(&*bytes, NODE_SUM);
        if !walk.seed.is_none_or(whole) {
            self.find(Location::Block(ino, child), Problem::Checksum("a node of extents"));
        }
        self.node(walk, &*bytes, depth, range, Some(child))
    }

    /// Reads a map of twelve blocks, and of blocks of block numbers with one, two and three levels.
    fn block_map(&mut self, walk: &mut Walk<'_>) -> Checked<()> {
        let map: Vec<u32> = (0..15).map(|number| le32(walk.raw.map(), 4 * number)).collect();
        for number in &map[..12] {
            self.pointer(walk, *number, 0)?;
        }
        for (level, number) in (1..).zip(&map[12..]) {
            self.pointer(walk, *number, level)?;
        }
        Ok(())
    }

    fn pointer(&mut self, walk: &mut Walk<'_>, number: u32, level: u32) -> Checked<()> {
        let covers = (NUMBERS as u64).pow(level);
        let first = walk.next;
        walk.next = first + covers;
        if number == 0 {
            return Ok(());
        }
        let block = BlockNo(number.into());
        if !self.take(walk.raw.ino, block) {
            return Ok(());
        }
        walk.mapped.blocks += 1;
        if level == 0 {
            walk.mapped.last_written = Some(first);
            if walk.is_kept(self) {
                walk.mapped.runs.push((first, block.0, 1));
            }
            return Ok(());
        }
        self.note(Structure::BlockMap(block));
        let bytes = self.read(block)?;
        walk.next = first;
        for at in 0..NUMBERS {
            self.pointer(walk, le32(&*bytes, 4 * at), level - 1)?;
        }
        Ok(())
    }

    /// Takes the blocks in the list of bad blocks.
    pub(crate) fn walk_bad_blocks(&mut self, raw: Raw<'_>) -> Checked<()> {
        let seed = raw.seed(&self.layout);
        let mut walk = Walk { raw, kind: FileKind::File, seed, mapped: Mapped::default(), next: 0 };
        self.block_map(&mut walk)
    }
}
