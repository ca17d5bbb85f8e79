//! The content of files.

use bytes::Bytes;

use super::Ext4;
use crate::error::Result;
use crate::file::{Allocate, Seek};
use crate::units::Ino;

impl Ext4 {
    /// Bytes of a file from `offset` on: `len`, or fewer at the end of the file.
    ///
    /// # Errors
    /// [`crate::Error::IsADirectory`], [`crate::Error::Invalid`] for another inode that is no file,
    /// and those of the device.
    pub async fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Bytes> {
        self.core.read_file(ino, offset, len).await
    }

    /// Checks that a write of `bytes` bytes at `offset` is possible, whatever the file holds. If
    /// not, the file keeps its privileges ([`Ext4::drop_privileges`]).
    ///
    /// # Errors
    /// [`crate::Error::TooLarge`], [`crate::Error::ReadOnly`], and that of a journal that failed.
    pub fn check_write(&self, offset: u64, bytes: u64) -> Result<()> {
        self.core.check_write(offset, bytes).map(drop)
    }

    /// Writes into a file. Reads find the data at once; it is durable after [`Ext4::sync`].
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if there are no blocks for all of it, [`crate::Error::TooLarge`].
    pub async fn write(&self, ino: Ino, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        self.core.write_file(ino, offset, data.into(), self.kept()).await
    }

    /// As [`Ext4::write`], but the data is on the device when this returns, or in the running
    /// transaction if that holds content. It is durable after [`Ext4::sync`]. Programs ask for this
    /// with `O_DIRECT`. Writes to other pages of the file go on meanwhile.
    ///
    /// # Errors
    /// As [`Ext4::write`], and those of the device.
    pub async fn write_through(&self, ino: Ino, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        let data = data.into();
        let end = offset.saturating_add(data.len() as u64);
        self.core.write_file(ino, offset, data, self.kept()).await?;
        self.core.write_back_part(ino, offset..end, false).await
    }

    /// As [`Ext4::write`], for a file opened with `O_DSYNC` or `O_SYNC`; the caller syncs it next.
    /// After [`Ext4::keep_synced_writes`] the written content counts as content that needs
    /// durability and no place, even if the file lacks the property. If the file becomes longer, so
    /// do all its dirty pages.
    ///
    /// # Errors
    /// As [`Ext4::write_through`].
    pub async fn write_synced(&self, ino: Ino, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        let data = data.into();
        let end = offset.saturating_add(data.len() as u64);
        self.core.write_file(ino, offset, data, self.kept()).await?;
        if !self.core.keeps_synced.get() || !self.core.keeps() {
            return Ok(());
        }
        self.core.write_back_part(ino, offset..end, true).await
    }

    /// Checks that [`Ext4::allocate`] is possible, except for room.
    ///
    /// # Errors
    /// Those of [`Ext4::allocate`] except [`crate::Error::NoSpace`].
    pub async fn check_allocation(
        &self,
        ino: Ino,
        range: &std::ops::Range<u64>,
        what: Allocate,
    ) -> Result<()> {
        self.core.check_allocation(ino, range, what).await
    }

    /// Takes blocks for a range of a file, or gives them back. The file becomes as long as the
    /// range reaches, except with `keep_size` or for a hole.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]: a part of the range may have blocks then.
    /// [`crate::Error::TooLarge`], [`crate::Error::Invalid`] if the range is empty.
    pub async fn allocate(
        &self,
        ino: Ino,
        range: std::ops::Range<u64>,
        what: Allocate,
        keep_size: bool,
    ) -> Result<()> {
        self.core.allocate(ino, range, what, (keep_size, self.kept())).await?;
        self.core.keep_inode(ino).await
    }

    /// The first place of a file from `offset` on that is data, or a hole.
    ///
    /// # Errors
    /// [`crate::Error::BeyondEnd`] if there is none, or `offset` is not before the end.
    pub async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.core.seek(ino, offset, what).await
    }

    /// Makes all changes of an inode durable, and of a directory's names.
    ///
    /// # Errors
    /// Those of the device: then changes may be lost.
    pub async fn sync(&self, ino: Ino) -> Result<()> {
        self.core.sync_file(ino, None).await
    }

    /// Makes a file's content durable, and the metadata that is needed to find it, but not its
    /// times. Overwrites of existing blocks need no transaction.
    ///
    /// # Errors
    /// As [`Ext4::sync`].
    pub async fn sync_content(&self, ino: Ino) -> Result<()> {
        self.core.sync_content(ino, None).await
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Ext4::sync`].
    pub async fn sync_all(&self) -> Result<()> {
        self.sync_all_opened(None).await
    }
}
