//! Inodes.

pub(crate) mod flags;

use crate::checksum::{changed_sum, crc};
use crate::ondisk::bytes::{high16, high32, join32, le16, le32, low16, low32, put_le16, put_le32};
use crate::ondisk::xattr::{self, Xattr};
use crate::units::{BLOCK_SECTORS, BlockNo, Ino, Timestamp};

/// Bytes of the first part of an inode, which every inode has.
pub(crate) const SHORT: usize = 128;
/// Offset of the root of the extent tree, or of the target of a short symbolic link.
const MAP: usize = 0x28;
/// Length of [`MAP`].
pub(crate) const MAP_BYTES: usize = 60;
const CHECKSUM_LOW: usize = 0x7C;
const CHECKSUM_HIGH: usize = 0x82;
const EXTRA: usize = 0x80;

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    const ALL: [(Self, u16, u8); 7] = [
        (Self::File, 0o100_000, 1),
        (Self::Directory, 0o040_000, 2),
        (Self::CharDevice, 0o020_000, 3),
        (Self::BlockDevice, 0o060_000, 4),
        (Self::Fifo, 0o010_000, 5),
        (Self::Socket, 0o140_000, 6),
        (Self::Symlink, 0o120_000, 7),
    ];

    fn find(matches: impl Fn(&(Self, u16, u8)) -> bool) -> Option<(Self, u16, u8)> {
        Self::ALL.into_iter().find(matches)
    }

    /// The kind in the upper four bits of `mode`.
    #[must_use]
    pub fn of_mode(mode: u16) -> Option<Self> {
        Self::find(|(_, bits, _)| *bits == mode & 0o170_000).map(|(kind, ..)| kind)
    }

    /// The upper four bits of the mode.
    #[must_use]
    pub fn mode_bits(self) -> u16 {
        Self::find(|(kind, ..)| *kind == self).map_or(0, |(_, bits, _)| bits)
    }

    /// The kind of a code in a directory's entry.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::find(|(_, _, known)| *known == code).map(|(kind, ..)| kind)
    }

    /// Its code in a directory's entry.
    pub(crate) fn code(self) -> u8 {
        Self::find(|(kind, ..)| *kind == self).map_or(0, |(_, _, code)| code)
    }
}

/// The times of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeField {
    Access,
    Change,
    Modify,
    Birth,
}

impl TimeField {
    /// Offset of the seconds, and of the nanoseconds with the seconds' upper bits.
    const fn at(self) -> (usize, usize) {
        match self {
            Self::Access => (0x8, 0x8C),
            Self::Change => (0xC, 0x84),
            Self::Modify => (0x10, 0x88),
            Self::Birth => (0x90, 0x94),
        }
    }
}

/// The bytes of one inode.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RawInode(Vec<u8>);

