//! The structures of a file system: their places, and how to correct their checksums after a
//! change, so that damage gets past the checksums.

use std::io;
use std::ops::Range;

use crate::bytes::{crc32c, high16, low16, put_be32, put_le16, put_le32};
use crate::checker::{Checked, Checker};
use crate::finding::Report;
use crate::layout::{Geometry, SUPERBLOCK, SUPERBLOCK_SUM};
use crate::source::{Block, Source};
use crate::units::{BLOCK_BYTES, BlockNo, GroupNo, Ino};
use crate::{attributes, index, inodes, journal, map, names, orphans};

/// A structure that a check visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Structure {
    /// Bytes 1024 to 2047 of block 0.
    Superblock,
    /// A group's descriptor.
    Descriptor(GroupNo),
    /// A group's bitmap of blocks: its checksum is in the descriptor.
    BlockBitmap(GroupNo, BlockNo),
    /// A group's bitmap of inodes.
    InodeBitmap(GroupNo, BlockNo),
    /// An inode in use: its block, and its first byte there.
    Inode(Ino, BlockNo, usize),
    /// A node of an extent tree, and the seed of its checksum, if there is one.
    ExtentNode(BlockNo, Option<u32>),
    /// A block of block numbers, which has no checksum.
    BlockMap(BlockNo),
    /// A block of names.
    Names(BlockNo, Option<u32>),
    /// The root of an index, or a node.
    IndexNode {
        /// Its block.
        block: BlockNo,
        /// The seed of its checksum.
        seed: Option<u32>,
        /// Whether it is the root: its entries begin behind `.` and `..`.
        root: bool,
    },
    /// A block of extended attributes.
    Attributes(BlockNo),
    /// A block of the orphan file.
    Orphans(BlockNo, Option<u32>),
    /// The journal's superblock.
    Journal(BlockNo),
    /// Another block of the journal. The content of a logged block is not sealed, because its
    /// checksum is in an earlier descriptor.
    Log(BlockNo),
}

/// An image that can be changed.
pub trait Target: Source {
    /// Writes a block.
    ///
    /// # Errors
    /// Those of the device.
    fn write(&mut self, block: BlockNo, bytes: &Block) -> io::Result<()>;
}

/// A file system and its structures.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The report of the check.
    pub report: Report,
    /// All structures that the check visited.
    pub structures: Vec<Structure>,
    layout: Geometry,
    /// The seed of the journal's checksums, if it has any.
    journal_seed: Option<u32>,
}

impl Survey {
    /// Checks a file system, as [`crate::check`], and notes its structures.
    ///
    /// # Errors
    /// As [`crate::check`].
    pub fn of(source: &dyn Source) -> Checked<Self> {
        let checker = Checker::new(source, true)?;
        let layout = checker.layout.clone();
        let (report, structures) = checker.run()?;
        let mut journal_seed = None;
        for structure in &structures {
            if let Structure::Journal(block) = structure {
                let mut bytes = [0; BLOCK_BYTES];
                source.read(*block, &mut bytes)?;
                journal_seed =
                    journal::superblock_sum(&bytes).map(|_| crc32c(!0, &[&bytes[0x30..0x40]]));
            }
        }
        Ok(Self { report, structures, layout, journal_seed })
    }

    /// The block of a structure, and its bytes in the block.
    #[must_use]
    pub fn place(&self, structure: Structure) -> (BlockNo, Range<usize>) {
        match structure {
            Structure::Superblock => (BlockNo(0), SUPERBLOCK),
            Structure::Descriptor(group) => {
                let (block, at) = self.layout.descriptor_at(group);
                (block, at..at + self.layout.descriptor_bytes)
            }
            Structure::Inode(_, block, at) => (block, at..at + self.layout.inode_bytes),
            Structure::BlockBitmap(_, block)
            | Structure::InodeBitmap(_, block)
            | Structure::ExtentNode(block, _)
            | Structure::BlockMap(block)
            | Structure::Names(block, _)
            | Structure::IndexNode { block, .. }
            | Structure::Attributes(block)
            | Structure::Orphans(block, _)
            | Structure::Journal(block)
            | Structure::Log(block) => (block, 0..BLOCK_BYTES),
        }
    }

