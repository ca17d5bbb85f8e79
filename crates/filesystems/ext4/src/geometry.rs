//! The layout of a mounted file system, which never changes: where its structures are, checked
//! once.

use std::cell::Cell;
use std::ops::Range;

use rangemap::RangeSet;

use crate::checksum::crc16;
use crate::error::{Corruption, Location, Refusal, Result};
use crate::ondisk::bytes::{high16, low32};
use crate::ondisk::features::{Features, compat, incompat, ro_compat};
use crate::ondisk::group::{DescriptorChecksum, Group};
use crate::ondisk::inode::SHORT;
use crate::ondisk::superblock::Superblock;
use crate::units::{BLOCK, BLOCK_BYTES, BlockNo, GroupNo, Ino, Run};

/// Bits in a bitmap's block.
const BITS: u32 = 8 * 4096;

/// The layout: see the module.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) blocks: u64,
    pub(crate) groups: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) inode_bytes: usize,
    pub(crate) extra_inode_bytes: u16,
    pub(crate) first_free_inode: u32,
    /// Groups that have their bitmaps and tables in one place.
    pub(crate) groups_in_flex: u32,
    pub(crate) journal: Ino,
    /// The seed of checksums of metadata; `None` if there are no checksums.
    pub(crate) seed: Option<u32>,
    pub(crate) descriptor_checksum: DescriptorChecksum,
    pub(crate) features: Features,
    pub(crate) hash_seed: [u32; 4],
    /// Version of the hash of names in new indexes.
    pub(crate) hash_version: u8,
    pub(crate) hashes_unsigned: bool,
    pub(crate) reserved_blocks: u64,
    /// The user, and the group, that may have reserved blocks besides root.
    pub(crate) reserved_for: (u32, u32),
    descriptor_bytes: usize,
    first_meta_group: u32,
    backup_groups: [u32; 2],
    reserved_descriptor_blocks: u32,
    /// Blocks of superblocks, descriptors, bitmaps, tables of inodes, and the journal.
    system: RangeSet<u64>,
    /// Number of these blocks, once the journal is known. The kernel does not count them in a file
    /// system's size.
    pub(crate) overhead_blocks: u64,
    /// Whether the journal's file is being changed: it alone may have the journal's blocks.
    pub(crate) changes_journal: Cell<bool>,
}

impl Geometry {
    /// The format of this file system's journal: whether it has 64-bit block numbers, and
    /// checksums.
    pub(crate) const fn journal_format(&self) -> (bool, bool) {
        (self.features.incompat & incompat::BITS64 != 0, self.seed.is_some())
    }

    /// The layout that `superblock` describes, if it is possible.
    pub(crate) fn of(superblock: &Superblock) -> Result<Self> {
        let features = superblock.features();
        features.check()?;
        if superblock.journal().0 == 0 && superblock.has_journal_elsewhere() {
            return Err(Refusal::ExternalJournal.into());
        }
        let bad = |what| Corruption::of(Location::Superblock, what);
        let per_group = superblock.blocks_per_group();
        let (inodes, inodes_per_group) = (superblock.inodes(), superblock.inodes_per_group());
        let inode_bytes = if superblock.revision() == 0 { 128 } else { superblock.inode_bytes() };
        let descriptor_bytes = superblock.descriptor_bytes();
        check(superblock.first_data_block() == 0, "first data block")?;
        check((8..=BITS).contains(&per_group) && per_group.is_multiple_of(8), "blocks per group")?;
        let inode_size = usize::from(inode_bytes);
        let sizes = SHORT..=BLOCK_BYTES;
        check(sizes.contains(&inode_size) && inode_size.is_power_of_two(), "inode size")?;
        let descriptors = [32, 64, 128, 256, 512, 1024];
        check(descriptors.contains(&descriptor_bytes), "descriptor size")?;
        let whole = (inodes_per_group as usize * inode_size).is_multiple_of(BLOCK_BYTES);
        check((8..=BITS).contains(&inodes_per_group) && whole, "inodes per group")?;
        let blocks = superblock.blocks();
        let groups = u32::try_from(blocks.div_ceil(per_group.into()));
        let groups = groups.map_err(|_| bad("block count"))?;
        check(groups > 0 && groups.checked_mul(inodes_per_group) == Some(inodes), "inode count")?;
        check(superblock.first_free_inode() >= 11, "first inode")?;
        let extra = superblock.extra_inode_bytes();
        let most = inode_size - SHORT;
        check(extra.is_multiple_of(4) && usize::from(extra) <= most.max(32), "extra inode size")?;
        Ok(Self {
            blocks,
            groups,
            blocks_per_group: per_group,
            inodes,
            inodes_per_group,
            inode_bytes: inode_size,
            extra_inode_bytes: if inode_size > SHORT { extra } else { 0 },
            first_free_inode: superblock.first_free_inode(),
            groups_in_flex: superblock.groups_in_flex(),
            journal: superblock.journal(),
            seed: has(features.ro_compat, ro_compat::METADATA_CSUM).then(|| superblock.seed()),
            descriptor_checksum: descriptor_checksum(superblock),
            features,
            hash_seed: superblock.hash_seed(),
            hash_version: superblock.hash_version(),
            hashes_unsigned: superblock.hashes_unsigned(),
            reserved_blocks: superblock.reserved_blocks(),
            reserved_for: superblock.reserved_for(),
            descriptor_bytes: descriptor_bytes.into(),
            first_meta_group: if has(features.incompat, incompat::META_BG) {
                superblock.first_meta_group()
            } else {
                u32::MAX
            },
            backup_groups: superblock.backup_groups(),
            reserved_descriptor_blocks: superblock.reserved_descriptor_blocks().into(),
            system: RangeSet::new(),
            overhead_blocks: 0,
            changes_journal: Cell::new(false),
        })
    }

