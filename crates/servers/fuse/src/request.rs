//! The requests of the kernel, as types.

use crate::values::{
    Device, FileHandle, InitFlags, NewTime, NodeId, NodeKind, OpenFlags, RenameFlags, XattrFlags,
};
use crate::wire::ForgetOne;
use zerocopy::FromBytes;

/// A request of the kernel. Names and contents lie in the bytes that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number, which the answer repeats.
    pub id: RequestId,
    /// Who asks, and about what.
    pub context: Context,
    /// The operation.
    pub operation: Operation<'a>,
}

/// Tells requests under way apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// Who asks, and about what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The inode; for names, the directory.
    pub node: NodeId,
    /// The caller's user ID for file system access.
    pub uid: u32,
    /// The caller's group ID for file system access; the caller may be in other groups too.
    pub gid: u32,
    /// The process.
    pub pid: u32,
}

/// An operation that the kernel asks for. Names come without their terminating zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The first request of a session.
    Init(Init),
    /// The last one of a mount on a disk.
    Destroy,
    /// Which inode has this name in the directory?
    Lookup(&'a [u8]),
    /// The kernel has forgotten so many of the answers that named the inode. It expects no answer.
    Forget(u64),
    /// Like `Forget`, for several inodes. The kernel expects no answer.
    ForgetMany(Forgets<'a>),
    /// What are the attributes of the inode?
    GetAttributes,
    /// What are the attributes of the inode, and its time of birth?
    Statx,
    /// Change attributes and size.
    SetAttributes(SetAttributes),
    /// Where does the symbolic link lead?
    ReadLink,
    /// Create a file that is not opened, a device, a pipe or a socket.
    MakeNode(MakeNode<'a>),
    /// Create a directory.
    MakeDirectory(MakeDirectory<'a>),
    /// Create a symbolic link.
    MakeSymlink(MakeSymlink<'a>),
    /// Take away a name.
    Unlink(&'a [u8]),
    /// Take away an empty directory.
    RemoveDirectory(&'a [u8]),
    /// Change a name.
    Rename(Rename<'a>),
    /// Give an inode one more name.
    Link(Link<'a>),
    /// Open a file.
    Open(Open),
    /// Create a file and open it.
    Create(Create<'a>),
    /// Create a file without a name and open it.
    CreateUnnamed(Create<'a>),
    /// Read content.
    Read(Read),
    /// Write content.
    Write(Write<'a>),
    /// A descriptor is closed.
    Flush(FileHandle),
    /// The open file has no descriptors any more.
    Release(FileHandle),
    /// Make a file durable.
    Sync(Sync),
    /// Make the file system durable.
    SyncFileSystem,
    /// Allocate blocks, or free them.
    Allocate(Allocate),
    /// Find data or a hole.
    Seek(Seek),
    /// Open a directory.
    OpenDirectory(Open),
    /// List a directory.
    ReadDirectory(Read),
    /// List a directory, with the attributes of each inode.
    ReadDirectoryPlus(Read),
    /// The open directory has no descriptors any more.
    ReleaseDirectory(FileHandle),
    /// Make a directory durable.
    SyncDirectory(Sync),
    /// How much is in use?
    Usage,
    /// Set an extended attribute.
    SetXattr(SetXattr<'a>),
    /// Read an extended attribute.
    GetXattr(GetXattr<'a>),
    /// List the names of extended attributes.
    ListXattrs(Room),
    /// Take an extended attribute away.
    RemoveXattr(&'a [u8]),
    /// May the caller have the access of this mask? Not asked if the kernel checks permissions.
    Access(u32),
    /// An `ioctl`.
    Ioctl(Ioctl<'a>),
    /// An operation that this crate does not offer, by its number. The kernel does without it when
    /// told so.
    Other(u32),
}

/// The kernel's first request, which offers versions and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Version of the protocol.
    pub major: u32,
    /// See [`Init::major`].
    pub minor: u32,
    /// Most bytes that it reads ahead.
    pub max_readahead: u32,
    /// Flags that the kernel offers; bits without a name are kept.
    pub offered: InitFlags,
}

/// Inodes, and how often the kernel has forgotten each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(pub(crate) &'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (one, rest) = ForgetOne::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some((NodeId(one.nodeid), one.nlookup))
    }
}

/// The attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The lower twelve bits of the mode.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<NewTime>,
    /// Last change of content.
    pub modified: Option<NewTime>,
    /// Set-id bits are to be cleared, because the caller may not keep them.
    pub kill_set_ids: bool,
}

/// See [`Operation::MakeNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakeNode<'a> {
    /// Name in the directory.
    pub name: &'a [u8],
    /// Kind of the inode; `None` for an unknown kind.
    pub kind: Option<NodeKind>,
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// Bits that the mode loses, if the server applies them.
    pub umask: u16,
    /// Of a device.
    pub device: Device,
}

/// See [`Operation::MakeDirectory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakeDirectory<'a> {
    /// Name in the directory.
    pub name: &'a [u8],
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// Bits that the mode loses, if the server applies them.
    pub umask: u16,
}

/// See [`Operation::MakeSymlink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakeSymlink<'a> {
    /// Name in the directory.
    pub name: &'a [u8],
    /// Where it leads.
    pub target: &'a [u8],
}

/// See [`Operation::Rename`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// Old name in the directory.
    pub name: &'a [u8],
    /// The directory of the new name.
    pub to: NodeId,
    /// New name.
    pub to_name: &'a [u8],
    /// What becomes of an inode that has that name already; bits without a name are kept.
    pub flags: RenameFlags,
}

/// See [`Operation::Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The inode.
    pub node: NodeId,
    /// Name in the directory.
    pub name: &'a [u8],
}

/// See [`Operation::Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// What it is opened for.
    pub flags: OpenFlags,
    /// Set-id bits are to be cleared.
    pub kill_set_ids: bool,
}

/// See [`Operation::Create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Name in the directory; without meaning for `CreateUnnamed`.
    pub name: &'a [u8],
    /// What it is opened for.
    pub flags: OpenFlags,
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// Bits that the mode loses, if the server applies them.
    pub umask: u16,
}

/// A part of a file, or of a list of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The handle that the server gave when it was opened.
    pub handle: FileHandle,
    /// The first byte, or for lists the offset of the last name that was read.
    pub offset: u64,
    /// At most so many bytes.
    pub size: u32,
    /// What the file was opened for.
    pub flags: OpenFlags,
}

/// See [`Operation::Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The handle that the server gave when it was opened.
    pub handle: FileHandle,
    /// The first byte.
    pub offset: u64,
    /// What is written.
    pub data: &'a [u8],
    /// What the file was opened for; `O_DSYNC` and `O_SYNC` of this write are added.
    pub flags: OpenFlags,
    /// Set-id bits are to be cleared, because the caller may not keep them.
    pub kill_set_ids: bool,
}

/// See [`Operation::Sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The handle that the server gave when it was opened.
    pub handle: FileHandle,
    /// Content must become durable; times may be lost (`fdatasync`).
    pub content_alone: bool,
}

/// See [`Operation::Allocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocate {
    /// The handle that the server gave when it was opened.
    pub handle: FileHandle,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The flags of `fallocate`.
    pub mode: u32,
}

/// See [`Operation::Seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    /// The handle that the server gave when it was opened.
    pub handle: FileHandle,
    /// The first byte.
    pub offset: u64,
    /// The argument `whence` of `lseek`.
    pub whence: u32,
}

/// Bytes that the caller has room for; 0 asks how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(pub u32);

/// See [`Operation::SetXattr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Its whole name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Whether the attribute may or must exist already.
    pub flags: XattrFlags,
    /// Setting an access control list is to clear the set-group-id bit, because the caller may not
    /// keep it. Only sent if [`InitFlags::SETXATTR_EXT`] was agreed upon.
    pub kill_set_gid: bool,
}

/// See [`Operation::GetXattr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetXattr<'a> {
    /// Its whole name.
    pub name: &'a [u8],
    /// Room for the value.
    pub room: Room,
}

/// See [`Operation::Ioctl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The handle that the server gave when it was opened.
    pub handle: FileHandle,
    /// Number of the command.
    pub command: u32,
    /// The caller's input, whose length the command's number states.
    pub data: &'a [u8],
    /// Most bytes of the answer.
    pub room: u32,
}
