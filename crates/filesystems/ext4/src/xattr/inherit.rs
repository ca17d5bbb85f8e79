//! Access control lists of inodes that get a mode: at creation, and when it changes.

use super::{ACL_ACCESS, ACL_DEFAULT, Acl};
use crate::error::{Corruption, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode};
use crate::ondisk::xattr::Key;
use crate::units::Ino;

const fn key(index: u8) -> Key {
    Key { index, name: Vec::new() }
}

impl Metadata {
    /// One of the two access control lists of an inode, if it has it. The caller holds the tree
    /// lock.
    pub(crate) async fn acl(&self, ino: Ino, raw: &RawInode, index: u8) -> Result<Option<Acl>> {
        let Some(value) = self.xattr(ino, raw, &key(index)).await? else { return Ok(None) };
        let bad = || Corruption::inode(ino, "an impossible list of access");
        Ok(Some(Acl::of_disk(&value).ok_or_else(bad)?))
    }

    /// Sets or removes one of the two lists of an inode. The caller writes the inode.
    pub(crate) async fn put_acl(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        index: u8,
        acl: Option<&Acl>,
    ) -> Result<()> {
        let value = acl.map(Acl::to_disk);
        self.put_xattr(handle, ino, raw, key(index), value).await
    }

    /// Gives a new inode the mode and the lists that follow from its directory's default list.
    /// Without a default list, the bits of `umask` are cleared. The caller writes the inode.
    pub(crate) async fn inherit_acl(
        &self,
        handle: &mut Handle<'_>,
        (above, above_raw): (Ino, &RawInode),
        (ino, raw): (Ino, &mut RawInode),
        umask: u16,
    ) -> Result<()> {
        if raw.kind() == Some(FileKind::Symlink) {
            return Ok(());
        }
        let Some(default) = self.acl(above, above_raw, ACL_DEFAULT).await? else {
            raw.set_mode(raw.mode() & !(umask & 0o777));
            return Ok(());
        };
        let own = default.inherited(raw.mode());
        raw.set_mode(raw.mode() & !0o777 | own.mode());
        if raw.kind() == Some(FileKind::Directory) {
            self.put_acl(handle, ino, raw, ACL_DEFAULT, Some(&default)).await?;
        }
        let own = Some(&own).filter(|own| !own.is_mode_alone());
        if own.is_some() {
            self.put_acl(handle, ino, raw, ACL_ACCESS, own).await?;
        }
        Ok(())
    }

    /// Makes an inode's access control list agree with its mode. The caller writes the inode.
    pub(crate) async fn follow_mode(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        let Some(mut acl) = self.acl(ino, raw, ACL_ACCESS).await? else { return Ok(()) };
        acl.set_mode(raw.mode());
        self.put_acl(handle, ino, raw, ACL_ACCESS, Some(&acl)).await
    }
}
