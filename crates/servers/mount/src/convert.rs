//! Conversions between the types of FUSE and those of the file system.

use manylogs_ext4::{
    Allocate, Attributes, Caller, Change, Descriptor, Error, FileKind, Ino, NewTime, OpenFor, Seek,
    Taken, Timestamp,
};
use manylogs_fuse as fuse;
use manylogs_fuse::request::SetAttributes;
use manylogs_fuse::{Device, Errno, FileHandle, NodeId, NodeKind, OpenFlags, RenameFlags, Time};
use rustix::fs::OFlags;

/// The kernel's number of an inode. The kernel's root is 1, a reserved inode of ext4: those two
/// numbers are exchanged.
pub(crate) fn to_node(ino: Ino) -> NodeId {
    NodeId(match ino {
        Ino::ROOT => 1,
        Ino(1) => 2,
        Ino(number) => number.into(),
    })
}

/// The inverse of [`to_node`]; the kernel only knows numbers that it was given.
pub(crate) fn to_ino(node: NodeId) -> Ino {
    match node.0 {
        1 => Ino::ROOT,
        2 => Ino(1),
        number => Ino(u32::try_from(number).unwrap_or(u32::MAX)),
    }
}

/// The caller of a request. The kernel passes neither further groups nor capabilities.
pub(crate) const fn to_caller(context: fuse::Context) -> Caller {
    Caller { uid: context.uid, gid: context.gid }
}

/// The descriptor of an open file; `None` if it was opened for reading alone.
pub(crate) fn to_descriptor(handle: FileHandle) -> Option<Descriptor> {
    (handle.0 > 0).then_some(Descriptor(handle.0))
}

pub(crate) const fn to_kind(kind: FileKind) -> NodeKind {
    match kind {
        FileKind::File => NodeKind::File,
        FileKind::Directory => NodeKind::Directory,
        FileKind::Symlink => NodeKind::Symlink,
        FileKind::CharDevice => NodeKind::CharDevice,
        FileKind::BlockDevice => NodeKind::BlockDevice,
        FileKind::Fifo => NodeKind::Fifo,
        FileKind::Socket => NodeKind::Socket,
    }
}

/// See [`to_kind`].
pub(crate) const fn of_kind(kind: NodeKind) -> FileKind {
    match kind {
        NodeKind::File => FileKind::File,
        NodeKind::Directory => FileKind::Directory,
        NodeKind::Symlink => FileKind::Symlink,
        NodeKind::CharDevice => FileKind::CharDevice,
        NodeKind::BlockDevice => FileKind::BlockDevice,
        NodeKind::Fifo => FileKind::Fifo,
        NodeKind::Socket => FileKind::Socket,
    }
}

pub(crate) fn to_attributes(known: &Attributes) -> fuse::Attributes {
    let (major, minor) = known.device;
    fuse::Attributes {
        node: to_node(known.ino),
        number: known.ino.0.into(),
        size: known.size,
        sectors: known.sectors,
        accessed: to_time(known.accessed),
        modified: to_time(known.modified),
        changed: to_time(known.changed),
        kind: to_kind(known.kind),
        permissions: known.permissions,
        links: known.links,
        uid: known.uid,
        gid: known.gid,
        device: Device { major, minor },
        block_bytes: 4096,
    }
}

pub(crate) const fn to_time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanos: time.nanos }
}

const fn to_new_time(time: fuse::NewTime) -> NewTime {
    match time {
        fuse::NewTime::At(Time { seconds, nanos }) => NewTime::At(Timestamp { seconds, nanos }),
        fuse::NewTime::Now => NewTime::Now,
    }
}

pub(crate) fn to_change(change: SetAttributes) -> Change {
    Change {
        permissions: change.permissions,
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        accessed: change.accessed.map(to_new_time),
        modified: change.modified.map(to_new_time),
        kill_set_ids: change.kill_set_ids,
    }
}

pub(crate) fn to_errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// What a rename does if the new name exists, and whether it leaves a whiteout.
pub(crate) fn to_taken(flags: RenameFlags) -> Option<(Taken, bool)> {
    let leaves = flags.contains(RenameFlags::WHITEOUT);
    let flags = flags - RenameFlags::WHITEOUT;
    let taken = match flags {
        flags if flags.is_empty() => Taken::Replaced,
        RenameFlags::NO_REPLACE => Taken::Kept,
        RenameFlags::EXCHANGE if !leaves => Taken::Exchanged,
        _ => return None,
    };
    Some((taken, leaves))
}

