//! Runs cases, each in its own simulated world.

use std::sync::atomic::AtomicBool;

use manylogs_block::Time;
use manylogs_ext4::{Error, Ext4};
use manylogs_mlfs::JournalMode;

use super::super::disk::{MlfsError, Prepared, World};
use super::case::{PhaseKind, TreesCase};
use super::results::{PhaseFigures, TreesResult};
use super::walk;
use crate::parallel::in_parallel;
use crate::stats::round3;

/// Of so many directories one is looked up, and ten at least.
const STAT_ONE_OF: u32 = 20;
const STATS_LEAST: u32 = 10;

/// Measures each case on up to `threads` threads. The results keep the order of `cases`; those that
/// have not begun when `stop` is set are left out.
///
/// # Errors
/// The first failure.
pub fn run_all(
    cases: &[TreesCase],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<TreesResult>, MlfsError> {
    let measured = in_parallel(cases, threads, stop, measure_one)?;
    Ok(measured.into_iter().flatten().collect())
}

/// Measures one case on this thread.
///
/// # Errors
/// Whatever fails.
pub fn measure_one(case: &TreesCase) -> Result<TreesResult, MlfsError> {
    let prepared = Prepared::of(&case.disk, async |_| Ok(()))?;
    let mut world = prepared.world(&case.disk)?;
    let arranges = case.arranged && case.disk.mode == JournalMode::Lazy;
    let is_due = |kind: &PhaseKind| kind.is_due(case.files > 0, arranges);
    let phases = PhaseKind::ALL.into_iter().filter(is_due);
    let mut figures = Vec::new();
    for kind in phases {
        figures.push(phase(&world, case, kind)?);
        if case.cut {
            world = world.after_crash(&case.disk)?;
        }
    }
    Ok(TreesResult::of(case, figures))
}

/// Mounts the file system with cold caches, works, makes all durable, unmounts it, and lets the
/// drive clean.
fn phase(world: &World, case: &TreesCase, kind: PhaseKind) -> Result<PhaseFigures, MlfsError> {
    world.cool()?;
    let idle = world.now();
    let mounted = world.mounted(&case.disk)?;
    let mounting = world.now().since(idle);
    mounted.fs().read_ahead(case.ahead);
    let (began, read_before, sought_before) = (world.now(), world.reads(), world.seeks());
    let (fs, of, journal) = (mounted.fs().clone(), case.clone(), mounted.fs().clone());
    world.run(async move {
        work(&fs, &of, kind).await?;
        fs.sync_all().await
    })?;
    let (done, logged) = (world.now(), journal.journal_stats().log_bytes);
    let (reads, seeks) = (world.reads() - read_before, world.seeks() - sought_before);
    if !case.cut {
        world.run(async move { mounted.unmount().await })?;
    }
    let (left, dirty_bands) = (world.now(), world.dirty_bands());
    let cleaning = world.let_clean();
    let span = |from: Time, to: Time| round3(to.since(from).as_secs_f64());
    Ok(PhaseFigures {
        phase: kind.name(),
        mount_seconds: round3(mounting.as_secs_f64()),
        seconds: span(began, done),
        leave_seconds: span(done, left),
        dirty_bands,
        clean_seconds: round3(cleaning.as_secs_f64()),
        reads,
        seeks,
        log_bytes: logged,
        home_bytes: journal.journal_stats().home_bytes,
    })
}

async fn work(fs: &Ext4, case: &TreesCase, kind: PhaseKind) -> Result<(), Error> {
    let seed = case.disk.seed;
    let all = |found: u32, expected: u32| match found == expected {
        true => Ok(()),
        false => Err(Error::Invalid("some are missing: this is a defect")),
    };
    match kind {
        PhaseKind::MakeDirs => {
            walk::make(fs, case.directories, case.shuffled.then_some(seed)).await
        }
        PhaseKind::Arrange => match fs.arrange().await? {
            done if done.is_whole => Ok(()),
            _ => Err(Error::Invalid("the journal is too short to arrange all of it")),
        },
        PhaseKind::ListDirs => all(walk::list(fs).await?, case.directories),
        PhaseKind::FindFiles => all(walk::find(fs).await?, case.directories),
        PhaseKind::Stat => {
            walk::stat(fs, STATS_LEAST.max(case.directories / STAT_ONE_OF), seed).await
        }
        PhaseKind::CreateFiles => walk::create(fs, case.files).await,
        PhaseKind::TarFiles => all(walk::read(fs).await?, case.files),
        PhaseKind::RemoveFiles => all(walk::unlink(fs).await?, case.files),
        PhaseKind::RemoveDirs => walk::remove(fs).await,
    }
}
