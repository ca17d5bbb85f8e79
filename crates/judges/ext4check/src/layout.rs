//! The layout of the file system, from its superblock.

use crate::bytes::{crc16, crc32c, join, le16, le32};
use crate::finding::Unreadable;
use crate::source::Block;
use crate::units::{BITS, BLOCK_BYTES, BlockNo, GroupNo, Ino};

/// Bytes of the superblock in block 0.
pub(crate) const SUPERBLOCK: std::ops::Range<usize> = 1024..2048;
/// Place of the checksum in the superblock.
pub(crate) const SUPERBLOCK_SUM: usize = 0x3FC;

pub(crate) mod compat {
    pub(crate) const IMAGIC_INODES: u32 = 0x2;
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    pub(crate) const EXT_ATTR: u32 = 0x8;
    pub(crate) const RESIZE_INODE: u32 = 0x10;
    pub(crate) const DIR_INDEX: u32 = 0x20;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
    pub(crate) const ORPHAN_FILE: u32 = 0x1000;
    /// All features that this crate can judge: those above, and `dir_prealloc`, `imagic_inodes`,
    /// `fast_commit` and `stable_inodes`.
    pub(crate) const KNOWN: u32 = HAS_JOURNAL
        | EXT_ATTR
        | RESIZE_INODE
        | DIR_INDEX
        | SPARSE_SUPER2
        | ORPHAN_FILE
        | 0x3
        | 0x400
        | 0x800;
}

pub(crate) mod incompat {
    pub(crate) const FILETYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const META_BG: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const BITS64: u32 = 0x80;
    pub(crate) const FLEX_BG: u32 = 0x200;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    pub(crate) const LARGE_DIR: u32 = 0x4000;
    /// The file system belongs to MLFS; the blocks at home are judged.
    pub(crate) const MLFS: u32 = 0x4000_0000;
    /// All features that this crate can judge.
    pub(crate) const KNOWN: u32 =
        FILETYPE | RECOVER | META_BG | EXTENTS | BITS64 | FLEX_BG | CSUM_SEED | LARGE_DIR | MLFS;
}

pub(crate) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const DIR_NLINK: u32 = 0x20;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
    pub(crate) const ORPHAN_PRESENT: u32 = 0x10000;
    /// All features that this crate can judge: those above, and `large_file`, `huge_file`,
    /// `extra_isize`.
    pub(crate) const KNOWN: u32 =
        SPARSE_SUPER | 0x2 | 0x8 | GDT_CSUM | DIR_NLINK | 0x40 | METADATA_CSUM | ORPHAN_PRESENT;
}

/// How group descriptors are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupSum {
    None,
    Crc16(u16),
    Crc32c(u32),
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) blocks: u64,
    pub(crate) groups: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) inode_bytes: usize,
    pub(crate) descriptor_bytes: usize,
    pub(crate) compat: u32,
    pub(crate) incompat: u32,
    pub(crate) ro_compat: u32,
    /// The seed of all checksums of metadata, if there are any.
    pub(crate) seed: Option<u32>,
    pub(crate) group_sum: GroupSum,
    pub(crate) first_inode: u32,
    pub(crate) journal: Ino,
    /// The journal's map and size, kept in the superblock as well.
    pub(crate) journal_copy: Option<Vec<u8>>,
    pub(crate) last_orphan: Ino,
    pub(crate) orphan_file: Ino,
    /// The inodes of quotas that the superblock names: of users, of groups, of projects.
    pub(crate) quota_inodes: [u32; 3],
    pub(crate) free_blocks: u64,
    pub(crate) free_inodes: u32,
    /// Whether the superblock's times are too large to be numbers of inodes: then so are those of
    /// inodes.
    pub(crate) times_are_real: bool,
    pub(crate) hash_seed: [u32; 4],
    pub(crate) hashes_unsigned: bool,
    first_meta_group: u32,
    pub(crate) reserved_descriptor_blocks: u32,
    backup_groups: [u32; 2],
}

