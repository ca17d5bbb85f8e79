//! Values that requests and answers consist of.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bitflags::bitflags;

/// The kernel's number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the file system.
    pub const ROOT: Self = Self(1);
}

/// The server's number of an open file; the kernel repeats it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// Flags that a file was opened with, as `open` has them, and those of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

/// A point in time, as seconds since 1970 and nanoseconds after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds added to the seconds, less than a second.
    pub nanos: u32,
}

impl Time {
    /// Converts a time of the standard library; seconds beyond the range of `i64` are clamped.
    #[must_use]
    pub fn of(time: SystemTime) -> Self {
        let whole = |since: Duration| i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: whole(since), nanos: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                match before.subsec_nanos() {
                    0 => Self { seconds: -whole(before), nanos: 0 },
                    nanos => Self { seconds: -whole(before) - 1, nanos: 1_000_000_000 - nanos },
                }
            }
        }
    }
}

/// The new value of a time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The server's clock.
    Now,
    /// As the caller says.
    At(Time),
}

/// Kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A pipe with a name.
    Fifo,
    /// A socket.
    Socket,
}

impl NodeKind {
    /// The kind as bits of a mode.
    pub(crate) const fn mode(self) -> u16 {
        match self {
            Self::File => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind in the bits of a mode.
    pub(crate) const fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            // The kernel's mknod(2) takes no kind for a file.
            0 | 0o100_000 => Self::File,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A device's major and minor number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Number of the driver: 12 bits.
    pub major: u32,
    /// Number among the driver's devices: 20 bits.
    pub minor: u32,
}

impl Device {
    /// The number as the protocol packs it.
    pub(crate) const fn packed(self) -> u32 {
        self.minor & 0xff | (self.major & 0xfff) << 8 | (self.minor & 0xf_ff00) << 12
    }

    /// Unpacks a number, see [`Device::packed`].
    pub(crate) const fn of_packed(packed: u32) -> Self {
        Self { major: packed >> 8 & 0xfff, minor: packed & 0xff | packed >> 12 & 0xf_ff00 }
    }
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The kernel's number of the inode.
    pub node: NodeId,
    /// The inode number that programs see. The kernel fixes the root's `node`, not this number.
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes in use.
    pub sectors: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of content or attributes.
    pub changed: Time,
    /// Kind of the inode.
    pub kind: NodeKind,
    /// The lower twelve bits of its mode.
    pub permissions: u16,
    /// Names that lead to it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Of a device.
    pub device: Device,
    /// Bytes that programs should best read or write at once.
    pub block_bytes: u32,
}

bitflags! {
    /// What kernel and server may agree upon in `INIT`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// The kernel may send several reads of one file at a time.
        const ASYNC_READ = 1 << 0;
        /// The server finds inodes by number that the kernel has forgotten: the kernel looks up the
        /// names `.` and `..` in them (`open_by_handle_at`, NFS).
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes longer than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// `ioctl` on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Listings come with the attributes of each inode.
        const READDIRPLUS = 1 << 13;
        /// The requests of one direct I/O call run in parallel.
        const ASYNC_DIO = 1 << 15;
        /// Lookups and listings of one directory run in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel caches the targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// Directories need not be opened: see [`crate::Filesystem::open_directory`].
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The kernel checks access control lists, which the server stores.
        const POSIX_ACL = 1 << 20;
        /// The server says how many pages a request may have.
        const MAX_PAGES = 1 << 22;
        /// The server clears set-id bits when told to, and always removes capabilities of files.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// The kernel says whether setting an access control list clears the set-group-id bit.
        const SETXATTR_EXT = 1 << 29;
        /// More than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Requests and answers go through an io_uring of the server.
        const OVER_IO_URING = 1 << 41;
    }

    /// How the kernel treats an open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// I/O bypasses the page cache.
        const DIRECT_IO = 1 << 0;
        /// Opening leaves the cached content in place.
        const KEEP_CACHE = 1 << 1;
        /// The kernel sends no request when a descriptor is closed, except for the last one.
        const NO_FLUSH = 1 << 5;
        /// Direct writes run in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// Flags of `renameat2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fails if the new name exists.
        const NO_REPLACE = 1;
        /// The two inodes exchange their names.
        const EXCHANGE = 2;
        /// A whiteout of overlay file systems is left under the old name.
        const WHITEOUT = 4;
    }

    /// Flags of `setxattr`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fails if the attribute exists.
        const CREATE = 1;
        /// Fails if the attribute does not exist.
        const REPLACE = 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_forward() {
        let at = |millis: i64| {
            let off = Duration::from_millis(millis.unsigned_abs());
            if millis < 0 { UNIX_EPOCH - off } else { UNIX_EPOCH + off }
        };
        for (millis, seconds, nanos) in
            [(-1750, -2, 250_000_000), (-2000, -2, 0), (0, 0, 0), (1250, 1, 250_000_000)]
        {
            assert_eq!(Time::of(at(millis)), Time { seconds, nanos }, "{millis}");
        }
    }

    #[test]
    fn devices_are_packed_as_the_kernel_does() {
        for (major, minor, packed) in
            [(8, 1, 0x801), (0xfff, 0xf_ffff, 0xffff_ffff), (259, 0x345, 0x0031_0345)]
        {
            let device = Device { major, minor };
            assert_eq!(device.packed(), packed, "{device:?}");
            assert_eq!(Device::of_packed(packed), device);
        }
    }

    #[test]
    fn kinds_survive_in_modes() {
        for mode in 0..16_u32 {
            let mode = mode << 12;
            if let Some(kind) = NodeKind::of_mode(mode).filter(|_| mode > 0) {
                assert_eq!(u32::from(kind.mode()), mode);
            }
        }
        assert_eq!(NodeKind::of_mode(0o644), Some(NodeKind::File));
        assert_eq!(NodeKind::of_mode(0o170_644), None);
    }
}
