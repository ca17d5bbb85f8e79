//! Making files durable.

use std::rc::Rc;

use manylogs_block::Request;
use manylogs_plant::{Bug, is};

use crate::core::Core;
use crate::error::Result;
use crate::file::writeback::Times;
use crate::inode::{Descriptor, Node};
use crate::units::Ino;

impl Core {
    /// Makes all changes of an inode durable: its content, its size, its names.
    ///
    /// # Errors
    /// Those of the device. Data written before may be lost then: the pages are tried again some
    /// times, and then dropped.
    ///
    /// `to` is the descriptor that is told of losses; `None` stands for all callers without a
    /// descriptor.
    pub(crate) async fn sync_file(&self, ino: Ino, to: Option<Descriptor>) -> Result<()> {
        self.sync_node(&self.node(ino), to, Times::Written).await
    }

    /// As [`Core::sync_file`], except for times: an overwrite needs no transaction.
    ///
    /// # Errors
    /// As [`Core::sync_file`].
    pub(crate) async fn sync_content(&self, ino: Ino, to: Option<Descriptor>) -> Result<()> {
        self.sync_node(&self.node(ino), to, Times::Kept).await
    }

    async fn sync_node(&self, node: &Rc<Node>, to: Option<Descriptor>, times: Times) -> Result<()> {
        let written = self.write_back(node, times).await;
        let durable = match written {
            Ok(()) => self.make_durable(node).await,
            Err(error) => Err(error),
        };
        // Losses count as told even if another error is returned.
        let lost = node.losses.tell(to);
        durable.and(lost)
    }

    async fn make_durable(&self, node: &Node) -> Result<()> {
        self.syncs.set(self.syncs.get() + 1);
        // Writes that are answered during the flush are not covered by it.
        let written = node.written.get();
        let tid = node.tid.get().filter(|tid| !self.journal.is_durable(*tid));
        let first_only = is(Bug::DurableFirstRecordAnswers) && node.durable.get() == Some(true);
        let tid = if first_only { tid.and(Some(self.journal.next_durable())) } else { tid };
        // The flush of a transaction that still runs covers the data, which was written before. One
        // that is being committed may have flushed already.
        let covers = tid == Some(self.journal.running());
        if let Some(tid) = tid.filter(|_| !is(Bug::Ext4SyncNotAwaited)) {
            self.journal.commit(tid).await?;
        }
        if !covers && node.is_unflushed() && !is(Bug::Ext4ContentSyncUnflushed) {
            self.device.submit(Request::Flush).await?;
        }
        node.flushed.set(node.flushed.get().max(written));
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Core::sync_file`].
    pub(crate) async fn sync_all(&self) -> Result<()> {
        let written = self.write_back_all().await;
        let covers = self.journal.covers_data();
        self.journal.commit(self.journal.running()).await?;
        if !covers {
            self.device.submit(Request::Flush).await?;
        }
        self.forget_idle_nodes();
        written
    }
}
