//! Group descriptors and their bitmaps.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use crate::cache::{Buffer, Checked};
use crate::checksum::crc;
use crate::error::{Corruption, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::bitmap;
use crate::ondisk::group::{BLOCK_UNINIT, BitmapKind, Group, GroupMut, INODE_UNINIT};
use crate::units::{BLOCK_BYTES, BlockNo, GroupNo, Run};

impl Metadata {
    /// Calls `look` with a group's descriptor.
    pub(crate) fn group<R>(&self, number: GroupNo, look: impl FnOnce(&Group<'_>) -> R) -> R {
        let (table, range) = self.geometry.descriptor_at(number);
        look(&Group(&self.tables[table].bytes()[range]))
    }

    /// The bitmap of a group; if it was never written, the bits that it would have.
    pub(super) async fn bits(&self, number: GroupNo, kind: BitmapKind) -> Result<Bytes> {
        if self.is_unwritten(number, kind) {
            return Ok(self.fresh_bits(number, kind).into());
        }
        Ok(self.bitmap(number, kind).await?.bytes())
    }

    fn is_unwritten(&self, number: GroupNo, kind: BitmapKind) -> bool {
        let flag = match kind {
            BitmapKind::Blocks => BLOCK_UNINIT,
            BitmapKind::Inodes => INODE_UNINIT,
        };
        let counts =
            self.geometry.descriptor_checksum != crate::ondisk::group::DescriptorChecksum::None;
        counts && self.group(number, |group| group.has(flag))
    }

    /// The bits of a group whose bitmap was never written.
    fn fresh_bits(&self, number: GroupNo, kind: BitmapKind) -> Vec<u8> {
        let mut bits = vec![0; BLOCK_BYTES];
        let all = 8 * manylogs_block::narrow::<_, u32>(BLOCK_BYTES as u64);
        match kind {
            BitmapKind::Blocks => {
                for range in self.geometry.system_in(number) {
                    bitmap::fill(&mut bits, range, true);
                }
                bitmap::fill(&mut bits, self.geometry.blocks_in(number)..all, true);
            }
            BitmapKind::Inodes => {
                bitmap::fill(&mut bits, self.geometry.inodes_per_group..all, true);
            }
        }
        bits
    }

    async fn bitmap(&self, number: GroupNo, kind: BitmapKind) -> Result<Rc<Buffer>> {
        let block = self.bitmap_block(number, kind);
        let buffer = self.read(block).await?;
        if !buffer.is_checked(Checked::Bitmap, |bits| self.is_sound(number, kind, bits)) {
            return Err(Corruption::group(number, "a bitmap is damaged").into());
        }
        Ok(buffer)
    }

    fn bitmap_block(&self, number: GroupNo, kind: BitmapKind) -> BlockNo {
        self.group(number, |group| match kind {
            BitmapKind::Blocks => group.block_bitmap(),
            BitmapKind::Inodes => group.inode_bitmap(),
        })
    }

    /// Whether the checksum is right, and the file system's own blocks are marked as in use.
    fn is_sound(&self, number: GroupNo, kind: BitmapKind, bits: &[u8]) -> bool {
        let sum = self.bitmap_checksum(kind, bits);
        let whole =
            sum.is_none_or(|sum| self.group(number, |group| group.bitmap_matches(kind, sum)));
        let mut system = self.geometry.system_in(number);
        whole
            && (kind == BitmapKind::Inodes || system.all(|range| bitmap::is_all(bits, range, true)))
    }

    fn bitmap_checksum(&self, kind: BitmapKind, bits: &[u8]) -> Option<u32> {
        let covered = match kind {
            BitmapKind::Blocks => self.geometry.blocks_per_group,
            BitmapKind::Inodes => self.geometry.inodes_per_group,
        };
        self.geometry.seed.map(|seed| crc(seed, &bits[..covered as usize / 8]))
    }

    /// Changes a group's bits and its descriptor, and their checksums.
    pub(super) async fn change_bits(
        &self,
        handle: &mut Handle<'_>,
        number: GroupNo,
        kind: BitmapKind,
        bits: impl FnOnce(&mut [u8]),
        descriptor: impl FnOnce(&mut GroupMut<'_>),
    ) -> Result<()> {
        let buffer = if self.is_unwritten(number, kind) {
            let fresh = self.fresh_bits(number, kind);
            let buffer = handle.create(self.bitmap_block(number, kind));
            handle.change(&buffer, |block| block.copy_from_slice(&fresh));
            buffer.set_checked(Checked::Bitmap);
            buffer
        } else {
            self.bitmap(number, kind).await?
        };
        handle.change(&buffer, bits);
        let sum = self.bitmap_checksum(kind, &buffer.bytes());
        let (table, range) = self.geometry.descriptor_at(number);
        handle.change(&self.tables[table], |table| {
            let mut group = GroupMut(&mut table[range]);
            group.clear(match kind {
                BitmapKind::Blocks => BLOCK_UNINIT,
                BitmapKind::Inodes => INODE_UNINIT,
            });
            descriptor(&mut group);
            if let Some(sum) = sum {
                let bug = is(Bug::Ext4BitmapChecksumWrong);
                group.set_bitmap_checksum(kind, sum ^ u32::from(bug));
            }
            group.seal(number, self.geometry.descriptor_checksum);
        });
        Ok(())
    }

    /// Marks blocks as in use, or free. An error of corruption if one of them is marked so already.
    pub(super) async fn mark(&self, handle: &mut Handle<'_>, run: Run, used: bool) -> Result<()> {
        let mut rest = run;
        while rest.blocks > 0 {
            let (group, first) = self.geometry.group_of(rest.start);
            let here = rest.blocks.min(self.geometry.blocks_in(group) - first);
            let range = first..first + here;
            let bits = self.bits(group, BitmapKind::Blocks).await?;
            if !bitmap::is_all(&bits, range.clone(), !used) {
                let what = if used { "a free block is in use" } else { "a block is freed twice" };
                return Err(Corruption::group(group, what).into());
            }
            let free = self.group(group, |group| group.free_blocks());
            let more = here + u32::from(is(Bug::Ext4FreeCountOff));
            let after = if used { free.checked_sub(here) } else { free.checked_add(more) };
            let after = after.filter(|after| *after <= self.geometry.blocks_in(group));
            let bad = || Corruption::group(group, "the count of free blocks is wrong");
            let after = after.ok_or_else(bad)?;
            let fill = |bits: &mut [u8]| bitmap::fill(bits, range, used);
            let count = |group: &mut GroupMut<'_>| group.set_free_blocks(after);
            self.change_bits(handle, group, BitmapKind::Blocks, fill, count).await?;
            let start = BlockNo(rest.start.0 + u64::from(here));
            rest = Run { start, blocks: rest.blocks - here };
        }
        Ok(())
    }
}
