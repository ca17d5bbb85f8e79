//! Translates the kernel's requests into jobs for the file system.

mod lists;
mod names;

use bytes::Bytes;
use manylogs_ext4::{AccessTimes, Error, Ext4, FileKind, New};
use manylogs_fuse::request::{
    Allocate, Create, Forgets, GetXattr, Ioctl, Link, MakeDirectory, MakeNode, MakeSymlink, Open,
    Read, Rename, Room, Seek, SetAttributes, SetXattr, Sync, Write,
};
use manylogs_fuse::{
    Context, Created, Entry, Errno, FileHandle, Filesystem, Found, IoctlDone, Known,
    KnownFromBirth, Names, NodeId, Opened, OpenedFlags, Reply, Usage, Written, XattrFlags,
};
use rustix::fs::OFlags;

use crate::agreed::OPENED;
use crate::answers::{self, Allocating, Writing};
use crate::asker::Asker;
use crate::asking::Touched;
use crate::changed_name::{ChangedName, forget};
use crate::convert::{
    has, of_kind, to_allocation, to_caller, to_change, to_descriptor, to_ino, to_node, to_open,
    to_order, to_seek, to_sync,
};
use crate::hidden::Hidden;
use crate::jobs::Jobs;
use crate::listings::Listings;
use crate::teller::Teller;

/// The translator of one mount's requests.
pub(crate) struct Front {
    jobs: Jobs,
    hidden: Hidden,
    files: AccessTimes,
    directories: AccessTimes,
    listings: Listings,
    pub(crate) teller: Teller,
}

impl Front {
    pub(crate) fn new(
        jobs: Jobs,
        hidden: Hidden,
        (files, directories): (AccessTimes, AccessTimes),
        (listings, teller): (Listings, Teller),
    ) -> Self {
        Self { jobs, hidden, files, directories, listings, teller }
    }

    /// Notes that a name of `dir` is about to change. The result tells the kernel if it remains
    /// unknown whether the name changed.
    fn changes(&self, dir: NodeId, name: &[u8]) -> ChangedName {
        let dir = to_ino(dir);
        self.listings.changes(dir);
        ChangedName { dir, name: name.to_vec(), teller: self.teller.clone() }
    }

    /// The inodes touched by a change of the request's inode, or of names in it.
    fn touched(&self, context: Context) -> Touched {
        Touched::new(&self.jobs.asking, context.pid, vec![context.node])
    }

    /// Whether the name is hidden from programs.
    fn hides(&self, dir: NodeId, name: &[u8]) -> bool {
        self.hidden.has(to_ino(dir), name)
    }

    /// How a file is opened. Where content is not cached, as when each reading must change the time
    /// of access, the kernel drops it at each open: it then asks for the content again, so that the
    /// reading is noticed.
    fn opened(&self) -> Opened {
        match self.jobs.caches.content {
            true => OPENED,
            false => Opened { flags: OpenedFlags::NO_FLUSH, ..OPENED },
        }
    }
}

/// A new inode, owned by the caller.
fn new(context: Context, kind: FileKind, permissions: u16, umask: u16) -> New {
    New { uid: context.uid, gid: context.gid, umask, ..New::plain(kind, permissions) }
}

impl Filesystem for Front {
    fn lookup(&self, context: Context, name: &[u8], reply: Reply<Entry>) {
        if self.hides(context.node, name) {
            return reply.error(Errno::NOENT);
        }
        let (dir, name, caches) = (to_ino(context.node), name.to_vec(), self.jobs.caches);
        let asked = self.jobs.asking.of_any(context.pid);
        self.jobs.run(async move |fs, refuse| {
            let found = match &*name {
                // The inode itself, found by a number that the kernel's caller has kept (a file
                // handle).
                b"." => fs.attributes_by_number(dir).await,
                name => fs.lookup(dir, name).await,
            };
            match (found, caches.missing_valid()) {
                (Ok(known), _) => {
                    asked.found(to_node(known.ino));
                    fs.open(known.ino);
                    reply.send(&caches.entry(&known));
                }
                (Err(Error::NotFound), Some(valid)) if *name != *b"." => reply.missing(valid),
                (Err(error), _) => reply.error(refuse.errno(&fs, &error)),
            }
        });
    }