impl RawInode {
    /// The inode in `bytes`, whose length is a power of two of at least [`SHORT`]. `None` if its
    /// second part claims an impossible length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let found = Self(bytes.to_vec());
        let sound = found.extra().is_multiple_of(4) && SHORT + found.extra() <= bytes.len();
        sound.then_some(found)
    }

    /// An inode that was never used.
    pub(crate) fn blank(bytes: usize, extra: u16) -> Self {
        let mut blank = Self(vec![0; bytes]);
        if bytes > SHORT {
            put_le16(&mut blank.0, EXTRA, extra);
        }
        blank
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of the second part that are in use.
    fn extra(&self) -> usize {
        if self.0.len() > SHORT { le16(&self.0, EXTRA).into() } else { 0 }
    }

    /// Whether the second part has this field.
    fn has(&self, at: usize, bytes: usize) -> bool {
        at + bytes <= SHORT + self.extra()
    }

    fn u16(&self, at: usize) -> u16 {
        le16(&self.0, at)
    }

    fn u32(&self, at: usize) -> u32 {
        le32(&self.0, at)
    }

    /// The seed of checksums of the inode's blocks.
    pub(crate) fn seed(&self, file_system: u32, ino: Ino) -> u32 {
        crc(crc(file_system, &ino.0.to_le_bytes()), &self.u32(0x64).to_le_bytes())
    }

    fn checksum(&self, file_system: u32, ino: Ino) -> u32 {
        let sum = crc(self.seed(file_system, ino), &self.0[..CHECKSUM_LOW]);
        let sum = crc(crc(sum, &[0; 2]), &self.0[CHECKSUM_LOW + 2..SHORT]);
        if !self.has(CHECKSUM_HIGH, 2) {
            return crc(sum, &self.0[SHORT..]);
        }
        let sum = crc(crc(sum, &self.0[SHORT..CHECKSUM_HIGH]), &[0; 2]);
        crc(sum, &self.0[CHECKSUM_HIGH + 2..])
    }

    pub(crate) fn is_whole(&self, file_system: u32, ino: Ino) -> bool {
        let sum = self.checksum(file_system, ino);
        self.u16(CHECKSUM_LOW) == low16(sum)
            && (!self.has(CHECKSUM_HIGH, 2) || self.u16(CHECKSUM_HIGH) == high16(sum))
    }

    pub(crate) fn seal(&mut self, file_system: u32, ino: Ino) {
        let sum = self.checksum(file_system, ino);
        put_le16(&mut self.0, CHECKSUM_LOW, low16(sum));
        if self.has(CHECKSUM_HIGH, 2) {
            put_le16(&mut self.0, CHECKSUM_HIGH, high16(sum));
        }
    }

    /// Corrects the checksum of an inode that was `before`, whose checksum was right.
    pub(crate) fn amend(&mut self, before: &Self) {
        // Both have the same bytes where the checksum is.
        let changed = changed_sum(&self.0, &before.0);
        put_le16(&mut self.0, CHECKSUM_LOW, before.u16(CHECKSUM_LOW) ^ low16(changed));
        if self.has(CHECKSUM_HIGH, 2) {
            put_le16(&mut self.0, CHECKSUM_HIGH, before.u16(CHECKSUM_HIGH) ^ high16(changed));
        }
    }

    pub(crate) fn mode(&self) -> u16 {
        self.u16(0x0)
    }

    pub(crate) fn set_mode(&mut self, mode: u16) {
        put_le16(&mut self.0, 0x0, mode);
    }

    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::of_mode(self.mode())
    }

    pub(crate) fn owner(&self) -> (u32, u32) {
        let join = |low, high| u32::from(self.u16(low)) | u32::from(self.u16(high)) << 16;
        (join(0x2, 0x78), join(0x18, 0x7A))
    }

    pub(crate) fn set_owner(&mut self, uid: u32, gid: u32) {
        for (number, low, high) in [(uid, 0x2, 0x78), (gid, 0x18, 0x7A)] {
            put_le16(&mut self.0, low, low16(number));
            put_le16(&mut self.0, high, high16(number));
        }
    }

    pub(crate) fn size(&self) -> u64 {
        join32(self.u32(0x4), self.u32(0x6C))
    }

    pub(crate) fn set_size(&mut self, bytes: u64) {
        put_le32(&mut self.0, 0x4, low32(bytes));
        put_le32(&mut self.0, 0x6C, high32(bytes));
    }

    pub(crate) fn links(&self) -> u16 {
        self.u16(0x1A)
    }

    pub(crate) fn set_links(&mut self, links: u16) {
        put_le16(&mut self.0, 0x1A, links);
    }

    /// Sectors in use, its own blocks of metadata included.
    pub(crate) fn sectors(&self) -> u64 {
        let count = join32(self.u32(0x1C), self.u16(0x74).into());
        if self.has_flag(flags::HUGE_FILE) { count * 8 } else { count }
    }

    pub(crate) fn set_sectors(&mut self, sectors: u64) {
        // A count of sectors that needs more than 48 bits is stored in blocks.
        let in_blocks = sectors >> 48 != 0 || self.has_flag(flags::HUGE_FILE);
        let count = if in_blocks { sectors / 8 } else { sectors };
        self.set_flag(flags::HUGE_FILE, in_blocks);
        put_le32(&mut self.0, 0x1C, low32(count));
        put_le16(&mut self.0, 0x74, low16(high32(count)));
    }

    pub(crate) fn flags(&self) -> u32 {
        self.u32(0x20)
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    pub(crate) fn set_flag(&mut self, flag: u32, on: bool) {
        let flags = if on { self.flags() | flag } else { self.flags() & !flag };
        put_le32(&mut self.0, 0x20, flags);
    }

    /// Tells apart the files that had this inode number one after the other.
    pub(crate) fn generation(&self) -> u32 {
        self.u32(0x64)
    }

    pub(crate) fn set_generation(&mut self, generation: u32) {
        put_le32(&mut self.0, 0x64, generation);
    }

    /// When it was deleted; for an orphan, the next orphan in the list.
    pub(crate) fn deleted_or_next(&self) -> u32 {
        self.u32(0x14)
    }

    pub(crate) fn set_deleted_or_next(&mut self, number: u32) {
        put_le32(&mut self.0, 0x14, number);
    }

    /// The block of extended attributes; zero if there is none.
    pub(crate) fn xattr_block(&self) -> BlockNo {
        BlockNo(join32(self.u32(0x68), self.u16(0x76).into()))
    }

    pub(crate) fn set_xattr_block(&mut self, block: BlockNo) {
        put_le32(&mut self.0, 0x68, low32(block.0));
        put_le16(&mut self.0, 0x76, low16(high32(block.0)));
    }

    /// Offset of the room behind the inode's fields, for a magic number and attributes.
    fn inline_area(&self) -> Option<usize> {
        let start = SHORT + self.extra();
        (start + 8 <= self.0.len()).then_some(start)
    }

    /// Bytes of room for attributes in the inode.
    pub(crate) fn inline_room(&self) -> usize {
        self.inline_area().map_or(0, |start| self.0.len() - start - 4)
    }

    /// The attributes in the inode; `None` if they say something impossible.
    pub(crate) fn inline_xattrs(&self) -> Option<Vec<Xattr>> {
        match self.inline_area() {
            Some(start) if self.u32(start) == xattr::MAGIC => {
                xattr::decode(&self.0[start + 4..], 0)
            }
            _ => Some(Vec::new()),
        }
    }

    /// Writes attributes into the inode; they must fit.
    pub(crate) fn set_inline_xattrs(&mut self, xattrs: &[Xattr]) {
        let Some(start) = self.inline_area() else { return };
        put_le32(&mut self.0, start, if xattrs.is_empty() { 0 } else { xattr::MAGIC });
        xattr::encode_inline(&mut self.0[start + 4..], xattrs);
    }

    /// Whether it is a symbolic link whose target lies in the inode: it has no blocks, except
    /// perhaps one of attributes.
    pub(crate) fn is_short_link(&self) -> bool {
        let attributes = if self.xattr_block().0 == 0 { 0 } else { BLOCK_SECTORS };
        self.kind() == Some(FileKind::Symlink)
            && !self.has_flag(flags::EXTENTS)
            && self.sectors() == attributes
    }

    pub(crate) fn map(&self) -> &[u8] {
        &self.0[MAP..MAP + MAP_BYTES]
    }

    pub(crate) fn map_mut(&mut self) -> &mut [u8] {
        &mut self.0[MAP..MAP + MAP_BYTES]
    }

    /// Major and minor number of a device. The old form is in the first word, the new one in the
    /// second.
    pub(crate) fn device(&self) -> (u32, u32) {
        let (old, new) = (self.u32(MAP), self.u32(MAP + 4));
        if old != 0 {
            (old >> 8 & 0xFF, old & 0xFF)
        } else {
            (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xF_FF00)
        }
    }

    pub(crate) fn set_device(&mut self, major: u32, minor: u32) {
        let is_old = major < 256 && minor < 256;
        let old = if is_old { major << 8 | minor } else { 0 };
        let new = if is_old { 0 } else { minor & 0xFF | major << 8 | (minor & !0xFF) << 12 };
        put_le32(&mut self.0, MAP, old);
        put_le32(&mut self.0, MAP + 4, new);
    }

    /// A time; zero if the inode has no room for it.
    pub(crate) fn time(&self, field: TimeField) -> Timestamp {
        let (at, extra_at) = field.at();
        if field == TimeField::Birth && !self.has(at, 4) {
            return Timestamp::default();
        }
        let seconds = i64::from(self.u32(at).cast_signed());
        if !self.has(extra_at, 4) {
            return Timestamp { seconds, nanos: 0 };
        }
        let extra = self.u32(extra_at);
        let nanos = (extra >> 2).min(999_999_999);
        Timestamp { seconds: seconds + (i64::from(extra & 3) << 32), nanos }
    }

    /// Stores a time as exactly as the inode has room for. Earlier and later times than it can
    /// store become its first and last second, without nanoseconds.
    pub(crate) fn set_time(&mut self, field: TimeField, time: Timestamp) {
        let (at, extra_at) = field.at();
        if field == TimeField::Birth && !self.has(at, 4) {
            return;
        }
        let has_extra = self.has(extra_at, 4);
        let last = i64::from(i32::MAX) + if has_extra { 3 << 32 } else { 0 };
        let first = i64::from(i32::MIN);
        let seconds = time.seconds.clamp(first, last);
        let nanos = if seconds == first || seconds == last { 0 } else { time.nanos };
        let low = low32(seconds.cast_unsigned());
        put_le32(&mut self.0, at, low);
        if has_extra {
            let epochs = (seconds - i64::from(low.cast_signed())) >> 32;
            let extra = low32(epochs.cast_unsigned()) & 3 | nanos << 2;
            put_le32(&mut self.0, extra_at, extra);
        }
    }
}