impl Geometry {
    /// Decodes block 0 of a device of `device` blocks.
    pub(crate) fn decode(block: &Block, device: u64) -> Result<Self, Unreadable> {
        let bytes = &block[SUPERBLOCK];
        let u16 = |at: usize| le16(bytes, at);
        let u32 = |at: usize| le32(bytes, at);
        if u16(0x38) != 0xEF53 {
            return Err(Unreadable::NotExt4);
        }
        let (compat, incompat, ro_compat) = (u32(0x5C), u32(0x60), u32(0x64));
        let (other, other_ro) = (incompat & !incompat::KNOWN, ro_compat & !ro_compat::KNOWN);
        let other_compat = compat & !compat::KNOWN;
        let whole = ro_compat & ro_compat::METADATA_CSUM == 0
            || u32(SUPERBLOCK_SUM) == crc32c(!0, &[&bytes[..SUPERBLOCK_SUM]]);
        if !whole {
            return Err(Unreadable::Superblock("wrong checksum"));
        }
        if bytes[0xD0..0xE0].iter().any(|byte| *byte != 0) || u32(0xE4) != 0 {
            return Err(Unreadable::Superblock("a journal on another device"));
        }
        if ro_compat & ro_compat::METADATA_CSUM != 0 && bytes[0x175] != 1 {
            return Err(Unreadable::Superblock("another checksum than CRC-32C"));
        }
        if bytes[0x174] >= 32 {
            return Err(Unreadable::Superblock("groups of groups"));
        }
        if u32(0x18) != 2 || u32(0x1C) != 2 {
            return Err(Unreadable::BlockSize);
        }
        if other | other_ro | other_compat != 0 || compat & compat::HAS_JOURNAL == 0 {
            return Err(Unreadable::Features { incompat: other, ro_compat: other_ro });
        }
        let wide = incompat & incompat::BITS64 != 0;
        let wide_number = |low, high| join(u32(low), if wide { u32(high) } else { 0 });
        let uuid = &bytes[0x68..0x78];
        let seed =
            if incompat & incompat::CSUM_SEED != 0 { u32(0x270) } else { crc32c(!0, &[uuid]) };
        let summed = ro_compat & ro_compat::METADATA_CSUM != 0;
        let blocks = wide_number(0x4, 0x150);
        let copy = (bytes[0xFD] == 1).then(|| bytes[0x10C..0x150].to_vec());
        let layout = Self {
            blocks,
            groups: 0,
            blocks_per_group: u32(0x20),
            inodes: u32(0),
            inodes_per_group: u32(0x28),
            inode_bytes: if u32(0x4C) == 0 { 128 } else { u16(0x58).into() },
            descriptor_bytes: if wide { u16(0xFE).into() } else { 32 },
            compat,
            incompat,
            ro_compat,
            seed: summed.then_some(seed),
            group_sum: if summed {
                GroupSum::Crc32c(seed)
            } else if ro_compat & ro_compat::GDT_CSUM != 0 {
                GroupSum::Crc16(crc16(!0, &[uuid]))
            } else {
                GroupSum::None
            },
            first_inode: if u32(0x4C) == 0 { 11 } else { u32(0x54) },
            journal: Ino(u32(0xE0)),
            journal_copy: copy,
            last_orphan: Ino(u32(0xE8)),
            orphan_file: Ino(u32(0x280)),
            quota_inodes: [0x240, 0x244, 0x26C].map(u32),
            free_blocks: wide_number(0xC, 0x158),
            free_inodes: u32(0x10),
            times_are_real: u32(0x30) >= u32(0)
                && (u32(0x2C) == 0 || u32(0x2C) >= u32(0))
                && (u32(0x108) == 0 || u32(0x108) >= u32(0)),
            hash_seed: [0xEC, 0xF0, 0xF4, 0xF8].map(u32),
            hashes_unsigned: u32(0x160) & 2 != 0,
            first_meta_group: if incompat & incompat::META_BG != 0 { u32(0x104) } else { u32::MAX },
            reserved_descriptor_blocks: u16(0xCE).into(),
            backup_groups: [u32(0x24C), u32(0x250)],
        };
        let reserved = wide_number(0x8, 0x154);
        layout.checked(device, reserved, [u32(0x14), u32(0x24), u32(0x4C)])
    }

    /// Checks that the layout is possible, and counts its groups.
    fn checked(
        mut self,
        device: u64,
        reserved: u64,
        [first, clusters, revision]: [u32; 3],
    ) -> Result<Self, Unreadable> {
        let per_group = u64::from(self.blocks_per_group);
        let table_bytes = u64::from(self.inodes_per_group) * self.inode_bytes as u64;
        let descriptor = self.descriptor_bytes;
        let impossible = [
            (revision > 1, "a later revision"),
            (clusters != self.blocks_per_group, "clusters"),
            (self.blocks > device, "more blocks than the device has"),
            (self.blocks == 0 || first != 0, "block count, or first block"),
            (!(256..=u64::from(BITS)).contains(&per_group) || per_group % 8 != 0, "group size"),
            (
                !self.inode_bytes.is_power_of_two()
                    || !(128..=BLOCK_BYTES).contains(&self.inode_bytes),
                "inode size",
            ),
            (
                !descriptor.is_power_of_two() || !(32..=1024).contains(&descriptor),
                "descriptor size",
            ),
            (!(8..=BITS).contains(&self.inodes_per_group), "inodes per group"),
            (!table_bytes.is_multiple_of(BLOCK_BYTES as u64), "inodes per group"),
            (reserved > self.blocks / 2, "more reserved blocks than half of all"),
            (self.first_inode < 11 || self.first_inode > self.inodes_per_group, "first inode"),
            (self.reserved_descriptor_blocks > 1024, "reserved descriptors"),
        ];
        if let Some((_, what)) = impossible.into_iter().find(|(is_so, _)| *is_so) {
            return Err(Unreadable::Superblock(what));
        }
        let groups = u32::try_from(self.blocks.div_ceil(per_group)).ok();
        let groups =
            groups.filter(|groups| groups.checked_mul(self.inodes_per_group) == Some(self.inodes));
        self.groups = groups.ok_or(Unreadable::Superblock("inode count"))?;
        Ok(self)
    }

