//! What the histories of all systems share: the crash states that one has seen and judged, and the
//! run of its world from event to event.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use manylogs::Phase;
use manylogs_block::Rng;
use manylogs_sim::Sim;

use crate::report::Report;

/// The crash states of a history. Each is counted once, and judged once at each moment `M` of the
/// models that it is compared with; `V` is a verdict.
#[derive(Debug)]
pub(crate) struct States<M, V = ()> {
    seen: HashSet<u64>,
    /// Verdicts by the fingerprint of the images and the moment.
    verdicts: HashMap<(u64, M), V>,
}

impl<M, V> Default for States<M, V> {
    fn default() -> Self {
        Self { seen: HashSet::new(), verdicts: HashMap::new() }
    }
}

impl<M: Eq + Hash, V: Clone> States<M, V> {
    /// Adds the state that a crash in `phase` left to the report. True if the history meets it for
    /// the first time.
    pub(crate) fn meet(&mut self, fingerprint: u64, phase: Phase, report: &mut Report) -> bool {
        let state = Rng::new(fingerprint ^ phase as u64).next_u64();
        let new = self.seen.insert(state);
        if new {
            report.states.push((state, phase));
        }
        new
    }

    /// The verdict on images at a moment, if they were judged then.
    pub(crate) fn verdict(&self, fingerprint: u64, moment: M) -> Option<V> {
        self.verdicts.get(&(fingerprint, moment)).cloned()
    }

    /// Keeps a verdict. False if there was one already.
    pub(crate) fn judged(&mut self, fingerprint: u64, moment: M, verdict: V) -> bool {
        self.verdicts.insert((fingerprint, moment), verdict).is_none()
    }
}

/// A world that a history runs.
pub(crate) trait World {
    /// Looks at the world after each step of one of its tasks.
    fn step(&mut self, _sim: &Sim) {}

    /// Number of events of its devices so far. The count only grows.
    fn events(&self) -> u64;

    /// Its devices have done something. Whether the history forks here.
    fn is_due(&mut self) -> bool;

    /// Crashes a copy of the world, and judges it.
    ///
    /// # Errors
    /// The promise that was broken.
    fn fork(&mut self) -> Result<(), String>;

    /// Whether all of its clients have ended.
    fn has_ended(&self) -> bool;

    /// Its clients have ended: called once.
    fn ended(&mut self) {}

    /// Whether somebody found a broken promise.
    fn has_problem(&self) -> bool;

    /// Whether it counts as hanging after so many steps.
    fn hangs(&self, sim: &Sim, steps: u64) -> bool;
}

/// When a run is over although nothing is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Until {
    /// So many events after the last client has ended.
    pub(crate) linger: u64,
    /// At this event, whether clients have ended or not.
    pub(crate) cut: Option<u64>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// Number of steps of tasks.
    pub(crate) steps: u64,
    /// Whether its clients ended, or it came to the event at which it was to be cut.
    pub(crate) is_over: bool,
}

/// Runs a world until it is over, something is wrong, or it hangs.
///
/// # Errors
/// What [`World::fork`] says, and at which event.
pub(crate) fn run(sim: &Sim, world: &mut impl World, until: Until) -> Result<Ran, String> {
    let (mut seen, mut steps) = (world.events(), 0);
    let (mut last, mut wrong) = (None, Ok(()));
    sim.run_until(|| {
        steps += 1;
        world.step(sim);
        let events = world.events();
        if events != seen {
            seen = events;
            if world.is_due() {
                wrong = world.fork().map_err(|problem| format!("event {events}: {problem}"));
            }
        }
        if last.is_none() && world.has_ended() {
            last = Some(events + until.linger);
            world.ended();
        }
        let is_over = last.or(until.cut).is_some_and(|last| events >= last);
        is_over || wrong.is_err() || world.has_problem() || world.hangs(sim, steps)
    });
    wrong?;
    let is_over = last.is_some() || until.cut.is_some_and(|cut| seen >= cut);
    Ok(Ran { steps, is_over })
}
