//! Bytes of the kernel as requests.

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::request::{
    Allocate, Context, Create, Forgets, GetXattr, Init, Ioctl, Link, MakeDirectory, MakeNode,
    MakeSymlink, Open, Operation, Read, Rename, Request, RequestId, Room, Seek, SetAttributes,
    SetXattr, Sync, Write,
};
use crate::values::{
    Device, FileHandle, InitFlags, NewTime, NodeId, NodeKind, OpenFlags, RenameFlags, Time,
    XattrFlags,
};
use crate::wire::{self, InHeader, opcode, setattr};

/// Why bytes cannot be decoded as a request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// There is no whole header, or its length is not that of the bytes: no answer can be sent.
    #[error("{bytes} bytes are no request of FUSE: its header says {said:?}")]
    NoRequest {
        /// Bytes that were read.
        bytes: usize,
        /// Length that the header states, if there is a header.
        said: Option<u32>,
    },
    /// The body behind the header is too short.
    #[error("request {} of FUSE, operation {opcode}, is too short", id.0)]
    TooShort {
        /// Number of the request, which the answer repeats.
        id: RequestId,
        /// Number of the operation.
        opcode: u32,
    },
}

/// The parts of the protocol that depend on what was agreed upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// Whether [`InitFlags::SETXATTR_EXT`] was agreed upon.
    pub extended_setxattr: bool,
}

/// The body behind the header is too short.
struct TooShort;

/// The rest of a request: the two pieces that the kernel puts it into. Nothing lies in both. What
/// comes through the device is in one piece.
struct Rest<'a>(&'a [u8], &'a [u8]);

impl<'a> Rest<'a> {
    /// Goes on with the second piece at the end of the first.
    const fn go_on(&mut self) {
        if self.0.is_empty() {
            (self.0, self.1) = (self.1, &[]);
        }
    }

    /// Takes `bytes` away from the end.
    fn shorten(self, bytes: usize) -> Option<Self> {
        match self.1.len() {
            0 => Some(Self(&self.0[..self.0.len().checked_sub(bytes)?], &[])),
            len => Some(Self(self.0, &self.1[..len.checked_sub(bytes)?])),
        }
    }

    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, TooShort> {
        self.go_on();
        let (taken, rest) = T::read_from_prefix(self.0).map_err(|_| TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next name, which ends with a zero byte.
    fn name(&mut self) -> Result<&'a [u8], TooShort> {
        self.go_on();
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(TooShort)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], TooShort> {
        let len = usize::try_from(len).map_err(|_| TooShort)?;
        self.go_on();
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(TooShort)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl<'a> Request<'a> {
    /// Decodes `bytes`, which come from one read from the kernel.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &'a [u8], dialect: Dialect) -> Result<Self, DecodeError> {
        Self::decode_parted([bytes, &[]], dialect)
    }

    /// Decodes a request in two pieces: the headers, and what follows that of the operation.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode_parted(
        [head, payload]: [&'a [u8]; 2],
        dialect: Dialect,
    ) -> Result<Self, DecodeError> {
        let bytes = head.len() + payload.len();
        let no_request = |said| DecodeError::NoRequest { bytes, said };
        let (header, rest) = InHeader::read_from_prefix(head).map_err(|_| no_request(None))?;
        if usize::try_from(header.len) != Ok(bytes) {
            return Err(no_request(Some(header.len)));
        }
        let id = RequestId(header.unique);
        let too_short = || DecodeError::TooShort { id, opcode: header.opcode };
        // Extensions lie at the end. They are skipped: no server here agrees upon any.
        let extensions = usize::from(header.total_extlen) * 8;
        let body = Rest(rest, payload).shorten(extensions).ok_or_else(too_short)?;
        let operation = operation(header.opcode, body, dialect);
        let operation = operation.map_err(|TooShort| too_short())?;
        let node = NodeId(header.nodeid);
        let context = Context { node, uid: header.uid, gid: header.gid, pid: header.pid };
        Ok(Self { id, context, operation })
    }
}

fn operation<'a>(
    code: u32,
    mut rest: Rest<'a>,
    dialect: Dialect,
) -> Result<Operation<'a>, TooShort> {
    Ok(match code {
        opcode::INIT => Operation::Init(init(rest)?),
        opcode::DESTROY => Operation::Destroy,
        opcode::LOOKUP => Operation::Lookup(rest.name()?),
        opcode::FORGET => Operation::Forget(rest.take::<wire::ForgetIn>()?.nlookup),
        opcode::BATCH_FORGET => Operation::ForgetMany(forgets(rest)?),
        opcode::GETATTR => Operation::GetAttributes,
        opcode::STATX => Operation::Statx,
        opcode::SETATTR => Operation::SetAttributes(set_attributes(&rest.take()?)),
        opcode::READLINK => Operation::ReadLink,
        opcode::MKNOD => Operation::MakeNode(make_node(rest)?),
        opcode::MKDIR => Operation::MakeDirectory(make_directory(rest)?),
        opcode::SYMLINK => {
            Operation::MakeSymlink(MakeSymlink { name: rest.name()?, target: rest.name()? })
        }
        opcode::UNLINK => Operation::Unlink(rest.name()?),
        opcode::RMDIR => Operation::RemoveDirectory(rest.name()?),
        opcode::RENAME => {
            let to = rest.take::<wire::RenameIn>()?.newdir;
            Operation::Rename(rename(rest, to, 0)?)
        }
        opcode::RENAME2 => {
            let of: wire::Rename2In = rest.take()?;
            Operation::Rename(rename(rest, of.newdir, of.flags)?)
        }
        opcode::LINK => {
            let node = NodeId(rest.take::<wire::LinkIn>()?.oldnodeid);
            Operation::Link(Link { node, name: rest.name()? })
        }
        opcode::CREATE => Operation::Create(create(rest)?),
        opcode::TMPFILE => Operation::CreateUnnamed(create(rest)?),
        opcode::STATFS => Operation::Usage,
        opcode::SYNCFS => Operation::SyncFileSystem,
        opcode::ACCESS => Operation::Access(rest.take::<wire::AccessIn>()?.mask),
        opcode::SETXATTR => Operation::SetXattr(set_xattr(rest, dialect)?),
        opcode::GETXATTR => {
            let room = Room(rest.take::<wire::GetxattrIn>()?.size);
            Operation::GetXattr(GetXattr { name: rest.name()?, room })
        }
        opcode::LISTXATTR => Operation::ListXattrs(Room(rest.take::<wire::GetxattrIn>()?.size)),
        opcode::REMOVEXATTR => Operation::RemoveXattr(rest.name()?),
        opcode::IOCTL => Operation::Ioctl(ioctl(rest)?),
        _ => return of_open_file(code, rest),
    })
}

