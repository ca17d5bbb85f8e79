//! Damage that is found while the file system is in use.

use std::rc::Rc;

use manylogs_block::IoError;

use super::Ext4;
use crate::error::{Corruption, Result};
use crate::metadata::Metadata;
use crate::ondisk::superblock::Damage;

/// Damage that was found, and is not noted in the superblock yet.
#[derive(Debug)]
pub(crate) struct Found {
    count: u32,
    first: Damage,
    last: Damage,
}

impl Ext4 {
    /// Stops all changes until the next mount, because damage was found. The journal notes it soon,
    /// or at the latest when [`Ext4::unmount`] returns: mounts are refused until e2fsck has run.
    pub fn stop_changes(&self) {
        let reason = "damage was found in the file system";
        let core = Rc::clone(&self.core);
        core.journal.abort(IoError::ReadOnly { reason });
        if !core.journal.damaged.replace(true) {
            // If the device fails as well, the next mount finds the damage.
            let runtime = core.runtime.clone();
            runtime.spawn(async move { drop(core.journal.sink.give_up().await) });
        }
    }

    /// Notes damage in the superblock: where, when and how often. The note is durable with the next
    /// commit, or at the latest when [`Ext4::unmount`] returns. Changes go on. Later mounts are
    /// refused until e2fsck has run.
    pub fn note_damage(&self, what: &Corruption) {
        let core = Rc::clone(&self.core);
        if core.read_only || !core.journal.is_sound() {
            return;
        }
        let damage = Damage { at: core.now(), what: what.clone() };
        let mut found = core.damage.borrow_mut();
        if let Some(found) = &mut *found {
            found.count = found.count.saturating_add(1);
            found.last = damage;
            return;
        }
        *found = Some(Found { count: 1, first: damage.clone(), last: damage });
        drop(found);
        let runtime = core.runtime.clone();
        // A task of its own, because the caller may hold locks that the change waits for. A failing
        // journal is reported elsewhere.
        runtime.spawn(async move { drop(core.mark_damage().await) });
    }
}

impl Metadata {
    /// Writes the damage that was found into the superblock.
    pub(crate) async fn mark_damage(&self) -> Result<()> {
        if self.damage.borrow().is_none() {
            return Ok(());
        }
        let mut handle = self.begin(1).await?;
        let Some(Found { count, first, last }) = self.damage.take() else { return Ok(()) };
        self.change_superblock(&mut handle, |superblock| {
            superblock.note_damage(count, &first, &last);
        })?;
        handle.finish();
        Ok(())
    }
}
