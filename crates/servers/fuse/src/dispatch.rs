//! Hands requests to the file system.

use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::answer::Answer;
use crate::filesystem::Filesystem;
use crate::reply::Reply;
use crate::request::{Operation, Request};

/// What a session does after a request.
#[derive(Debug)]
pub(crate) enum Next {
    /// Goes on with the next request.
    Request,
    /// The file system is unmounted, and the kernel waits for the answer.
    Destroy(Reply<()>),
}

/// Hands a request to the file system.
pub(crate) fn dispatch(fs: &impl Filesystem, request: Request<'_>, device: &Arc<OwnedFd>) -> Next {
    let Request { id, context, operation } = request;
    let of = context;
    /// The reply to request `id`; its type says what the answer must be.
    fn to<A: Answer + ?Sized>(device: &Arc<OwnedFd>, id: crate::request::RequestId) -> Reply<A> {
        Reply::new(Arc::clone(device), id)
    }
    match operation {
        Operation::Destroy => return Next::Destroy(to(device, id)),
        Operation::Forget(times) => fs.forget(of.node, times),
        Operation::ForgetMany(forgets) => fs.forget_many(forgets),
        Operation::Lookup(name) => fs.lookup(of, name, to(device, id)),
        Operation::GetAttributes => fs.attributes(of, to(device, id)),
        Operation::Statx => fs.statx(of, to(device, id)),
        Operation::SetAttributes(change) => fs.set_attributes(of, change, to(device, id)),
        Operation::ReadLink => fs.read_link(of, to(device, id)),
        Operation::MakeNode(new) => fs.make_node(of, new, to(device, id)),
        Operation::MakeDirectory(new) => fs.make_directory(of, new, to(device, id)),
        Operation::MakeSymlink(new) => fs.make_symlink(of, new, to(device, id)),
        Operation::Unlink(name) => fs.unlink(of, name, to(device, id)),
        Operation::RemoveDirectory(name) => fs.remove_directory(of, name, to(device, id)),
        Operation::Rename(rename) => fs.rename(of, rename, to(device, id)),
        Operation::Link(link) => fs.link(of, link, to(device, id)),
        Operation::Open(open) => fs.open(of, open, to(device, id)),
        Operation::Create(new) => fs.create(of, new, to(device, id)),
        Operation::CreateUnnamed(new) => fs.create_unnamed(of, new, to(device, id)),
        Operation::Read(read) => fs.read(of, read, to(device, id)),
        Operation::Write(write) => fs.write(of, write, to(device, id)),
        Operation::Flush(handle) => fs.flush(of, handle, to(device, id)),
        Operation::Release(handle) => fs.release(of, handle, to(device, id)),
        Operation::Sync(sync) => fs.sync(of, sync, to(device, id)),
        Operation::SyncFileSystem => fs.sync_file_system(of, to(device, id)),
        Operation::Allocate(allocate) => fs.allocate(of, allocate, to(device, id)),
        Operation::Seek(seek) => fs.seek(of, seek, to(device, id)),
        Operation::OpenDirectory(open) => fs.open_directory(of, open, to(device, id)),
        Operation::ReadDirectory(read) => fs.read_directory(of, read, to(device, id)),
        Operation::ReadDirectoryPlus(read) => {
            fs.read_directory_plus(of, read, to(device, id));
        }
        Operation::ReleaseDirectory(handle) => fs.release_directory(of, handle, to(device, id)),
        Operation::SyncDirectory(sync) => fs.sync_directory(of, sync, to(device, id)),
        Operation::Usage => fs.usage(of, to(device, id)),
        Operation::SetXattr(set) => fs.set_xattr(of, set, to(device, id)),
        Operation::GetXattr(get) => fs.xattr(of, get, to(device, id)),
        Operation::ListXattrs(room) => fs.xattrs(of, room, to(device, id)),
        Operation::RemoveXattr(name) => fs.remove_xattr(of, name, to(device, id)),
        Operation::Access(mask) => fs.access(of, mask, to(device, id)),
        Operation::Ioctl(ioctl) => fs.ioctl(of, ioctl, to(device, id)),
        // A session begins only once.
        Operation::Init(_) => to::<()>(device, id).error(Errno::IO),
        Operation::Other(_) => to::<()>(device, id).error(Errno::NOSYS),
    }
    Next::Request
}