impl std::fmt::Debug for RawInode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawInode")
            .field("mode", &format_args!("{:o}", self.mode()))
            .field("size", &self.size())
            .field("links", &self.links())
            .field("flags", &format_args!("{:#x}", self.flags()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_flip_passes_in_long_and_short_inodes() {
        for bytes in [128, 256] {
            let mut inode = RawInode::blank(bytes, 32);
            inode.set_mode(0o100_644);
            inode.set_generation(77);
            inode.seal(5, Ino(12));
            assert!(inode.is_whole(5, Ino(12)) && !inode.is_whole(5, Ino(13)));
            for bit in 0..bytes * 8 {
                let mut bad = inode.bytes().to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                let whole = RawInode::decode(&bad).is_some_and(|bad| bad.is_whole(5, Ino(12)));
                // A short inode has only half of the checksum, but a single flip changes both
                // halves.
                assert!(!whole, "bit {bit} of {bytes} bytes");
            }
        }
    }

    #[test]
    fn times_before_1970_and_after_2038_survive_in_long_inodes() {
        let mut long = RawInode::blank(256, 32);
        let mut short = RawInode::blank(128, 0);
        for seconds in [-5, 0, i64::from(i32::MAX), 1 << 31, 3_000_000_000, 1 << 32, 15_000_000_000]
        {
            let time = Timestamp { seconds, nanos: 999_999_999 };
            long.set_time(TimeField::Modify, time);
            assert_eq!(long.time(TimeField::Modify), time);
            short.set_time(TimeField::Modify, time);
            let kept = Timestamp { seconds: seconds.min(i32::MAX.into()), nanos: 0 };
            assert_eq!(short.time(TimeField::Modify), kept);
        }
        assert_eq!(short.time(TimeField::Birth), Timestamp::default());
    }

    #[test]
    fn device_numbers_owners_and_sizes_survive_in_both_forms() {
        let mut inode = RawInode::blank(256, 32);
        for device in [(8, 1), (259, 70_000), (4095, 0)] {
            inode.set_device(device.0, device.1);
            assert_eq!(inode.device(), device);
        }
        inode.set_owner(100_000, 70_001);
        inode.set_size(1 << 40);
        inode.set_sectors(1 << 49);
        assert_eq!((inode.owner(), inode.size()), ((100_000, 70_001), 1 << 40));
        assert_eq!((inode.sectors(), inode.has_flag(flags::HUGE_FILE)), (1 << 49, true));
    }
}
