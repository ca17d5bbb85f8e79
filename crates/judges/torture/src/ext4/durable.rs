//! Steps of clients with files that need durability and no place.

use manylogs_block::to_usize;
use manylogs_ext4::{Attributes, DURABLE_XATTR, Error, FileKind, Ino, New, SetXattr};

use super::client::Client;
use super::homes::{Moment, stamp};
use super::judge::content;
use super::model::FileId;

impl Client {
    /// Gives a file the property, removes it, or writes more to such a file than a record takes.
    /// Now and then gives or removes that of the directory, which hands it down.
    pub(super) async fn durable(&self, dir: Ino) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        match self.below(12) {
            0 | 1 => self.write_long(ino, id).await,
            2 | 3 => self.set_durable(ino, false).await,
            4 => self.set_durable(dir, self.below(3) > 0).await,
            _ => self.set_durable(ino, true).await,
        }
    }

    /// A new inode. If content is kept, each client is a user of his own, whose share counts.
    pub(super) fn new_inode(&self, kind: FileKind, permissions: u16) -> New {
        let client = u32::try_from(self.next.get() / 1_000_000 % 1000).unwrap_or(0);
        let uid = if self.durable { 1000 + client } else { 0 };
        New { uid, ..New::plain(kind, permissions) }
    }

    /// The present moment.
    pub(super) fn moment(&self) -> Moment {
        Moment::new(self.mount, self.runtime.now().0)
    }

    /// Notes that a file was born no earlier than `born`. Its directory may have handed it the
    /// property.
    pub(super) async fn note_birth(&self, made: &Attributes, born: Moment) -> Result<(), Error> {
        if !self.durable {
            return Ok(());
        }
        let has_property = match self.fs.xattr(made.ino, DURABLE_XATTR.as_bytes()).await {
            Ok(value) => value == "1",
            Err(Error::NoXattr | Error::NotFound) => false,
            Err(error) => return Err(error),
        };
        self.births.note(made, born, has_property);
        Ok(())
    }

    /// Content of `len` bytes that no other write has, to be written at `offset`. With files that
    /// need no place each sector also says when it was written.
    pub(super) fn content_at(&self, number: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = content(number, len);
        if self.durable {
            stamp(&mut bytes, offset, self.moment());
        }
        bytes
    }

    /// Gives an inode the property, or removes it.
    pub(super) async fn set_durable(&self, ino: Ino, durable: bool) -> Result<(), Error> {
        if !durable {
            self.births.forget(ino);
        }
        let value: &'static [u8] = if durable { b"1" } else { b"0" };
        self.fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), value, SetXattr::default()).await
    }

    /// Writes much over the beginning of a file and syncs it. Most often the file has the property.
    async fn write_long(&self, ino: Ino, id: FileId) -> Result<(), Error> {
        if self.below(4) > 0 {
            self.set_durable(ino, true).await?;
        }
        let number = self.number();
        let mut bytes = self.content_at(number, 0, to_usize(300_000 + self.below(900_000)));
        if let [0..=80, from, len] = content(number, 3)[..] {
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
