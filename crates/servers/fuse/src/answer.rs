//! Answers, and the bytes that the kernel gets.

use std::time::Duration;

use zerocopy::IntoBytes;

use crate::values::{Attributes, FileHandle, NodeKind, OpenedFlags, Time};
use crate::wire;

/// An answer to a request: the body of the message, in up to two consecutive parts.
pub trait Answer {
    /// Hands the parts to `send`.
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R;
}

/// An inode that the kernel knows from now on, under the name that the request contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Attributes of the inode.
    pub attributes: Attributes,
    /// Generation of the inode number: tells the inodes apart that have had this number.
    pub generation: u64,
    /// How long the kernel may keep the name.
    pub name_valid: Duration,
    /// How long the kernel may keep the attributes.
    pub attributes_valid: Duration,
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The attributes.
    pub attributes: Attributes,
    /// How long the kernel may keep them.
    pub valid: Duration,
}

/// Attributes of an inode, and its time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFromBirth {
    /// Everything but the birth.
    pub known: Known,
    /// Birth, if it is known.
    pub born: Option<Time>,
}

/// A file is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// What the server calls it.
    pub handle: FileHandle,
    /// How the kernel treats it.
    pub flags: OpenedFlags,
}

/// A file was created, and is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The inode.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

/// So many bytes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written(pub u32);

/// Data or the hole begins at this byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(pub u64);

/// How much is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free ones.
    pub free_blocks: u64,
    /// Of the free ones, those that any user may take.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free ones.
    pub free_inodes: u64,
    /// Bytes of the longest name.
    pub longest_name: u32,
}

/// The result of an `ioctl`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoctlDone {
    /// Return value of the call.
    pub result: i32,
    /// Bytes that the caller gets.
    pub data: Vec<u8>,
}

/// Names of a directory, as many as there is room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    bytes: Vec<u8>,
    room: usize,
}

impl Names {
    /// An empty list with `room` bytes for names.
    #[must_use]
    pub fn with_room(room: u32) -> Self {
        Self { bytes: Vec::new(), room: usize::try_from(room).unwrap_or(usize::MAX) }
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a name of inode `number`; `next` is the offset at which the listing goes on behind the
    /// name. Returns false and adds nothing if there is no room.
    #[must_use]
    pub fn push(&mut self, number: u64, next: u64, kind: NodeKind, name: &[u8]) -> bool {
        self.push_behind(&[], number, next, kind, name)
    }

    /// Like [`Names::push`], for a listing that carries attributes of the inodes. The kernel counts
    /// the inode as looked up under this name, unless `entry` is missing or the name is `.` or
    /// `..`.
    #[must_use]
    pub fn push_known(
        &mut self,
        entry: Option<&Entry>,
        (number, next): (u64, u64),
        kind: NodeKind,
        name: &[u8],
    ) -> bool {
        let entry = entry.map_or_else(wire::EntryOut::default, |entry| entry.to_wire());
        self.push_behind(entry.as_bytes(), number, next, kind, name)
    }

    /// Whether there is room for a name of `name` bytes together with the attributes of its inode.
    #[must_use]
    pub fn have_room_for_known(&self, name: usize) -> bool {
        let bytes = size_of::<wire::EntryOut>() + size_of::<wire::Dirent>() + name;
        self.bytes.len() + bytes.next_multiple_of(8) <= self.room
    }

    fn push_behind(
        &mut self,
        entry: &[u8],
        number: u64,
        next: u64,
        kind: NodeKind,
        name: &[u8],
    ) -> bool {
        let Ok(namelen) = u32::try_from(name.len()) else { return false };
        let kind = u32::from(kind.mode() >> 12);
        let head = wire::Dirent { ino: number, off: next, namelen, kind };
        let len = entry.len() + size_of::<wire::Dirent>() + name.len();
        let end = self.bytes.len() + len.next_multiple_of(8);
        if end > self.room {
            return false;
        }
        self.bytes.extend_from_slice(entry);
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

impl Answer for () {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([&[], &[]])
    }
}

impl Answer for [u8] {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([self, &[]])
    }
}

impl Answer for Entry {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([self.to_wire().as_bytes(), &[]])
    }
}

