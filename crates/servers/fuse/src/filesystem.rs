//! The trait of a server of requests.

use rustix::io::Errno;

use crate::answer::{
    Created, Entry, Found, IoctlDone, Known, KnownFromBirth, Names, Opened, Usage, Written,
};
use crate::reply::Reply;
use crate::request::{
    Allocate, Context, Create, Forgets, GetXattr, Ioctl, Link, MakeDirectory, MakeNode,
    MakeSymlink, Open, Read, Rename, Room, Seek, SetAttributes, SetXattr, Sync, Write,
};
use crate::values::{FileHandle, NodeId};

/// Serves what the kernel asks for. Requests come from one thread, one after the other; answers may
/// be sent later and from elsewhere. `context.node` is the inode of the request; for names, the
/// inode of their directory.
///
/// A method that is not implemented answers `ENOSYS`; the kernel does not send most of these
/// requests again. Opening and closing succeed unless they are implemented.
pub trait Filesystem {
    /// Finds a name. The kernel knows the inode until [`Filesystem::forget`].
    fn lookup(&self, _context: Context, _name: &[u8], reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// The kernel has forgotten `times` of the answers that named the inode. It expects no answer.
    fn forget(&self, _node: NodeId, _times: u64) {}

    /// Like [`Filesystem::forget`], for many inodes.
    fn forget_many(&self, forgets: Forgets<'_>) {
        forgets.for_each(|(node, times)| self.forget(node, times));
    }

    /// Returns the attributes of an inode.
    fn attributes(&self, _context: Context, reply: Reply<Known>) {
        reply.error(Errno::NOSYS);
    }

    /// Returns the attributes of an inode, and its time of birth.
    fn statx(&self, _context: Context, reply: Reply<KnownFromBirth>) {
        reply.error(Errno::NOSYS);
    }

    /// Changes attributes and size.
    fn set_attributes(&self, _context: Context, _change: SetAttributes, reply: Reply<Known>) {
        reply.error(Errno::NOSYS);
    }

    /// Returns the target of a symbolic link.
    fn read_link(&self, _context: Context, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    /// Creates a file, a device, a pipe or a socket.
    fn make_node(&self, _context: Context, _new: MakeNode<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Creates a directory.
    fn make_directory(&self, _context: Context, _new: MakeDirectory<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Creates a symbolic link.
    fn make_symlink(&self, _context: Context, _new: MakeSymlink<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Takes a name away.
    fn unlink(&self, _context: Context, _name: &[u8], reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Takes an empty directory away.
    fn remove_directory(&self, _context: Context, _name: &[u8], reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Changes a name.
    fn rename(&self, _context: Context, _rename: Rename<'_>, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Gives an inode one more name.
    fn link(&self, _context: Context, _link: Link<'_>, reply: Reply<Entry>) {
        reply.error(Errno::NOSYS);
    }

    /// Opens a file.
    fn open(&self, _context: Context, _open: Open, reply: Reply<Opened>) {
        reply.send(&Opened::default());
    }

    /// Creates a file and opens it.
    fn create(&self, _context: Context, _new: Create<'_>, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    /// Creates a file without a name (`O_TMPFILE`) and opens it.
    fn create_unnamed(&self, _context: Context, _new: Create<'_>, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    /// Reads content.
    fn read(&self, _context: Context, _read: Read, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    /// Writes content.
    fn write(&self, _context: Context, _write: Write<'_>, reply: Reply<Written>) {
        reply.error(Errno::NOSYS);
    }

    /// A descriptor is closed.
    fn flush(&self, _context: Context, _handle: FileHandle, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// An open file has no descriptors any more.
    fn release(&self, _context: Context, _handle: FileHandle, reply: Reply<()>) {
        reply.send(&());
    }

    /// Makes a file durable.
    fn sync(&self, _context: Context, _sync: Sync, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Makes the file system durable. The kernel asks this only of mounts on disks.
    fn sync_file_system(&self, _context: Context, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Allocates blocks, or frees them.
    fn allocate(&self, _context: Context, _allocate: Allocate, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Finds data or a hole.
    fn seek(&self, _context: Context, _seek: Seek, reply: Reply<Found>) {
        reply.error(Errno::NOSYS);
    }

    /// Opens a directory. `ENOSYS` says that directories need not be opened: the kernel does not
    /// ask again. It then caches lists, and asks for a new one when the directory was changed
    /// since.
    fn open_directory(&self, _context: Context, _open: Open, reply: Reply<Opened>) {
        reply.send(&Opened::default());
    }

    /// Lists a directory.
    fn read_directory(&self, _context: Context, _read: Read, reply: Reply<Names>) {
        reply.error(Errno::NOSYS);
    }

    /// Lists a directory, with the attributes of each inode ([`Names::push_known`]). Asked only if
    /// [`crate::InitFlags::READDIRPLUS`] was agreed upon.
    fn read_directory_plus(&self, _context: Context, _read: Read, reply: Reply<Names>) {
        reply.error(Errno::NOSYS);
    }

    /// An open directory has no descriptors any more.
    fn release_directory(&self, _context: Context, _handle: FileHandle, reply: Reply<()>) {
        reply.send(&());
    }

    /// Makes a directory durable.
    fn sync_directory(&self, _context: Context, _sync: Sync, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Returns how much space is in use.
    fn usage(&self, _context: Context, reply: Reply<Usage>) {
        reply.send(&Usage { block_bytes: 512, longest_name: 255, ..Usage::default() });
    }

    /// Sets an extended attribute.
    fn set_xattr(&self, _context: Context, _set: SetXattr<'_>, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Reads an extended attribute; [`Room::answer`] answers.
    fn xattr(&self, _context: Context, _get: GetXattr<'_>, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    /// Lists the names of extended attributes; [`Room::answer`] answers.
    fn xattrs(&self, _context: Context, _room: Room, reply: Reply<[u8]>) {
        reply.error(Errno::NOSYS);
    }

    /// Takes an extended attribute away.
    fn remove_xattr(&self, _context: Context, _name: &[u8], reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// Decides whether the caller may have the access that the bits of `mask` say. The kernel does
    /// not ask if it checks permissions itself. It stops asking if this is not implemented.
    fn access(&self, _context: Context, _mask: u32, reply: Reply<()>) {
        reply.error(Errno::NOSYS);
    }

    /// An `ioctl`.
    fn ioctl(&self, _context: Context, _ioctl: Ioctl<'_>, reply: Reply<IoctlDone>) {
        reply.error(Errno::NOTTY);
    }
}