    fn forget(&self, node: NodeId, times: u64) {
        let (ino, times) = (to_ino(node), u32::try_from(times).unwrap_or(u32::MAX));
        let listings = self.listings.clone();
        self.jobs.run(async move |fs, _| forget(&fs, &listings, ino, times).await);
    }

    fn forget_many(&self, forgets: Forgets<'_>) {
        let users = |times| u32::try_from(times).unwrap_or(u32::MAX);
        let all: Vec<_> = forgets.map(|(node, times)| (to_ino(node), users(times))).collect();
        let bytes = size_of_val(all.as_slice()) as u64;
        let listings = self.listings.clone();
        self.jobs.run_with(bytes, async move |fs, _| {
            for (ino, users) in all {
                forget(&fs, &listings, ino, users).await;
            }
        });
    }

    fn attributes(&self, context: Context, reply: Reply<Known>) {
        let ino = to_ino(context.node);
        let asked = self.jobs.asking.of(context.pid, context.node);
        self.jobs.attributes(reply, asked, async move |fs| fs.attributes(ino).await);
    }

    fn statx(&self, context: Context, reply: Reply<KnownFromBirth>) {
        let ino = to_ino(context.node);
        let asked = self.jobs.asking.of(context.pid, context.node);
        self.jobs.known_from_birth(reply, asked, async move |fs| fs.attributes(ino).await);
    }

    fn set_attributes(&self, context: Context, change: SetAttributes, reply: Reply<Known>) {
        let (change, asker) = (to_change(change), Asker::of(context));
        let (ino, caller) = (to_ino(context.node), to_caller(context));
        self.jobs.set_attributes(reply, self.touched(context), async move |fs| {
            let in_group = |gid| asker.is_in(gid);
            let fs = fs.on_behalf_of(caller);
            fs.change_by(asker.credentials(&in_group), ino, change).await
        });
    }

    fn read_link(&self, context: Context, reply: Reply<[u8]>) {
        let (ino, times) = (to_ino(context.node), self.files);
        self.jobs.content(reply, ino, times, 0, async move |fs| fs.read_link(ino).await);
    }

    fn make_node(&self, context: Context, node: MakeNode<'_>, reply: Reply<Entry>) {
        let Some(kind) = node.kind else { return reply.error(Errno::INVAL) };
        let device = (node.device.major, node.device.minor);
        let new = New { device, ..new(context, of_kind(kind), node.permissions, node.umask) };
        self.create_named(context, node.name, new, reply);
    }

    fn make_directory(&self, context: Context, dir: MakeDirectory<'_>, reply: Reply<Entry>) {
        let new = new(context, FileKind::Directory, dir.permissions, dir.umask);
        self.create_named(context, dir.name, new, reply);
    }

    fn make_symlink(&self, context: Context, link: MakeSymlink<'_>, reply: Reply<Entry>) {
        let target = Bytes::copy_from_slice(link.target);
        let new = New { target, ..new(context, FileKind::Symlink, 0o777, 0) };
        self.create_named(context, link.name, new, reply);
    }

    fn unlink(&self, context: Context, name: &[u8], reply: Reply<()>) {
        self.remove_name(context, name, false, reply);
    }

    fn remove_directory(&self, context: Context, name: &[u8], reply: Reply<()>) {
        self.remove_name(context, name, true, reply);
    }

    fn rename(&self, context: Context, rename: Rename<'_>, reply: Reply<()>) {
        self.rename_name(context, rename, reply);
    }

    fn link(&self, context: Context, link: Link<'_>, reply: Reply<Entry>) {
        self.link_name(context, link, reply);
    }

