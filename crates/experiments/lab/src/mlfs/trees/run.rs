//! Runs cases, each in its own simulated world.

use std::sync::atomic::AtomicBool;

use manylogs_block::Time;
use manylogs_ext4::{Error, Ext4, SinkStats};

use super::super::disk::{MlfsError, Prepared, World};
use super::case::TreesCase;
use super::results::TreesResult;
use super::walk;
use crate::parallel::in_parallel;
use crate::stats::round3;

/// Durations of one phase: the work with a sync of all, and the unmount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) seconds: f64,
    pub(super) leave_seconds: f64,
    pub(super) journal: SinkStats,
}

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
    let measured = in_parallel(cases, threads, stop, measure)?;
    Ok(measured.into_iter().flatten().collect())
}

fn measure(case: &TreesCase) -> Result<TreesResult, MlfsError> {
    let prepared = Prepared::of(&case.disk, async |_| Ok(()))?;
    let world = prepared.world(&case.disk)?;
    let (directories, seed) = (case.directories, case.disk.seed);
    let order = case.shuffled.then_some(seed);
    let made = phase(&world, case, async move |fs: Ext4| walk::make(&fs, directories, order).await);
    let made = made?;
    let listed = phase(&world, case, async move |fs: Ext4| match walk::list(&fs).await? {
        found if found == directories => Ok(()),
        _ => Err(Error::Invalid("directories are missing: this is a defect")),
    });
    let listed = listed?;
    let removed = phase(&world, case, async |fs: Ext4| walk::remove(&fs).await)?;
    Ok(TreesResult::of(case, &made, &listed, &removed))
}

/// Mounts the file system with cold caches, works, makes all durable, and unmounts it.
fn phase<Work: Future<Output = Result<(), Error>> + 'static>(
    world: &World,
    case: &TreesCase,
    work: impl FnOnce(Ext4) -> Work + 'static,
) -> Result<Phase, MlfsError> {
    let mounted = world.mounted(&case.disk)?;
    let began = world.now();
    let fs = mounted.fs().clone();
    world.run(async move {
        work(fs.clone()).await?;
        fs.sync_all().await
    })?;
    let (done, journal) = (world.now(), mounted.fs().journal_stats());
    world.run(async move { mounted.unmount().await })?;
    let span = |from: Time, to: Time| round3(to.since(from).as_secs_f64());
    let seconds = span(began, done);
    Ok(Phase { seconds, leave_seconds: span(done, world.now()), journal })
}
