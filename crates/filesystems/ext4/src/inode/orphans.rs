//! The list of orphans: inodes that a mount after a crash must delete or cut.
//!
//! Those without a name are deleted, and the others are cut to their size. The superblock names the
//! newest. Each names the next older one, in the field for the time of deletion. An inode joins in
//! the transaction that takes its last name, and leaves in the one that deletes it.

use std::collections::HashSet;

use crate::core::Core;
use crate::error::{Corruption, Location, Result};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::inode::RawInode;
use crate::ondisk::superblock::Superblock;
use crate::units::Ino;

/// Most blocks that joining or leaving changes.
pub(crate) const ORPHAN_CREDITS: usize = 3;

impl Metadata {
    /// Puts an inode at the head of the list. The caller writes the inode.
    pub(crate) fn join_orphans(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        let mut orphans = handle.orphans();
        if orphans.contains(&ino) {
            return Ok(());
        }
        raw.set_deleted_or_next(orphans.last().map_or(0, |next| next.0));
        self.change_superblock(handle, |superblock| superblock.set_last_orphan(ino.0))?;
        orphans.push(ino);
        handle.set_orphans(orphans);
        Ok(())
    }

    /// Takes an inode out of the list. The caller writes the inode.
    pub(crate) async fn leave_orphans(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
    ) -> Result<()> {
        let mut orphans = handle.orphans();
        let Some(at) = orphans.iter().position(|orphan| *orphan == ino) else { return Ok(()) };
        orphans.remove(at);
        let older = at.checked_sub(1).map_or(0, |older| orphans[older].0);
        match orphans.get(at) {
            None => {
                self.change_superblock(handle, |superblock| superblock.set_last_orphan(older))?;
            }
            Some(newer) => {
                let newer = *newer;
                let mut before = self.inode(newer).await?;
                before.set_deleted_or_next(older);
                self.put_inode(handle, newer, &mut before).await?;
            }
        }
        raw.set_deleted_or_next(0);
        handle.set_orphans(orphans);
        Ok(())
    }

    /// The list as it is on the device.
    pub(crate) async fn read_orphans(&self) -> Result<Vec<Ino>> {
        let mut next = Superblock::decode(&self.superblock.bytes())?.last_orphan();
        let (mut orphans, mut seen) = (Vec::new(), HashSet::new());
        while next != 0 {
            let ino = Ino(next);
            if ino.0 < self.geometry.first_free_inode || !seen.insert(ino) {
                let what = "the list of orphans names an inode that cannot be one";
                return Err(Corruption::of(Location::Superblock, what).into());
            }
            orphans.push(ino);
            next = self.inode(ino).await?.deleted_or_next();
        }
        orphans.reverse();
        Ok(orphans)
    }
}

impl Core {
    /// Deletes the orphans that have no name, and cuts the others to their size.
    pub(crate) async fn finish_orphans(&self) -> Result<()> {
        loop {
            let newest = self.orphans.borrow().last().copied();
            let Some(ino) = newest else { return Ok(()) };
            let raw = {
                let _tree = self.journal.tree.read().await;
                self.inode(ino).await?
            };
            if raw.links() == 0 {
                self.delete(ino).await?;
            } else {
                self.cut(ino, raw.size()).await?;
            }
        }
    }
}
