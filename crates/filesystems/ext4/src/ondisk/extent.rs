//! Nodes of extent trees: in the inode (60 bytes) or in blocks of their own.

use crate::checksum::{changed_sum, crc};
use crate::ondisk::bytes::{high32, join32, le16, le32, low16, low32, put_le16, put_le32};
use crate::units::{BLOCK_BYTES, BlockNo, FileBlock};

/// Bytes of a header, and of each entry (an extent or an index).
pub(crate) const ENTRY: usize = 12;
const MAGIC: u16 = 0xF30A;
/// The deepest tree.
pub(crate) const DEPTH_MOST: u16 = 5;
/// The longest written extent, and the longest unwritten one, in blocks.
pub(crate) const WRITTEN_MOST: u32 = 32_768;
/// See [`WRITTEN_MOST`].
pub(crate) const UNWRITTEN_MOST: u32 = 32_767;
/// Where the checksum of a block lies: behind as many entries as fit.
const CHECKSUM: usize = ENTRY * (1 + (BLOCK_BYTES - ENTRY) / ENTRY);

/// Consecutive blocks of a file that are consecutive on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first block in the file.
    pub(crate) file: FileBlock,
    /// The first block on the device.
    pub(crate) block: BlockNo,
    /// Number of blocks.
    pub(crate) blocks: u32,
    /// Whether they hold data; unwritten blocks read as zeroes.
    pub(crate) written: bool,
}

/// A child of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index {
    /// The first block of the file below it.
    pub(crate) file: FileBlock,
    /// The child's block.
    pub(crate) child: BlockNo,
}

/// The entries of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    /// A leaf's extents.
    Leaf(Vec<Extent>),
    /// The number of levels below, and the children.
    Inner(u16, Vec<Index>),
}

impl Extent {
    /// The block of the file behind the extent: at most [`FileBlock::MAX`], as decoding has
    /// checked.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.file.0) + u64::from(self.blocks)
    }

    /// The part of it within blocks `from` to `to` of the file, if there is one.
    pub(crate) fn part(&self, from: u64, to: u64) -> Option<Self> {
        let start = from.max(self.file.0.into());
        let end = to.min(self.end());
        if start >= end {
            return None;
        }
        let skip = low32(start) - self.file.0;
        let (file, block) = (FileBlock(low32(start)), BlockNo(self.block.0 + u64::from(skip)));
        Some(Self { file, block, blocks: low32(end - start), written: self.written })
    }

    /// Both extents as one, if `next` continues this one.
    pub(crate) fn joined(&self, next: &Self) -> Option<Self> {
        // A longer written extent could not become unwritten at home (see `leads.rs`).
        let follows = self.end() == u64::from(next.file.0)
            && self.block.0 + u64::from(self.blocks) == next.block.0
            && self.written == next.written
            && self.blocks + next.blocks <= UNWRITTEN_MOST;
        follows.then(|| Self { blocks: self.blocks + next.blocks, ..*self })
    }

    fn decode(bytes: &[u8]) -> Self {
        let len = u32::from(le16(bytes, 4));
        let written = len <= WRITTEN_MOST;
        Self {
            file: FileBlock(le32(bytes, 0)),
            block: BlockNo(join32(le32(bytes, 8), le16(bytes, 6).into())),
            blocks: if written { len } else { len - WRITTEN_MOST },
            written,
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        let len = if self.written { self.blocks } else { self.blocks + WRITTEN_MOST };
        put_le32(bytes, 0, self.file.0);
        put_le16(bytes, 4, low16(len));
        put_le16(bytes, 6, low16(high32(self.block.0)));
        put_le32(bytes, 8, low32(self.block.0));
    }
}

impl Index {
    fn decode(bytes: &[u8]) -> Self {
        let child = BlockNo(join32(le32(bytes, 4), le16(bytes, 8).into()));
        Self { file: FileBlock(le32(bytes, 0)), child }
    }

    fn encode(&self, bytes: &mut [u8]) {
        put_le32(bytes, 0, self.file.0);
        put_le32(bytes, 4, low32(self.child.0));
        put_le16(bytes, 8, low16(high32(self.child.0)));
        put_le16(bytes, 10, 0);
    }
}

impl Entries {
    /// Number of levels below the node.
    pub(crate) const fn depth(&self) -> u16 {
        match self {
            Self::Leaf(_) => 0,
            Self::Inner(depth, _) => *depth,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Leaf(extents) => extents.len(),
            Self::Inner(_, children) => children.len(),
        }
    }

    /// The first block of the file among its entries.
    pub(crate) fn first(&self) -> Option<FileBlock> {
        match self {
            Self::Leaf(extents) => extents.first().map(|extent| extent.file),
            Self::Inner(_, children) => children.first().map(|index| index.file),
        }
    }

