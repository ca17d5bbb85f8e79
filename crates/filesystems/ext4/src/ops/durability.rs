//! What is durable when a call returns although nobody syncs, and whom reserved blocks are for.

use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::error::Result;
use crate::ondisk::inode::{RawInode, flags};
use crate::ondisk::jbd2::Tid;
use crate::units::Ino;

/// What a mount promises without syncs. Inodes promise more by their flags: of one with `S` every
/// change is durable when it returns, of a directory with `D` every change of its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// All inodes are as if they had the flag `S`.
    pub sync: bool,
    /// All directories are as if they had the flag `D`.
    pub dir_sync: bool,
    /// A file that replaces another by a new name, or is cut to nothing, written and closed, may be
    /// found empty after a crash.
    pub no_auto_alloc: bool,
}

/// On whose behalf something is done. Blocks are reserved for root and, as the superblock says, one
/// user or group besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The user's main group.
    pub gid: u32,
}

impl Caller {
    /// Whoever may have reserved blocks.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

impl Ext4 {
    /// The same file system, as `caller` may use it. Permissions are not checked here, and reserved
    /// blocks are the only difference.
    #[must_use]
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self { caller, ..self.clone() }
    }

    /// How many blocks stay free whatever the caller asks for.
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

    /// Waits until a transaction is durable, where that is promised.
    ///
    /// # Errors
    /// That of the device.
    pub(crate) async fn keep(&self, promised: bool, tid: Tid) -> Result<()> {
        if promised { self.journal.commit(tid).await } else { Ok(()) }
    }

    /// Makes an inode durable, where that is promised of each change.
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

    /// Whether what replaces the content of a file is durable no later than that it does.
    pub(crate) fn allocates_at_once(&self) -> bool {
        !self.durability.no_auto_alloc
    }
}
