//! Open files: reports of losses to descriptors, and closing.

use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::error::Result;
use crate::file::Times;
use crate::inode::Descriptor;
use crate::units::Ino;

impl Ext4 {
    /// A new descriptor, which is told of losses separately.
    #[must_use]
    pub fn new_descriptor(&self) -> Descriptor {
        let descriptors = &self.core.descriptors;
        descriptors.set(descriptors.get() + 1);
        Descriptor(descriptors.get())
    }

    /// As [`Ext4::sync`], or with `content_alone` as [`Ext4::sync_content`]. Tells the descriptor
    /// of losses that it was not told of yet.
    ///
    /// # Errors
    /// As [`Ext4::sync`].
    pub async fn sync_opened(
        &self,
        ino: Ino,
        opened: Option<Descriptor>,
        content_alone: bool,
    ) -> Result<()> {
        match content_alone {
            true => self.core.sync_content(ino, opened).await,
            false => self.core.sync_file(ino, opened).await,
        }
    }

    /// As [`Ext4::sync_all`]. Tells the descriptor of losses of any file.
    ///
    /// # Errors
    /// As [`Ext4::sync`].
    pub async fn sync_all_opened(&self, opened: Option<Descriptor>) -> Result<()> {
        self.core.sync_all().await?;
        self.core.losses.tell(opened)
    }

    /// Closes a copy of a descriptor; other copies of it may stay open. Data written since the file
    /// was cut to nothing becomes durable no later than any change after this call, unless
    /// [`super::Durability::no_auto_alloc`] is set.
    ///
    /// # Errors
    /// Those of the device, and a loss that the descriptor was not told of.
    pub async fn close_copy(&self, ino: Ino, opened: Option<Descriptor>) -> Result<()> {
        self.core.settle_emptied(ino).await?;
        let node = self.core.nodes.get(ino);
        node.map_or(Ok(()), |node| node.losses.tell(opened))
    }

    /// Closes the last copy of a descriptor, as [`Ext4::close_copy`].
    ///
    /// # Errors
    /// Those of the device.
    pub async fn close_opened(&self, ino: Ino, opened: Descriptor) -> Result<()> {
        let settled = self.core.settle_emptied(ino).await;
        let node = self.core.nodes.get(ino);
        if let Some(node) = node {
            node.emptied.set(false);
            node.losses.forget(opened);
        }
        self.core.losses.forget(opened);
        settled
    }
}

impl Core {
    /// Writes back the data that was written to a file since it was cut to nothing.
    async fn settle_emptied(&self, ino: Ino) -> Result<()> {
        let node = self.nodes.get(ino);
        let emptied = node.filter(|node| node.emptied.get() && node.is_dirty());
        match emptied.filter(|_| self.allocates_at_once() && !is(Bug::Ext4CloseLeavesData)) {
            Some(node) => self.write_back(&node, Times::Written).await,
            None => Ok(()),
        }
    }
}
