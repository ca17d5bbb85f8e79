//! Metadata that leads to content of which the log has the only copy: the form that its home has
//! meanwhile.
//!
//! The home of such metadata says *unwritten* where it would lead to a block whose content is not
//! home. So whoever reads the homes alone finds zeroes there, and not what another file left. The
//! true form stays in the log with the content. Metadata that leads to content is an inode, or the
//! leaf of an extent tree. Both are recognised where they lie: an inode in a table of inodes, a
//! leaf in a whole block where files may be.
//!
//! The form is made without the number of the inode: a checksum is corrected by the checksum of
//! what changes, because CRCs are linear.

use std::ops::Range;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent as Sectors, SECTOR_BYTES, to_usize};
use manylogs_plant::{Bug, is};
use rangemap::RangeSet;

use crate::cache::read_blocks;
use crate::error::Result;
use crate::geometry::Geometry;
use crate::ondisk::extent::{Entries, Extent, UNWRITTEN_MOST, amend, capacity};
use crate::ondisk::group::Group;
use crate::ondisk::inode::{FileKind, MAP_BYTES, RawInode, flags};
use crate::ops::Ext4;
use crate::units::{BLOCK_BYTES, BLOCK_SECTORS, BlockNo, GroupNo, Run};

/// Bytes of a sector.
const SECTOR: usize = 512;
const _: () = assert!(SECTOR as u64 == SECTOR_BYTES);

/// Tells which parts of a run hold content that is not home.
pub type NotHome<'a> = &'a dyn Fn(Run) -> Vec<Run>;

/// Where a file system has metadata that may lead to content: see the module.
#[derive(Clone, Debug)]
pub struct Leads {
    geometry: Geometry,
    /// The blocks of all tables of inodes.
    tables: RangeSet<u64>,
}

impl Ext4 {
    /// Learns where the file system on `device` has metadata that leads to content. The device may
    /// be in use by a mount through a sink.
    ///
    /// # Errors
    /// As [`Ext4::check_mount_through`].
    pub async fn leads_through(device: &Rc<dyn BlockDevice>) -> Result<Leads> {
        let superblock = Self::superblock_to_mount_through(device).await?;
        let (mut geometry, mut tables) = (Geometry::of(&superblock)?, RangeSet::new());
        let blocks = geometry.descriptor_blocks()?;
        // A sync may wait for this beside a stream, and a large disk has thousands of blocks.
        let descriptors = read_blocks(&**device, &blocks).await?;
        for number in (0..geometry.groups).map(GroupNo) {
            let (block, range) = geometry.descriptor_at(number);
            let group = Group(&descriptors[block][range]);
            geometry.add_group(number, &group)?;
            let start = group.inode_table().0;
            tables.insert(start..start + u64::from(geometry.table_blocks()));
        }
        Ok(Leads { geometry, tables })
    }
}

impl Leads {
    /// The sectors of a block that must be logged together with the changed ones, so that
    /// [`Leads::home_form`] finds whole inodes and leaves in them. Both are numbers in the block.
    #[must_use]
    pub fn whole(&self, block: BlockNo, bytes: &[u8], changed: Range<usize>) -> Range<usize> {
        if self.tables.contains(&block.0) {
            let unit = self.geometry.inode_bytes.div_ceil(SECTOR);
            return changed.start / unit * unit..changed.end.div_ceil(unit) * unit;
        }
        match self.may_be_leaf(block) && matches!(Entries::decode(bytes), Some(Entries::Leaf(_))) {
            true => 0..to_usize(BLOCK_SECTORS),
            false => changed,
        }
    }

    /// What lies at home in place of metadata as long as content that it leads to is not home;
    /// `None` if it leads to no such content. `bytes` are what the log has of `extent`.
    #[must_use]
    pub fn home_form(
        &self,
        extent: Sectors,
        bytes: &[u8],
        not_home: NotHome<'_>,
    ) -> Option<Vec<u8>> {
        let mut form = bytes.to_vec();
        let (mut at, mut changed) = (extent.start.0, false);
        let mut rest = form.as_mut_slice();
        while !rest.is_empty() {
            let (block, skip) = (BlockNo(at / BLOCK_SECTORS), at % BLOCK_SECTORS);
            let len = rest.len().min(to_usize(BLOCK_SECTORS - skip) * SECTOR);
            let (part, behind) = rest.split_at_mut(len);
            changed |= match () {
                () if self.tables.contains(&block.0) => self.put_inodes(part, not_home),
                () if len == BLOCK_BYTES && self.may_be_leaf(block) => {
                    self.put_leaf(part, not_home)
                }
                () => false,
            };
            at += (len / SECTOR) as u64;
            rest = behind;
        }
        changed.then_some(form)
    }

    fn may_be_leaf(&self, block: BlockNo) -> bool {
        self.geometry.is_data(Run { start: block, blocks: 1 })
    }

