//! Inodes: their fields, and their blocks.

use crate::bytes::{crc32c, high16, join, le16, le32, low16, part};
use crate::checker::{Checked, Checker};
use crate::finding::{Location, Problem};
use crate::groups::INODE_UNINIT;
use crate::layout::{Geometry, compat, incompat};
use crate::map::Mapped;
use crate::structures::Structure;
use crate::units::{BLOCK_BYTES, BlockNo, GroupNo, Ino};

/// Bytes of the oldest inodes.
pub(crate) const SHORT: usize = 128;
/// Place of an inode's map, or of a short symbolic link.
pub(crate) const MAP: std::ops::Range<usize> = 0x28..0x64;

pub(crate) const INDEX: u32 = 0x1000;
const HUGE_FILE: u32 = 0x40000;
pub(crate) const EXTENTS: u32 = 0x80000;
pub(crate) const INLINE_DATA: u32 = 0x1000_0000;
pub(crate) const CASEFOLD: u32 = 0x4000_0000;
pub(crate) const ENCRYPTED: u32 = 0x800;
pub(crate) const IMAGIC: u32 = 0x2000;
const IMMUTABLE_OR_APPEND: u32 = 0x30;

/// Kinds of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    File,
    Symlink,
    Socket,
}

impl FileKind {
    const fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode >> 12 {
            0x1 => Self::Fifo,
            0x2 => Self::CharDevice,
            0x4 => Self::Directory,
            0x6 => Self::BlockDevice,
            0x8 => Self::File,
            0xA => Self::Symlink,
            0xC => Self::Socket,
            _ => return None,
        })
    }

    /// The number of the kind in a record of a directory.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::File => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }
}

/// The facts about an inode in use that later steps need.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) links: u16,
    /// Number of names that lead to it, `.` and `..` included.
    pub(crate) names: u64,
}

/// The facts about a directory that later steps need.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) ino: Ino,
    pub(crate) indexed: bool,
    pub(crate) seed: Option<u32>,
    /// Its blocks in order; `None` for a hole.
    pub(crate) blocks: Vec<Option<BlockNo>>,
    /// The directory that has its name.
    pub(crate) parent: Option<Ino>,
    /// The directory to which its `..` leads.
    pub(crate) above: Option<Ino>,
}

/// One inode's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'b> {
    pub(crate) ino: Ino,
    pub(crate) bytes: &'b [u8],
}

impl Raw<'_> {
    pub(crate) fn u16(&self, at: usize) -> u16 {
        le16(self.bytes, at)
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        le32(self.bytes, at)
    }

    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::of_mode(self.u16(0))
    }

    pub(crate) fn size(&self) -> u64 {
        join(self.u32(0x4), self.u32(0x6C))
    }

    pub(crate) fn links(&self) -> u16 {
        self.u16(0x1A)
    }

    pub(crate) fn deleted(&self) -> u32 {
        self.u32(0x14)
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.u32(0x20) & flag != 0
    }

    pub(crate) fn map(&self) -> &[u8] {
        &self.bytes[MAP]
    }

    pub(crate) fn attribute_block(&self) -> BlockNo {
        BlockNo(join(self.u32(0x68), self.u16(0x76).into()))
    }

    /// Number of bytes of fields behind the oldest ones.
    pub(crate) fn extra(&self) -> usize {
        if self.bytes.len() > SHORT { self.u16(0x80).into() } else { 0 }
    }

    pub(crate) fn seed(&self, layout: &Geometry) -> Option<u32> {
        layout.inode_seed(self.ino, self.u32(0x64))
    }

    /// The count of blocks in the inode, in units of blocks; `None` if that is no whole number.
    pub(crate) fn counted_blocks(&self) -> Option<u64> {
        let count = join(self.u32(0x1C), self.u16(0x74).into());
        if self.has_flag(HUGE_FILE) {
            return Some(count);
        }
        count.is_multiple_of(8).then_some(count / 8)
    }

    /// The right checksum, and a mask of the bits that the inode stores.
    pub(crate) fn sum(&self, layout: &Geometry) -> Option<(u32, u32)> {
        let seed = self.seed(layout)?;
        let (bytes, has_upper) = (self.bytes, self.extra() >= 4);
        let parts = if has_upper {
            [part(bytes, 0x7E..0x82), &[0, 0], part(bytes, 0x84..bytes.len())]
        } else {
            [part(bytes, 0x7E..bytes.len()), &[], &[]]
        };
        let sum = crc32c(seed, &[&bytes[..0x7C], &[0, 0], parts[0], parts[1], parts[2]]);
        Some((sum, if has_upper { u32::MAX } else { 0xFFFF }))
    }

    pub(crate) fn kept_sum(&self) -> u32 {
        let upper = if self.extra() >= 4 { self.u16(0x82) } else { 0 };
        u32::from(self.u16(0x7C)) | u32::from(upper) << 16
    }
}

