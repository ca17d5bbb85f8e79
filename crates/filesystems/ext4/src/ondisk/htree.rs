//! Blocks of a directory's index: the root, in the first block behind `.` and `..`, and nodes.

use crate::checksum::crc;
use crate::ondisk::bytes::{le16, le32, put_le16, put_le32};
use crate::units::BLOCK_BYTES;

/// Offset of the entries in the root, and of those in a node.
const ROOT: usize = 32;
/// See [`ROOT`].
const NODE: usize = 8;
const ENTRY: usize = 8;
/// Bytes of the checksum behind the room for entries.
const TAIL: usize = 8;
const VERSION: usize = 28;
const LEVELS: usize = 30;

/// One child: names whose hashes are `hash` or more. If the lowest bit is set, names of that hash
/// are in the child before too. The first child has no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) hash: u32,
    /// The block's number in the directory.
    pub(crate) block: u32,
}

/// A block of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexLayout {
    pub(crate) root: bool,
    /// The seed of the directory's checksums, if it has any.
    pub(crate) seed: Option<u32>,
}

impl IndexLayout {
    const fn start(self) -> usize {
        if self.root { ROOT } else { NODE }
    }

    /// Number of children that fit.
    pub(crate) const fn capacity(self) -> usize {
        let tail = if self.seed.is_some() { TAIL } else { 0 };
        (BLOCK_BYTES - self.start() - tail) / ENTRY
    }

    /// The children of a node; `None` if it is not whole, or says something impossible.
    pub(crate) fn decode(self, block: &[u8]) -> Option<Vec<Child>> {
        let start = self.start();
        let (room, used) = (le16(block, start), usize::from(le16(block, start + 2)));
        let sound = usize::from(room) == self.capacity()
            && (1..=self.capacity()).contains(&used)
            && self.seed.is_none_or(|seed| self.checksum(block, used, seed) == self.kept(block));
        if !sound {
            return None;
        }
        let entries = block[start..].chunks_exact(ENTRY).take(used).enumerate();
        let child = |(number, at): (usize, &[u8])| Child {
            hash: if number == 0 { 0 } else { le32(at, 0) },
            block: le32(at, 4) & 0x0fff_ffff,
        };
        let children: Vec<Child> = entries.map(child).collect();
        let ordered = children.windows(2).all(|two| two[0].hash <= two[1].hash);
        (ordered && children.iter().all(|child| child.block > 0)).then_some(children)
    }

    /// Writes children into a node. The bytes before them stay.
    pub(crate) fn encode(self, block: &mut [u8], children: &[Child]) {
        let start = self.start();
        for (number, child) in children.iter().enumerate() {
            let at = start + number * ENTRY;
            put_le32(block, at, child.hash);
            put_le32(block, at + 4, child.block);
        }
        put_le16(block, start, manylogs_block::narrow(self.capacity()));
        put_le16(block, start + 2, manylogs_block::narrow(children.len()));
        self.seal(block);
    }

    /// Computes the checksum.
    pub(crate) fn seal(self, block: &mut [u8]) {
        let Some(seed) = self.seed else { return };
        let used = usize::from(le16(block, self.start() + 2));
        let sum = self.checksum(block, used, seed);
        put_le32(block, self.tail() + 4, sum);
    }

    const fn tail(self) -> usize {
        self.start() + self.capacity() * ENTRY
    }

    fn kept(self, block: &[u8]) -> u32 {
        le32(block, self.tail() + 4)
    }

    fn checksum(self, block: &[u8], used: usize, seed: u32) -> u32 {
        let sum = crc(seed, &block[..self.start() + used * ENTRY]);
        crc(crc(sum, &block[self.tail()..self.tail() + 4]), &[0; 4])
    }
}

/// Makes a node without children: for programs that do not know indexes it is one unused record.
pub(crate) fn format_node(block: &mut [u8]) {
    block.fill(0);
    put_le16(block, 4, manylogs_block::narrow(BLOCK_BYTES));
}

/// Writes the fields between `..` and the root's children.
pub(crate) fn format_root(block: &mut [u8], version: u8) {
    block[24..].fill(0);
    // The record of `..` reaches to the block's end.
    put_le16(block, 12 + 4, manylogs_block::narrow(BLOCK_BYTES - 12));
    block[VERSION] = version;
    block[VERSION + 1] = 8;
}

/// The version of the hash, and the levels of nodes below the root; `None` if the root says
/// something impossible.
pub(crate) fn root_info(block: &[u8]) -> Option<(u8, u8)> {
    let sound = le32(block, 24) == 0 && block[VERSION + 1] == 8 && block[LEVELS] <= 1;
    sound.then_some((block[VERSION], block[LEVELS]))
}

/// Says how many levels of nodes are below the root.
pub(crate) fn set_levels(block: &mut [u8], levels: u8) {
    block[LEVELS] = levels;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_nodes_survive_encoding_and_damage_is_noticed() {
        for (root, seed, capacity) in
            [(true, Some(1), 507), (false, Some(1), 510), (true, None, 508), (false, None, 511)]
        {
            let layout = IndexLayout { root, seed };
            assert_eq!(layout.capacity(), capacity);
            let child = |n: u32| Child { hash: 2 * n, block: n + 1 };
            let children: Vec<Child> = (0..u32::try_from(capacity).unwrap()).map(child).collect();
            let mut block = vec![0; BLOCK_BYTES];
            if root {
                format_root(&mut block, 1);
            } else {
                format_node(&mut block);
            }
            layout.encode(&mut block, &children);
            assert_eq!(layout.decode(&block), Some(children));
            block[100] ^= 4;
            assert!(seed.is_none() || layout.decode(&block).is_none());
        }
    }
}