    fn open(&self, context: Context, open: Open, reply: Reply<Opened>) {
        if self.jobs.caches.openings {
            // From now on the kernel opens and closes files without asking.
            return reply.error(Errno::NOSYS);
        }
        let (what, opened) = (to_open(open.flags), self.opened());
        if !what.write && !what.truncate {
            return reply.send(&opened);
        }
        let ino = to_ino(context.node);
        let flags = opened.flags.difference(OpenedFlags::NO_FLUSH);
        self.jobs.run(async move |fs, refuse| match fs.check_open(ino, what).await {
            Ok(()) => reply.send(&Opened { handle: FileHandle(fs.new_descriptor().0), flags }),
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }

    fn flush(&self, context: Context, handle: FileHandle, reply: Reply<()>) {
        if self.jobs.caches.openings {
            return reply.error(Errno::NOSYS);
        }
        let Some(opened) = to_descriptor(handle) else { return reply.send(&()) };
        let ino = to_ino(context.node);
        self.jobs.empty(reply, async move |fs| fs.close_copy(ino, Some(opened)).await);
    }

    fn release(&self, context: Context, handle: FileHandle, reply: Reply<()>) {
        let Some(opened) = to_descriptor(handle) else { return reply.send(&()) };
        let ino = to_ino(context.node);
        self.jobs.empty(reply, async move |fs| fs.close_opened(ino, opened).await);
    }

    fn create(&self, context: Context, file: Create<'_>, reply: Reply<Created>) {
        if self.hides(context.node, file.name) {
            return reply.error(Errno::PERM);
        }
        let new = new(context, FileKind::File, file.permissions, file.umask);
        let (name, caller) = (self.changes(context.node, file.name), to_caller(context));
        self.jobs.created(reply, self.touched(context), async move |fs| {
            let known = fs.on_behalf_of(caller).create(name.dir, &name.name, new).await;
            let known = name.noted(known)?;
            fs.open(known.ino);
            Ok(known)
        });
    }

    fn create_unnamed(&self, context: Context, file: Create<'_>, reply: Reply<Created>) {
        let new = new(context, FileKind::File, file.permissions, file.umask);
        let (dir, linkable) = (to_ino(context.node), !has(file.flags, OFlags::EXCL));
        let caller = to_caller(context);
        self.jobs.created(reply, self.touched(context), async move |fs| {
            fs.on_behalf_of(caller).create_unnamed(dir, new, linkable).await
        });
    }

    fn read(&self, context: Context, read: Read, reply: Reply<[u8]>) {
        let (ino, offset, size) = (to_ino(context.node), read.offset, read.size as usize);
        let unnoticed = has(read.flags, OFlags::NOATIME);
        let times = if unnoticed { AccessTimes::Off } else { self.files };
        let read = async move |fs: Ext4| fs.read(ino, offset, size).await;
        self.jobs.content(reply, ino, times, size as u64, read);
    }

    fn write(&self, context: Context, write: Write<'_>, reply: Reply<Written>) {
        let ino = to_ino(context.node);
        let write = Writing {
            offset: write.offset,
            data: Bytes::copy_from_slice(write.data),
            direct: has(write.flags, OFlags::DIRECT),
            sync: to_sync(write.flags),
            kill_set_ids: write.kill_set_ids,
            asker: Asker::of(context),
        };
        let caller = to_caller(context);
        self.jobs.run_counted(write.asked(), async move |fs, refuse| {
            answers::write(&fs.on_behalf_of(caller), refuse, ino, write, reply).await;
        });
    }

    fn sync(&self, context: Context, sync: Sync, reply: Reply<()>) {
        let (ino, content_alone) = (to_ino(context.node), sync.content_alone);
        let opened = to_descriptor(sync.handle);
        self.jobs.sync(reply, async move |fs| fs.sync_opened(ino, opened, content_alone).await);
    }

    fn sync_directory(&self, context: Context, _: Sync, reply: Reply<()>) {
        let ino = to_ino(context.node);
        self.jobs.sync(reply, async move |fs| fs.sync(ino).await);
    }

    fn sync_file_system(&self, _: Context, reply: Reply<()>) {
        self.jobs.sync(reply, async move |fs| fs.sync_all().await);
    }

    fn open_directory(&self, _: Context, _: Open, reply: Reply<Opened>) {
        match self.jobs.caches.lists {
            // From now on the kernel opens directories without asking, and caches their lists.
            true => reply.error(Errno::NOSYS),
            false => reply.send(&Opened::default()),
        }
    }

    fn read_directory(&self, context: Context, read: Read, reply: Reply<Names>) {
        self.list(context, read, false, reply);
    }

    fn read_directory_plus(&self, context: Context, read: Read, reply: Reply<Names>) {
        self.list(context, read, true, reply);
    }

    fn allocate(&self, context: Context, allocate: Allocate, reply: Reply<()>) {
        let Some((what, keep_size)) = to_allocation(allocate.mode) else {
            return reply.error(Errno::OPNOTSUPP);
        };
        let range = allocate.offset..allocate.offset.saturating_add(allocate.len);
        // The kernel does not say whether the caller may keep set-id bits, and its cache still has
        // the cleared ones.
        let (ino, caller) = (to_ino(context.node), to_caller(context));
        let asker = Asker::of(context);
        let touched = self.touched(context);
        let wanted = Allocating { ino, range, what, keep_size, touched };
        self.jobs.run(async move |fs, refuse| {
            let fs = fs.on_behalf_of(caller);
            answers::allocate(&fs, refuse, wanted, (context.uid, asker), reply).await;
        });
    }

    fn seek(&self, context: Context, seek: Seek, reply: Reply<Found>) {
        let Some(what) = to_seek(seek.whence) else { return reply.error(Errno::INVAL) };
        let (ino, offset) = (to_ino(context.node), seek.offset);
        if i64::try_from(offset).is_err() {
            return reply.error(Errno::NXIO);
        }
        self.jobs.run(async move |fs, refuse| match fs.seek(ino, offset, what).await {
            Ok(found) => reply.send(&Found(found)),
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }

    fn usage(&self, _: Context, reply: Reply<Usage>) {
        self.jobs.run(async move |fs, _| reply.send(&answers::usage(&fs)));
    }

    fn xattr(&self, context: Context, get: GetXattr<'_>, reply: Reply<[u8]>) {
        let (ino, name) = (to_ino(context.node), get.name.to_vec());
        self.jobs.xattr(reply, get.room, async move |fs| fs.xattr(ino, &name).await);
    }

    fn xattrs(&self, context: Context, room: Room, reply: Reply<[u8]>) {
        let (ino, trusted) = (to_ino(context.node), context.uid == 0);
        self.jobs.xattr(reply, room, async move |fs| answers::xattrs(&fs, ino, trusted).await);
    }

    fn set_xattr(&self, context: Context, set: SetXattr<'_>, reply: Reply<()>) {
        let (name, value) = (set.name.to_vec(), Bytes::copy_from_slice(set.value));
        let how = manylogs_ext4::SetXattr {
            create: set.flags.contains(XattrFlags::CREATE),
            replace: set.flags.contains(XattrFlags::REPLACE),
            drop_set_gid: set.kill_set_gid,
        };
        let (ino, bytes) = (to_ino(context.node), value.len() as u64);
        let caller = to_caller(context);
        // Attributes take up blocks, and the kernel does not know of the new number of blocks.
        let touched = self.touched(context).always();
        self.jobs.change(bytes, reply, touched, async move |fs| {
            fs.on_behalf_of(caller).set_xattr(ino, &name, value, how).await
        });
    }

    fn remove_xattr(&self, context: Context, name: &[u8], reply: Reply<()>) {
        let (ino, name) = (to_ino(context.node), name.to_vec());
        let touched = self.touched(context).always();
        self.jobs.change(0, reply, touched, async move |fs| fs.remove_xattr(ino, &name).await);
    }

    fn ioctl(&self, context: Context, ioctl: Ioctl<'_>, reply: Reply<IoctlDone>) {
        let order = to_order(ioctl.command, ioctl.data);
        let Some(order) = order else { return reply.error(Errno::NOTTY) };
        let of = (to_caller(context), to_ino(context.node));
        self.jobs.run(async move |fs, refuse| {
            answers::inode_flags(&fs, refuse, of, order, reply).await;
        });
    }
}