    /// Whether the superblock says that there may be blocks of extended attributes.
    pub(crate) fn has_xattr_blocks(&self) -> bool {
        has(self.features.compat, compat::EXT_ATTR)
    }

    /// Whether new files are mapped by extents; else by blocks.
    pub(crate) fn has_extents(&self) -> bool {
        has(self.features.incompat, incompat::EXTENTS)
    }

    /// Whether directories with more links than fit in the field count one link.
    pub(crate) fn dir_nlink(&self) -> bool {
        has(self.features.ro_compat, ro_compat::DIR_NLINK)
    }

    fn descriptors_per_block(&self) -> u32 {
        BITS / 8 / manylogs_block::narrow::<_, u32>(self.descriptor_bytes as u64)
    }

    /// The blocks of the table of descriptors, in order of groups.
    ///
    /// # Errors
    /// One lies beyond the end.
    pub(crate) fn descriptor_blocks(&self) -> Result<Vec<BlockNo>, Corruption> {
        let per_block = self.descriptors_per_block();
        let block = |number: u32| {
            if number < self.first_meta_group {
                return BlockNo(1 + u64::from(number));
            }
            let group = GroupNo(number * per_block);
            BlockNo(self.first_block(group).0 + u64::from(self.has_superblock(group)))
        };
        let blocks = Vec::from_iter((0..self.groups.div_ceil(per_block)).map(block));
        let are_within = blocks.iter().all(|block| block.0 < self.blocks);
        check(are_within, "descriptors beyond the end")?;
        Ok(blocks)
    }

    /// Which of [`Geometry::descriptor_blocks`] holds the group's descriptor, and where in it.
    pub(crate) fn descriptor_at(&self, group: GroupNo) -> (usize, Range<usize>) {
        let per_block = self.descriptors_per_block();
        let start = (group.0 % per_block) as usize * self.descriptor_bytes;
        ((group.0 / per_block) as usize, start..start + self.descriptor_bytes)
    }

