//! Compares the block layer with a small reference of `block/blk-flush.c` and of libata's rules for
//! deferring, with random commands, completions and times.

use std::collections::BTreeMap;

use manylogs_block::{Nanos, Rng, to_usize};
use proptest::prelude::*;

use super::*;

/// What the reference records about a request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: CommandKind,
    /// When the request began to wait for a flush: a flush at once, a write once its data is in the
    /// drive.
    waits_since: Option<u64>,
    answered: bool,
}

/// The flush that is due or in the drive.
#[derive(Clone, Debug)]
struct Flush {
    serves: Vec<u64>,
    issued: bool,
}

/// A drive that completes in any order, the layer, and what the reference expects of both.
struct World {
    layer: BlockLayer,
    link: Link,
    write_cache: bool,
    now: u64,
    asked: BTreeMap<u64, Asked>,
    in_flight: Vec<Command>,
    flush: Option<Flush>,
    answers: Vec<Completion>,
    /// Flushes issued.
    flushes: usize,
}

const DEPTH: usize = 6;

impl World {
    fn new(link: Link, write_cache: bool) -> Self {
        Self {
            layer: BlockLayer::new(link, write_cache, DEPTH),
            link,
            write_cache,
            now: 0,
            asked: BTreeMap::new(),
            in_flight: Vec::new(),
            flush: None,
            answers: Vec::new(),
            flushes: 0,
        }
    }

    const fn is_two_steps(&self, kind: CommandKind) -> bool {
        matches!(kind, CommandKind::Write { fua: true }) && self.write_cache && !self.link.fua
    }

    fn submit(&mut self, kind: CommandKind, start: u64) -> Outcome {
        let tag = self.asked.len() as u64;
        let waits_since = (kind == CommandKind::Flush && self.write_cache).then_some(self.now);
        self.asked.insert(tag, Asked { kind, waits_since, answered: false });
        self.layer.submit(Time(self.now), command(tag, kind, start), false);
        if kind == CommandKind::Flush {
            self.begin_flush();
        }
        if kind == CommandKind::Flush && !self.write_cache {
            self.answers.extend(self.layer.take_answered());
            return self.check_answers(&[tag]);
        }
        Ok(())
    }

    /// The reference: decides whether a flush becomes due, and which requests it serves.
    fn begin_flush(&mut self) {
        let waiting = |asked: &Asked| asked.waits_since.is_some() && !asked.answered;
        let serves: Vec<u64> =
            self.asked.iter().filter(|(_, asked)| waiting(asked)).map(|(tag, _)| *tag).collect();
        let data = self.asked.values().filter(|asked| {
            self.is_two_steps(asked.kind) && asked.waits_since.is_none() && !asked.answered
        });
        let oldest = serves.iter().filter_map(|tag| self.asked[tag].waits_since).min();
        let patient = Nanos::from_secs(5).0;
        let defers = data.count() > 0 && oldest.is_some_and(|since| self.now - since < patient);
        if self.flush.is_none() && !serves.is_empty() && !defers {
            self.flush = Some(Flush { serves, issued: false });
        }
    }

    /// Lets the layer issue one command; returns whether there was one.
    fn issue(&mut self) -> Result<bool, String> {
        let full = self.in_flight.len() == DEPTH;
        let Some(Issued { command, .. }) = self.layer.issue(Time(self.now)) else {
            return self.check_idle(full).map(|()| false);
        };
        if full {
            return Err("issued to a full drive".to_owned());
        }
        let sata = self.link.kind == LinkKind::Sata;
        let due = self.flush.as_mut();
        if command.kind == CommandKind::Flush {
            let Some(flush) = due.filter(|flush| !flush.issued) else {
                return Err("a flush that nobody waits for, or a second one".to_owned());
            };
            flush.issued = true;
            self.flushes += 1;
            if sata && !self.in_flight.is_empty() {
                return Err("a flush goes beside other commands".to_owned());
            }
        } else if let Some(flush) = due
            && (!flush.issued || sata)
        {
            return Err(format!("{command:?} passes a flush"));
        }
        if !self.write_cache && command.kind == FUA {
            return Err("forced unit access without a cache".to_owned());
        }
        if self.is_two_steps(command.kind) {
            return Err("forced unit access of which the host was not told".to_owned());
        }
        self.in_flight.push(command);
        Ok(true)
    }

    /// The layer issued nothing: checks that there is a reason.
    fn check_idle(&self, full: bool) -> Outcome {
        let held = self.link.kind == LinkKind::Sata && self.flush.is_some();
        let waits = self.asked.values().filter(|a| !a.answered && a.waits_since.is_none()).count();
        let flying = self.in_flight.iter().filter(|c| c.kind != CommandKind::Flush).count();
        let due = self.flush.as_ref().is_some_and(|flush| !flush.issued);
        let reason = full || (held && !self.in_flight.is_empty()) || (waits == flying && !due);
        if reason { Ok(()) } else { Err("something could have been issued".to_owned()) }
    }