    /// Takes the entries from `at` on out of this node, as a new node.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Leaf(extents) => Self::Leaf(extents.split_off(at)),
            Self::Inner(depth, children) => Self::Inner(*depth, children.split_off(at)),
        }
    }

    /// The node in `bytes`; `None` if it says something impossible. Entries are in order and do
    /// not overlap; extents end at or before [`FileBlock::MAX`].
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (used, room) = (usize::from(le16(bytes, 2)), usize::from(le16(bytes, 4)));
        let depth = le16(bytes, 6);
        let sound = le16(bytes, 0) == MAGIC
            && used <= room
            && room <= capacity(bytes)
            && depth <= DEPTH_MOST
            && (depth == 0 || used > 0);
        if !sound {
            return None;
        }
        let entries = bytes[ENTRY..].chunks_exact(ENTRY).take(used);
        if depth == 0 {
            let extents: Vec<Extent> = entries.map(Extent::decode).collect();
            let fit = extents.iter().all(|e| e.blocks > 0 && e.end() <= FileBlock::MAX);
            let ordered = extents.windows(2).all(|two| two[0].end() <= two[1].file.0.into());
            return (fit && ordered).then_some(Self::Leaf(extents));
        }
        let children: Vec<Index> = entries.map(Index::decode).collect();
        let ordered = children.windows(2).all(|two| two[0].file < two[1].file);
        ordered.then_some(Self::Inner(depth, children))
    }

    /// Writes the node into `bytes`, which must have room for it.
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        let room = capacity(bytes);
        put_le16(bytes, 0, MAGIC);
        put_le16(bytes, 2, manylogs_block::narrow(self.len()));
        put_le16(bytes, 4, manylogs_block::narrow(room));
        put_le16(bytes, 6, self.depth());
        let places = bytes[ENTRY..].chunks_exact_mut(ENTRY);
        match self {
            Self::Leaf(extents) => {
                extents.iter().zip(places).for_each(|(extent, at)| extent.encode(at));
            }
            Self::Inner(_, children) => {
                children.iter().zip(places).for_each(|(index, at)| index.encode(at));
            }
        }
    }
}

/// Number of entries that fit: 4 in an inode, 340 in a block.
pub(crate) const fn capacity(bytes: &[u8]) -> usize {
    (bytes.len() - ENTRY) / ENTRY
}

/// Whether the checksum of a node in a block is right.
pub(crate) fn is_whole(bytes: &[u8], seed: u32) -> bool {
    le32(bytes, CHECKSUM) == crc(seed, &bytes[..CHECKSUM])
}

/// Computes the checksum of a node in a block.
pub(crate) fn seal(bytes: &mut [u8], seed: u32) {
    let sum = crc(seed, &bytes[..CHECKSUM]);
    put_le32(bytes, CHECKSUM, sum);
}

/// Corrects the checksum of a node in a block, which was right before the node changed.
pub(crate) fn amend(bytes: &mut [u8], before: &[u8]) {
    let changed = changed_sum(&bytes[..CHECKSUM], &before[..CHECKSUM]);
    put_le32(bytes, CHECKSUM, le32(before, CHECKSUM) ^ changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(file: u32, block: u64, blocks: u32, written: bool) -> Extent {
        Extent { file: FileBlock(file), block: BlockNo(block), blocks, written }
    }

    #[test]
    fn nodes_survive_encoding_and_impossible_ones_are_noticed() {
        let leaf = Entries::Leaf(vec![
            extent(0, 1 << 40, WRITTEN_MOST, true),
            extent(40_000, 77, UNWRITTEN_MOST, false),
        ]);
        let inner = Entries::Inner(2, vec![Index { file: FileBlock(3), child: BlockNo(1 << 33) }]);
        for node in [leaf, inner, Entries::Leaf(Vec::new())] {
            let (mut root, mut block) = ([0; 60], vec![0; BLOCK_BYTES]);
            node.encode(&mut root);
            node.encode(&mut block);
            assert_eq!(Entries::decode(&root).as_ref(), Some(&node));
            assert_eq!(Entries::decode(&block), Some(node));
            seal(&mut block, 3);
            assert!(is_whole(&block, 3) && !is_whole(&block, 4));
        }
        let bad = [
            Entries::Leaf(vec![extent(5, 1, 2, true), extent(6, 9, 1, true)]),
            Entries::Leaf(vec![extent(u32::MAX, 1, 2, true)]),
            Entries::Inner(1, Vec::new()),
            Entries::Inner(9, vec![Index { file: FileBlock(3), child: BlockNo(1) }]),
        ];
        for node in bad {
            let mut root = [0; 60];
            node.encode(&mut root);
            assert_eq!(Entries::decode(&root), None, "{node:?}");
        }
    }

    #[test]
    fn parts_and_joins_keep_both_sides_in_step() {
        let whole = extent(10, 100, 20, true);
        let (left, right) = (whole.part(0, 15).unwrap(), whole.part(15, 99).unwrap());
        assert_eq!((left, right), (extent(10, 100, 5, true), extent(15, 105, 15, true)));
        assert_eq!(left.joined(&right), Some(whole));
        assert_eq!(left.joined(&extent(15, 106, 1, true)), None);
        assert_eq!(whole.part(30, 40), None);
    }
}
