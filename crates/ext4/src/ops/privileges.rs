//! Privileges that a program file gives, which end when it changes.

use super::Ext4;
use crate::core::Core;
use crate::error::Result;
use crate::journal::Handle;
use crate::ondisk::inode::{RawInode, TimeField};
use crate::ondisk::xattr::Key;
use crate::units::Ino;
use crate::xattr::XATTR_CREDITS;

/// The mode's bit that gives a program the owner's rights.
const SET_USER: u16 = 0o4000;
/// The mode's bit that gives a program the group's rights, where the group may execute it.
const SET_GROUP: u16 = 0o2000;
/// See [`SET_GROUP`].
const GROUP_EXECUTES: u16 = 0o010;
/// The attribute with a program's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Set-id bits of a mode that give rights: all that a change by others takes away.
pub(crate) const fn set_ids(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTES != 0 { SET_GROUP } else { 0 };
    mode & (SET_USER | group)
}

impl Ext4 {
    /// The content of a file is about to change: its capabilities go, and with `set_ids` the bits
    /// of its mode that give rights, as whoever changes it may not keep them. Whether anything was
    /// taken.
    ///
    /// # Errors
    /// Those of reading the inode, and of changing it if there is something to take.
    pub async fn drop_privileges(&self, ino: Ino, set_ids: bool) -> Result<bool> {
        let core = &self.core;
        let has = core.has_privileges(ino, set_ids).await?;
        if has {
            let mut handle = core.begin(4 + XATTR_CREDITS).await?;
            let mut raw = core.inode(ino).await?;
            core.take_privileges(&mut handle, ino, &mut raw, set_ids).await?;
            raw.set_time(TimeField::Change, core.now());
            core.put_inode(&mut handle, ino, &mut raw).await?;
            core.note_change(ino, handle.finish());
        }
        Ok(has)
    }
}

impl Core {
    async fn has_privileges(&self, ino: Ino, with_set_ids: bool) -> Result<bool> {
        let node = self.node(ino);
        if node.incapable.get() && !with_set_ids {
            return Ok(false);
        }
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(ino).await?;
        if !node.incapable.get() {
            let capability = self.xattr(ino, &raw, &Key::of(CAPABILITY)?).await?;
            node.incapable.set(capability.is_none());
        }
        Ok(!node.incapable.get() || with_set_ids && set_ids(raw.mode()) != 0)
    }

    /// Takes capabilities away, and with `with_set_ids` the bits. The caller writes the inode, and
    /// has [`XATTR_CREDITS`] for this.
    pub(crate) async fn take_privileges(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        with_set_ids: bool,
    ) -> Result<()> {
        if with_set_ids {
            raw.set_mode(raw.mode() & !set_ids(raw.mode()));
        }
        let node = self.node(ino);
        if !node.incapable.get() {
            let key = Key::of(CAPABILITY)?;
            self.put_xattr(handle, ino, raw, key, None).await?;
            node.incapable.set(true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::set_ids;

    #[test]
    fn a_set_group_id_bit_without_execution_stays() {
        for (mode, gone) in
            [(0o106_755, 0o6000), (0o104_755, 0o4000), (0o102_755, 0o2000), (0o102_745, 0)]
        {
            assert_eq!(set_ids(mode), gone, "{mode:o}");
        }
    }
}
