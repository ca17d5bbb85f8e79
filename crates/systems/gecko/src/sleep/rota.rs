//! Decides which half sleeps, and when one is started.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{Nanos, Time};
use manylogs_plant::{self as plant, Bug};

use super::budget::Budget;
use super::{SleepSettings, Sleeper, WakeCause};
use crate::keeper::Drive;
use crate::state::{Inner, State};

/// How often in the time of a start the tail is looked at.
const LOOKS: u64 = 8;
/// The time between looks if nothing is known of that time.
const LEAST: Nanos = Nanos::from_millis(10);
/// A half is started when the tail will be there within so many times of a start: once for the
/// start, once for epochs to begin there, and once because the tail may get faster.
const STARTS_AHEAD: f64 = 3.0;
/// Of the mean rate at the tail, the share that the last look has.
const NEWEST: f64 = 0.1;

/// What is known about the tail and the drives from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Rota {
    budgets: RefCell<BTreeMap<usize, Budget>>,
    /// The chain is being closed: nobody goes to sleep any more.
    is_over: Cell<bool>,
    /// Sectors in records since the chain was opened, at the last look.
    appended: Cell<u64>,
    /// The most of two rates at the tail, in sectors a second: of the last look, and the mean.
    rate: Cell<f64>,
    mean: Cell<f64>,
}

impl Rota {
    /// Starts that are left to the drive of `a_day`.
    pub(super) fn left(&self, sleeper: &Sleeper, a_day: u32, now: Time) -> u64 {
        let mut budgets = self.budgets.borrow_mut();
        let budget = budgets.entry(sleeper.given()).or_default();
        budget.note(sleeper.times().starts, now);
        budget.left(a_day)
    }

    /// From now on nobody goes to sleep.
    pub(super) fn end(&self) {
        self.is_over.set(true);
    }

    /// Notes how much was appended in `span`. Whether that was nothing.
    fn look(&self, appended: u64, span: Nanos) -> bool {
        let since = appended.saturating_sub(self.appended.replace(appended));
        let last = since as f64 / span.as_secs_f64().max(1e-9);
        self.mean.set(self.mean.get() * (1.0 - NEWEST) + last * NEWEST);
        self.rate.set(last.max(self.mean.get()));
        since == 0
    }
}

impl Inner {
    /// Lets halves sleep and starts them, as long as the chain is open.
    pub(crate) async fn run_rota(self: Rc<Self>, settings: SleepSettings) {
        let every = match settings.spin_up {
            unknown if unknown < Nanos::from_millis(1) => LEAST,
            spin_up => Nanos(spin_up.0 / LOOKS),
        };
        while !self.engine.is_closed() {
            let progress = self.engine.progress.wait();
            self.engine.runtime.sleep(every).await;
            let appended = self.engine.state.borrow().store.counters().record_sectors;
            let is_still = self.rota.look(appended, every);
            if !self.look_at_links(settings) && is_still {
                // Nothing happens, and nobody is about to go to sleep.
                progress.await;
            }
        }
    }

    /// Starts halves and sends them to bed. Whether somebody may go to bed soon.
    fn look_at_links(self: &Rc<Self>, settings: SleepSettings) -> bool {
        let mut soon = false;
        let (tail, next) = {
            let state = self.engine.state.borrow();
            (usize::from(state.tail_drive().0), self.tail_comes_to(&state, settings))
        };
        for link in self.keeper.roster().in_use() {
            let halves = self.keeper.current(link);
            let asleep = halves.iter().find(|drive| drive.is_asleep());
            let needs_both = link == tail || next == Some(link);
            if needs_both {
                self.stay_up(&halves);
            }
            match asleep.and_then(|drive| drive.sleeper.clone()) {
                Some(sleeper) if needs_both => self.start(sleeper, WakeCause::Tail),
                Some(sleeper) if !self.may_rest(link, &halves) => {
                    self.start(sleeper, WakeCause::Twin);
                }
                Some(sleeper) => self.look_at(sleeper, settings),
                None if !needs_both && !self.rota.is_over.get() && self.may_rest(link, &halves) => {
                    soon |= self.send_to_bed(&halves, settings);
                }
                None => {}
            }
        }
        soon
    }

