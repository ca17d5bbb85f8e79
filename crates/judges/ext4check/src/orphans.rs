//! Orphans: the list that starts in the superblock, and the file of orphans. A file system at rest
//! has none.

use crate::bytes::{crc32c, le32};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::layout::{compat, ro_compat};
use crate::structures::Structure;
use crate::units::{BlockNo, Ino};

/// Place of the magic number in a block of the file; the checksum follows.
const MAGIC_AT: usize = 4088;
const MAGIC: u32 = 0x0B10_CA04;
/// See [`MAGIC_AT`].
pub(crate) const BLOCK_SUM: usize = 4092;

/// The checksum of a block of the file.
pub(crate) fn block_sum(seed: u32, block: BlockNo, bytes: &[u8]) -> u32 {
    crc32c(seed, &[&block.0.to_le_bytes(), &bytes[..MAGIC_AT]])
}

impl Checker<'_> {
    pub(crate) fn check_orphans(&mut self) -> Checked<()> {
        if self.layout.last_orphan != Ino(0) {
            self.find(Location::Inode(self.layout.last_orphan), Problem::Orphan);
        }
        if !self.layout.has_compat(compat::ORPHAN_FILE) {
            if self.layout.has_ro_compat(ro_compat::ORPHAN_PRESENT) {
                let what = "orphans in a file that is not there";
                self.find(Location::Superblock, Problem::Impossible(what));
            }
            return Ok(());
        }
        let Some(raw) = self.raw_inode(self.layout.orphan_file)? else {
            self.find(Location::Superblock, Problem::Misplaced("the file of orphans"));
            return Ok(());
        };
        let ino = self.layout.orphan_file;
        if self.inode(ino).is_none() || self.orphan_blocks.is_empty() {
            self.find(Location::Inode(ino), Problem::Impossible("the file of orphans"));
        }
        let seed = self.layout.inode_seed(ino, le32(&raw, 0x64));
        for block in self.orphan_blocks.clone() {
            self.note(Structure::Orphans(block, seed));
            let bytes = self.read(block)?;
            let place = Location::Block(ino, block);
            if le32(&*bytes, MAGIC_AT) != MAGIC {
                self.find(place, Problem::Impossible("a block of orphans"));
            }
            let whole = |seed| block_sum(seed, block, &*bytes) == le32(&*bytes, BLOCK_SUM);
            if !seed.is_none_or(whole) {
                self.find(place, Problem::Checksum("a block of orphans"));
            }
            let listed = bytes[..MAGIC_AT].chunks_exact(4).map(|at| le32(at, 0));
            for orphan in listed.filter(|orphan| *orphan != 0).collect::<Vec<_>>() {
                self.find(Location::Inode(Ino(orphan)), Problem::Orphan);
            }
        }
        Ok(())
    }
}
