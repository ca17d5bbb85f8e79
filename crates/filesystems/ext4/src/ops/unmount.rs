//! Unmounting, and bringing the journal's content home.

use manylogs_block::{Payload, Request};

use super::Ext4;
use crate::error::Result;
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::ondisk::superblock::Superblock;
use crate::units::BlockNo;

impl Ext4 {
    /// Commits all changes of metadata so far, and brings the journal's content home. The journal
    /// stays in use.
    ///
    /// # Errors
    /// Those of the device, and [`crate::Error::Aborted`].
    pub async fn bring_home(&self) -> Result<()> {
        let core = &self.core;
        core.check_writable()?;
        core.journal.commit(core.journal.running()).await?;
        Ok(core.healing(|sink| sink.bring_home()).await?)
    }

    /// Saves the map of a journal that keeps its content ([`crate::Mode::Lazy`]), so that the next
    /// mount takes less time, also after a crash. It is saved at an unmount, and now and then.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn save_map(&self) -> Result<()> {
        self.core.check_writable()?;
        Ok(self.core.journal.sink.save_map(false).await?)
    }

    /// Whether so much was logged since [`Ext4::save_map`] that it will be called soon.
    #[must_use]
    pub fn is_map_old(&self) -> bool {
        self.core.journal.sink.is_map_old()
    }

    /// Makes everything durable, brings it home, and leaves a file system that needs no recovery.
    /// In [`crate::Mode::Lazy`] the journal keeps its content, and a recovery is needed.
    ///
    /// # Errors
    /// Those of the device, and [`crate::Error::Aborted`]: the next mount replays the journal then.
    /// A loss that nobody was told of is returned when all the rest is done.
    pub async fn unmount(self) -> Result<()> {
        let core = self.core;
        if core.read_only {
            return Ok(());
        }
        let deleted = core.finish_orphans().await;
        let marked = core.mark_damage().await;
        let synced = core.sync_what_can_be().await;
        let stays = core.journal.sink.stays();
        let counted = if stays { core.log_counts().await } else { Ok(()) };
        core.journal.end().await;
        if core.journal.damaged.get() {
            let said = core.journal.sink.give_up().await?;
            if !said {
                core.write_superblock(Superblock::set_errors).await?;
            }
        }
        deleted.and(marked).and(synced).and(counted)?;
        core.journal.check()?;
        if stays {
            let saved = match core.journal.saves_map.get() {
                true => core.journal.sink.save_map(true).await,
                false => Ok(()),
            };
            core.losses.tell(None)?;
            return Ok(saved?);
        }
        core.healing(|sink| sink.drain()).await?;
        let (blocks, inodes) = (core.space.free_blocks(), core.space.free_inodes());
        core.write_superblock(|superblock| {
            superblock.set_needs_recovery(false);
            superblock.set_clean();
            superblock.set_free(blocks, low32(inodes));
        })
        .await?;
        core.losses.tell(None)
    }
}

impl Metadata {
    /// Writes the superblock home, durably, past the journal. The log must hold no version of it.
    pub(super) async fn write_superblock(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let mut superblock = Superblock::decode(&self.superblock.bytes())?;
        change(&mut superblock);
        self.superblock.change(|block| superblock.encode(block));
        let payload = Payload::bytes(self.superblock.bytes());
        let request = Request::write_fua(BlockNo(0).sectors(), payload);
        self.device.submit(request).await?;
        Ok(())
    }

    /// As [`Metadata::write_superblock`], through the log, if anything changes.
    pub(super) async fn log_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut superblock = Superblock::decode(&self.superblock.bytes())?;
        let before = superblock.clone();
        change(&mut superblock);
        if superblock == before {
            return Ok(());
        }
        let mut handle = self.begin(1).await?;
        self.change_superblock(&mut handle, |held| *held = superblock)?;
        self.journal.commit(handle.finish()).await
    }

    /// Writes the free counts into the superblock in the log: a replay will bring it home.
    async fn log_counts(&self) -> Result<()> {
        let (blocks, inodes) = (self.space.free_blocks(), self.space.free_inodes());
        self.log_superblock(|superblock| {
            superblock.set_clean();
            superblock.set_free(blocks, low32(inodes));
        })
        .await
    }
}
