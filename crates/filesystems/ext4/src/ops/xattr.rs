//! Extended attributes.

use bytes::Bytes;
use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode, TimeField};
use crate::ondisk::xattr::Key;
use crate::units::Ino;
use crate::xattr::{ACL_ACCESS, ACL_DEFAULT, Acl, XATTR_CREDITS, durable_value};

/// The mode's bit that gives a program the file's group.
const SET_GROUP: u16 = 0o2000;

/// When an attribute may be set, and what else happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetXattr {
    /// Fails if the attribute exists.
    pub create: bool,
    /// Fails unless the attribute exists.
    pub replace: bool,
    /// Setting an access control list also clears the set-group-id bit, because the caller is not
    /// in the group.
    pub drop_set_gid: bool,
}

impl Ext4 {
    /// The value of an attribute by its whole name, such as `user.comment`. Access control lists
    /// (`system.posix_acl_access`, `system.posix_acl_default`) have the form that programs give to
    /// Linux.
    ///
    /// # Errors
    /// [`Error::NoXattr`] if there is none, [`Error::Unsupported`] for prefixes other than `user.`,
    /// `trusted.` and `security.`, except the two names.
    pub async fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        let key = Key::of(name)?;
        let _tree = self.core.journal.tree.read().await;
        let raw = self.core.inode(ino).await?;
        if key.index == ACL_ACCESS || key.index == ACL_DEFAULT {
            let acl = self.core.acl(ino, &raw, key.index).await?;
            return Ok(acl.ok_or(Error::NoXattr)?.to_xattr());
        }
        self.core.xattr(ino, &raw, &key).await?.ok_or(Error::NoXattr)
    }

    /// The names of an inode's attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub async fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let _tree = self.core.journal.tree.read().await;
        let raw = self.core.inode(ino).await?;
        self.core.xattr_names(ino, &raw).await
    }

    /// Sets an attribute; see [`Ext4::xattr`] for its name. An access control list also sets the
    /// mode. It is not stored if the mode says the same.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::NoXattr`] as `how` says, [`Error::NoSpace`] if the inode and
    /// one block have no room for it, [`Error::Invalid`] for an impossible list,
    /// [`Error::AccessDenied`] for a default list of an inode that is no directory,
    /// [`Error::NotPermitted`].
    pub async fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: impl Into<Bytes>,
        how: SetXattr,
    ) -> Result<()> {
        let (key, value) = (Key::of(name)?, value.into());
        self.core.change_xattr(ino, key, Some(value), (how, self.kept())).await?;
        self.core.keep_inode(ino).await
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`Error::NoXattr`], [`Error::NotPermitted`].
    pub async fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let how = SetXattr { replace: true, ..SetXattr::default() };
        self.core.change_xattr(ino, Key::of(name)?, None, (how, self.kept())).await?;
        self.core.keep_inode(ino).await
    }
}

impl Core {
    async fn change_xattr(
        &self,
        ino: Ino,
        key: Key,
        value: Option<Bytes>,
        how: (SetXattr, u64),
    ) -> Result<()> {
        if !key.is_durable() {
            return self.change_xattr_alone(ino, key, value, how).await;
        }
        let node = self.node(ino);
        if value.as_deref().map_or(Ok(false), durable_value)? {
            self.check_may_be_durable(ino).await?;
            self.change_xattr_alone(ino, key, value, how).await?;
        } else {
            // Write-back waits meanwhile, and then finds the file without the property.
            let _alone = node.writing.take_all().await;
            let _content = node.content.read().await;
            self.let_go(&node).await?;
            self.change_xattr_alone(ino, key, value, how).await?;
        }
        if !is(Bug::DurableRemembered) {
            node.durable.set(None);
        }
        Ok(())
    }

    async fn check_may_be_durable(&self, ino: Ino) -> Result<()> {
        let _tree = self.journal.tree.read().await;
        match self.inode(ino).await?.kind() {
            Some(FileKind::File | FileKind::Directory) => Ok(()),
            _ => Err(Error::Invalid("files and directories alone have user.manylogs.durable")),
        }
    }

    async fn change_xattr_alone(
        &self,
        ino: Ino,
        key: Key,
        value: Option<Bytes>,
        (how, kept): (SetXattr, u64),
    ) -> Result<()> {
        let mut handle = self.begin(XATTR_CREDITS + 1).await?;
        handle.kept = kept;
        let mut raw = self.inode(ino).await?;
        Metadata::check_losable(&raw)?;
        let is_acl = key.index == ACL_ACCESS || key.index == ACL_DEFAULT;
        let had = self.xattr(ino, &raw, &key).await?;
        match &had {
            Some(_) if how.create => return Err(Error::Exists),
            // Every file has an access control list, even if only its mode.
            None if how.replace && !is_acl => {
                let wrong = is(Bug::Ext4XattrWrongError);
                return Err(if wrong { Error::NotFound } else { Error::NoXattr });
            }
            // The same value is no change: the time of change stays.
            had if !is_acl && *had == value => return Ok(()),
            None if value.is_none() => return Ok(()),
            _ => {}
        }
        if is_acl {
            let list = value.as_deref().filter(|list| list.len() > 4);
            let wrong = Error::Invalid("a list of access without sense");
            let acl = list.map(|list| Acl::of_xattr(list).ok_or(wrong)).transpose()?;
            if !self.change_acl(&mut handle, ino, &mut raw, key.index, acl, how).await? {
                return Ok(());
            }
        } else {
            self.node(ino).incapable.set(false);
            self.put_xattr(&mut handle, ino, &mut raw, key, value).await?;
        }
        raw.set_time(TimeField::Change, self.now());
        self.put_inode(&mut handle, ino, &mut raw).await?;
        self.note_change(ino, handle.finish());
        Ok(())
    }

    /// Sets or removes an access control list. False if list and mode are the same as before.
    async fn change_acl(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        index: u8,
        acl: Option<Acl>,
        how: SetXattr,
    ) -> Result<bool> {
        match raw.kind() {
            Some(FileKind::Symlink) => {
                return Err(Error::Unsupported("lists of access of symbolic links"));
            }
            Some(FileKind::Directory) => {}
            _ if index == ACL_DEFAULT && acl.is_some() => return Err(Error::AccessDenied),
            _ => {}
        }
        let (mode, mut kept) = (raw.mode(), acl);
        if index == ACL_ACCESS {
            let leaves = is(Bug::Ext4AclLeavesMode);
            if let (Some(acl), false) = (&kept, leaves) {
                let dropped = if how.drop_set_gid { SET_GROUP } else { 0 };
                raw.set_mode(mode & !0o777 & !dropped | acl.mode());
            }
            kept = kept.filter(|acl| !acl.is_mode_alone());
        }
        if raw.mode() == mode && self.acl(ino, raw, index).await? == kept {
            return Ok(false);
        }
        self.put_acl(handle, ino, raw, index, kept.as_ref()).await?;
        Ok(true)
    }
}
