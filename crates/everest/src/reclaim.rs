//! Reclaiming (the Everest paper, section 3.2.3): the oldest ranges go home, and are deleted from
//! the store when they are durable there.

use std::rc::Rc;

use manylogs_block::{Hint, Request, all_done};
use manylogs_plant::{self as plant, Bug};

use crate::lender::LenderError;
use crate::offload::Client;
use crate::versions::Range;

/// Ranges that go home together.
const TOGETHER: usize = 16;

impl Client {
    /// Reclaims in the background until the client is closed or the base volume fails.
    pub(crate) async fn run_reclaim(self: Rc<Self>) {
        while !self.closed.get() {
            let progress = self.store.progress().wait();
            if self.starved.get() == 0 && !self.store.is_crowded() {
                self.runtime.sleep(self.options.reclaim_every).await;
            }
            match self.reclaim_some().await {
                Ok(true) => {}
                // Until there is something to reclaim, or the store is there again. Nothing is lost
                // meanwhile: the store still has what it had.
                Ok(false) | Err(LenderError::Unreachable) => progress.await,
                Err(LenderError::Failed(error)) => {
                    self.failed.replace(Some(error));
                    self.store.progress().notify();
                    return;
                }
            }
        }
    }

    /// Brings the oldest ranges home; false if there is none.
    pub(crate) async fn reclaim_some(&self) -> Result<bool, LenderError> {
        let mut turn = Some(self.reclaiming.take().await);
        if plant::is(Bug::ReclaimsOverlap) {
            turn = None;
        }
        let ranges = self.store.oldest(self.options.base, TOGETHER).await?;
        if ranges.is_empty() {
            return Ok(false);
        }
        // A version that a client writes meanwhile goes to the store. The one at home is older
        // then, and the deletion leaves the newer one in the store.
        for range in &ranges {
            // One after the other: writes of ranges that share a physical sector must keep their
            // order.
            let (extent, payload) = self.read_whole(range.extent).await?;
            let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
            all_done([self.base.submit(write)]).await?;
        }
        if !plant::is(Bug::DeleteBeforeBaseDurable) {
            self.base.submit(Request::Flush).await?;
        }
        for Range { extent, version } in ranges {
            self.store.delete(self.options.base, extent, version).await?;
        }
        drop(turn);
        Ok(true)
    }
}
