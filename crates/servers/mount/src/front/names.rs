//! Changes of names.

use manylogs_ext4::New;
use manylogs_fuse::request::{Link, Rename};
use manylogs_fuse::{Context, Entry, Errno, Reply};

use super::Front;
use crate::asking::Touched;
use crate::convert::{to_caller, to_ino, to_taken};

impl Front {
    /// Creates an inode with a name.
    pub(super) fn create_named(
        &self,
        context: Context,
        name: &[u8],
        new: New,
        reply: Reply<Entry>,
    ) {
        if self.hides(context.node, name) {
            return reply.error(Errno::PERM);
        }
        let (name, caller) = (self.changes(context.node, name), to_caller(context));
        self.jobs.entry(reply, self.touched(context), async move |fs| {
            let fs = fs.on_behalf_of(caller);
            name.noted(fs.create(name.dir, &name.name, new).await)
        });
    }

    /// Removes a name: of a directory, or of any other inode.
    pub(super) fn remove_name(
        &self,
        context: Context,
        name: &[u8],
        of_directory: bool,
        reply: Reply<()>,
    ) {
        if self.hides(context.node, name) {
            return reply.error(Errno::NOENT);
        }
        let (name, touched) = (self.changes(context.node, name), self.touched(context));
        let (dir, named) = (name.dir, name.name.clone());
        let touched = touched.and_named(vec![(dir, named)]);
        self.jobs.change(0, reply, touched, async move |fs| {
            name.noted(match of_directory {
                true => fs.remove_directory(name.dir, &name.name).await,
                false => fs.unlink(name.dir, &name.name).await,
            })
        });
    }

    /// Moves or exchanges names. The attributes of the renamed inodes change as well.
    pub(super) fn rename_name(&self, context: Context, rename: Rename<'_>, reply: Reply<()>) {
        let Some((taken, leaves)) = to_taken(rename.flags) else {
            return reply.error(Errno::INVAL);
        };
        if self.hides(context.node, rename.name) {
            return reply.error(Errno::NOENT);
        }
        // Renaming over the log file is refused with the error that an immutable file gives.
        if self.hides(rename.to, rename.to_name) {
            return reply.error(Errno::PERM);
        }
        let from = self.changes(context.node, rename.name);
        let to = self.changes(rename.to, rename.to_name);
        let (caller, owner) = (to_caller(context), (context.uid, context.gid));
        let named = vec![(from.dir, from.name.clone()), (to.dir, to.name.clone())];
        let nodes = vec![context.node, rename.to];
        let touched = Touched::new(&self.jobs.asking, context.pid, nodes).and_named(named);
        self.jobs.change(0, reply, touched, async move |fs| {
            let fs = fs.on_behalf_of(caller);
            let (old, new) = ((from.dir, &*from.name), (to.dir, &*to.name));
            let renamed = match leaves {
                true => fs.rename_and_leave(old, new, taken, owner).await,
                false => fs.rename(old, new, taken).await,
            };
            to.noted(from.noted(renamed))
        });
    }

    /// Gives an inode one more name.
    pub(super) fn link_name(&self, context: Context, link: Link<'_>, reply: Reply<Entry>) {
        if self.hides(context.node, link.name) {
            return reply.error(Errno::PERM);
        }
        let (ino, name) = (to_ino(link.node), self.changes(context.node, link.name));
        let caller = to_caller(context);
        let nodes = vec![context.node, link.node];
        let touched = Touched::new(&self.jobs.asking, context.pid, nodes);
        self.jobs.entry(reply, touched, async move |fs| {
            let fs = fs.on_behalf_of(caller);
            name.noted(fs.link(ino, name.dir, &name.name).await)
        });
    }
}