    pub(crate) fn has_compat(&self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    pub(crate) fn has_incompat(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    pub(crate) fn has_ro_compat(&self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// Whether groups may say that their bitmaps and inodes were never written.
    pub(crate) fn may_be_unwritten(&self) -> bool {
        self.group_sum != GroupSum::None
    }

    pub(crate) fn first_block(&self, group: GroupNo) -> u64 {
        u64::from(group.0) * u64::from(self.blocks_per_group)
    }

    pub(crate) fn blocks_in(&self, group: GroupNo) -> u32 {
        let rest = self.blocks - self.first_block(group);
        u32::try_from(rest).map_or(self.blocks_per_group, |rest| rest.min(self.blocks_per_group))
    }

    /// Number of blocks of a group's table of inodes.
    pub(crate) fn table_blocks(&self) -> u32 {
        self.inodes_per_group / self.inodes_per_block()
    }

    pub(crate) fn inodes_per_block(&self) -> u32 {
        u32::try_from(BLOCK_BYTES / self.inode_bytes).unwrap_or(1)
    }

    pub(crate) fn descriptors_per_block(&self) -> u32 {
        u32::try_from(BLOCK_BYTES / self.descriptor_bytes).unwrap_or(1)
    }

    /// Number of blocks of descriptors at the file system's beginning, which are copied into
    /// groups.
    pub(crate) fn table_of_groups(&self) -> u32 {
        self.groups.div_ceil(self.descriptors_per_block()).min(self.first_meta_group)
    }

    /// Place of a group's descriptor: block and first byte.
    pub(crate) fn descriptor_at(&self, group: GroupNo) -> (BlockNo, usize) {
        let per_block = self.descriptors_per_block();
        let (meta, at) = (group.0 / per_block, (group.0 % per_block) as usize);
        let block = if meta < self.first_meta_group {
            1 + u64::from(meta)
        } else {
            let first = GroupNo(meta * per_block);
            self.first_block(first) + u64::from(self.has_superblock(first))
        };
        (BlockNo(block), at * self.descriptor_bytes)
    }

    /// Whether a group begins with the superblock or a copy of it.
    pub(crate) fn has_superblock(&self, group: GroupNo) -> bool {
        let is_power = |base: u32| {
            let mut power = base;
            while power < group.0 {
                power = power.saturating_mul(base);
            }
            power == group.0
        };
        if group.0 == 0 {
            true
        } else if self.has_compat(compat::SPARSE_SUPER2) {
            self.backup_groups.contains(&group.0)
        } else if self.has_ro_compat(ro_compat::SPARSE_SUPER) {
            group.0 == 1 || is_power(3) || is_power(5) || is_power(7)
        } else {
            true
        }
    }

    /// Number of blocks at a group's beginning that hold superblock and descriptors, or are
    /// reserved for them.
    pub(crate) fn head_blocks(&self, group: GroupNo) -> u32 {
        let superblock = u32::from(self.has_superblock(group));
        let per_block = self.descriptors_per_block();
        if group.0 / per_block < self.first_meta_group {
            superblock * (1 + self.table_of_groups() + self.reserved_descriptor_blocks)
        } else {
            let place = group.0 % per_block;
            superblock + u32::from(place < 2 || place == per_block - 1)
        }
    }

    /// The seed of an inode's checksums.
    pub(crate) fn inode_seed(&self, ino: Ino, generation: u32) -> Option<u32> {
        let parts = [ino.0.to_le_bytes(), generation.to_le_bytes()];
        self.seed.map(|seed| crc32c(seed, &[&parts[0], &parts[1]]))
    }

    /// The right checksum of a descriptor; `None` if descriptors have none.
    pub(crate) fn descriptor_sum(&self, group: GroupNo, bytes: &[u8]) -> Option<u16> {
        let (number, rest) = (group.0.to_le_bytes(), &bytes[32..]);
        match self.group_sum {
            GroupSum::None => None,
            GroupSum::Crc16(seed) => Some(crc16(seed, &[&number, &bytes[..0x1E], rest])),
            GroupSum::Crc32c(seed) => {
                let sum = crc32c(seed, &[&number, &bytes[..0x1E], &[0; 2], rest]);
                Some(crate::bytes::low16(sum))
            }
        }
    }
}
