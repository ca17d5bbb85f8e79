//! Pages that cannot be written to the device: they are given up after some attempts, so that
//! nobody waits for them or for their memory.

use manylogs_plant::{Bug, is};

use super::writeback::Held;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::{Node, Page};
use crate::ops::Changed;

/// Attempts to write a page. The last is made with the page alone, so that only pages that really
/// cannot be written are lost.
const ATTEMPTS: u8 = 3;

/// Numbers of pages, each with the version that was to be written.
pub(super) type Versions = Vec<(u32, u64)>;

/// The pages of a batch, with their versions.
pub(super) fn versions(batch: &[Held]) -> Versions {
    batch.iter().map(|(number, _, version)| (*number, *version)).collect()
}

impl Page {
    /// Whether the next attempt is the last: then the page is written alone.
    pub(super) fn is_last_attempt(&self) -> bool {
        self.failures + 1 >= ATTEMPTS
    }
}

impl Core {
    /// Notes that pages could not be written. After the last attempt a page is dropped, unless it
    /// changed meanwhile, and the next sync of the file reports the loss. If the journal is
    /// aborted, nothing is noted.
    pub(super) fn note_failure(&self, node: &Node, tried: &Versions, error: &Error) {
        if matches!(error, Error::Aborted(_)) || is(Bug::Ext4RetriedForEver) {
            return;
        }
        let (mut lost, mut reserved) = (0, 0);
        {
            let mut pages = node.pages.borrow_mut();
            for (number, version) in tried {
                let page = pages.get_mut(number).filter(|page| page.version == *version);
                let Some(page) = page else { continue };
                page.failures += 1;
                if page.failures >= ATTEMPTS {
                    lost += 1;
                    reserved += u64::from(page.reserved);
                    pages.remove(number);
                }
            }
        }
        if lost > 0 {
            self.backlog.remove(lost);
            self.space.unreserve(reserved);
            self.note_loss(node, error);
        }
    }

    /// Passes `done` on, and notes a failure to write the pages.
    pub(super) fn noted(&self, node: &Node, tried: &Versions, done: Result<()>) -> Result<()> {
        done.inspect_err(|error| self.note_failure(node, tried, error))
    }

    /// Notes that the size of a file could not be written to its inode; see [`Core::note_failure`].
    pub(super) fn note_size_failure(&self, node: &Node, error: &Error) {
        if matches!(error, Error::Aborted(_)) {
            return;
        }
        node.size_failures.set(node.size_failures.get() + 1);
        if node.size_failures.get() >= ATTEMPTS && node.pages.borrow().is_empty() {
            node.size.set(None);
            node.size_is_new.set(false);
            node.written_at.set(None);
            node.size_failures.set(0);
            self.note_loss(node, error);
        }
    }

    /// Makes everything durable, except pages that cannot be written: these are lost after their
    /// last attempt.
    ///
    /// # Errors
    /// If the journal is aborted.
    pub(crate) async fn sync_what_can_be(&self) -> Result<()> {
        let mut synced = self.sync_all().await;
        for _ in 0..ATTEMPTS {
            if synced.is_ok() || !self.journal.is_sound() {
                break;
            }
            synced = self.sync_all().await;
        }
        synced
    }

    fn note_loss(&self, node: &Node, error: &Error) {
        let newest = self.descriptors.get();
        node.losses.note(error, newest);
        self.losses.note(error, newest);
        self.tell(node.ino, Changed::Content);
    }
}
