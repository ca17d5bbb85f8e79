//! A drive of a chain fails while clients use it, and the link leaves with what only it held.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{IoError, Nanos, Payload, Sector, to_usize};
use manylogs_gecko::{LinkError, Loss, OnLoss, export_limit};

use super::links::{Promised, links};
use super::model::LOST;
use super::watch::Incarnation;
use super::world::read_all;

/// How often a removal is asked for again.
const TRIES: u32 = 100;
/// Fewest links of a chain that goes on without one.
const LINKS_LEAST: usize = 3;

/// What happens in one incarnation: a drive fails for the rest of it.
pub(super) struct Bereavement {
    pub(super) of: Incarnation,
    pub(super) promised: Promised,
    /// Links that left.
    pub(super) lost: Rc<Cell<u64>>,
}

impl Bereavement {
    /// Lets it happen.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) async fn run(mut self) -> Result<(), String> {
        let before = read_all(&self.of.chain, &self.of.plan).await?;
        self.of.pause().await;
        let links = links(&self.of.chain, &self.of.given);
        // The others must bear the export, or the chain takes no more writes.
        let (drive, segment) = (self.of.plan.drives[0].capacity, self.of.plan.segment);
        if links.len() < LINKS_LEAST
            || self.of.plan.export > export_limit(links.len() - 1, drive, segment)
        {
            return Ok(());
        }
        let any = links[to_usize(self.of.rng.below(links.len() as u64))].clone();
        // The chain does not go on without two links: one that leaves, and another.
        let is_leaving = |link: usize| {
            self.of.chain.links().iter().any(|state| state.link == link && state.leaving.is_some())
        };
        let leaving = links.into_iter().find(|(link, _)| is_leaving(*link));
        let (link, drives) = leaving.unwrap_or(any);
        for number in &drives {
            self.of.drives.drive(*number).fail_requests(Box::new(|_| Some(IoError::Gone)));
        }
        self.of.pause().await;
        if self.of.rng.one_in(4) {
            // Nobody removes it in this incarnation, and it is back in the next.
            return Ok(());
        }
        self.promised.set(&drives, None);
        let mut removed = self.of.chain.remove_link(link, OnLoss::Accept).await;
        for _ in 0..TRIES {
            // A removal that an earlier opening began ends when it finds that the drive is gone.
            if removed != Err(LinkError::Busy) {
                break;
            }
            self.of.runtime.sleep(Nanos::from_millis(10)).await;
            removed = self.of.chain.remove_link(link, OnLoss::Accept).await;
        }
        match removed {
            Ok(loss) => {
                self.promised.set(&drives, Some(false));
                self.lost.set(self.lost.get() + 1);
                self.check(&before, &loss).await
            }
            // It needed nothing of the drive any more.
            Err(LinkError::NoSuchLink { .. }) => Ok(()),
            Err(LinkError::Closed) => Ok(()),
            // The others had no room at that moment.
            Err(_) if self.of.chain.read_only().is_some() => Ok(()),
            Err(error) => Err(format!("a lost link was not removed: {error}")),
        }
    }

    /// Nothing is lost but what the removal has named, and what was lost before.
    async fn check(&self, before: &Payload, loss: &Loss) -> Result<(), String> {
        let content = read_all(&self.of.chain, &self.of.plan).await?;
        for (at, (sector, before)) in (0..).zip(content.sectors().zip(before.sectors())) {
            let is_named = loss.ranges.iter().any(|range| range.range().contains(&at));
            let lost = Some(Sector::Tag(LOST));
            if sector == lost && before != lost && !is_named {
                return Err(format!("sector {at} is lost, and no removal has named it"));
            }
        }
        Ok(())
    }
}
