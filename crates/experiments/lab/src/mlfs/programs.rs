//! Programs that write, on MLFS, in virtual time, in each mode of the journal (*Evolving Ext4 for
//! Shingled Disks*, sections 3.1, 4.2.2 and 4.3.2).

use bytes::Bytes;
use manylogs_block::{Nanos, Rng, Sectors, Time, to_usize};
use manylogs_ext4::{Error, Ext4, Ino, SinkStats};
use manylogs_workload::programs::{CompileBench, Postmark, SourceTree};

use super::case::DiskCase;
use super::disk::{MlfsError, Prepared, World};
use super::{postmark, sources};
use crate::stats::round3;

/// Bytes that are written at a time: the paper's size of an I/O.
const PIECE_BYTES: usize = 1 << 20;
/// What is written. Its value does not matter.
static CONTENT: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Postmark.
    Postmark(Postmark),
    /// The build of a tree of sources, which is made before.
    Build(SourceTree),
    /// Compilebench.
    CompileBench(CompileBench),
}

impl Program {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Postmark(_) => "Postmark",
            Self::Build(_) => "a build",
            Self::CompileBench(_) => "Compilebench",
        }
    }

    /// Why it cannot run.
    const fn lacks(&self) -> Option<&'static str> {
        match self {
            Self::Postmark(program) if program.directories == 0 => Some("directory"),
            Self::Build(tree) | Self::CompileBench(CompileBench { tree, .. })
                if tree.directories == 0 =>
            {
                Some("directory")
            }
            Self::Build(tree) | Self::CompileBench(CompileBench { tree, .. })
                if tree.sources == 0 =>
            {
                Some("source")
            }
            _ => None,
        }
    }
}

/// A program on one disk.
#[derive(Clone, Debug)]
pub struct ProgramCase {
    /// The disk, and the mode of its journal.
    pub disk: DiskCase,
    /// Length of the file system, at the beginning of the disk.
    pub span: Sectors,
    /// What is done.
    pub program: Program,
}

/// What a program did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// When what it needs was there: what comes later is what is measured.
    pub(super) prepared: Time,
    /// Bytes of content that it wrote.
    pub(super) written: u64,
    /// What it counts: transactions, sources, steps.
    pub(super) operations: u64,
}

/// What a case gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProgramResult {
    /// What comes before, until all of it is durable.
    pub fill_s: f64,
    /// The program, until all of it is durable.
    pub run_s: f64,
    /// The unmount.
    pub leave_s: f64,
    /// What it counts: transactions of Postmark, sources of a build, steps of Compilebench.
    pub operations: u64,
    /// Bands that a shingled drive has to clean then.
    pub dirty_bands: u64,
    /// For how long it does so.
    pub clean_s: f64,
    /// Content that was written.
    pub written_mib: f64,
    /// What was written to the journal before the unmount.
    pub log_mib: f64,
    /// Metadata that was written home before the unmount.
    pub home_mib: f64,
    /// Metadata that was newer in the journal than at home then.
    pub live_mib: f64,
}

/// Measures one case on this thread. Content that was written is in the host's memory, so that
/// nothing is read: the paper, too, looks at writes alone.
///
/// # Errors
/// [`MlfsError::Setting`] without a directory or a source, and whatever fails.
pub fn measure_one(case: &ProgramCase) -> Result<ProgramResult, MlfsError> {
    if let Some(what) = case.program.lacks() {
        let name = case.program.name();
        return Err(MlfsError::Setting(format!("{name} needs a {what}")));
    }
    let prepared = Prepared::within(&case.disk, case.span, async |_| Ok(()))?;
    let world = prepared.world(&case.disk)?;
    world.cool()?;
    let mounted = world.mounted(&case.disk)?;
    let (fs, clock) = (mounted.fs().clone(), world.runtime());
    let (program, rng) = (case.program, Rng::new(case.disk.seed));
    let began = world.now();
    let working = fs.clone();
    let done = world.run(async move {
        match program {
            Program::Postmark(program) => postmark::run(working, clock, program, rng).await,
            Program::Build(tree) => sources::build(working, clock, tree, rng).await,
            Program::CompileBench(bench) => {
                sources::compile_bench(working, clock, bench, rng).await
            }
        }
    })?;
    let ended = world.now();
    let journal = fs.journal_stats();
    drop(fs);
    world.run(async move { mounted.unmount().await })?;
    let left = world.now().since(ended);
    let spans = [done.prepared.since(began), ended.since(done.prepared), left];
    Ok(figures(&world, spans, done, journal))
}

fn figures(world: &World, spans: [Nanos; 3], done: Done, journal: SinkStats) -> ProgramResult {
    let seconds = |span: Nanos| round3(span.as_secs_f64());
    let mib = |bytes: u64| round3(bytes as f64 / f64::from(1 << 20));
    let [fill_s, run_s, leave_s] = spans.map(seconds);
    let dirty_bands = world.dirty_bands();
    ProgramResult {
        fill_s,
        run_s,
        leave_s,
        operations: done.operations,
        dirty_bands,
        clean_s: seconds(world.let_clean()),
        written_mib: mib(done.written),
        log_mib: mib(journal.log_bytes),
        home_mib: mib(journal.home_bytes),
        live_mib: mib(journal.at_risk_bytes),
    }
}

/// Writes so many bytes from `offset` on.
///
/// # Errors
/// Those of the file system.
pub(super) async fn write(fs: &Ext4, ino: Ino, offset: u64, bytes: u64) -> Result<(), Error> {
    let mut at = 0;
    while at < bytes {
        let len = to_usize(bytes - at).min(PIECE_BYTES);
        fs.write(ino, offset + at, Bytes::from_static(&CONTENT[..len])).await?;
        at += len as u64;
    }
    Ok(())
}
