//! Compares the model's block layer with the kernel's, recorded in a guest with an AHCI disk (`make
//! guest-link`): with the same arrivals and completions both issue in the same order.
//!
//! `data/link-N.txt` are the beginnings of recordings with reads at depth N beside writes with
//! forced unit access and flushes, on one processor. `tests/guest/link/events.awk` describes the
//! form. `MANYLOGS_LINK_TRACES` names a directory with other recordings.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use manylogs_block::{Extent, Time};
use manylogs_disk::{BlockLayer, Command, CommandKind, Completion, Link, LinkKind};

/// Number of commands that an AHCI disk takes.
const DEPTH: usize = 32;

/// A command as a trace shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Read(u64),
    Write(u64),
    Flush,
}

impl Seen {
    fn of(command: &Command) -> Self {
        match command.kind {
            CommandKind::Read => Self::Read(command.extent.start.0),
            CommandKind::Write { .. } => Self::Write(command.extent.start.0),
            CommandKind::Flush => Self::Flush,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives(CommandKind, Extent),
    Issued(Seen),
    Completed(Seen),
    Ended,
}

fn parse(text: &str) -> Vec<(Time, Event)> {
    let events = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let (at, sector) = (Time(number(0) * 1000), number(3));
        let kind = match words[2] {
            "R" => CommandKind::Read,
            "U" => CommandKind::Write { fua: true },
            "F" => CommandKind::Flush,
            _ => CommandKind::Write { fua: false },
        };
        let seen = match kind {
            CommandKind::Read => Seen::Read(sector),
            CommandKind::Write { .. } => Seen::Write(sector),
            CommandKind::Flush => Seen::Flush,
        };
        let event = match words[1] {
            "a" => Event::Arrives(kind, Extent::new(sector, number(4))),
            "i" => Event::Issued(seen),
            "c" => Event::Completed(seen),
            "e" => Event::Ended,
            other => panic!("{other:?} in {line:?}"),
        };
        (at, event)
    });
    events.collect()
}

/// The model, driven by the kernel's arrivals and completions. A flush is put in line when the
/// kernel's worker has done so, which is when the driver first gets it.
struct Beside {
    layer: BlockLayer,
    tags: u64,
    /// Commands that the model has issued and the kernel has not completed, with their tags.
    flying: Vec<(Seen, u64)>,
    /// Number of commands that the kernel has issued and the model has not.
    owed: usize,
    /// Commands that the kernel has completed before the model issued them.
    early: Vec<Seen>,
    /// Number of commands that the kernel has in its drive.
    in_drive: usize,
    /// Whether the driver holds a flush until its drive is empty.
    holds_flush: bool,
    answers: Vec<Completion>,
    kernel: Vec<Seen>,
    model: Vec<Seen>,
    found: Found,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    issued: usize,
    flushes: usize,
    /// Number of commands that have to be moved to make the orders equal.
    moved: usize,
    /// Number of flushes that the kernel issues and that are not due in the model.
    not_due: usize,
    /// Number of commands that went while a flush was due but not yet put in line by the worker.
    before_worker: usize,
    /// Number of requests that ended with a flush, in the kernel and in the model.
    ended: usize,
    answered: usize,
}

impl Beside {
    fn new() -> Self {
        Self {
            layer: BlockLayer::new(Link::usual(LinkKind::Sata), true, DEPTH).lagging(),
            tags: 0,
            flying: Vec::new(),
            owed: 0,
            early: Vec::new(),
            in_drive: 0,
            holds_flush: false,
            answers: Vec::new(),
            kernel: Vec::new(),
            model: Vec::new(),
            found: Found::default(),
        }
    }