/// Corrects an inode's checksum.
pub(crate) fn seal(layout: &Geometry, ino: Ino, bytes: &mut [u8]) {
    let raw = Raw { ino, bytes };
    let (sum, upper) = (raw.sum(layout), raw.extra() >= 4);
    if let Some((sum, _)) = sum {
        crate::bytes::put_le16(bytes, 0x7C, low16(sum));
        if upper {
            crate::bytes::put_le16(bytes, 0x82, high16(sum));
        }
    }
}

impl Checker<'_> {
    /// Checks every inode that was ever written.
    pub(crate) fn read_inodes(&mut self) -> Checked<()> {
        let per_block = self.layout.inodes_per_block();
        for number in 0..self.layout.groups {
            let group = self.groups[number as usize].clone();
            if !group.is_sound || group.has(INODE_UNINIT) {
                continue;
            }
            let written = self.layout.inodes_per_group.saturating_sub(group.unused);
            for step in 0..written.div_ceil(per_block) {
                let block = BlockNo(group.table.0 + u64::from(step));
                let bytes = self.read(block)?;
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let here = per_block.min(written - step * per_block);
                for place in 0..here {
                    let index = step * per_block + place;
                    let ino = Ino(number * self.layout.inodes_per_group + index + 1);
                    let at = place as usize * self.layout.inode_bytes;
                    let raw = Raw { ino, bytes: &bytes[at..at + self.layout.inode_bytes] };
                    if raw.bytes.iter().any(|byte| *byte != 0) {
                        self.note(Structure::Inode(ino, block, at));
                        self.check_inode(raw)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes of an inode, in use or not.
    pub(crate) fn raw_inode(&self, ino: Ino) -> Checked<Option<Vec<u8>>> {
        let index = ino.0.wrapping_sub(1);
        let (number, at) =
            (index / self.layout.inodes_per_group, index % self.layout.inodes_per_group);
        let group = self.groups.get(number as usize).filter(|group| group.is_sound);
        let Some(group) = group.filter(|_| ino.0 <= self.layout.inodes) else { return Ok(None) };
        let per_block = self.layout.inodes_per_block();
        let bytes = self.read(BlockNo(group.table.0 + u64::from(at / per_block)))?;
        let at = (at % per_block) as usize * self.layout.inode_bytes;
        Ok(Some(bytes[at..at + self.layout.inode_bytes].to_vec()))
    }

    fn check_inode(&mut self, raw: Raw<'_>) -> Checked<()> {
        let place = Location::Inode(raw.ino);
        if raw.sum(&self.layout).is_some_and(|(sum, mask)| sum & mask != raw.kept_sum()) {
            self.find(place, Problem::Checksum("the inode"));
        }
        let is_used = [Ino::ROOT, self.layout.journal].contains(&raw.ino);
        if raw.ino.0 < self.layout.first_inode && !is_used {
            return self.check_reserved(raw);
        }
        if raw.links() == 0 {
            if raw.u16(0) != 0 && raw.deleted() == 0 {
                self.find(place, Problem::Impossible("a deleted inode has no time of deletion"));
            }
            return Ok(());
        }
        let Some(kind) = raw.kind() else {
            self.find(place, Problem::Impossible("no known kind"));
            return Ok(());
        };
        self.inodes.push(Inode { ino: raw.ino, kind, links: raw.links(), names: 0 });
        self.check_fields(raw, kind);
        self.check_content(raw, kind)
    }

    fn check_fields(&mut self, raw: Raw<'_>, kind: FileKind) {
        let (extra, room) = (raw.extra(), self.layout.inode_bytes - SHORT);
        let special = !matches!(kind, FileKind::File | FileKind::Directory | FileKind::Symlink);
        let fast = kind == FileKind::Symlink && raw.size() < 60;
        let own = raw.ino == self.layout.journal;
        let impossible = [
            (raw.deleted() != 0, "a time of deletion, though it is in use"),
            (
                extra != 0 && (!extra.is_multiple_of(4) || !(4..=room).contains(&extra)),
                "a wrong size of its extra fields",
            ),
            (
                raw.has_flag(INDEX)
                    && (kind != FileKind::Directory || !self.layout.has_compat(compat::DIR_INDEX)),
                "an index where none can be",
            ),
            (
                raw.has_flag(EXTENTS) && !self.layout.has_incompat(incompat::EXTENTS),
                "extents, which the file system does not have",
            ),
            // The fields of inodes without names are not used.
            (!own && raw.u32(0x70) != 0, "the address of a fragment"),
            (raw.has_flag(INLINE_DATA), "data in the inode, which the file system does not have"),
            (raw.has_flag(CASEFOLD), "names without case, which the file system does not have"),
            (raw.has_flag(ENCRYPTED), "encryption, which the file system does not have"),
            (
                raw.has_flag(IMAGIC) && !self.layout.has_compat(compat::IMAGIC_INODES),
                "a flag of AFS, which the file system does not have",
            ),
            (
                raw.u16(0x76) != 0 && !self.layout.has_incompat(incompat::BITS64),
                "a block of attributes beyond all block numbers",
            ),
            ((special || fast) && raw.has_flag(EXTENTS), "extents where none can be"),
            (special && raw.size() != 0, "a size, which its kind does not have"),
            (special && raw.has_flag(IMMUTABLE_OR_APPEND), "flags that its kind does not have"),
        ];
        for (is_so, what) in impossible {
            if is_so {
                self.find(Location::Inode(raw.ino), Problem::Impossible(what));
            }
        }
    }

    /// Checks blocks, size and attributes.
    fn check_content(&mut self, raw: Raw<'_>, kind: FileKind) -> Checked<()> {
        let fast = kind == FileKind::Symlink && raw.size() < 60;
        let mapped = match kind {
            FileKind::File | FileKind::Directory | FileKind::Symlink if !fast => {
                self.walk(raw, kind)?
            }
            _ => Mapped::default(),
        };
        let own = raw.ino == self.layout.journal;
        let attributes = if own { 0 } else { self.check_attributes(raw)? };
        let place = Location::Inode(raw.ino);
        match raw.counted_blocks() {
            Some(kept) => self.count(place, "blocks", kept, mapped.blocks + attributes),
            None => self.find(place, Problem::Impossible("a part of a block")),
        }
        match kind {
            FileKind::Directory => self.add_directory(raw, &mapped),
            FileKind::Symlink => self.check_target(raw, fast, &mapped)?,
            FileKind::File => self.check_size(raw, &mapped),
            _ => {}
        }
        let blocks = || mapped.in_order().into_iter().flatten();
        if raw.ino == self.layout.journal {
            self.journal = blocks().collect();
        }
        if self.layout.has_compat(compat::ORPHAN_FILE) && raw.ino == self.layout.orphan_file {
            self.orphan_blocks = blocks().collect();
        }
        Ok(())
    }

    pub(crate) fn check_size(&mut self, raw: Raw<'_>, mapped: &Mapped) {
        let behind = mapped.last_written.is_some_and(|last| {
            last.checked_mul(BLOCK_BYTES as u64).is_none_or(|last| raw.size() < last)
        });
        let most: u64 = if raw.has_flag(EXTENTS) { (1 << 44) - 1 } else { 4_402_345_721_856 };
        if behind {
            self.find(
                Location::Inode(raw.ino),
                Problem::Impossible("written blocks behind its end"),
            );
        }
        if raw.size() > most {
            self.find(Location::Inode(raw.ino), Problem::Impossible("a size beyond all maps"));
        }
    }

    fn check_target(&mut self, raw: Raw<'_>, fast: bool, mapped: &Mapped) -> Checked<()> {
        let target = if fast {
            raw.map().to_vec()
        } else if let [Some(block)] = mapped.in_order()[..] {
            self.read(block)?.to_vec()
        } else {
            Vec::new()
        };
        let len = target.iter().position(|byte| *byte == 0);
        if raw.size() == 0 || len.map(|len| len as u64) != Some(raw.size()) {
            let what = "a symbolic link of another length than it says";
            self.find(Location::Inode(raw.ino), Problem::Impossible(what));
        }
        Ok(())
    }

    fn add_directory(&mut self, raw: Raw<'_>, mapped: &Mapped) {
        let blocks = mapped.in_order();
        let size = raw.size();
        if size != blocks.len() as u64 * BLOCK_BYTES as u64 {
            self.find(Location::Inode(raw.ino), Problem::Impossible("a directory of another size"));
        }
        self.directories.push(Directory {
            ino: raw.ino,
            indexed: raw.has_flag(INDEX),
            seed: raw.seed(&self.layout),
            blocks,
            parent: None,
            above: None,
        });
    }

    /// The group of an inode, and its number there.
    pub(crate) fn place_of(&self, ino: Ino) -> (GroupNo, u32) {
        let index = ino.0.wrapping_sub(1);
        let per_group = self.layout.inodes_per_group;
        (GroupNo(index / per_group), index % per_group)
    }
}
