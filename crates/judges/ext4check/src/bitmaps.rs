//! Compares bitmaps and counts with the blocks and inodes that were found in use.

use crate::bytes::crc32c;
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::groups::{BLOCK_UNINIT, INODE_UNINIT};
use crate::inodes::FileKind;
use crate::source::Block;
use crate::structures::Structure;
use crate::units::GroupNo;

/// The bits of one group.
type Words = [u64; 512];

/// Kind of a group's bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Blocks,
    Inodes,
}

/// Sets the bits from `from` on, which stand for no block or inode.
fn pad(words: &mut Words, from: u32) {
    for (at, word) in (0_u32..).zip(words.iter_mut()) {
        let start = at * 64;
        if start >= from {
            *word = u64::MAX;
        } else if start + 64 > from {
            *word |= u64::MAX << (from - start);
        }
    }
}

fn words_of(block: &Block) -> Words {
    let mut words = [0; 512];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn count_of(words: &Words) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

impl Checker<'_> {
    /// Blocks that the file system's own structures take, by group, before any file has taken one.
    pub(crate) fn count_system(&self) -> Vec<u64> {
        let groups = (0..self.layout.groups).map(GroupNo);
        groups.map(|group| self.space.of_group(group).map_or(0, count_of)).collect()
    }

    /// Compares bitmaps and counts with what was found.
    pub(crate) fn check_bitmaps(&mut self) -> Checked<()> {
        let (mut free_blocks, mut free_inodes, mut at) = (0, 0, 0);
        for number in (0..self.layout.groups).map(GroupNo) {
            let blocks = self.layout.blocks_in(number);
            let mut used = self.space.of_group(number).copied().unwrap_or([0; 512]);
            let taken = count_of(&used);
            pad(&mut used, blocks);
            let group = self.groups[number.0 as usize].clone();
            let place = Location::Group(number);
            if group.has(BLOCK_UNINIT) && number.0 + 1 == self.layout.groups {
                let what = "the last group's bitmap of blocks was never written";
                self.find(place, Problem::Impossible(what));
            }
            if !group.has(BLOCK_UNINIT) {
                self.compare(number, Of::Blocks, &used)?;
            } else if taken != self.system[number.0 as usize] {
                let what = "blocks are in use, and the bitmap was never written";
                self.find(place, Problem::Impossible(what));
            }
            let free = u64::from(blocks) - taken;
            self.count(place, "free blocks", group.free_blocks.into(), free);
            free_blocks += free;
            let (mut used, mut count, mut directories) = ([0; 512], 0, 0);
            for index in 0..self.reserved_in(number) {
                used[index as usize / 64] |= 1 << (index % 64);
                count += 1;
            }
            while let Some(inode) = self.inodes.get(at) {
                let (home, index) = self.place_of(inode.ino);
                if home != number {
                    break;
                }
                let bit = 1 << (index % 64);
                let word = &mut used[index as usize / 64];
                count += u64::from(*word & bit == 0);
                *word |= bit;
                directories += u64::from(inode.kind == FileKind::Directory);
                at += 1;
            }
            pad(&mut used, self.layout.inodes_per_group);
            if !group.has(INODE_UNINIT) {
                self.compare(number, Of::Inodes, &used)?;
            }
            let free = u64::from(self.layout.inodes_per_group) - count;
            self.count(place, "free inodes", group.free_inodes.into(), free);
            self.count(place, "directories", group.directories.into(), directories);
            free_inodes += free;
        }
        self.check_totals(free_blocks, free_inodes);
        Ok(())
    }

    /// Compares the superblock's totals. They are right only after an unmount: every mount counts
    /// anew.
    fn check_totals(&mut self, free_blocks: u64, free_inodes: u64) {
        let (blocks, inodes) = (self.layout.free_blocks, self.layout.free_inodes);
        self.count(Location::Superblock, "free blocks", blocks, free_blocks);
        self.count(Location::Superblock, "free inodes", inodes.into(), free_inodes);
    }

    /// Number of the file system's own inodes at the group's beginning, in use or not.
    fn reserved_in(&self, group: GroupNo) -> u32 {
        if group.0 == 0 { self.layout.first_inode - 1 } else { 0 }
    }

    fn compare(&mut self, number: GroupNo, of: Of, found: &Words) -> Checked<()> {
        let group = self.groups[number.0 as usize].clone();
        let (block, sum, bits) = match of {
            Of::Blocks => (group.block_bitmap, group.sums[0], self.layout.blocks_per_group),
            Of::Inodes => (group.inode_bitmap, group.sums[1], self.layout.inodes_per_group),
        };
        if !group.is_sound {
            return Ok(());
        }
        self.note(match of {
            Of::Blocks => Structure::BlockBitmap(number, block),
            Of::Inodes => Structure::InodeBitmap(number, block),
        });
        let bytes = self.read(block)?;
        let place = Location::Group(number);
        if let Some(seed) = self.layout.seed
            && crc32c(seed, &[&bytes[..bits as usize / 8]]) & group.sum_mask != sum
        {
            self.find(place, Problem::Checksum("a bitmap"));
        }
        let kept = words_of(&bytes);
        for (at, (kept, found)) in (0_u64..).zip(kept.iter().zip(found)) {
            let mut differ = kept ^ found;
            while differ != 0 {
                let index = at * 64 + u64::from(differ.trailing_zeros());
                self.differ(number, of, index, found >> (index % 64) & 1 == 1);
                differ &= differ - 1;
            }
        }
        Ok(())
    }

    fn differ(&mut self, group: GroupNo, of: Of, index: u64, used: bool) {
        let (what, number) = match of {
            Of::Blocks => ("block", self.layout.first_block(group) + index),
            Of::Inodes => {
                ("inode", u64::from(group.0) * u64::from(self.layout.inodes_per_group) + index + 1)
            }
        };
        let problem = if used {
            Problem::BitClear { what, number }
        } else {
            Problem::BitSet { what, number }
        };
        self.find(Location::Group(group), problem);
    }
}
