//! What the kernel asks for, as types.

use crate::values::{
    Device, FileHandle, InitFlags, Kind, NewTime, NodeId, OpenFlags, RenameFlags, XattrFlags,
};
use crate::wire::ForgetOne;
use zerocopy::FromBytes;

/// A request of the kernel. Names and contents lie in the bytes that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What its answer carries.
    pub id: RequestId,
    /// Who asks, and about what.
    pub context: Context,
    /// What is asked for.
    pub operation: Operation<'a>,
}

/// What tells requests apart that are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// Who asks, and about what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The inode; for names, the directory.
    pub node: NodeId,
    /// The user that the caller has for file systems.
    pub uid: u32,
    /// The group that the caller has for file systems; it may be in others too.
    pub gid: u32,
    /// The process.
    pub pid: u32,
}

/// What is asked for. Names end before their zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The first request of a session.
    Init(Init),
    /// The last one of a mount on a disk.
    Destroy,
    /// What has a name in the directory?
    Lookup(&'a [u8]),
    /// The kernel has forgotten so many of the answers that named the inode. No answer.
    Forget(u64),
    /// The same of several inodes. No answer.
    ForgetMany(Forgets<'a>),
    /// What is known of the inode?
    GetAttributes,
    /// The same, and its time of birth.
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
    /// List a directory, with what is known of each inode.
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
    /// May the caller? Not asked if the kernel checks permissions.
    Access(u32),
    /// An `ioctl`.
    Ioctl(Ioctl<'a>),
    /// What nobody here offers, by its number. The kernel does without when told so.
    Other(u32),
}

/// How the kernel introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Version of the protocol.
    pub major: u32,
    /// See [`Init::major`].
    pub minor: u32,
    /// Most bytes that it reads ahead.
    pub max_readahead: u32,
    /// What it offers; bits without a name are kept.
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

/// What is to change; the rest stays.
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
    /// Set-id bits go, as the caller may not keep them.
    pub kill_set_ids: bool,
}

/// See [`Operation::MakeNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MakeNode<'a> {
    /// Name in the directory.
    pub name: &'a [u8],
    /// What it is; `None` for what nobody knows.
    pub kind: Option<Kind>,
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
    /// What becomes of what has that name; bits without a name are kept.
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
    /// What for.
    pub flags: OpenFlags,
    /// Set-id bits go.
    pub kill_set_ids: bool,
}

/// See [`Operation::Create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Name in the directory; without meaning for what gets none.
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
    /// As the server called it when it was opened.
    pub handle: FileHandle,
    /// From this byte on, or behind the name that has this place.
    pub offset: u64,
    /// At most so many bytes.
    pub size: u32,
    /// What the file was opened for.
    pub flags: OpenFlags,
}

/// See [`Operation::Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// As the server called it when it was opened.
    pub handle: FileHandle,
    /// From this byte on.
    pub offset: u64,
    /// What is written.
    pub data: &'a [u8],
    /// What the file was opened for; `O_DSYNC` and `O_SYNC` of this write are added.
    pub flags: OpenFlags,
    /// Set-id bits go, as the caller may not keep them.
    pub kill_set_ids: bool,
}

/// See [`Operation::Sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// As the server called it when it was opened.
    pub handle: FileHandle,
    /// Times may be lost.
    pub content_alone: bool,
}

/// See [`Operation::Allocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocate {
    /// As the server called it when it was opened.
    pub handle: FileHandle,
    /// From this byte on.
    pub offset: u64,
    /// So many bytes.
    pub len: u64,
    /// As `fallocate` has it.
    pub mode: u32,
}

/// See [`Operation::Seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    /// As the server called it when it was opened.
    pub handle: FileHandle,
    /// From this byte on.
    pub offset: u64,
    /// As `lseek` has it.
    pub whence: u32,
}

/// Bytes that a caller has room for; with none it asks how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(pub u32);

/// See [`Operation::SetXattr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Its whole name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// When.
    pub flags: XattrFlags,
    /// With a list of access the set-group-id bit goes, as the caller may not keep it. Only told
    /// if [`InitFlags::SETXATTR_EXT`] was agreed upon.
    pub kill_set_gid: bool,
}

/// See [`Operation::GetXattr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetXattr<'a> {
    /// Its whole name.
    pub name: &'a [u8],
    /// For the value.
    pub room: Room,
}

/// See [`Operation::Ioctl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// As the server called it when it was opened.
    pub handle: FileHandle,
    /// Number of the command.
    pub command: u32,
    /// What the command's number says that the caller passes in.
    pub data: &'a [u8],
    /// Most bytes of the answer.
    pub room: u32,
}
