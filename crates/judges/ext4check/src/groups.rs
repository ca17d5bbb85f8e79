//! Group descriptors, and the structures that they name.

use crate::bytes::{join, le16, le32};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::layout::{Geometry, incompat};
use crate::structures::Structure;
use crate::units::{BlockNo, GroupNo};

/// Flag: the bitmap of inodes, and all inodes, were never written.
pub(crate) const INODE_UNINIT: u16 = 1;
/// Flag: the bitmap of blocks was never written.
pub(crate) const BLOCK_UNINIT: u16 = 2;

/// A descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) block_bitmap: BlockNo,
    pub(crate) inode_bitmap: BlockNo,
    pub(crate) table: BlockNo,
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) directories: u32,
    /// Inodes at the table's end that were never written.
    pub(crate) unused: u32,
    pub(crate) flags: u16,
    /// Whether it says that something was never written, although only groups with checksums may.
    is_misflagged: bool,
    /// Checksums of the bitmaps, blocks first. The device stores only the bits of
    /// [`Group::sum_mask`].
    pub(crate) sums: [u32; 2],
    pub(crate) sum_mask: u32,
    /// Whether its structures lie at possible places.
    pub(crate) is_sound: bool,
}

impl Group {
    fn decode(bytes: &[u8], layout: &Geometry) -> Self {
        let wide = bytes.len() >= 64;
        let number = |low, high| join(le32(bytes, low), if wide { le32(bytes, high) } else { 0 });
        let count = |low, high| {
            let upper = if wide { le16(bytes, high) } else { 0 };
            u32::from(le16(bytes, low)) | u32::from(upper) << 16
        };
        let (lazy, flags) = (layout.may_be_unwritten(), le16(bytes, 0x12));
        let unused = count(0x1C, 0x32);
        let says_unwritten = unused != 0 || flags & (INODE_UNINIT | BLOCK_UNINIT) != 0;
        Self {
            block_bitmap: BlockNo(number(0x0, 0x20)),
            inode_bitmap: BlockNo(number(0x4, 0x24)),
            table: BlockNo(number(0x8, 0x28)),
            free_blocks: count(0xC, 0x2C),
            free_inodes: count(0xE, 0x2E),
            directories: count(0x10, 0x30),
            unused: if lazy { unused } else { 0 },
            flags: if lazy { flags } else { 0 },
            is_misflagged: !lazy && says_unwritten,
            sums: [count(0x18, 0x38), count(0x1A, 0x3A)],
            sum_mask: if wide { u32::MAX } else { 0xFFFF },
            is_sound: true,
        }
    }

    pub(crate) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Checker<'_> {
    /// Reads all descriptors, and takes the blocks of the structures that they name.
    pub(crate) fn read_groups(&mut self) -> Checked<()> {
        let layout = self.layout.clone();
        let mut table = (BlockNo(0), Box::new([0; crate::BLOCK_BYTES]));
        for number in (0..layout.groups).map(GroupNo) {
            let (block, at) = layout.descriptor_at(number);
            if block.0 >= layout.blocks {
                let what = "the superblock places descriptors beyond the end";
                return Err(crate::Unreadable::Superblock(what));
            }
            if table.0 != block {
                self.source.read(block, &mut table.1)?;
                table.0 = block;
            }
            let bytes = &table.1[at..at + layout.descriptor_bytes];
            self.note(Structure::Descriptor(number));
            if layout.descriptor_sum(number, bytes).is_some_and(|sum| sum != le16(bytes, 0x1E)) {
                self.find(Location::Group(number), Problem::Checksum("the descriptor"));
            }
            self.groups.push(Group::decode(bytes, &layout));
            let head = layout.first_block(number);
            for block in head..head + u64::from(layout.head_blocks(number)) {
                self.space.take(block);
            }
        }
        (0..layout.groups).map(GroupNo).for_each(|number| self.place_structures(number));
        Ok(())
    }

    fn place_structures(&mut self, number: GroupNo) {
        let group = self.groups[number.0 as usize].clone();
        let table = u64::from(self.layout.table_blocks());
        let places = [(group.block_bitmap, 1), (group.inode_bitmap, 1), (group.table, table)];
        let (first, blocks) = (self.layout.first_block(number), self.layout.blocks_in(number));
        let (inside, flexible) =
            (first..first + u64::from(blocks), self.layout.has_incompat(incompat::FLEX_BG));
        for (place, count) in places {
            let end = place.0.checked_add(count).filter(|end| *end <= self.layout.blocks);
            let local = flexible || inside.contains(&place.0);
            let Some(end) = end.filter(|_| place.0 > 0 && local) else {
                self.find(Location::Group(number), Problem::Misplaced("a bitmap or table"));
                self.groups[number.0 as usize].is_sound = false;
                continue;
            };
            for block in place.0..end {
                if !self.space.take(block) {
                    self.find(Location::Space(BlockNo(block)), Problem::UsedTwice);
                    self.groups[number.0 as usize].is_sound = false;
                }
            }
        }
        let impossible = [
            (group.is_misflagged, "it says that something was never written"),
            (group.free_blocks > blocks, "more free blocks than blocks"),
            (group.free_inodes > self.layout.inodes_per_group, "more free inodes than inodes"),
            (group.unused > self.layout.inodes_per_group, "more unused inodes than inodes"),
            (group.directories > self.layout.inodes_per_group, "more directories than inodes"),
        ];
        for (is_so, what) in impossible {
            if is_so {
                self.find(Location::Group(number), Problem::Impossible(what));
            }
        }
    }
}
