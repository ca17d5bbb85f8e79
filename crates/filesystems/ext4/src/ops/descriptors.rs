//! Files that are open: who hears of errors, and what a close sees to.

use manylogs_plant::{Bug, is};

use super::Ext4;
use crate::core::Core;
use crate::error::Result;
use crate::file::Times;
use crate::inode::Descriptor;
use crate::units::Ino;

impl Ext4 {
    /// An opening that hears of errors by itself.
    #[must_use]
    pub fn new_descriptor(&self) -> Descriptor {
        let descriptors = &self.core.descriptors;
        descriptors.set(descriptors.get() + 1);
        Descriptor(descriptors.get())
    }

    /// As [`Ext4::sync`], or [`Ext4::sync_content`] if that alone counts, and the opening hears of
    /// what was lost since it heard of anything last.
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

    /// As [`Ext4::sync_all`]; the opening hears of what was lost of any file.
    ///
    /// # Errors
    /// As [`Ext4::sync`].
    pub async fn sync_all_opened(&self, opened: Option<Descriptor>) -> Result<()> {
        self.core.sync_all().await?;
        self.core.losses.tell(opened)
    }

    /// A copy of a descriptor is closed; others of the same opening may go on. What was written
    /// since the file was cut to nothing is from now on durable no later than anything that is done
    /// after this, unless [`super::Durability::no_auto_alloc`].
    ///
    /// # Errors
    /// Those of the device, and what the opening has not heard of.
    pub async fn close_copy(&self, ino: Ino, opened: Option<Descriptor>) -> Result<()> {
        self.core.settle_emptied(ino).await?;
        let node = self.core.nodes.borrow().get(&ino).cloned();
        node.map_or(Ok(()), |node| node.losses.tell(opened))
    }

    /// The last copy is closed. As [`Ext4::close_copy`].
    ///
    /// # Errors
    /// Those of the device.
    pub async fn close_opened(&self, ino: Ino, opened: Descriptor) -> Result<()> {
        let settled = self.core.settle_emptied(ino).await;
        let node = self.core.nodes.borrow().get(&ino).cloned();
        if let Some(node) = node {
            node.emptied.set(false);
            node.losses.forget(opened);
        }
        self.core.losses.forget(opened);
        settled
    }
}

impl Core {
    /// Brings to the device, or into the running transaction, what was written to a file since it
    /// was cut to nothing.
    async fn settle_emptied(&self, ino: Ino) -> Result<()> {
        let node = self.nodes.borrow().get(&ino).cloned();
        let emptied = node.filter(|node| node.emptied.get() && node.is_dirty());
        match emptied.filter(|_| self.allocates_at_once() && !is(Bug::Ext4CloseLeavesData)) {
            Some(node) => self.write_back(&node, Times::Written).await,
            None => Ok(()),
        }
    }
}
