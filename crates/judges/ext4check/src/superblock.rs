//! Fields of the superblock that lead to no structure, but must fit together.

use crate::bytes::{le16, le32};
use crate::checker::Checker;
use crate::finding::{Location, Problem};
use crate::inodes::SHORT;
use crate::layout::{SUPERBLOCK, compat, incompat, ro_compat};
use crate::source::Block;
use crate::units::Ino;

/// The inodes that are reserved for the quotas of users and groups.
const QUOTAS: [u32; 2] = [3, 4];

impl Checker<'_> {
    /// Checks block 0, whose superblock was decoded.
    pub(crate) fn check_superblock(&mut self, block: &Block) {
        let bytes = &block[SUPERBLOCK];
        let layout = &self.layout;
        let room = layout.inode_bytes - SHORT;
        let is_size =
            |size: usize| size == 0 || (size.is_multiple_of(4) && (4..=room).contains(&size));
        let extra = |at: usize| room == 0 || is_size(usize::from(le16(bytes, at)));
        let features = layout.compat | layout.incompat | layout.ro_compat;
        let resizing = layout.has_compat(compat::RESIZE_INODE);
        let is_summed = layout.has_ro_compat(ro_compat::METADATA_CSUM);
        let impossible = [
            (
                layout.reserved_descriptor_blocks != 0 && !resizing,
                "blocks for more descriptors, which no inode keeps",
            ),
            (
                resizing && layout.has_incompat(incompat::META_BG),
                "an inode for more descriptors, which lie in groups",
            ),
            (
                is_summed && layout.has_ro_compat(ro_compat::GDT_CSUM),
                "two kinds of checksums of groups",
            ),
            (
                !is_summed && layout.has_incompat(incompat::CSUM_SEED),
                "a seed of checksums, of which there are none",
            ),
            (
                layout.blocks > u32::MAX.into() && !layout.has_incompat(incompat::EXTENTS),
                "more blocks than maps of blocks can name",
            ),
            (!extra(0x15C), "a wrong size of extra fields that inodes must have"),
            (!extra(0x15E), "a wrong size of extra fields that inodes ought to have"),
            (le32(bytes, 0x4C) == 0 && features != 0, "features, which the first revision had not"),
            (bytes[0x68..0x78].iter().all(|byte| *byte == 0), "no id"),
        ];
        for (is_so, what) in impossible {
            if is_so {
                self.find(Location::Superblock, Problem::Impossible(what));
            }
        }
    }

    /// Checks the inodes of quotas and of the file of orphans that the superblock names without the
    /// feature: file systems with quotas are not judged at all, and a file of orphans needs its
    /// feature. e2fsck takes such an inode for its own and hides it.
    pub(crate) fn check_named(&mut self) {
        let (first, count) = (self.layout.first_inode, self.layout.inodes);
        for ino in self.layout.quota_inodes {
            let is_usual = ino == 0 || QUOTAS.contains(&ino);
            let is_odd = ino < first || ino > count || self.inode(Ino(ino)).is_some();
            if !is_usual && is_odd {
                let what = "an inode of quotas, which the file system does not have";
                self.find(Location::Superblock, Problem::Impossible(what));
            }
        }
        let orphans = self.layout.orphan_file;
        let has_file = self.layout.has_compat(compat::ORPHAN_FILE);
        if !has_file && orphans.0 >= first && self.inode(orphans).is_some() {
            let what = "a file of orphans, which the file system does not have";
            self.find(Location::Superblock, Problem::Impossible(what));
        }
    }
}
