//! What FUSE calls things.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, OpenAccMode, OpenFlags, TimeOrNow};
use manylogs_ext4::{Allocate, Attributes, Error, FileKind, Ino, OpenFor, Seek, Timestamp};
use rustix::fs::OFlags;

/// The kernel calls the root 1, which is a reserved inode of ext4: the two change places.
pub(crate) fn to_node(ino: Ino) -> INodeNo {
    INodeNo(match ino {
        Ino::ROOT => 1,
        Ino(1) => 2,
        Ino(number) => number.into(),
    })
}

/// See [`to_node`]; the kernel only knows numbers that it was given.
pub(crate) fn to_ino(node: INodeNo) -> Ino {
    match node.0 {
        1 => Ino::ROOT,
        2 => Ino(1),
        number => Ino(u32::try_from(number).unwrap_or(u32::MAX)),
    }
}

pub(crate) fn to_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

pub(crate) fn to_attr(known: &Attributes) -> FileAttr {
    let (major, minor) = known.device;
    FileAttr {
        ino: to_node(known.ino),
        size: known.size,
        blocks: known.sectors,
        atime: to_time(known.accessed),
        mtime: to_time(known.modified),
        ctime: to_time(known.changed),
        crtime: to_time(known.born),
        kind: to_type(known.kind),
        perm: known.permissions,
        nlink: known.links,
        uid: known.uid,
        gid: known.gid,
        rdev: minor & 0xff | major << 8 | (minor & !0xff) << 12,
        blksize: 4096,
        flags: 0,
    }
}

/// Major and minor number as the kernel packs them.
pub(crate) const fn to_device(packed: u32) -> (u32, u32) {
    (packed >> 8 & 0xfff, packed & 0xff | packed >> 12 & 0xf_ff00)
}

fn to_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    if time.seconds < 0 { UNIX_EPOCH - seconds + nanos } else { UNIX_EPOCH + seconds + nanos }
}

pub(crate) fn to_timestamp(time: TimeOrNow) -> Timestamp {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    };
    let whole = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: whole(since.as_secs()), nanos: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let borrowed = before.subsec_nanos() > 0;
            let seconds = -whole(before.as_secs()) - i64::from(borrowed);
            let nanos = if borrowed { 1_000_000_000 - before.subsec_nanos() } else { 0 };
            Timestamp { seconds, nanos }
        }
    }
}

pub(crate) fn to_errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

/// What `fallocate` asks for in `mode`, and whether the size stays.
pub(crate) const fn to_allocation(mode: i32) -> Option<(Allocate, bool)> {
    const KEEP_SIZE: i32 = 1;
    const PUNCH_HOLE: i32 = 2 | KEEP_SIZE;
    const ZERO_RANGE: i32 = 16;
    const ZERO_AND_KEEP: i32 = ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Some((Allocate::Blocks, false)),
        KEEP_SIZE => Some((Allocate::Blocks, true)),
        PUNCH_HOLE => Some((Allocate::Hole, true)),
        ZERO_RANGE => Some((Allocate::Zeroes, false)),
        ZERO_AND_KEEP => Some((Allocate::Zeroes, true)),
        _ => None,
    }
}

/// Whether a file was opened with a flag.
pub(crate) const fn has(flags: OpenFlags, flag: OFlags) -> bool {
    flags.0 & flag.bits().cast_signed() != 0
}

/// What is durable when a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// The content, and what is needed to find it.
    Content,
    /// The times as well.
    All,
}

/// Bits of `O_SYNC`; rustix does not tell `O_DSYNC`, which is the lower one, apart.
const SYNC: i32 = 0o4_010_000;

/// What the flags that a file was opened with say of its writes.
pub(crate) const fn to_sync(flags: OpenFlags) -> Option<Sync> {
    match flags.0 & SYNC {
        0 => None,
        SYNC => Some(Sync::All),
        _ => Some(Sync::Content),
    }
}

/// What a file is opened for.
pub(crate) fn to_open(flags: OpenFlags) -> OpenFor {
    OpenFor {
        write: flags.acc_mode() != OpenAccMode::O_RDONLY,
        append: has(flags, OFlags::APPEND),
        truncate: has(flags, OFlags::TRUNC),
    }
}

/// What is asked about an inode's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    GetFlags,
    /// In the form that XFS began with, which the kernel asks for before it sets any.
    GetExtended,
    SetFlags(u32),
}

/// What `ioctl` asks for; `None` for what is not known.
pub(crate) fn to_order(command: u32, data: &[u8]) -> Option<Order> {
    /// `FS_IOC_GETFLAGS`, `FS_IOC_FSGETXATTR` and `FS_IOC_SETFLAGS`, on 64 bits.
    const GET_FLAGS: u32 = 0x8008_6601;
    const GET_EXTENDED: u32 = 0x801c_581f;
    const SET_FLAGS: u32 = 0x4008_6602;
    match command {
        GET_FLAGS => Some(Order::GetFlags),
        GET_EXTENDED => Some(Order::GetExtended),
        SET_FLAGS => {
            let flags = data.first_chunk().map(|flags| u32::from_ne_bytes(*flags));
            flags.map(Order::SetFlags)
        }
        _ => None,
    }
}

/// Flags of an inode as `struct fsxattr` has them.
pub(crate) fn to_extended(flags: u32) -> [u8; 28] {
    /// Immutable, append-only, no times of access, no dump: here and there.
    const SAME: [(u32, u32); 4] = [(0x10, 0x8), (0x20, 0x10), (0x80, 0x40), (0x40, 0x80)];
    let extended = SAME.into_iter().filter(|(here, _)| flags & here != 0);
    let extended = extended.fold(0_u32, |all, (_, there)| all | there);
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&extended.to_ne_bytes());
    bytes
}

/// What `lseek` looks for.
pub(crate) const fn to_seek(whence: i32) -> Option<Seek> {
    match whence {
        3 => Some(Seek::Data),
        4 => Some(Seek::Hole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_the_inode_of_its_number_change_places() {
        for ino in [Ino::ROOT, Ino(1), Ino(11), Ino(u32::MAX)] {
            assert_eq!(to_ino(to_node(ino)), ino);
        }
        assert_eq!(to_node(Ino::ROOT), INodeNo::ROOT);
    }

    #[test]
    fn writes_are_as_durable_as_the_file_was_opened() {
        assert_eq!(to_sync(OpenFlags(0o1)), None);
        assert_eq!(to_sync(OpenFlags(0o10_001)), Some(Sync::Content));
        assert_eq!(to_sync(OpenFlags(0o4_010_002)), Some(Sync::All));
    }

    #[test]
    fn times_before_1970_and_devices_survive() {
        for time in [
            Timestamp { seconds: -2, nanos: 250_000_000 },
            Timestamp { seconds: 0, nanos: 0 },
            Timestamp { seconds: 5_000_000_000, nanos: 1 },
        ] {
            assert_eq!(to_timestamp(TimeOrNow::SpecificTime(to_time(time))), time);
        }
        assert_eq!(to_device(0x12_3456 & 0xfff00 | 0x56), (0x234, 0x56));
    }
}