    pub(crate) fn first_block(&self, group: GroupNo) -> BlockNo {
        BlockNo(u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// How many blocks the group has: the last may have fewer.
    pub(crate) fn blocks_in(&self, group: GroupNo) -> u32 {
        let rest = self.blocks - self.first_block(group).0;
        low32(rest.min(self.blocks_per_group.into()))
    }

    /// The group of a block, and its number there. The block is one of the file system.
    pub(crate) fn group_of(&self, block: BlockNo) -> (GroupNo, u32) {
        let per_group = u64::from(self.blocks_per_group);
        (GroupNo(low32(block.0 / per_group)), low32(block.0 % per_group))
    }

    /// The group of an inode, and its number there; `None` if there is no such inode.
    pub(crate) fn group_of_inode(&self, ino: Ino) -> Option<(GroupNo, u32)> {
        let index = ino.0.checked_sub(1).filter(|_| ino.0 <= self.inodes)?;
        Some((GroupNo(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// Blocks of a group's table of inodes.
    pub(crate) fn table_blocks(&self) -> u32 {
        manylogs_block::narrow(self.inodes_per_group as u64 * self.inode_bytes as u64 / BLOCK)
    }

    fn has_superblock(&self, group: GroupNo) -> bool {
        let is_power = |base: u32| {
            let mut power = base;
            while power < group.0 {
                power = power.saturating_mul(base);
            }
            power == group.0
        };
        if group.0 == 0 {
            true
        } else if has(self.features.compat, compat::SPARSE_SUPER2) {
            self.backup_groups.contains(&group.0)
        } else if has(self.features.ro_compat, ro_compat::SPARSE_SUPER) {
            group.0 == 1 || [3, 5, 7].into_iter().any(is_power)
        } else {
            true
        }
    }

    /// The groups that begin with a copy of the superblock.
    pub(crate) fn superblock_groups(&self) -> impl Iterator<Item = GroupNo> + '_ {
        (1..self.groups).map(GroupNo).filter(|group| self.has_superblock(*group))
    }

    /// How many blocks at the group's beginning hold a superblock and descriptors.
    fn head_blocks(&self, group: GroupNo) -> u64 {
        let superblock = u64::from(self.has_superblock(group));
        let per_block = self.descriptors_per_block();
        if group.0 / per_block < self.first_meta_group {
            let table = self.groups.div_ceil(per_block).min(self.first_meta_group);
            superblock * (1 + u64::from(table) + u64::from(self.reserved_descriptor_blocks))
        } else {
            superblock + u64::from([0, 1, per_block - 1].contains(&(group.0 % per_block)))
        }
    }

    /// Learns where a group's structures are.
    pub(crate) fn add_group(&mut self, number: GroupNo, group: &Group<'_>) -> Result<()> {
        let bad = |what| Corruption::group(number, what);
        if !group.is_whole(number, self.descriptor_checksum) {
            return Err(bad("wrong checksum of the descriptor").into());
        }
        let head =
            self.first_block(number).0..self.first_block(number).0 + self.head_blocks(number);
        if !head.is_empty() {
            self.system.insert(head);
        }
        let table = u64::from(self.table_blocks());
        let places = [group.block_bitmap(), group.inode_bitmap(), group.inode_table()];
        for (place, blocks) in places.into_iter().zip([1, 1, table]) {
            let end = place.0.checked_add(blocks).filter(|end| *end <= self.blocks);
            let end = end.ok_or_else(|| bad("a structure lies beyond the end"))?;
            if self.system.overlaps(&(place.0..end)) {
                return Err(bad("two structures overlap").into());
            }
            self.system.insert(place.0..end);
        }
        if group.free_blocks() > self.blocks_in(number) {
            return Err(bad("more free blocks than blocks").into());
        }
        let inodes = self.inodes_per_group;
        if group.free_inodes() > inodes || group.unused_inodes() > inodes {
            return Err(bad("more free inodes than inodes").into());
        }
        Ok(())
    }

    /// Learns where the journal is: no file may have its blocks.
    pub(crate) fn add_journal(&mut self, runs: &[Run]) {
        for run in runs {
            self.system.insert(run.range());
        }
        self.overhead_blocks = self.system.iter().map(|range| range.end - range.start).sum();
    }

    /// Blocks of a group that hold structures, its own or another group's, as numbers in the group.
    pub(crate) fn system_in(&self, group: GroupNo) -> impl Iterator<Item = Range<u32>> + '_ {
        let first = self.first_block(group).0;
        let end = first + u64::from(self.blocks_in(group));
        let inside = move |range: &Range<u64>| {
            low32(range.start.max(first) - first)..low32(range.end.min(end) - first)
        };
        self.system.overlapping(first..end).map(inside)
    }

    /// Whether a file may have these blocks: they are inside the file system, and not its own.
    pub(crate) fn is_data(&self, run: Run) -> bool {
        self.is_inside(run) && !self.system.overlaps(&run.range())
    }

    /// Whether this file may have these blocks. Those of the journal were looked at before they
    /// were added.
    pub(crate) fn may_have(&self, ino: Ino, run: Run) -> bool {
        self.is_data(run) || self.is_changing_journal(ino) && self.is_inside(run)
    }

    /// Whether this file is the journal's, which is being changed.
    pub(crate) fn is_changing_journal(&self, ino: Ino) -> bool {
        self.changes_journal.get() && ino == self.journal
    }

    /// Whether these blocks are inside the file system.
    pub(crate) fn is_inside(&self, run: Run) -> bool {
        let end = run.start.0.checked_add(run.blocks.into());
        run.blocks > 0 && run.start.0 > 0 && end.is_some_and(|end| end <= self.blocks)
    }
}

const fn has(bits: u32, bit: u32) -> bool {
    bits & bit != 0
}

fn check(sound: bool, what: &'static str) -> Result<(), Corruption> {
    if sound { Ok(()) } else { Err(Corruption::of(Location::Superblock, what)) }
}

fn descriptor_checksum(superblock: &Superblock) -> DescriptorChecksum {
    let bits = superblock.features().ro_compat;
    if has(bits, ro_compat::METADATA_CSUM) {
        DescriptorChecksum::Crc32c { seed: superblock.seed() }
    } else if has(bits, ro_compat::GDT_CSUM) {
        DescriptorChecksum::Crc16 { seed: crc16(high16(u32::MAX), &superblock.uuid()) }
    } else {
        DescriptorChecksum::None
    }
}

/// Checks the superblock's state: a mount is refused if errors were found earlier.
pub(crate) fn check_state(superblock: &Superblock) -> Result<(), Refusal> {
    if superblock.has_errors() {
        return Err(Refusal::NeedsCheck("errors were found earlier"));
    }
    Ok(())
}
