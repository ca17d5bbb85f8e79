//! Bringing content of the log home although a copy there is damaged: its content may be in memory.

use bytes::Bytes;
use manylogs_block::{IoError, IoResult};

use super::sink::CommitSink;
use super::{Journal, Step};
use crate::metadata::Metadata;
use crate::units::BlockNo;

impl Journal {
    /// The content of a block before the transactions that are not durable, if one of them changes
    /// it; `None` in it if that is not known.
    fn before_changes(&self, block: BlockNo) -> Option<Option<Bytes>> {
        let state = self.state.borrow();
        let committing = state.committing.as_ref();
        let logged = committing.and_then(|closed| closed.blocks.get(&block));
        let changed = || state.running.blocks.get(&block).map(|changed| changed.before.clone());
        logged.map(|logged| logged.before.clone()).or_else(changed)
    }
}

impl Metadata {
    /// Takes a step that reads the log. If it meets a damaged copy whose content is in memory, that
    /// takes its place, and the step is taken again.
    ///
    /// # Errors
    /// Those of the step: [`IoError::Checksum`] if the content is not in memory.
    pub(crate) async fn healing<'s>(
        &'s self,
        step: impl Fn(&'s dyn CommitSink) -> Step<'s>,
    ) -> IoResult<()> {
        let sink = &*self.journal.sink;
        loop {
            let extent = match step(sink).await {
                Err(IoError::Checksum { extent }) => extent,
                done => return done,
            };
            // Nobody has changed a block and not finished that.
            let _tree = self.journal.tree.read().await;
            let committed = |block: BlockNo| match self.journal.before_changes(block) {
                Some(before) => before,
                None => self.cache.get(block).map(|buffer| buffer.bytes()),
            };
            if !sink.heal(extent, &committed) {
                return Err(IoError::Checksum { extent });
            }
        }
    }
}
