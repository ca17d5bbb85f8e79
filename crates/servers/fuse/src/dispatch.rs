//! Hands requests to the file system.

use rustix::io::Errno;

use crate::filesystem::Filesystem;
use crate::reply::{Pending, Reply};
use crate::request::{Operation, Request};

/// What a session does after a request.
#[derive(Debug)]
pub(crate) enum Next {
    /// Goes on with the next request.
    Request,
    /// The file system is unmounted, and the kernel waits for the answer.
    Destroy(Reply<()>),
}

/// Hands a request to the file system, which answers what is `pending`.
pub(crate) fn dispatch(fs: &impl Filesystem, request: Request<'_>, pending: Pending) -> Next {
    let Request { context: of, operation, .. } = request;
    match operation {
        Operation::Destroy => return Next::Destroy(Reply::new(pending)),
        Operation::Forget(times) => fs.forget(of.node, times),
        Operation::ForgetMany(forgets) => fs.forget_many(forgets),
        Operation::Lookup(name) => fs.lookup(of, name, Reply::new(pending)),
        Operation::GetAttributes => fs.attributes(of, Reply::new(pending)),
        Operation::Statx => fs.statx(of, Reply::new(pending)),
        Operation::SetAttributes(change) => fs.set_attributes(of, change, Reply::new(pending)),
        Operation::ReadLink => fs.read_link(of, Reply::new(pending)),
        Operation::MakeNode(new) => fs.make_node(of, new, Reply::new(pending)),
        Operation::MakeDirectory(new) => fs.make_directory(of, new, Reply::new(pending)),
        Operation::MakeSymlink(new) => fs.make_symlink(of, new, Reply::new(pending)),
        Operation::Unlink(name) => fs.unlink(of, name, Reply::new(pending)),
        Operation::RemoveDirectory(name) => fs.remove_directory(of, name, Reply::new(pending)),
        Operation::Rename(rename) => fs.rename(of, rename, Reply::new(pending)),
        Operation::Link(link) => fs.link(of, link, Reply::new(pending)),
        Operation::Open(open) => fs.open(of, open, Reply::new(pending)),
        Operation::Create(new) => fs.create(of, new, Reply::new(pending)),
        Operation::CreateUnnamed(new) => fs.create_unnamed(of, new, Reply::new(pending)),
        Operation::Read(read) => fs.read(of, read, Reply::new(pending)),
        Operation::Write(write) => fs.write(of, write, Reply::new(pending)),
        Operation::Flush(handle) => fs.flush(of, handle, Reply::new(pending)),
        Operation::Release(handle) => fs.release(of, handle, Reply::new(pending)),
        Operation::Sync(sync) => fs.sync(of, sync, Reply::new(pending)),
        Operation::SyncFileSystem => fs.sync_file_system(of, Reply::new(pending)),
        Operation::Allocate(allocate) => fs.allocate(of, allocate, Reply::new(pending)),
        Operation::Seek(seek) => fs.seek(of, seek, Reply::new(pending)),
        Operation::OpenDirectory(open) => fs.open_directory(of, open, Reply::new(pending)),
        Operation::ReadDirectory(read) => fs.read_directory(of, read, Reply::new(pending)),
        Operation::ReadDirectoryPlus(read) => {
            fs.read_directory_plus(of, read, Reply::new(pending));
        }
        Operation::ReleaseDirectory(handle) => {
            fs.release_directory(of, handle, Reply::new(pending));
        }
        Operation::SyncDirectory(sync) => fs.sync_directory(of, sync, Reply::new(pending)),
        Operation::Usage => fs.usage(of, Reply::new(pending)),
        Operation::SetXattr(set) => fs.set_xattr(of, set, Reply::new(pending)),
        Operation::GetXattr(get) => fs.xattr(of, get, Reply::new(pending)),
        Operation::ListXattrs(room) => fs.xattrs(of, room, Reply::new(pending)),
        Operation::RemoveXattr(name) => fs.remove_xattr(of, name, Reply::new(pending)),
        Operation::Access(mask) => fs.access(of, mask, Reply::new(pending)),
        Operation::Ioctl(ioctl) => fs.ioctl(of, ioctl, Reply::new(pending)),
        // A session begins only once.
        Operation::Init(_) => Reply::<()>::new(pending).error(Errno::IO),
        Operation::Other(_) => Reply::<()>::new(pending).error(Errno::NOSYS),
    }
    Next::Request
}
