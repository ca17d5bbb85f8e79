//! The flags of inodes that `lsattr` shows and `chattr` changes.

use super::Ext4;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::ondisk::inode::{FileKind, TimeField, flags};
use crate::units::Ino;

/// Flags that can be changed, because this crate honours them: immutable, append-only, no dump, no
/// times of access, durable changes.
const CHANGEABLE: u32 = flags::IMMUTABLE
    | flags::APPEND
    | flags::NO_DUMP
    | flags::NO_ACCESS_TIME
    | flags::SYNC
    | flags::DIR_SYNC;
/// Flags that `chattr` can ask for: the other bits that it reads and writes back stay as they are.
const MODIFIABLE: u32 = 0x604B_C0FF;
/// Flags that are shown. Flags about the inode's form on the disk are left out, except index and
/// extents.
const SHOWN: u32 = 0x705B_DFFF;

impl Ext4 {
    /// The flags of an inode, as `lsattr` reads them.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub async fn inode_flags(&self, ino: Ino) -> Result<u32> {
        let _tree = self.core.journal.tree.read().await;
        Ok(self.core.inode(ino).await?.flags() & SHOWN)
    }

    /// Sets the flags of an inode. The caller checks permissions. Flags of directories are left out
    /// of other inodes, as in the kernel.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if other flags change than immutable (`i`), append-only (`a`), no
    /// dump (`d`), no times of access (`A`), durable changes (`S`) and durable changes of names
    /// (`D`).
    pub async fn set_inode_flags(&self, ino: Ino, wanted: u32) -> Result<()> {
        let core: &Core = &self.core;
        let mut handle = core.begin(1).await?;
        let mut raw = core.inode(ino).await?;
        let changed = (raw.flags() ^ wanted) & SHOWN & MODIFIABLE;
        if changed & !CHANGEABLE != 0 {
            return Err(Error::Unsupported("flags of inodes other than i, a, d, A, S and D"));
        }
        raw.set_flag(CHANGEABLE, false);
        let is_dir = raw.kind() == Some(FileKind::Directory);
        let left_out = if is_dir { 0 } else { flags::DIR_SYNC };
        raw.set_flag(wanted & CHANGEABLE & !left_out, true);
        raw.set_time(TimeField::Change, core.now());
        core.put_inode(&mut handle, ino, &mut raw).await?;
        let tid = handle.finish();
        core.note_change(ino, tid);
        core.keep(core.is_sync(&raw), tid).await
    }
}
