//! Trees of sources: the build of one, as that of Linux (*Evolving Ext4 for Shingled Disks*, Fig.
//! 3), and many in which Compilebench makes, compiles, patches, cleans and reads (section 3.1).
//!
//! Each is one thread that waits for nothing but its file system, so it is a list of steps. What
//! compilers compute is a step as well: nothing but time.

use std::collections::VecDeque;

use manylogs_block::{Nanos, Rng, narrow};

/// Directories in each directory of a tree.
const FAN_OUT: u32 = 6;
/// Mean length of a source, and of what a compiler makes of it, its list of headers and the command
/// line that made it. They are guesses, with which 18,000 sources write 18 GiB; the paper's build
/// writes 12.
const SOURCE_BYTES: u64 = 15_000;
const OBJECT_BYTES: u64 = 160_000;
const HEADERS_BYTES: u64 = 12_000;
const COMMAND_BYTES: u64 = 30_000;
/// Time between two compiled sources: eight processors share the work.
const COMPILING: Nanos = Nanos::from_millis(150);
/// What Compilebench does to a tree besides: one of so many choices each.
const CHOICES: u64 = 5;
/// One source of so many is changed by a patch.
const PATCH_ONE_OF: u64 = 10;

/// The shape of a tree of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceTree {
    /// Directories; the first is the top.
    pub directories: u32,
    /// Sources, spread over the directories.
    pub sources: u32,
}

/// A directory of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceDirectory {
    /// The number of the tree.
    pub tree: u32,
    /// Its number in it.
    pub number: u32,
}

impl SourceDirectory {
    /// The directory that it is in; `None` of the top.
    #[must_use]
    pub const fn parent(self) -> Option<Self> {
        match self.number {
            0 => None,
            number => Some(Self { number: (number - 1) / FAN_OUT, ..self }),
        }
    }
}

/// What a file of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A source.
    Source,
    /// What a compiler made of it.
    Object,
    /// The headers that it includes, for a moment.
    Headers,
    /// The command line that compiled it.
    Command,
    /// All that was made in a directory and below it, linked.
    Linked,
}

/// A file of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceFile {
    /// Its directory.
    pub directory: SourceDirectory,
    /// The number of its source; of what is linked, 0.
    pub number: u32,
    /// What it is.
    pub kind: SourceKind,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Make a directory. Its parent is there.
    MakeDirectory(SourceDirectory),
    /// Make a file of this length, or write it anew.
    Write(SourceFile, u64),
    /// Look a file up, and read it.
    Read(SourceFile),
    /// Delete a file.
    Delete(SourceFile),
    /// Nothing, for as long as compilers compute.
    Compute(Nanos),
}

impl SourceTree {
    fn directory(self, tree: u32, source: u32) -> SourceDirectory {
        let number = u64::from(source) * u64::from(self.directories) / u64::from(self.sources);
        SourceDirectory { tree, number: narrow(number) }
    }

    fn file(self, tree: u32, number: u32, kind: SourceKind) -> SourceFile {
        SourceFile { directory: self.directory(tree, number), number, kind }
    }

    /// The steps that make a tree with its sources.
    pub fn make(self, tree: u32, rng: &mut Rng) -> Vec<SourceStep> {
        let of_directory = |number| SourceStep::MakeDirectory(SourceDirectory { tree, number });
        let mut steps: Vec<_> = (0..self.directories).map(of_directory).collect();
        for number in 0..self.sources {
            let source = self.file(tree, number, SourceKind::Source);
            steps.push(SourceStep::Write(source, about(SOURCE_BYTES, rng)));
        }
        steps
    }

    /// The steps that compile and link all of a tree; `computes` is what each source takes.
    pub fn compile(self, tree: u32, computes: Option<Nanos>, rng: &mut Rng) -> Vec<SourceStep> {
        let mut steps = Vec::new();
        let mut made = vec![0; manylogs_block::to_usize(self.directories.into())];
        for number in 0..self.sources {
            let file = |kind| self.file(tree, number, kind);
            let object = about(OBJECT_BYTES, rng);
            made[manylogs_block::to_usize(file(SourceKind::Object).directory.number.into())] +=
                object;
            steps.push(SourceStep::Read(file(SourceKind::Source)));
            steps.extend(computes.map(SourceStep::Compute));
            steps.push(SourceStep::Write(file(SourceKind::Headers), about(HEADERS_BYTES, rng)));
            steps.push(SourceStep::Write(file(SourceKind::Object), object));
            steps.push(SourceStep::Write(file(SourceKind::Command), about(COMMAND_BYTES, rng)));
            steps.push(SourceStep::Delete(file(SourceKind::Headers)));
        }
        // Each directory comes after those in it, whose numbers are larger.
        for number in (0..self.directories).rev() {
            let directory = SourceDirectory { tree, number };
            let bytes = made[manylogs_block::to_usize(number.into())];
            if let Some(parent) = directory.parent() {
                made[manylogs_block::to_usize(parent.number.into())] += bytes;
            }
            let linked = SourceFile { directory, number: 0, kind: SourceKind::Linked };
            steps.push(SourceStep::Write(linked, bytes));
        }
        steps
    }

    /// The steps that delete what a compilation made.
    fn clean(self, tree: u32) -> Vec<SourceStep> {
        let mut steps = Vec::new();
        for number in 0..self.sources {
            for kind in [SourceKind::Object, SourceKind::Command] {
                steps.push(SourceStep::Delete(self.file(tree, number, kind)));
            }
        }
        steps
    }

