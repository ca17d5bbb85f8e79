//! The file system's own inodes, which have no names.

use crate::bytes::le32;
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::inodes::{CASEFOLD, ENCRYPTED, EXTENTS, FileKind, IMAGIC, INDEX, INLINE_DATA, Raw};
use crate::layout::compat;
use crate::map::{Mapped, NUMBERS};
use crate::units::{BlockNo, GroupNo, Ino};

/// The inodes of the quotas of users and groups.
const QUOTAS: [Ino; 2] = [Ino(3), Ino(4)];
/// The inode that is reserved for a boot loader.
const BOOT_LOADER: Ino = Ino(5);

impl Checker<'_> {
    /// Checks an inode below the first one for files, except the root and the journal.
    pub(crate) fn check_reserved(&mut self, raw: Raw<'_>) -> Checked<()> {
        let place = Location::Inode(raw.ino);
        let times = self.layout.times_are_real && raw.deleted() != 0;
        if times && raw.deleted() < self.layout.inodes {
            let what = "a time of deletion that is a number of an inode";
            self.find(place, Problem::Impossible(what));
        }
        if raw.has_flag(CASEFOLD | ENCRYPTED | IMAGIC | INLINE_DATA) {
            self.find(place, Problem::Impossible("flags that the file system does not have"));
        }
        let resizing = self.layout.has_compat(compat::RESIZE_INODE);
        match raw.ino {
            Ino::BAD_BLOCKS => {
                let fields = [0x0, 0x2, 0x18, 0x1A];
                if fields.iter().any(|at| raw.u16(*at) != 0) || raw.u32(0x68) != 0 {
                    self.find(place, Problem::Impossible("the inode of bad blocks"));
                }
                self.walk_bad_blocks(raw)
            }
            Ino::RESIZE if resizing => self.check_resizing(raw),
            ino if QUOTAS.contains(&ino) => {
                if raw.links() != 0 || raw.u32(0x1C) != 0 || le32(raw.map(), 0) != 0 {
                    self.find(place, Problem::Impossible("a reserved inode is in use"));
                }
                Ok(())
            }
            ino => {
                self.check_unused(raw, ino == BOOT_LOADER);
                Ok(())
            }
        }
    }

    fn check_unused(&mut self, raw: Raw<'_>, may_have_mode: bool) {
        let place = Location::Inode(raw.ino);
        let is_directory = raw.kind() == Some(FileKind::Directory);
        if raw.u16(0) != 0 && (!may_have_mode || is_directory) {
            self.find(place, Problem::Impossible("a reserved inode is in use"));
        }
        if !may_have_mode || raw.u16(0) == 0 {
            match raw.counted_blocks() {
                Some(kept) => self.count(place, "blocks", kept, 0),
                None => self.find(place, Problem::Impossible("a part of a block")),
            }
        }
        self.check_size(raw, &Mapped::default());
        if raw.has_flag(INDEX) {
            self.find(place, Problem::Impossible("an index where none can be"));
        }
        if raw.attribute_block().0 != 0 {
            self.find(place, Problem::Misplaced("a block of attributes"));
        }
    }

    /// Checks the inode that reserves room for descriptors: a block of numbers of reserved blocks,
    /// each of which names its copies.
    fn check_resizing(&mut self, raw: Raw<'_>) -> Checked<()> {
        let place = Location::Inode(raw.ino);
        let map: Vec<u32> = (0..15).map(|number| le32(raw.map(), 4 * number)).collect();
        let double = BlockNo(map[13].into());
        let others = map.iter().enumerate().any(|(at, number)| at != 13 && *number != 0);
        if others || raw.has_flag(EXTENTS) || raw.kind() != Some(FileKind::File) {
            self.find(place, Problem::Impossible("the inode for more descriptors"));
        }
        if raw.links() == 0 {
            self.find(place, Problem::Impossible("no link of the inode for more descriptors"));
        }
        self.check_size(raw, &Mapped::default());
        if !self.take(raw.ino, double) {
            return Ok(());
        }
        let first = 1 + self.layout.table_of_groups();
        let copies: Vec<GroupNo> = (1..self.layout.groups)
            .map(GroupNo)
            .filter(|group| self.layout.has_superblock(*group))
            .collect();
        let mut named = vec![0; NUMBERS];
        for block in first..first + self.layout.reserved_descriptor_blocks {
            named[(block - 1) as usize % NUMBERS] = u64::from(block);
            let copy = |group: &GroupNo| self.layout.first_block(*group) + u64::from(block);
            let copies: Vec<u64> = copies.iter().map(copy).collect();
            self.check_numbers(raw.ino, BlockNo(block.into()), &copies)?;
        }
        self.check_numbers(raw.ino, double, &named)?;
        let kept = u64::from(self.layout.reserved_descriptor_blocks) * (1 + copies.len() as u64);
        let counted = raw.counted_blocks().unwrap_or(0);
        self.count(place, "blocks", counted, 1 + kept);
        Ok(())
    }

    /// Checks that a block of block numbers holds just `numbers`, and zeroes behind them.
    fn check_numbers(&mut self, ino: Ino, block: BlockNo, numbers: &[u64]) -> Checked<()> {
        let bytes = self.read(block)?;
        let said = bytes.chunks_exact(4).map(|at| u64::from(le32(at, 0)));
        let expected = numbers.iter().copied().chain(std::iter::repeat(0));
        if said.zip(expected).any(|(said, expected)| said != expected) {
            let what = "the map of blocks for more descriptors";
            self.find(Location::Block(ino, block), Problem::Impossible(what));
        }
        Ok(())
    }
}