    fn run(mut self, events: &[(Time, Event)]) -> Found {
        for &(at, event) in events {
            match event {
                Event::Arrives(kind, extent) => {
                    self.layer.submit(at, Command { tag: self.tags, kind, extent }, false);
                    self.tags += 1;
                }
                Event::Issued(Seen::Flush) => {
                    self.found.not_due += usize::from(!self.layer.flush_in_line(at));
                    self.holds_flush = true;
                }
                Event::Issued(seen) => {
                    let due = self.layer.clone().flush_in_line(at);
                    self.found.before_worker += usize::from(due);
                    self.issue(at, seen);
                }
                Event::Completed(seen) => {
                    self.in_drive -= 1;
                    self.complete(at, seen);
                }
                Event::Ended => self.found.ended += 1,
            }
            if self.in_drive == 0 && std::mem::take(&mut self.holds_flush) {
                self.issue(at, Seen::Flush);
            }
        }
        self.found.issued = self.kernel.len();
        self.found.flushes = self.kernel.iter().filter(|seen| **seen == Seen::Flush).count();
        self.found.moved = self.kernel.len() - in_order(&self.kernel, &self.model);
        self.found
    }

    /// The kernel issues `seen`; the model issues a command of its own choice.
    fn issue(&mut self, at: Time, seen: Seen) {
        self.in_drive += 1;
        self.owed += 1;
        self.kernel.push(seen);
        self.catch_up(at);
    }

    /// Lets the model issue as many commands as the kernel has.
    fn catch_up(&mut self, at: Time) {
        while self.owed > 0 {
            let Some(issued) = self.layer.issue(at) else { return };
            self.owed -= 1;
            let seen = Seen::of(&issued.command);
            self.model.push(seen);
            self.flying.push((seen, issued.command.tag));
            if let Some(early) = self.early.iter().position(|early| *early == seen) {
                self.early.swap_remove(early);
                self.complete(at, seen);
            }
        }
    }

    fn complete(&mut self, at: Time, seen: Seen) {
        let Some(index) = self.flying.iter().position(|(flying, _)| *flying == seen) else {
            return self.early.push(seen);
        };
        let (_, tag) = self.flying.swap_remove(index);
        let before = self.answers.len();
        self.layer.completed(Completion::of(tag, at), &mut self.answers);
        if seen == Seen::Flush {
            self.found.answered += self.answers.len() - before;
        }
    }
}

/// Number of commands of `kernel` that come in the same order in `model`: the longest rising
/// sequence of their places.
fn in_order(kernel: &[Seen], model: &[Seen]) -> usize {
    let mut places: BTreeMap<Seen, VecDeque<usize>> = BTreeMap::new();
    for (place, seen) in model.iter().enumerate() {
        places.entry(*seen).or_default().push_back(place);
    }
    let mut ends: Vec<usize> = Vec::new();
    for seen in kernel {
        let Some(place) = places.get_mut(seen).and_then(VecDeque::pop_front) else { continue };
        let length = ends.partition_point(|end| *end < place);
        match ends.get_mut(length) {
            Some(end) => *end = place,
            None => ends.push(place),
        }
    }
    ends.len()
}

fn traces() -> Vec<PathBuf> {
    let given = std::env::var_os("MANYLOGS_LINK_TRACES").map(PathBuf::from);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let directory = given.unwrap_or(own);
    ["link-1.txt", "link-4.txt", "link-32.txt"].map(|name| directory.join(name)).to_vec()
}

#[test]
fn the_model_issues_in_the_kernels_order() {
    for path in traces() {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = Beside::new().run(&parse(&text));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Found { issued, flushes, moved, not_due, before_worker, ended, answered } = found;
        println!(
            "{name}: {issued} issued, {flushes} of them flushes; {moved} in another order, \
             {not_due} flushes that are not due here; {before_worker} went before the worker had \
             put a flush in line; flushes ended {ended} requests there, {answered} here"
        );
        assert!(issued >= 400 && flushes >= 10, "{name} shows little");
        assert!((moved + not_due) * 100 <= issued, "{name}: {moved} of {issued}");
        assert!(ended.abs_diff(answered) * 100 <= ended, "{name}: {ended} {answered}");
    }
}
