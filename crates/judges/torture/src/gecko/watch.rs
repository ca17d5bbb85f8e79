//! What is seen of an incarnation while it runs, and counted when it has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng};
use manylogs_gecko::{Chain, Standing, WakeCause};

use super::plan::GeckoPlan;
use super::world::Drives;
use crate::tally::Tally;

/// An incarnation, for what happens to its drives and links while clients use the chain.
pub(super) struct Incarnation {
    pub(super) runtime: Handle,
    pub(super) plan: GeckoPlan,
    pub(super) drives: Drives,
    pub(super) chain: Chain,
    /// Numbers of the drives with which the chain was opened.
    pub(super) given: Vec<usize>,
    pub(super) rng: Rng,
}

impl Incarnation {
    /// Waits for 1 us to 0.13 s.
    pub(super) async fn pause(&mut self) {
        let pause = Nanos::from_micros(1 << self.rng.below(18));
        self.runtime.sleep(pause).await;
    }
}

/// Current halves of the chain.
pub(super) fn current(chain: &Chain) -> usize {
    let is_current = |standing| matches!(standing, Standing::Current(_));
    chain.halves().iter().filter(|half| is_current(half.standing)).count()
}

/// Progress of an incarnation.
#[derive(Clone, Default)]
pub(super) struct Watch {
    pub(super) problem: Rc<RefCell<Option<String>>>,
    /// Whether the chain exists: from then on it must be found.
    pub(super) born: Rc<Cell<bool>>,
    pub(super) ended: Rc<Cell<bool>>,
    pub(super) opened: Rc<RefCell<Option<Chain>>>,
    /// Halves that were replaced, and halves that failed.
    pub(super) replaced: Rc<Cell<u64>>,
    pub(super) failed: Rc<Cell<u64>>,
    /// Links that were added, and removed.
    pub(super) links: (Rc<Cell<u64>>, Rc<Cell<u64>>),
    /// Links that left with what only they held.
    pub(super) lost: Rc<Cell<u64>>,
    /// Whether the chain was closed in order.
    pub(super) closed: Rc<Cell<bool>>,
}

impl Watch {
    /// Lets something happen while clients use the chain. Its error is what was wrong.
    pub(super) fn start(
        &self,
        runtime: &Handle,
        happens: impl Future<Output = Result<(), String>> + 'static,
    ) {
        let problem = Rc::clone(&self.problem);
        runtime.spawn(async move {
            if let Err(told) = happens.await {
                problem.borrow_mut().get_or_insert(told);
            }
        });
    }

    /// Whether a half left its pair although no drive failed: a half that sleeps is sound.
    pub(super) fn look_for_lost_sleepers(&self, before: usize, plan: &GeckoPlan) {
        let chain = self.opened.borrow();
        let now = chain.as_ref().map_or(0, current);
        if plan.sleep.is_some() && self.failed.get() == 0 && now < before {
            let told = format!("{before} halves were current, and {now} are, but none failed");
            self.problem.borrow_mut().get_or_insert(told);
        }
    }

    /// Adds what the chain and its drives did to `tally`.
    pub(super) fn note(&self, tally: &mut Tally) {
        if let Some(chain) = &*self.opened.borrow() {
            let figures = chain.figures();
            tally.resets += figures.emptied;
            tally.starved += figures.waited;
            tally.swaps += figures.hops;
            tally.cache_hits += figures.tail_hits + figures.body_hits;
            let flash = chain.flash().unwrap_or_default();
            tally.flash_hits += flash.hits;
            tally.flash_faults += flash.faults;
            tally.replaced += self.replaced.get();
            let starts = chain.wakes();
            let at_opening = starts.iter().filter(|wake| wake.cause == WakeCause::Open).count();
            tally.wakes += starts.last().map_or(0, |wake| wake.number) - at_opening as u64;
            tally.halves_lost += self.failed.get();
            tally.links_added += self.links.0.get();
            tally.links_removed += self.links.1.get();
            tally.links_lost += self.lost.get();
            tally.summarized += figures.summarized;
            tally.scanned += figures.scanned;
        }
    }
}
