//! What a use does with files that need durability and no place, beside writing to them.

use manylogs::VolumeConfig;
use manylogs_block::to_usize;
use manylogs_ext4::{BLOCK_BYTES, DURABLE_XATTR, Error, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_near::Near;

use super::history::Work;
use super::model::SPARE;
use crate::ext4::content;

/// Shares of the logs that may be kept.
const SHARES: [f64; 3] = [0.001, 0.01, 0.5];
/// The most blocks of a file that comes and goes.
const SPARE_BLOCKS: u64 = 40;

impl Work {
    /// Gives a file the property, or removes it.
    pub(super) async fn set_durable(&mut self, fs: &Ext4, ino: Ino) -> Result<(), Error> {
        let value: &'static str = if self.rng.one_in(4) { "0" } else { "1" };
        fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), value, SetXattr::default()).await
    }

    /// Brings home what the logs keep, or some of it, or moves it; or another file takes blocks
    /// and gives them back, with the property or without.
    pub(super) async fn keep_house(&mut self, near: &Near) -> Result<(), Error> {
        let volume = near.volume();
        // An error shows in what is read later.
        match self.rng.below(8) {
            0 => drop(volume.checkpoint().await),
            1 => drop(volume.snapshot().await),
            2 => drop(volume.swap().await),
            3 => {
                let durable_budget = SHARES[to_usize(self.rng.below(SHARES.len() as u64))];
                let config = VolumeConfig { durable_budget, ..volume.config() };
                drop(volume.reconfigure(&config));
            }
            4 | 5 => self.come_and_go(near.fs()).await?,
            _ => {}
        }
        Ok(())
    }

    /// Removes the file that comes and goes, or makes it.
    async fn come_and_go(&mut self, fs: &Ext4) -> Result<(), Error> {
        match fs.unlink(Ino::ROOT, SPARE).await {
            Err(Error::NotFound) => {}
            removed => return removed,
        }
        let new = New::plain(FileKind::File, 0o600);
        let ino = fs.create(Ino::ROOT, SPARE, new).await?.ino;
        if !self.rng.one_in(3) {
            self.set_durable(fs, ino).await?;
        }
        let blocks = 1 + self.rng.below(SPARE_BLOCKS);
        let bytes = content(self.rng.next_u64(), to_usize(blocks) * BLOCK_BYTES);
        match fs.write(ino, 0, bytes).await {
            Err(Error::NoSpace) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => fs.sync(ino).await,
        }
    }
}
