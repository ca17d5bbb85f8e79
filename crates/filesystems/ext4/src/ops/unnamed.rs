//! Files that are created without a name (`O_TMPFILE`).

use manylogs_plant::{Bug, is};

use super::{Attributes, Ext4, New};
use crate::error::{Error, Result};
use crate::inode::{BIRTH_CREDITS, Newborn, ORPHAN_CREDITS};
use crate::metadata::Metadata;
use crate::ondisk::inode::FileKind;
use crate::units::Ino;
use crate::xattr::XATTR_CREDITS;

impl Ext4 {
    /// Creates a file without a name, with attributes as if created in `dir`. It has one user from
    /// the start, who must close it. At the close, or after a crash, it is deleted, unless
    /// [`Ext4::link`] gave it a name. That is possible if it is `linkable`.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Invalid`] for another kind than a file; those of reading `dir`.
    pub async fn create_unnamed(&self, dir: Ino, new: New, linkable: bool) -> Result<Attributes> {
        if new.kind != FileKind::File {
            return Err(Error::Invalid("only a file can be without a name"));
        }
        let core = &self.core;
        let credits = 2 * BIRTH_CREDITS + XATTR_CREDITS + ORPHAN_CREDITS;
        let mut handle = core.begin(credits).await?;
        handle.kept = self.kept();
        let above = core.directory(dir).await?;
        Metadata::check_mutable(&above)?;
        let owner = (new.uid, new.gid);
        let born = Newborn { kind: new.kind, permissions: new.permissions, owner };
        let (ino, mut raw) = core.bear(&mut handle, (dir, b""), &above, born, core.now()).await?;
        core.inherit_acl(&mut handle, (dir, &above), (ino, &mut raw), new.umask).await?;
        core.inherit_durable(&mut handle, (dir, &above, None), (ino, &mut raw)).await?;
        raw.set_links(0);
        if !is(Bug::Ext4UnnamedNoOrphan) {
            core.join_orphans(&mut handle, ino, &mut raw)?;
        }
        core.put_inode(&mut handle, ino, &mut raw).await?;
        let node = core.node(ino);
        core.nodes.known.add(ino);
        node.linkable.set(linkable);
        let tid = handle.finish();
        core.note_change(ino, tid);
        core.keep(core.is_dir_sync(&above), tid).await?;
        self.attributes(ino).await
    }
}