    /// Gives inodes their form at home; true if one differs.
    fn put_inodes(&self, bytes: &mut [u8], not_home: NotHome<'_>) -> bool {
        let mut changed = false;
        for inode in bytes.chunks_exact_mut(self.geometry.inode_bytes) {
            let Some(raw) = RawInode::decode(inode) else { continue };
            let is_file = raw.kind() == Some(FileKind::File) && raw.has_flag(flags::EXTENTS);
            let Some(Entries::Leaf(extents)) = Entries::decode(raw.map()).filter(|_| is_file)
            else {
                continue;
            };
            let room = capacity(&[0; MAP_BYTES]);
            let Some(form) = without(&extents, room, not_home) else { continue };
            let mut at_home = raw.clone();
            Entries::Leaf(form).encode(at_home.map_mut());
            if self.geometry.seed.is_some() {
                at_home.amend(&raw);
            }
            inode.copy_from_slice(at_home.bytes());
            changed = true;
        }
        changed
    }

    /// Gives a leaf its form at home; true if it differs. Blocks that are no leaf stay.
    fn put_leaf(&self, bytes: &mut [u8], not_home: NotHome<'_>) -> bool {
        let Some(Entries::Leaf(extents)) = Entries::decode(bytes) else { return false };
        let Some(form) = without(&extents, capacity(bytes), not_home) else { return false };
        let before = bytes.to_vec();
        Entries::Leaf(form).encode(bytes);
        if self.geometry.seed.is_some() {
            amend(bytes, &before);
        }
        true
    }
}

/// The extents with unwritten ones where content is not home; `None` if all of it is home. If a
/// node has not `room` for the pieces, whole extents are unwritten.
fn without(extents: &[Extent], room: usize, not_home: NotHome<'_>) -> Option<Vec<Extent>> {
    if is(Bug::DurableHomeFormWritten) {
        return None;
    }
    let mut any = false;
    let (mut fine, mut coarse) = (Vec::new(), Vec::new());
    for extent in extents {
        let run = Run { start: extent.block, blocks: extent.blocks };
        let missing = if extent.written { not_home(run) } else { Vec::new() };
        any |= !missing.is_empty();
        // Of longer extents there are no unwritten ones. Ours are not that long.
        let fits = missing.is_empty() || extent.blocks > UNWRITTEN_MOST;
        coarse.push(Extent { written: extent.written && fits, ..*extent });
        pieces(extent, &missing, &mut fine);
    }
    any.then_some(if fine.len() <= room { fine } else { coarse })
}

/// Splits an extent: the blocks of `missing`, which are in order, become unwritten.
fn pieces(extent: &Extent, missing: &[Run], into: &mut Vec<Extent>) {
    let file = |block: u64| u64::from(extent.file.0) + (block - extent.block.0);
    let mut next = u64::from(extent.file.0);
    let mut put = |from: u64, to: u64, written: bool| {
        into.extend(extent.part(from, to).map(|part| Extent { written, ..part }));
    };
    for run in missing {
        let (from, to) = (file(run.range().start), file(run.range().end));
        put(next, from, true);
        let most = u64::from(UNWRITTEN_MOST);
        for at in (from..to).step_by(to_usize(most)) {
            put(at, to.min(at + most), false);
        }
        next = to;
    }
    put(next, extent.end(), extent.written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::FileBlock;

    fn extent(file: u32, block: u64, blocks: u32, written: bool) -> Extent {
        Extent { file: FileBlock(file), block: BlockNo(block), blocks, written }
    }

    fn run(start: u64, blocks: u32) -> Run {
        Run { start: BlockNo(start), blocks }
    }

    #[test]
    fn only_what_is_not_home_becomes_unwritten() {
        let all = [extent(0, 100, 10, true), extent(10, 300, 5, false)];
        let missing = |asked: Run| match asked.start {
            BlockNo(100) => vec![run(100, 2), run(105, 1)],
            _ => Vec::new(),
        };
        let form = [
            extent(0, 100, 2, false),
            extent(2, 102, 3, true),
            extent(5, 105, 1, false),
            extent(6, 106, 4, true),
            extent(10, 300, 5, false),
        ];
        assert_eq!(without(&all, 5, &missing), Some(form.to_vec()));
        let coarse = [extent(0, 100, 10, false), extent(10, 300, 5, false)];
        assert_eq!(without(&all, 4, &missing), Some(coarse.to_vec()));
        assert_eq!(without(&all, 4, &|_| Vec::new()), None);
    }

    #[test]
    fn a_checksum_is_corrected_without_its_seed() {
        for seed in [3, 4] {
            let mut node = vec![0; BLOCK_BYTES];
            Entries::Leaf(vec![extent(7, 1000, 9, true)]).encode(&mut node);
            crate::ondisk::extent::seal(&mut node, seed);
            let before = node.clone();
            Entries::Leaf(vec![extent(7, 1000, 9, false)]).encode(&mut node);
            amend(&mut node, &before);
            assert!(crate::ondisk::extent::is_whole(&node, seed));
        }
        for bytes in [128, 256] {
            let mut inode = RawInode::blank(bytes, 32);
            inode.seal(5, crate::Ino(12));
            let before = inode.clone();
            Entries::Leaf(vec![extent(7, 1000, 9, false)]).encode(inode.map_mut());
            inode.amend(&before);
            assert!(inode.is_whole(5, crate::Ino(12)));
        }
    }
}