    /// Corrects the checksums that cover a structure, after a change of it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn seal(&self, target: &mut dyn Target, structure: Structure) -> io::Result<()> {
        let (block, range) = self.place(structure);
        let mut bytes = [0; BLOCK_BYTES];
        target.read(block, &mut bytes)?;
        match structure {
            Structure::BlockBitmap(group, _) => {
                let bits = self.layout.blocks_per_group;
                return self.seal_bitmap(target, group, (0x18, 0x38), &bytes[..bits as usize / 8]);
            }
            Structure::InodeBitmap(group, _) => {
                let bits = self.layout.inodes_per_group;
                return self.seal_bitmap(target, group, (0x1A, 0x3A), &bytes[..bits as usize / 8]);
            }
            Structure::Superblock if self.layout.seed.is_some() => {
                let sum = crc32c(!0, &[&bytes[SUPERBLOCK][..SUPERBLOCK_SUM]]);
                put_le32(&mut bytes, SUPERBLOCK.start + SUPERBLOCK_SUM, sum);
            }
            Structure::Descriptor(group) => {
                if let Some(sum) = self.layout.descriptor_sum(group, &bytes[range.clone()]) {
                    put_le16(&mut bytes, range.start + 0x1E, sum);
                }
            }
            Structure::Inode(ino, ..) => inodes::seal(&self.layout, ino, &mut bytes[range]),
            _ => self.seal_block(structure, block, &mut bytes),
        }
        target.write(block, &bytes)
    }

    fn seal_block(&self, structure: Structure, block: BlockNo, bytes: &mut Block) {
        let (at, sum) = match structure {
            Structure::ExtentNode(_, Some(seed)) => {
                (map::NODE_SUM, crc32c(seed, &[&bytes[..map::NODE_SUM]]))
            }
            Structure::Names(_, Some(seed)) => (names::NAMES_SUM, names::names_sum(seed, bytes)),
            Structure::IndexNode { seed: Some(seed), root, .. } => {
                let sum = index::node_sum(seed, bytes, index::entries_at(root));
                let Some((at, sum)) = sum else { return };
                (at, sum)
            }
            Structure::Attributes(_) => {
                let Some(seed) = self.layout.seed else { return };
                (attributes::BLOCK_SUM, attributes::block_sum(seed, block, bytes))
            }
            Structure::Orphans(_, Some(seed)) => {
                (orphans::BLOCK_SUM, orphans::block_sum(seed, block, bytes))
            }
            Structure::Journal(_) => {
                if let Some(sum) = journal::superblock_sum(bytes) {
                    put_be32(bytes, journal::SUM, sum);
                }
                return;
            }
            Structure::Log(_) => {
                if let Some(seed) = self.journal_seed {
                    journal::seal_log(bytes, seed);
                }
                return;
            }
            _ => return,
        };
        put_le32(bytes, at, sum);
    }

    fn seal_bitmap(
        &self,
        target: &mut dyn Target,
        group: GroupNo,
        fields: (usize, usize),
        bits: &[u8],
    ) -> io::Result<()> {
        let Some(seed) = self.layout.seed else { return Ok(()) };
        let sum = crc32c(seed, &[bits]);
        let (block, range) = self.place(Structure::Descriptor(group));
        let mut bytes = [0; BLOCK_BYTES];
        target.read(block, &mut bytes)?;
        put_le16(&mut bytes, range.start + fields.0, low16(sum));
        if range.len() >= 64 {
            put_le16(&mut bytes, range.start + fields.1, high16(sum));
        }
        target.write(block, &bytes)?;
        self.seal(target, Structure::Descriptor(group))
    }
}
