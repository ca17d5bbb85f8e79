//! Steps of clients with files that need durability and no place.

use manylogs_block::to_usize;
use manylogs_ext4::{DURABLE_XATTR, Error, Ino, SetXattr};

use super::client::Client;
use super::judge::content;
use super::model::FileId;

impl Client {
    /// Gives a file the property, removes it, or writes more to such a file than a record takes.
    pub(super) async fn durable(&self) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        match self.below(6) {
            0 => self.write_long(ino, id).await,
            1 => self.set_durable(ino, false).await,
            _ => self.set_durable(ino, true).await,
        }
    }

    /// Gives an inode the property, or removes it.
    pub(super) async fn set_durable(&self, ino: Ino, durable: bool) -> Result<(), Error> {
        let value: &'static [u8] = if durable { b"1" } else { b"0" };
        self.fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), value, SetXattr::default()).await
    }

    /// Writes much over the beginning of a file and syncs it. Most often the file has the property.
    async fn write_long(&self, ino: Ino, id: FileId) -> Result<(), Error> {
        if self.below(4) > 0 {
            self.set_durable(ino, true).await?;
        }
        let mut bytes = content(self.number(), to_usize(300_000 + self.below(900_000)));
        if let [0..=80, from, len, ..] = bytes[..] {
            // Zeroes a part, because databases fill their logs before they use them.
            let (from, len) = (usize::from(from) * 4096, usize::from(len) * 2048);
            bytes.iter_mut().skip(from).take(len).for_each(|byte| *byte = 0);
        }
        let mut after = self.model.borrow().files[&id].now().to_vec();
        after.resize(after.len().max(bytes.len()), 0);
        after[..bytes.len()].copy_from_slice(&bytes);
        self.push(id, after);
        let written = match self.below(3) {
            0 => self.fs.write_synced(ino, 0, bytes).await,
            _ => self.fs.write(ino, 0, bytes).await,
        };
        if written.is_err() {
            self.changed().files.entry(id).or_default().contents.pop();
            return written;
        }
        let version = self.model.borrow().files[&id].contents.len() - 1;
        self.fs.sync_content(ino).await?;
        self.changed().content_durable(id, version);
        Ok(())
    }
}
