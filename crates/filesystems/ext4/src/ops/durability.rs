//! Durability without syncs, and the users that may have reserved blocks.

use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::error::Result;
use crate::ondisk::inode::{RawInode, flags};
use crate::ondisk::jbd2::Tid;
use crate::units::Ino;

/// Durability that a mount promises without syncs. Flags of inodes promise more: every change of an
/// inode with `S` is durable when it returns, and so is every change of the names of a directory
/// with `D`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// All inodes are as if they had the flag `S`.
    pub sync: bool,
    /// All directories are as if they had the flag `D`.
    pub dir_sync: bool,
    /// Allows that a file is empty after a crash, if it replaced another by a rename, or was cut to
    /// nothing, written and closed.
    pub no_auto_alloc: bool,
}

/// The user on whose behalf a call is made. Blocks are reserved for root and for one user or group
/// that the superblock names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The user's main group.
    pub gid: u32,
}

impl Caller {
    /// Root, which may have reserved blocks.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

impl Ext4 {
    /// The same file system on behalf of `caller`. Permissions are not checked here: the only
    /// difference is the use of reserved blocks.
    #[must_use]
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self { caller, ..self.clone() }
    }

    /// How many blocks the caller must leave free.
    pub(crate) fn kept(&self) -> u64 {
        let geometry = &self.core.geometry;
        let (user, group) = geometry.reserved_for;
        let Caller { uid, gid } = self.caller;
        let may = uid == 0 || uid == user || group != 0 && gid == group;
        if may { 0 } else { geometry.reserved_blocks }
    }
}

impl Core {
    /// Whether each change of an inode is durable when it returns.
    pub(crate) fn is_sync(&self, raw: &RawInode) -> bool {
        (self.durability.sync || raw.has_flag(flags::SYNC)) && !is(Bug::Ext4SyncIgnored)
    }

    /// Whether each change of a directory's names is durable when it returns.
    pub(crate) fn is_dir_sync(&self, dir: &RawInode) -> bool {
        let names = self.durability.dir_sync || dir.has_flag(flags::DIR_SYNC);
        self.is_sync(dir) || names && !is(Bug::Ext4DirSyncIgnored)
    }

    /// Waits until a transaction is durable, if that is `promised`.
    ///
    /// # Errors
    /// That of the device.
    pub(crate) async fn keep(&self, promised: bool, tid: Tid) -> Result<()> {
        if promised { self.journal.commit(tid).await } else { Ok(()) }
    }

    /// Makes an inode durable, if each of its changes is promised to be.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) async fn keep_inode(&self, ino: Ino) -> Result<()> {
        let promised = {
            let _tree = self.journal.tree.read().await;
            self.is_sync(&self.inode(ino).await?)
        };
        if promised { self.sync_file(ino, None).await } else { Ok(()) }
    }

    /// Whether content that replaces a file's content must be durable no later than the
    /// replacement.
    pub(crate) fn allocates_at_once(&self) -> bool {
        !self.durability.no_auto_alloc
    }
}
