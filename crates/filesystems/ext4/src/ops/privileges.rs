//! Privileges of a program file (set-id bits and capabilities), which end when the file changes.

use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::error::Result;
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::{FileKind, RawInode, TimeField};
use crate::ondisk::xattr::Key;
use crate::units::Ino;
use crate::xattr::XATTR_CREDITS;

/// The mode's bit that gives a program the owner's rights.
const SET_USER: u16 = 0o4000;
/// The mode's bit that gives a program the group's rights, if the group may execute it.
const SET_GROUP: u16 = 0o2000;
/// See [`SET_GROUP`].
const GROUP_EXECUTES: u16 = 0o010;
/// The attribute with a program's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// The caller of a change, as far as the change depends on it.
#[derive(Clone, Copy)]
pub struct Credentials<'c> {
    /// The user.
    pub uid: u32,
    /// Whether the user is in a group, or has the rights of all.
    pub in_group: &'c dyn Fn(u32) -> bool,
}

/// Which set-id bits of a file's mode are cleared when its content changes.
#[derive(Clone, Copy, Debug)]
pub enum SetIds<'c> {
    /// None: the caller may keep them.
    Kept,
    /// The bits that give rights: the user's, and the group's if the group may execute the file or
    /// the caller is not in it.
    TakenBy(Credentials<'c>),
}

impl Credentials<'_> {
    /// Root, which has all rights.
    pub const ROOT: Self = Self { uid: 0, in_group: &|_| true };

    /// Whether the caller may change attributes of a file that `uid` owns.
    pub(super) const fn owns(self, uid: u32) -> bool {
        self.uid == 0 || self.uid == uid
    }
}

impl std::fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl<'c> SetIds<'c> {
    /// [`SetIds::TakenBy`] if `taken`, else [`SetIds::Kept`].
    #[must_use]
    pub const fn taken_if(taken: bool, caller: Credentials<'c>) -> Self {
        if taken { Self::TakenBy(caller) } else { Self::Kept }
    }

    /// The bits of a mode that are cleared.
    pub(super) fn of(self, mode: u16, group: u32) -> u16 {
        let Self::TakenBy(caller) = self else { return 0 };
        // `in_group` is called only if its answer matters.
        let gives_rights = mode & SET_GROUP != 0
            && !is(Bug::Ext4SetGidKept)
            && (mode & GROUP_EXECUTES != 0 || !(caller.in_group)(group));
        mode & (SET_USER | if gives_rights { SET_GROUP } else { 0 })
    }
}

impl Ext4 {
    /// Clears a file's capabilities and set-id bits before its content changes. Returns whether
    /// there was anything to clear.
    ///
    /// # Errors
    /// Those of reading the inode, and of changing it if there is something to clear.
    pub async fn drop_privileges(&self, ino: Ino, set_ids: SetIds<'_>) -> Result<bool> {
        let core = &self.core;
        let had_some = core.has_privileges(ino, set_ids).await?;
        if had_some {
            let mut handle = core.begin(4 + XATTR_CREDITS).await?;
            let mut raw = core.inode(ino).await?;
            Metadata::check_mutable(&raw)?;
            core.take_privileges(&mut handle, ino, &mut raw, set_ids).await?;
            raw.set_time(TimeField::Change, core.now());
            core.put_inode(&mut handle, ino, &mut raw).await?;
            core.note_change(ino, handle.finish());
        }
        Ok(had_some)
    }
}

impl Core {
    async fn has_privileges(&self, ino: Ino, set_ids: SetIds<'_>) -> Result<bool> {
        let node = self.node(ino);
        if node.incapable.get() && matches!(set_ids, SetIds::Kept) {
            return Ok(false);
        }
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(ino).await?;
        if !node.incapable.get() {
            node.incapable.set(!self.gives_capabilities(ino, &raw).await?);
        }
        Ok(!node.incapable.get() || set_ids.of(raw.mode(), raw.owner().1) != 0)
    }

    /// Clears capabilities and set-id bits. Those of a directory mean something else, and stay. The
    /// caller writes the inode, and has [`XATTR_CREDITS`] for this.
    pub(crate) async fn take_privileges(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        set_ids: SetIds<'_>,
    ) -> Result<()> {
        if raw.kind() == Some(FileKind::Directory) {
            return Ok(());
        }
        raw.set_mode(raw.mode() & !set_ids.of(raw.mode(), raw.owner().1));
        let node = self.node(ino);
        if !node.incapable.get() {
            if self.gives_capabilities(ino, raw).await? {
                self.put_xattr(handle, ino, raw, Key::of(CAPABILITY)?, None).await?;
            }
            node.incapable.set(true);
        }
        Ok(())
    }

    /// Whether a program has capabilities. An attribute with an empty value gives none, and stays.
    async fn gives_capabilities(&self, ino: Ino, raw: &RawInode) -> Result<bool> {
        let capability = self.xattr(ino, raw, &Key::of(CAPABILITY)?).await?;
        Ok(capability.is_some_and(|value| !value.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, SetIds};

    #[test]
    fn a_set_group_id_bit_without_execution_stays() {
        for (mode, gone) in
            [(0o106_755, 0o6000), (0o104_755, 0o4000), (0o102_755, 0o2000), (0o102_745, 0)]
        {
            let by = |in_group| SetIds::TakenBy(Credentials { uid: 5, in_group });
            assert_eq!(by(&|gid| gid == 7).of(mode, 7), gone, "{mode:o}");
            assert_eq!(by(&|gid| gid != 7).of(mode, 7), mode & 0o6000, "{mode:o}");
            assert_eq!(SetIds::Kept.of(mode, 7), 0, "{mode:o}");
        }
    }
}
