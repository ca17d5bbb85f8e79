//! Advice whose replays are done elsewhere, for instance by the workers of a fleet: it names the
//! replays that it needs.

use std::collections::HashMap;

use super::ask::{Ask, Halt, Known, Replays};
use super::brief::Brief;
use super::run::advised;
use super::{Advised, Asked};
use crate::load::Load;
use crate::replay::{NamedPolicy, ReplayError, find_rate_by};

/// Advice about a load of which this process needs only a summary.
///
/// It keeps no state: the next step follows from the known replays. So it can go on in any process,
/// after any crash, and comes to the result of [`advise`](super::advise): the same policy and
/// decision, with the same gain by means. It lacks the figures that need more than a [`Brief`]:
/// gains by quantiles, how full logs get, and what a shingled drive has to clean.
#[derive(Clone, Debug)]
pub struct Apart {
    load: Load,
    ours: Vec<NamedPolicy>,
}

/// The next step.
#[derive(Debug)]
pub enum Next {
    /// These replays are needed, as texts of [`Ask`]s. They are independent of one another. The
    /// policy is the one that the advice is likely to be about, by what is known.
    Wanted(Vec<String>, Option<String>),
    /// No more replays are needed: this is the advice.
    Done(Box<Advised>),
}

impl Apart {
    /// Advice about `load`, which must fit under each of `ours`.
    #[must_use]
    pub const fn new(load: Load, ours: Vec<NamedPolicy>) -> Self {
        Self { load, ours }
    }

    /// The next step, if these replays are `known`, by the texts of their [`Ask`]s. With `guesses`
    /// it also names replays that it will need if settings help together as they do alone: a long
    /// search then has a few steps instead of some twenty, and some useless replays.
    ///
    /// # Errors
    /// None is expected: replays fail where they are done.
    pub fn next(&self, known: &HashMap<String, Brief>, guesses: bool) -> Result<Next, ReplayError> {
        let mut replays = Known { known, wanted: Vec::new(), guesses, likely: None };
        match self.advised(&mut replays) {
            Ok(advised) => Ok(Next::Done(Box::new(advised))),
            Err(Halt::Failed(error)) => Err(error),
            Err(Halt::Interrupted | Halt::Wanted) => {
                Ok(Next::Wanted(replays.wanted, replays.likely))
            }
        }
    }

    fn advised(&self, replays: &mut Known<'_>) -> Result<Advised, Halt> {
        let mut plan = self.load.plan(&self.ours);
        let rate = self.load.rate_by(&mut plan, |plan, target| {
            find_rate_by(target, &mut |rate| {
                let ask = Ask { rate, ..Ask::of(plan, &NamedPolicy::nologging(), plan.seed) };
                let brief = replays.all(plan, &[ask])?.pop().unwrap_or_default();
                Ok::<_, Halt>(brief.probe().congested())
            })
        })?;
        let (device, command) = (String::new(), String::new());
        let asked = Asked { load: &self.load, plan, rate, device, command, threads: 1 };
        advised(asked, replays, |_| ())
    }
}
