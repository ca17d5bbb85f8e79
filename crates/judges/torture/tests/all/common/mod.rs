//! Planting bugs, and running histories until each is noticed.

#![allow(clippy::print_stdout, reason = "a test may tell what it found")]

use std::fmt::Debug;
use std::fs::{read_to_string, write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use manylogs_plant::{
    ARRAY, Bug, CHAIN_LINKS, CHAIN_LOSS, CHAIN_SUMMARIES, COPIES, DURABLE_BUDGET, DURABLE_FILES,
    DURABLE_HOMES, EVEREST, EXT4, FILLING, GECKO, HOLE, KEPT, LAZY, LENDERS, LENDERS_CASES, MLFS,
    NEAR, NEAR_LAZY, NEAR_TROUBLE, NVRAM, PAIRS, PARITY, RESYNC, SLEEP, TAIL_CACHE, VOLUME, plant,
};
use manylogs_torture::ext4::{Ext4Plan, Images, Templates, has_program};
use manylogs_torture::{Report, Violation, run_ext4};

/// The history that showed each bug last: it is tried first, so that a run is short. A change of
/// the code may change histories: then the search begins at the first, and says so.
const NOTICED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/noticed.txt");
/// `NOTICED=write` searches from the first history for each bug, and writes the file.
const WRITE: &str = "NOTICED";
/// Histories after which a bug of ext4 counts as missed.
const PATIENCE: u64 = 1000;

/// All bugs that the campaigns' tests plant in histories.
const SETS: &[&[Bug]] = &[
    ARRAY,
    CHAIN_LINKS,
    CHAIN_LOSS,
    CHAIN_SUMMARIES,
    COPIES,
    DURABLE_BUDGET,
    DURABLE_FILES,
    DURABLE_HOMES,
    EVEREST,
    EXT4,
    FILLING,
    GECKO,
    KEPT,
    LAZY,
    LENDERS,
    LENDERS_CASES,
    MLFS,
    NEAR,
    NEAR_LAZY,
    NEAR_TROUBLE,
    NVRAM,
    PAIRS,
    PARITY,
    RESYNC,
    SLEEP,
    TAIL_CACHE,
    HOLE,
    VOLUME,
];

/// Bugs, and how long to search for a history that shows each.
pub(crate) struct Hunt<'a> {
    /// Names the histories in the file of those that showed a bug last.
    pub(crate) histories: &'a str,
    pub(crate) bugs: &'a [Bug],
    /// Histories after which a bug counts as missed.
    pub(crate) patience: u64,
}

impl Hunt<'_> {
    /// Plants each bug, and runs histories until one does not hold; without the bug that one must
    /// hold. Each thread has what `state` makes. `PLANTED=Zeroes` tries the bugs with that in their
    /// names alone.
    pub(crate) fn run<S, V: ToString + Debug>(
        &self,
        state: impl Fn() -> S + Sync,
        history: impl Fn(Bug, u64, &S) -> Result<Report, V> + Sync,
    ) {
        let part = std::env::var("PLANTED").unwrap_or_default();
        let is_so_called = |bug: &Bug| format!("{bug:?}").contains(&part);
        let bugs: Vec<Bug> = self.bugs.iter().copied().filter(is_so_called).collect();
        assert!(SETS.iter().copied().flatten().any(is_so_called), "no bug is called {part}");
        // A panic in a history is one way of noticing.
        std::panic::set_hook(Box::new(|_| ()));
        let (found, wrong) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    let state = state();
                    while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let of_bug = |seed| history(*bug, seed, &state);
                        match self.search(*bug, of_bug) {
                            Ok(seed) => found.lock().unwrap().push((*bug, seed)),
                            Err(problem) => wrong.lock().unwrap().push(problem),
                        }
                    }
                });
            }
        });
        let _ = std::panic::take_hook();
        let wrong = wrong.into_inner().unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}");
        if is_written() {
            self.write(&found.into_inner().unwrap());
        }
    }

    fn search<V: ToString + Debug>(
        &self,
        bug: Bug,
        history: impl Fn(u64) -> Result<Report, V>,
    ) -> Result<u64, String> {
        let last = if is_written() { None } else { self.last(bug) };
        plant(Some(bug));
        let mut seeds = last.into_iter().chain(0..self.patience);
        let noticed = seeds.find_map(|seed| Some((seed, history(seed).err()?)));
        plant(None);
        let Some((seed, problem)) = noticed else {
            return Err(format!("{bug:?} is not noticed in {} histories", self.patience));
        };
        let (is_new, problem) = (last != Some(seed), problem.to_string());
        let first = problem.lines().next().unwrap_or("");
        println!("{bug:?}: noticed by history {seed}: {first}");
        if is_new && !is_written() {
            let histories = self.histories;
            manylogs_testkit::remark(format_args!(
                "{histories} {bug:?}: history {seed}, not the one noted: NOTICED=write notes it"
            ));
        }
        match history(seed) {
            Ok(_) => Ok(seed),
            Err(problem) => Err(format!("history {seed} of {bug:?} without it: {problem:?}")),
        }
    }

    fn last(&self, bug: Bug) -> Option<u64> {
        let begins = format!("{} {bug:?} ", self.histories);
        let noticed = read_to_string(NOTICED).unwrap();
        noticed.lines().find_map(|line| line.strip_prefix(&begins)?.parse().ok())
    }

    fn write(&self, found: &[(Bug, u64)]) {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let noticed = read_to_string(NOTICED).unwrap_or_default();
        let is_here =
            |line: &str, bug: Bug| line.starts_with(&format!("{} {bug:?} ", self.histories));
        let others = noticed.lines().filter(|line| !found.iter().any(|one| is_here(line, one.0)));
        let mut lines: Vec<String> = others.map(str::to_owned).collect();
        lines.extend(found.iter().map(|(bug, seed)| format!("{} {bug:?} {seed}", self.histories)));
        lines.sort_unstable();
        write(NOTICED, lines.join("\n") + "\n").unwrap();
    }
}

fn is_written() -> bool {
    std::env::var(WRITE).is_ok_and(|value| value == "write")
}

/// Plants each bug in ext4, and runs the histories that `plan_for` makes of it until one does not
/// hold.
pub(crate) fn every_bug_is_noticed(
    histories: &str,
    bugs: &[Bug],
    plan_for: fn(Bug, u64) -> Ext4Plan,
) {
    if !["mkfs.ext4", "debugfs"].into_iter().all(has_program) {
        manylogs_testkit::skip("needs mkfs.ext4 and debugfs");
        return;
    }
    let templates = Templates::make().unwrap();
    let history = |bug: Bug, seed: u64, images: &Images| -> Result<Report, Violation> {
        run_ext4(&plan_for(bug, seed), images)
    };
    Hunt { histories, bugs, patience: PATIENCE }.run(|| templates.images().unwrap(), history);
}