/// Decodes requests about open files.
fn of_open_file(code: u32, mut rest: Rest<'_>) -> Result<Operation<'_>, TooShort> {
    Ok(match code {
        opcode::OPEN => Operation::Open(open(rest.take()?)),
        opcode::OPENDIR => Operation::OpenDirectory(open(rest.take()?)),
        opcode::READ => Operation::Read(read(&rest.take()?)),
        opcode::READDIRPLUS => Operation::ReadDirectoryPlus(read(&rest.take()?)),
        opcode::READDIR => Operation::ReadDirectory(read(&rest.take()?)),
        opcode::WRITE => Operation::Write(write(rest)?),
        opcode::FLUSH => Operation::Flush(FileHandle(rest.take::<wire::FlushIn>()?.fh)),
        opcode::RELEASE => Operation::Release(FileHandle(rest.take::<wire::ReleaseIn>()?.fh)),
        opcode::RELEASEDIR => {
            Operation::ReleaseDirectory(FileHandle(rest.take::<wire::ReleaseIn>()?.fh))
        }
        opcode::FSYNC => Operation::Sync(sync(rest.take()?)),
        opcode::FSYNCDIR => Operation::SyncDirectory(sync(rest.take()?)),
        opcode::FALLOCATE => {
            let of: wire::FallocateIn = rest.take()?;
            let handle = FileHandle(of.fh);
            Operation::Allocate(Allocate {
                handle,
                offset: of.offset,
                len: of.length,
                mode: of.mode,
            })
        }
        opcode::LSEEK => {
            let of: wire::LseekIn = rest.take()?;
            let handle = FileHandle(of.fh);
            Operation::Seek(Seek { handle, offset: of.offset, whence: of.whence })
        }
        // Among others COPY_FILE_RANGE (the kernel then reads and writes instead) and INTERRUPT (a
        // caller that gets a signal waits for the answer).
        _ => Operation::Other(code),
    })
}

fn init(mut rest: Rest<'_>) -> Result<Init, TooShort> {
    let of: wire::InitIn = rest.take()?;
    let mut offered = u64::from(of.flags);
    if offered & InitFlags::INIT_EXT.bits() != 0 {
        offered |= u64::from(rest.take::<wire::InitInMore>()?.flags2) << 32;
    }
    Ok(Init {
        major: of.major,
        minor: of.minor,
        max_readahead: of.max_readahead,
        offered: InitFlags::from_bits_retain(offered),
    })
}

fn forgets(mut rest: Rest<'_>) -> Result<Forgets<'_>, TooShort> {
    let count = rest.take::<wire::BatchForgetIn>()?.count;
    let one = u32::try_from(size_of::<wire::ForgetOne>()).map_err(|_| TooShort)?;
    Ok(Forgets(rest.bytes(count.checked_mul(one).ok_or(TooShort)?)?))
}

fn set_attributes(of: &wire::SetattrIn) -> SetAttributes {
    let told = |field: u32| of.valid & field != 0;
    let time = |field, now, seconds: u64, nanos| {
        let at = Time { seconds: seconds.cast_signed(), nanos };
        told(field).then_some(if told(now) { NewTime::Now } else { NewTime::At(at) })
    };
    SetAttributes {
        permissions: told(setattr::MODE).then_some(permissions(of.mode)),
        uid: told(setattr::UID).then_some(of.uid),
        gid: told(setattr::GID).then_some(of.gid),
        size: told(setattr::SIZE).then_some(of.size),
        accessed: time(setattr::ATIME, setattr::ATIME_NOW, of.atime, of.atimensec),
        modified: time(setattr::MTIME, setattr::MTIME_NOW, of.mtime, of.mtimensec),
        kill_set_ids: told(setattr::KILL_SUIDGID),
    }
}

fn make_node(mut rest: Rest<'_>) -> Result<MakeNode<'_>, TooShort> {
    let of: wire::MknodIn = rest.take()?;
    Ok(MakeNode {
        name: rest.name()?,
        kind: NodeKind::of_mode(of.mode),
        permissions: permissions(of.mode),
        umask: permissions(of.umask),
        device: Device::of_packed(of.rdev),
    })
}

fn make_directory(mut rest: Rest<'_>) -> Result<MakeDirectory<'_>, TooShort> {
    let of: wire::MkdirIn = rest.take()?;
    let (permissions, umask) = (permissions(of.mode), permissions(of.umask));
    Ok(MakeDirectory { name: rest.name()?, permissions, umask })
}

fn rename(mut rest: Rest<'_>, to: u64, flags: u32) -> Result<Rename<'_>, TooShort> {
    let (name, to_name) = (rest.name()?, rest.name()?);
    let flags = RenameFlags::from_bits_retain(flags);
    Ok(Rename { name, to: NodeId(to), to_name, flags })
}

fn create(mut rest: Rest<'_>) -> Result<Create<'_>, TooShort> {
    let of: wire::CreateIn = rest.take()?;
    Ok(Create {
        name: rest.name()?,
        flags: OpenFlags(of.flags),
        permissions: permissions(of.mode),
        umask: permissions(of.umask),
    })
}

fn set_xattr(mut rest: Rest<'_>, dialect: Dialect) -> Result<SetXattr<'_>, TooShort> {
    let of: wire::SetxattrIn = rest.take()?;
    let more = if dialect.extended_setxattr { rest.take()? } else { wire::SetxattrMore::default() };
    Ok(SetXattr {
        name: rest.name()?,
        value: rest.bytes(of.size)?,
        flags: XattrFlags::from_bits_retain(of.flags),
        kill_set_gid: more.setxattr_flags & wire::SETXATTR_ACL_KILL_SGID != 0,
    })
}

fn ioctl(mut rest: Rest<'_>) -> Result<Ioctl<'_>, TooShort> {
    let of: wire::IoctlIn = rest.take()?;
    let data = rest.bytes(of.in_size)?;
    Ok(Ioctl { handle: FileHandle(of.fh), command: of.cmd, data, room: of.out_size })
}

fn open(of: wire::OpenIn) -> Open {
    let kill_set_ids = of.open_flags & wire::OPEN_KILL_SUIDGID != 0;
    Open { flags: OpenFlags(of.flags), kill_set_ids }
}

fn read(of: &wire::ReadIn) -> Read {
    let (handle, flags) = (FileHandle(of.fh), OpenFlags(of.flags));
    Read { handle, offset: of.offset, size: of.size, flags }
}

fn write(mut rest: Rest<'_>) -> Result<Write<'_>, TooShort> {
    let of: wire::WriteIn = rest.take()?;
    Ok(Write {
        handle: FileHandle(of.fh),
        offset: of.offset,
        data: rest.bytes(of.size)?,
        flags: OpenFlags(of.flags),
        kill_set_ids: of.write_flags & wire::WRITE_KILL_SUIDGID != 0,
    })
}

fn sync(of: wire::FsyncIn) -> Sync {
    let content_alone = of.fsync_flags & wire::FSYNC_DATASYNC != 0;
    Sync { handle: FileHandle(of.fh), content_alone }
}

/// The lower twelve bits of a mode.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
