//! Opening a log that keeps its content, without a replay.

use std::rc::Rc;

use manylogs_block::BlockDevice;
use manylogs_plant::{Bug, is};

use super::copies::Copy;
use super::replay::Journalled;
use super::scan::{Contents, Found, Scan};
use super::{InLog, Jbd2Sink};
use crate::core::Mode;
use crate::error::Result;
use crate::memory::Memory;
use crate::ondisk::jbd2::Tid;
use crate::units::Run;

/// A sink that goes on in the log that `journal` describes, with the copies that are in it. `None`
/// if the log must be replayed instead: a transaction may hold content of files, for which reads
/// would not look there, or the log has another format than ours (`format`: wide numbers,
/// checksums). Nothing is written.
///
/// Copies are found by the descriptors. They were durable before their commit block was written.
/// Only the copies of the newest transaction are compared with their checksums, because another
/// program may have written them together with the commit block.
///
/// # Errors
/// Those of the device, and [`crate::Error::Corrupt`] if a transaction that was durable is not
/// whole.
pub(crate) async fn open(
    device: &Rc<dyn BlockDevice>,
    journal: &Journalled,
    format: (bool, bool),
    blocks: u64,
    memory: &Memory,
) -> Result<Option<Jbd2Sink>> {
    let Journalled { place, superblock } = journal;
    if !superblock.is_of_format(format.0, format.1) {
        return Ok(None);
    }
    let Some((scan, start)) = Scan::of(device, place, superblock, blocks)? else {
        return Ok(None);
    };
    let sink =
        Jbd2Sink::new(Mode::Lazy, Rc::clone(device), place.clone(), superblock.clone(), memory);
    sink.state.borrow_mut().head = start;
    while let Some(found) = sink.next_in(&scan, Contents::Skipped).await? {
        if !found.is_metadata && !is(Bug::LazyOpensContent) {
            return Ok(None);
        }
        sink.append(found);
    }
    sink.compare_newest(&scan).await?;
    if is(Bug::LazyHeadForgotten) {
        sink.state.borrow_mut().head = place.first();
    }
    Ok(Some(sink))
}

impl Jbd2Sink {
    /// The transaction behind the ones found so far.
    async fn next_in(&self, scan: &Scan<'_>, contents: Contents) -> Result<Option<Found>> {
        let (tid, at, left) = {
            let state = self.state.borrow();
            (state.next, state.head, self.place.blocks() - state.used)
        };
        scan.transaction(tid, at, left, contents).await
    }

    /// Notes a whole transaction, which is newer than those before it.
    fn append(&self, found: Found) {
        let mut state = self.state.borrow_mut();
        let tid = state.next;
        let revoked = found.revoked.into_iter().filter(|_| !is(Bug::LazyOpensRevoked));
        revoked.for_each(|block| state.copies.free(Run { start: block, blocks: 1 }));
        for (tag, at) in found.copies {
            let copy = Copy { tid, at, escaped: tag.escaped, is_live: true };
            state.copies.insert(tag.home, copy, None);
        }
        let (start, blocks) = (state.head, found.blocks);
        state.transactions.push_back(InLog { tid, start, blocks });
        state.used += blocks;
        state.head = found.behind;
        state.durable = Some(tid);
        state.next = tid.next();
        state.count();
    }

    async fn compare_newest(&self, scan: &Scan<'_>) -> Result<()> {
        let newest = self.state.borrow().transactions.back().copied();
        if let Some(InLog { tid, start, blocks }) = newest {
            scan.transaction(tid, start, blocks, Contents::Compared).await?;
        }
        Ok(())
    }

    /// The number of the next transaction.
    pub(crate) fn next(&self) -> Tid {
        self.state.borrow().next
    }
}