    /// The drive completes one of its commands.
    fn complete(&mut self, rng: &mut Rng) -> Outcome {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let at = Time(self.now);
        let done = self.in_flight.swap_remove(to_usize(rng.below(self.in_flight.len() as u64)));
        let before = self.answers.len();
        let completion = Completion::of(done.tag, at);
        let mut answers = std::mem::take(&mut self.answers);
        self.layer.completed(completion, &mut answers);
        self.answers = answers;
        let served = match done.kind {
            CommandKind::Flush => self.flush.take().map_or_else(Vec::new, |flush| flush.serves),
            _ => self.data_ended(done.extent.start.0),
        };
        debug_assert!(before <= self.answers.len());
        self.check_answers(&served)?;
        if done.kind == CommandKind::Flush {
            self.begin_flush();
        }
        Ok(())
    }

    /// Records that data starting at `start` is in the drive; starts are unique. Returns the
    /// requests that this answers.
    fn data_ended(&mut self, start: u64) -> Vec<u64> {
        let tag = start / STEP;
        let two_steps = self.is_two_steps(self.asked[&tag].kind);
        if !two_steps {
            return vec![tag];
        }
        self.asked.entry(tag).and_modify(|asked| asked.waits_since = Some(self.now));
        self.begin_flush();
        Vec::new()
    }

    /// Checks that the layer has answered exactly these requests.
    fn check_answers(&mut self, expected: &[u64]) -> Outcome {
        let mut found = tags(&self.answers);
        self.answers.clear();
        found.sort_unstable();
        if found != expected {
            return Err(format!("answered {found:?} in the place of {expected:?}"));
        }
        for tag in expected {
            let twice = self.asked.insert(*tag, Asked { answered: true, ..self.asked[tag] });
            if twice.is_some_and(|asked| asked.answered) {
                return Err(format!("{tag} was answered twice"));
            }
        }
        Ok(())
    }
}

/// Requests lie apart, so that none are merged.
const STEP: u64 = 64;

/// Takes many random steps, then lets all requests end. Returns the number of flushes.
fn history(seed: u64, link: Link, write_cache: bool) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let mut world = World::new(link, write_cache);
    let fua_one_in = 1 + rng.below(6);
    for _ in 0..400 {
        world.now += rng.below(1_000);
        match rng.below(9) {
            0..=2 => {
                let start = world.asked.len() as u64 * STEP;
                let kind = match rng.below(4) {
                    0 => CommandKind::Flush,
                    1 => CommandKind::Read,
                    _ => CommandKind::Write { fua: rng.one_in(fua_one_in) },
                };
                world.submit(kind, start)?;
            }
            3..=5 => drop(world.issue()?),
            // Now and then time jumps, so that a flush may have waited for too long.
            6 if rng.one_in(40) => world.now += Nanos::from_secs(3).0,
            _ => world.complete(&mut rng)?,
        }
    }
    for _ in 0..10_000 {
        while world.issue()? {}
        if world.in_flight.is_empty() {
            break;
        }
        world.complete(&mut rng)?;
    }
    let left = world.asked.values().filter(|asked| !asked.answered).count();
    if left == 0 { Ok(world.flushes) } else { Err(format!("{left} were never answered")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_layer_does_as_the_kernel_in_any_order(
        seed in any::<u64>(), sas in any::<bool>(), fua in any::<bool>(), cache in any::<bool>()
    ) {
        let kind = if sas { LinkKind::Sas } else { LinkKind::Sata };
        let flushes = history(seed, Link { kind, fua }, cache);
        prop_assert!(flushes.is_ok(), "{:?}", flushes);
        prop_assert_eq!(flushes == Ok(0), !cache);
    }
}

#[test]
fn histories_notice_each_planted_bug() {
    for bug in [Bug::FlushOvertakes, Bug::FlushNotShared, Bug::FuaWithoutFlush] {
        let noticed = (0..20).filter(|seed| with(bug, || history(*seed, SATA, true)).is_err());
        assert!(noticed.count() > 15, "{bug:?}");
    }
}

/// [`BlockLayer::pass`] does the same as `submit` and `issue` together.
#[test]
fn passing_at_once_is_the_same_as_waiting_and_going() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut layers = [BlockLayer::new(SATA, true, 4), BlockLayer::new(SATA, true, 4)];
        let mut flying: Vec<u64> = Vec::new();
        for tag in 0..400 {
            let now = Time(tag * 1000);
            let kind = [CommandKind::Read, WRITE, FUA, CommandKind::Flush][to_usize(rng.below(4))];
            let asked = command(tag, kind, rng.below(1000) * 8);
            let passed = layers[0].pass(asked, false);
            if passed.is_none() {
                layers[0].submit(now, asked, false);
            }
            layers[1].submit(now, asked, false);
            let first = layers[1].issue(now);
            let own = passed.or_else(|| layers[0].issue(now));
            assert_eq!(own, first, "seed {seed}");
            flying.extend(own.map(|issued| issued.command.tag));
            while let Some(issued) = layers[0].issue(now) {
                assert_eq!(Some(issued), layers[1].issue(now), "seed {seed}");
                flying.push(issued.command.tag);
            }
            assert_eq!(layers[1].issue(now), None);
            if !flying.is_empty() && rng.below(3) > 0 {
                let tag = flying.swap_remove(to_usize(rng.below(flying.len() as u64)));
                let mut answers = [Vec::new(), Vec::new()];
                for (layer, answers) in layers.iter_mut().zip(&mut answers) {
                    layer.completed(Completion { at: now, ..Completion::of(tag, now) }, answers);
                }
                assert_eq!(answers[0], answers[1], "seed {seed}");
            }
        }
    }
}