    /// The build of a tree that was made before.
    pub fn build(self, rng: &mut Rng) -> Vec<SourceStep> {
        self.compile(0, Some(COMPILING), rng)
    }
}

/// A length about this mean: half of it to three halves.
fn about(mean: u64, rng: &mut Rng) -> u64 {
    mean / 2 + rng.below(mean)
}

/// Compilebench: many trees, in which much is done in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileBench {
    /// Each of the trees.
    pub tree: SourceTree,
    /// How many there are.
    pub trees: u32,
    /// How often something is done in each, after it was made.
    pub rounds: u32,
}

/// What was done to a tree last.
#[derive(Clone, Debug)]
struct Instance {
    steps: VecDeque<SourceStep>,
    rounds: u32,
    is_compiled: bool,
}

/// Compilebench as it goes on.
#[derive(Clone, Debug)]
pub struct CompileBenchRun {
    bench: CompileBench,
    instances: Vec<Instance>,
    next: usize,
    rng: Rng,
}

impl CompileBenchRun {
    /// A run of which nothing was done. Everything random follows from `rng`.
    #[must_use]
    pub fn new(bench: CompileBench, mut rng: Rng) -> Self {
        let mut instance = |tree| {
            let steps = bench.tree.make(tree, &mut rng).into();
            Instance { steps, rounds: bench.rounds, is_compiled: false }
        };
        let instances = (0..bench.trees).map(&mut instance).collect();
        Self { bench, instances, next: 0, rng }
    }

    /// What is done to a tree besides making it: it is compiled, patched, cleaned, or read.
    fn choose(&mut self, number: usize) -> Vec<SourceStep> {
        let (tree, shape) = (narrow(number as u64), self.bench.tree);
        let is_compiled = self.instances[number].is_compiled;
        let sources = || (0..shape.sources).map(|it| shape.file(tree, it, SourceKind::Source));
        match self.rng.below(CHOICES) {
            0 | 1 => {
                self.instances[number].is_compiled = true;
                shape.compile(tree, None, &mut self.rng)
            }
            2 if is_compiled => {
                self.instances[number].is_compiled = false;
                shape.clean(tree)
            }
            2 | 3 => {
                let mut steps = Vec::new();
                for source in sources() {
                    if self.rng.one_in(PATCH_ONE_OF) {
                        steps.push(SourceStep::Write(source, about(SOURCE_BYTES, &mut self.rng)));
                    }
                }
                steps
            }
            _ => sources().map(SourceStep::Read).collect(),
        }
    }
}

impl Iterator for CompileBenchRun {
    type Item = SourceStep;

    /// A step of the next tree: they take turns.
    fn next(&mut self) -> Option<SourceStep> {
        for _ in 0..self.instances.len() {
            let number = self.next;
            self.next = (number + 1) % self.instances.len();
            while self.instances[number].steps.is_empty() && self.instances[number].rounds > 0 {
                self.instances[number].rounds -= 1;
                self.instances[number].steps = self.choose(number).into();
            }
            if let Some(step) = self.instances[number].steps.pop_front() {
                return Some(step);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The bytes that steps write, if each is possible.
    fn taken(steps: impl IntoIterator<Item = SourceStep>) -> u64 {
        let (mut directories, mut files) = (BTreeSet::new(), BTreeMap::new());
        let mut written = 0;
        for step in steps {
            match step {
                SourceStep::MakeDirectory(directory) => {
                    let parent = directory.parent();
                    assert!(parent.is_none_or(|parent| directories.contains(&parent)));
                    assert!(directories.insert(directory), "made twice");
                }
                SourceStep::Write(file, bytes) => {
                    assert!(directories.contains(&file.directory), "{file:?}");
                    files.insert(file, bytes);
                    written += bytes;
                }
                SourceStep::Read(file) => assert!(files.contains_key(&file), "{file:?}"),
                SourceStep::Delete(file) => assert!(files.remove(&file).is_some(), "{file:?}"),
                SourceStep::Compute(_) => {}
            }
        }
        written
    }

    #[test]
    fn every_step_of_a_build_is_possible_and_what_it_writes_is_that_of_the_paper() {
        // About what all modules of Linux 4.6 are.
        let tree = SourceTree { directories: 3000, sources: 18_000 };
        let mut rng = Rng::new(1);
        let made = tree.make(0, &mut rng);
        let (sources, all) = (taken(made.clone()), tree.build(&mut rng));
        let written = taken(made.into_iter().chain(all)) - sources;
        let gib = written as f64 / f64::from(1 << 30);
        println!("{gib:.1} GiB");
        assert!((9.0..=20.0).contains(&gib), "the paper: 12 GiB; {gib}");
    }

    #[test]
    fn every_step_of_compilebench_is_possible_and_trees_take_turns() {
        let tree = SourceTree { directories: 5, sources: 20 };
        let run = CompileBenchRun::new(CompileBench { tree, trees: 7, rounds: 6 }, Rng::new(2));
        let steps: Vec<_> = run.collect();
        let tree_of = |step: &SourceStep| match step {
            SourceStep::MakeDirectory(directory) => directory.tree,
            SourceStep::Write(file, _) | SourceStep::Read(file) | SourceStep::Delete(file) => {
                file.directory.tree
            }
            SourceStep::Compute(_) => 0,
        };
        assert_eq!(steps[..7].iter().map(tree_of).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
        assert!(taken(steps) > 0);
    }
}