    /// Whether a half of the link can be spared: both are there, neither failed, and no drive joins
    /// the chain.
    fn may_rest(&self, link: usize, halves: &[Drive]) -> bool {
        let roster = self.keeper.roster();
        // The progress of a copy is noted in all labels, which would wake all that sleep.
        let joins = roster.joining.is_some();
        let leaves = roster.leaving.map(usize::from) == Some(link);
        let failed = |drive: &Drive| drive.sleeper.as_ref().is_some_and(Sleeper::has_failed);
        halves.len() == 2 && !joins && !leaves && !halves.iter().any(failed)
    }

    /// Asks a half that should stand, now and then, whether it does.
    fn look_at(self: &Rc<Self>, sleeper: Sleeper, settings: SleepSettings) {
        if sleeper.asked_since(settings.rest) {
            return;
        }
        self.engine.runtime.spawn(async move { sleeper.ask().await });
    }

    fn start(self: &Rc<Self>, sleeper: Sleeper, cause: WakeCause) {
        let chain = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            sleeper.wake(cause).await;
            // Epochs begin there that waited, before the tail comes.
            chain.looked.set(None);
            chain.engine.notify_progress();
        });
    }

    /// Chooses the half that shall sleep: of those that have a start left, the one that was started
    /// less often. Reads go to its twin from now on, and when it has rested for long enough it goes
    /// to sleep. Whether there is one.
    fn send_to_bed(self: &Rc<Self>, halves: &[Drive], settings: SleepSettings) -> bool {
        let now = self.engine.runtime.now();
        let able = |drive: &Drive| {
            let sleeper = drive.sleeper.clone().filter(|it| !it.is_refused())?;
            let left = self.rota.left(&sleeper, settings.wakes_a_day, now);
            let left = if plant::is(Bug::WakeBudgetIgnored) { 1 } else { left };
            (left > 0).then_some((left, sleeper))
        };
        let best = halves.iter().filter_map(able).max_by_key(|(left, _)| *left);
        let Some((_, sleeper)) = best else { return false };
        self.stay_up(halves);
        sleeper.set_drowsy(true);
        let rest = Nanos(settings.rest.0.saturating_mul(sleeper.rests_before_sleep()));
        if sleeper.idle_since().is_some_and(|since| now.since(since) >= rest) {
            let chain = Rc::clone(self);
            self.engine.runtime.spawn(async move {
                if chain.let_sleep().await {
                    sleeper.sleep().await;
                }
            });
        }
        true
    }

    /// No half of the link shall sleep.
    fn stay_up(&self, halves: &[Drive]) {
        let sleepers = halves.iter().filter_map(|drive| drive.sleeper.as_ref());
        sleepers.for_each(|sleeper| sleeper.set_drowsy(false));
    }

    /// The link that the tail comes to within the time of some starts, if it leaves its own then.
    fn tail_comes_to(&self, state: &State, settings: SleepSettings) -> Option<usize> {
        let logs = state.store.logs();
        let tail = usize::from(state.tail_drive().0);
        let blank = self.blanks_on(state, state.tail_drive()).count() as u64;
        let at_tail = logs.get(state.tail).map_or(self.geometry.segment.0, |log| log.free().0);
        let left = blank * self.geometry.segment.0 + at_tail;
        let longest = self.sleepers().map(|it| it.longest_start()).max().unwrap_or_default();
        let start = settings.spin_up.max(longest).as_secs_f64();
        if left as f64 > self.rota.rate.get() * start * STARTS_AHEAD {
            return None;
        }
        let blanks = |link: &usize| {
            let device = manylogs_logstore::store::Device(manylogs_block::narrow(*link as u64));
            self.blanks_on(state, device).count()
        };
        let mut others = self.links_from(state, tail + 1).filter(|link| *link != tail);
        match !self.is_in_order(state) {
            true => others.min_by_key(|link| Reverse(blanks(link))),
            false => others.find(|link| blanks(link) > 0),
        }
    }
}