/// What `fallocate` asks for in `mode`, and whether the size stays.
pub(crate) const fn to_allocation(mode: u32) -> Option<(Allocate, bool)> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2 | KEEP_SIZE;
    const ZERO_RANGE: u32 = 16;
    const ZERO_AND_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
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
    flags.0 & flag.bits() != 0
}

/// What must be durable when a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// The content, and what is needed to find it.
    Content,
    /// The times as well.
    All,
}

/// The two bits of `O_SYNC`. The lower one is `O_DSYNC`, which rustix does not name.
const SYNC: u32 = 0o4_010_000;

/// What must be durable after a write, by the flags that its file was opened with.
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
        write: flags.0 & OFlags::ACCMODE.bits() != OFlags::RDONLY.bits(),
        append: has(flags, OFlags::APPEND),
        truncate: has(flags, OFlags::TRUNC),
    }
}

/// An `ioctl` about an inode's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagsIoctl {
    GetFlags,
    /// Gets the flags as `struct fsxattr`; the kernel sends this before it sets flags.
    GetExtended,
    SetFlags(u32),
    /// Whether the inode has [`DURABLE_XATTR`](manylogs_ext4::DURABLE_XATTR).
    GetDurable,
    /// Sets that attribute to 1 or 0.
    SetDurable(u32),
}

/// Decodes an `ioctl`; `None` if it is unknown.
pub(crate) fn to_order(command: u32, data: &[u8]) -> Option<FlagsIoctl> {
    /// `FS_IOC_GETFLAGS`, `FS_IOC_FSGETXATTR` and `FS_IOC_SETFLAGS`, on 64 bits.
    const GET_FLAGS: u32 = 0x8008_6601;
    const GET_EXTENDED: u32 = 0x801c_581f;
    const SET_FLAGS: u32 = 0x4008_6602;
    /// `_IOR('M', 0x70, __u32)` and `_IOW('M', 0x71, __u32)`: ours, see docs/mlfs.md.
    const GET_DURABLE: u32 = 0x8004_4d70;
    const SET_DURABLE: u32 = 0x4004_4d71;
    let number = || data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    match command {
        GET_FLAGS => Some(FlagsIoctl::GetFlags),
        GET_EXTENDED => Some(FlagsIoctl::GetExtended),
        SET_FLAGS => number().map(FlagsIoctl::SetFlags),
        GET_DURABLE => Some(FlagsIoctl::GetDurable),
        SET_DURABLE => number().map(FlagsIoctl::SetDurable),
        _ => None,
    }
}

/// Flags of an inode as `struct fsxattr` has them.
pub(crate) fn to_extended(flags: u32) -> [u8; 28] {
    /// Immutable, append-only, sync, no times of access, no dump: as ext4's flag and as the bit of
    /// `fsxattr`.
    const SAME: [(u32, u32); 5] =
        [(0x10, 0x8), (0x20, 0x10), (0x8, 0x20), (0x80, 0x40), (0x40, 0x80)];
    let extended = SAME.into_iter().filter(|(here, _)| flags & here != 0);
    let extended = extended.fold(0_u32, |all, (_, there)| all | there);
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&extended.to_ne_bytes());
    bytes
}

/// What `lseek` looks for.
pub(crate) const fn to_seek(whence: u32) -> Option<Seek> {
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
        assert_eq!(to_node(Ino::ROOT), NodeId::ROOT);
    }

    #[test]
    fn orders_are_told_by_their_numbers() {
        assert_eq!(to_order(0x8004_4d70, &[]), Some(FlagsIoctl::GetDurable));
        let one = 1_u32.to_ne_bytes();
        assert_eq!(to_order(0x4004_4d71, &one), Some(FlagsIoctl::SetDurable(1)));
        assert_eq!(to_order(0x4004_4d71, &one[..2]), None);
        assert_eq!(to_order(0x4008_6602, &one), Some(FlagsIoctl::SetFlags(1)));
        assert_eq!(to_order(0x4004_4d72, &one), None);
    }

    #[test]
    fn writes_are_as_durable_as_the_file_was_opened() {
        assert_eq!(to_sync(OpenFlags(0o1)), None);
        assert_eq!(to_sync(OpenFlags(0o10_001)), Some(Sync::Content));
        assert_eq!(to_sync(OpenFlags(0o4_010_002)), Some(Sync::All));
    }
}
