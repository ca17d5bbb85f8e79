//! Links are added to a chain and removed from it while clients use it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::to_usize;
use manylogs_gecko::{Chain, LinkError, OnLoss, ReplaceFault};

use super::plan::GeckoPlan;
use super::watch::Incarnation;
use super::world::of_plan;

/// Links that are added or removed in an incarnation, at most.
const CHANGES_MOST: u64 = 4;
/// A drive that was added is known to its chain by its number and this.
const ADDED: usize = 1000;

/// Which drives a chain must have now, and which it must not have; `None` if either is right.
#[derive(Clone)]
pub(super) struct Promised(Rc<RefCell<Vec<Option<bool>>>>);

impl Promised {
    /// The promises of a new chain.
    pub(super) fn of_new(plan: &GeckoPlan) -> Self {
        let has = |number| Some(number < plan.members);
        Self(Rc::new(RefCell::new((0..plan.drives.len()).map(has).collect())))
    }

    pub(super) fn set(&self, drives: &[usize], has: Option<bool>) {
        drives.iter().for_each(|number| self.0.borrow_mut()[*number] = has);
    }

    /// What is promised of a drive.
    pub(super) fn of(&self, number: usize) -> Option<bool> {
        self.0.borrow().get(number).copied().flatten()
    }

    /// A drive that the chain must not have.
    pub(super) fn any_out(&self) -> Option<usize> {
        self.0.borrow().iter().position(|has| *has == Some(false))
    }

    /// Holds an open chain against the promises. `given` are the numbers of the drives with which
    /// it was opened.
    pub(super) fn check(&self, chain: &Chain, given: &[usize]) -> Result<(), String> {
        let all: Vec<usize> = links(chain, given).into_iter().flat_map(|(_, of)| of).collect();
        for (number, promised) in self.0.borrow().iter().enumerate() {
            match (promised, all.contains(&number)) {
                (Some(true), false) => return Err(format!("the chain has lost drive {number}")),
                (Some(false), true) => return Err(format!("drive {number} is back in the chain")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Promises what an open chain says.
    pub(super) fn go_on_with(&self, chain: &Chain, given: &[usize]) {
        self.0.borrow_mut().fill(Some(false));
        let leaving = chain.links().into_iter().find(|link| link.leaving.is_some());
        for (link, drives) in links(chain, given) {
            let leaves = leaving.as_ref().is_some_and(|leaving| leaving.link == link);
            self.set(&drives, if leaves { None } else { Some(true) });
        }
    }
}

/// The links of a chain, with the numbers of their drives.
pub(super) fn links(chain: &Chain, given: &[usize]) -> Vec<(usize, Vec<usize>)> {
    let number = |at: &usize| if *at >= ADDED { *at - ADDED } else { given[*at] };
    let links = chain.links().into_iter();
    links.map(|link| (link.link, link.given.iter().map(number).collect())).collect()
}

/// The links that come and go in one incarnation.
pub(super) struct Comings {
    pub(super) of: Incarnation,
    pub(super) promised: Promised,
    /// Links that were added, and removed.
    pub(super) counted: (Rc<Cell<u64>>, Rc<Cell<u64>>),
}

impl Comings {
    /// Lets them come and go.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) async fn run(mut self) -> Result<(), String> {
        for _ in 0..1 + self.of.rng.below(CHANGES_MOST) {
            self.of.pause().await;
            match self.of.rng.one_in(2) {
                true => self.add().await?,
                false => self.remove().await?,
            }
        }
        Ok(())
    }

    async fn add(&mut self) -> Result<(), String> {
        let halves = if self.of.plan.mirrored { 2 } else { 1 };
        let mut unused: Vec<usize> = (0..self.of.plan.drives.len())
            .filter(|n| self.promised.of(*n) == Some(false))
            .collect();
        if unused.len() < halves {
            return Ok(());
        }
        let mut new = Vec::new();
        for _ in 0..halves {
            new.push(unused.remove(to_usize(self.of.rng.below(unused.len() as u64))));
        }
        let devices =
            new.iter().map(|n| (of_plan(self.of.drives.drive(*n), &self.of.plan), ADDED + n));
        let devices = devices.collect();
        self.promised.set(&new, None);
        match self.of.chain.add_link(devices).await {
            Ok(_) => {
                self.promised.set(&new, Some(true));
                self.counted.0.set(self.counted.0.get() + 1);
                Ok(())
            }
            Err(error) => {
                // Nothing failed, so nothing was begun.
                self.promised.set(&new, Some(false));
                is_of_order(&error, "added")
            }
        }
    }

    async fn remove(&mut self) -> Result<(), String> {
        let links = links(&self.of.chain, &self.of.given);
        let (link, drives) = links[to_usize(self.of.rng.below(links.len() as u64))].clone();
        self.promised.set(&drives, None);
        match self.of.chain.remove_link(link, OnLoss::Stop).await {
            Ok(_) => {
                self.promised.set(&drives, Some(false));
                self.counted.1.set(self.counted.1.get() + 1);
                Ok(())
            }
            Err(error) => is_of_order(&error, "removed"),
        }
    }
}

/// An error if a link was not added, or not removed, though nothing failed.
fn is_of_order(error: &LinkError, done: &str) -> Result<(), String> {
    match error {
        LinkError::Closed => Ok(()),
        error if error.fault() != ReplaceFault::Failure => Ok(()),
        error => Err(format!("a link was not {done}: {error}")),
    }
}
