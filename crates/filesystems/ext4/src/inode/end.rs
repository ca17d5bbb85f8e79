//! Cutting and deleting inodes.

use std::cell::Cell;

use manylogs_block::{Nanos, Signal};

use super::birth::BIRTH_CREDITS;
use super::orphans::ORPHAN_CREDITS;
use crate::core::Core;
use crate::error::Result;
use crate::extents::{MAP_CREDITS, Unmapped};
use crate::inode::Node;
use crate::ondisk::bytes::low32;
use crate::ondisk::inode::{FileKind, RawInode};
use crate::units::{BLOCK, FileBlock, Ino};

/// Most blocks that one step of a long operation changes.
const STEP_CREDITS: usize = 4 * MAP_CREDITS;
/// How long a task without room waits for the close of a file that has no name.
const CLOSE_MOST: Nanos = Nanos::from_millis(200);

/// Inodes that are being deleted.
#[derive(Default)]
pub(crate) struct Ends {
    count: Cell<u32>,
    /// Notified when one was deleted.
    ended: Signal,
}

impl Ends {
    fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    fn end(&self) {
        self.count.set(self.count.get() - 1);
        self.ended.notify();
    }

    fn are_under_way(&self) -> bool {
        self.count.get() > 0
    }
}

impl Core {
    /// Frees the blocks behind `size` of an inode whose size is `size` already, in several
    /// transactions. The inode is an orphan until the last one.
    pub(crate) async fn cut(&self, ino: Ino, size: u64) -> Result<()> {
        loop {
            let mut handle = self.begin(STEP_CREDITS + ORPHAN_CREDITS).await?;
            let mut raw = self.inode(ino).await?;
            let done = self.cut_step(&mut handle, ino, &mut raw, size).await?;
            if done {
                self.leave_orphans(&mut handle, ino, &mut raw).await?;
            }
            self.put_inode(&mut handle, ino, &mut raw).await?;
            let tid = handle.finish();
            self.note_change(ino, tid);
            if done {
                return Ok(());
            }
        }
    }

    /// Frees blocks behind `size` as far as the handle's credits go; true if all are freed.
    pub(crate) async fn cut_step(
        &self,
        handle: &mut crate::journal::Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        size: u64,
    ) -> Result<bool> {
        if !has_tree(raw) {
            return Ok(true);
        }
        let metadata = self.journals_content(raw);
        let range = size.div_ceil(BLOCK)..FileBlock::MAX;
        self.remove_extents(handle, ino, raw, range, Unmapped::Freed { metadata }).await
    }

    /// Deletes an inode that is an orphan without a name, and frees its blocks.
    pub(crate) async fn delete(&self, ino: Ino) -> Result<()> {
        let node = self.node(ino);
        node.is_ending.set(true);
        self.ends.begin();
        let deleted = self.delete_node(&node).await;
        self.ends.end();
        deleted
    }

    /// Waits until an inode was deleted, because there may be room then. A file without a name may
    /// be deleted a little after its last user closed it, because the kernel reports the close
    /// late. False if none is deleted. The caller holds no lock that a deletion needs.
    pub(crate) async fn await_an_end(&self) -> bool {
        let ended = self.ends.ended.wait();
        if self.ends.are_under_way() {
            ended.await;
            return true;
        }
        if self.orphans.borrow().is_empty() {
            return false;
        }
        self.runtime.within(CLOSE_MOST, ended).await.is_some()
    }

    async fn delete_node(&self, node: &Node) -> Result<()> {
        let ino = node.ino;
        let _alone = node.content.write().await;
        self.drop_pages(node, 0..u32::MAX);
        node.size_is_new.set(false);
        node.written_at.set(None);
        loop {
            let credits = STEP_CREDITS + ORPHAN_CREDITS + BIRTH_CREDITS;
            let mut handle = self.begin(credits).await?;
            let mut raw = self.inode(ino).await?;
            let done = self.cut_step(&mut handle, ino, &mut raw, 0).await?;
            if !done {
                self.put_inode(&mut handle, ino, &mut raw).await?;
                handle.finish();
                continue;
            }
            self.leave_orphans(&mut handle, ino, &mut raw).await?;
            if !manylogs_plant::is(manylogs_plant::Bug::Ext4XattrBlockKept) {
                self.drop_xattr_block(&mut handle, ino, &mut raw).await?;
            }
            let directory = raw.kind() == Some(FileKind::Directory);
            raw.set_size(0);
            raw.set_deleted_or_next(low32(self.now().seconds.cast_unsigned()).max(1));
            self.put_inode(&mut handle, ino, &mut raw).await?;
            self.free_inode(&mut handle, ino, directory).await?;
            handle.finish();
            break;
        }
        self.nodes.remove(ino);
        Ok(())
    }
}

/// Whether the inode has blocks of its own: short symbolic links and special files have none.
pub(crate) fn has_tree(raw: &RawInode) -> bool {
    match raw.kind() {
        Some(FileKind::File | FileKind::Directory) => true,
        Some(FileKind::Symlink) => !raw.is_short_link(),
        _ => false,
    }
}