impl Answer for Known {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        let out = wire::AttrOut {
            attr_valid: self.valid.as_secs(),
            attr_valid_nsec: self.valid.subsec_nanos(),
            dummy: 0,
            attr: self.attributes.to_wire(),
        };
        send([out.as_bytes(), &[]])
    }
}

impl Answer for KnownFromBirth {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        let valid = self.known.valid;
        let out = wire::StatxOut {
            attr_valid: valid.as_secs(),
            attr_valid_nsec: valid.subsec_nanos(),
            stat: self.to_wire(),
            ..wire::StatxOut::default()
        };
        send([out.as_bytes(), &[]])
    }
}

impl Answer for Opened {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([self.to_wire().as_bytes(), &[]])
    }
}

impl Answer for Created {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([self.entry.to_wire().as_bytes(), self.opened.to_wire().as_bytes()])
    }
}

impl Answer for Written {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([wire::WriteOut { size: self.0, padding: 0 }.as_bytes(), &[]])
    }
}

impl Answer for Found {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([wire::LseekOut { offset: self.0 }.as_bytes(), &[]])
    }
}

impl Answer for Usage {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        let out = wire::StatfsOut {
            blocks: self.blocks,
            bfree: self.free_blocks,
            bavail: self.available_blocks,
            files: self.inodes,
            ffree: self.free_inodes,
            bsize: self.block_bytes,
            namelen: self.longest_name,
            frsize: self.block_bytes,
            ..wire::StatfsOut::default()
        };
        send([out.as_bytes(), &[]])
    }
}

impl Answer for IoctlDone {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        let out = wire::IoctlOut { result: self.result, ..wire::IoctlOut::default() };
        send([out.as_bytes(), &self.data])
    }
}

impl Answer for Names {
    fn with_parts<R>(&self, send: impl FnOnce([&[u8]; 2]) -> R) -> R {
        send([&self.bytes, &[]])
    }
}

impl Attributes {
    fn mode(&self) -> u16 {
        self.kind.mode() | self.permissions & 0o7777
    }

    fn to_wire(self) -> wire::Attr {
        wire::Attr {
            ino: self.number,
            size: self.size,
            blocks: self.sectors,
            atime: self.accessed.seconds.cast_unsigned(),
            mtime: self.modified.seconds.cast_unsigned(),
            ctime: self.changed.seconds.cast_unsigned(),
            atimensec: self.accessed.nanos,
            mtimensec: self.modified.nanos,
            ctimensec: self.changed.nanos,
            mode: self.mode().into(),
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.device.packed(),
            blksize: self.block_bytes,
            flags: 0,
        }
    }
}

impl Entry {
    fn to_wire(self) -> wire::EntryOut {
        wire::EntryOut {
            nodeid: self.attributes.node.0,
            generation: self.generation,
            entry_valid: self.name_valid.as_secs(),
            attr_valid: self.attributes_valid.as_secs(),
            entry_valid_nsec: self.name_valid.subsec_nanos(),
            attr_valid_nsec: self.attributes_valid.subsec_nanos(),
            attr: self.attributes.to_wire(),
        }
    }
}

impl Opened {
    fn to_wire(self) -> wire::OpenOut {
        wire::OpenOut { fh: self.handle.0, open_flags: self.flags.bits(), backing_id: 0 }
    }
}

impl KnownFromBirth {
    fn to_wire(self) -> wire::Statx {
        let known = &self.known.attributes;
        let time =
            |time: Time| wire::SxTime { tv_sec: time.seconds, tv_nsec: time.nanos, reserved: 0 };
        let birth = if self.born.is_some() { wire::STATX_BIRTH } else { 0 };
        wire::Statx {
            mask: wire::STATX_BASIC | birth,
            blksize: known.block_bytes,
            nlink: known.links,
            uid: known.uid,
            gid: known.gid,
            mode: known.mode(),
            ino: known.number,
            size: known.size,
            blocks: known.sectors,
            atime: time(known.accessed),
            btime: time(self.born.unwrap_or_default()),
            ctime: time(known.changed),
            mtime: time(known.modified),
            rdev_major: known.device.major,
            rdev_minor: known.device.minor,
            ..wire::Statx::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
