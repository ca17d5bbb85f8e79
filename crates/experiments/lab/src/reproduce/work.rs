//! One run of a figure, of whichever kind, and the metrics that it gives.

use std::sync::Arc;

use thiserror::Error;

use super::cells::Metrics;
use super::chains;
use super::cleaner;
use super::episodes::{EpisodeCase, Fits};
use super::lent::LentWork;
use super::programs;
use super::random;
use super::trees::of_trees;
use crate::chain::{self, ChainCase, ChainFailure};
use crate::episodes::EpisodeFailure;
use crate::exercise::{Exercise, ExerciseError, exercise};
use crate::interfere::{self, Case, SyncMillis};
use crate::mlfs::applications::{self, ApplicationCase, ApplicationDisks};
use crate::mlfs::cleaner::{CleanerCase, MountsCase};
use crate::mlfs::programs::ProgramCase;
use crate::mlfs::trees::TreesCase;
use crate::mlfs::{self, Disks, MlfsCase};
use crate::replay::Progress;
use crate::runs::RunKey;
use crate::sweep::{Job, JobError, Row};

/// What the runs of one command share.
#[derive(Debug, Default)]
pub struct Context {
    disks: Disks,
    programs: ApplicationDisks,
    fits: Fits,
    /// Ends the replays under way.
    pub progress: Arc<Progress>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it is known by.
    pub key: RunKey,
    /// What it is, for people.
    pub name: String,
    pub(super) work: Work,
}

/// What runs.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// A stream beside small writes on a volume or a drive.
    Interfere(Box<Case>),
    /// The same on a file system.
    Mlfs(Box<MlfsCase>),
    /// Programs beside a reader on a file system.
    Applications(Box<ApplicationCase>),
    /// Trees of directories on a file system.
    Trees(Box<TreesCase>),
    /// Updates that fill the journal of a file system.
    Cleaner(Box<CleanerCase>),
    /// Mounts of a file system whose journal holds much.
    Mounts(Box<MountsCase>),
    /// A program that writes on a file system.
    Program(Box<ProgramCase>),
    /// Random writes on a drive.
    Random(Box<Exercise>),
    /// A replay.
    Replay(Box<Job>),
    /// An episode.
    Episode(Box<EpisodeCase>),
    /// Lent drives.
    Lent(Box<LentWork>),
    /// A chain of drives, or what it is compared with.
    Chain(Box<ChainCase>),
}

/// Why a run gave nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// Random writes.
    #[error(transparent)]
    Random(#[from] ExerciseError),
    /// A replay.
    #[error(transparent)]
    Replay(#[from] JobError),
    /// Syncs beside a stream.
    #[error(transparent)]
    Interfere(#[from] interfere::InterfereError),
    /// Syncs beside a stream on a file system.
    #[error(transparent)]
    Mlfs(#[from] mlfs::MlfsError),
    /// An episode, or lent drives.
    #[error(transparent)]
    Episode(#[from] EpisodeFailure),
    /// A chain of drives.
    #[error(transparent)]
    Chain(#[from] ChainFailure),
}

impl Run {
    /// Does the run on this thread. `None` if it was interrupted.
    ///
    /// # Errors
    /// What went wrong.
    pub fn measure(&self, context: &Context) -> Result<Option<Metrics>, RunError> {
        Ok(match &self.work {
            Work::Interfere(case) => Some(of_case(&interfere::measure_one(case)?)),
            Work::Mlfs(case) => Some(of_mlfs(&mlfs::measure_one(case, &context.disks)?)),
            Work::Applications(case) => {
                Some(of_applications(&applications::measure_one(case, &context.programs)?))
            }
            Work::Trees(case) => Some(of_trees(&mlfs::trees::measure_one(case)?)),
            Work::Cleaner(case) => Some(cleaner::metrics(&mlfs::cleaner::measure_one(case)?)),
            Work::Mounts(case) => Some(cleaner::of_mounts(&mlfs::cleaner::measure_mounts(case)?)),
            Work::Program(case) => Some(programs::metrics(&mlfs::programs::measure_one(case)?)),
            Work::Random(case) => Some(random::metrics(&exercise(case)?.1)),
            Work::Chain(case) => Some(chains::metrics(&chain::measure(case)?)),
            Work::Replay(job) => job.run(false, &context.progress)?.map(|(row, _)| of_row(&row)),
            Work::Episode(case) => Some(case.measure(&context.fits)?),
            Work::Lent(work) => Some(work.measure()?),
        })
    }
}

pub(super) fn put(metrics: &mut Metrics, name: &str, value: f64) {
    metrics.insert(name.to_owned(), value);
}

/// Nothing, if no sync ended.
fn syncs(metrics: &mut Metrics, found: &SyncMillis) {
    if found.max > 0.0 {
        put(metrics, "sync_ms", found.mean);
        put(metrics, "sync_p99_ms", found.p99);
    }
}

fn of_case(found: &interfere::CaseFigures) -> Metrics {
    let mut metrics = Metrics::new();
    put(&mut metrics, "stream_mb_s", found.stream_mb_s);
    put(&mut metrics, "small_per_second", found.syncs_per_second);
    syncs(&mut metrics, &found.sync_ms);
    if let [first, second] = found.each_mb_s[..] {
        put(&mut metrics, "first_percent", first / (first + second).max(1e-9) * 100.0);
    }
    metrics
}

fn of_mlfs(found: &mlfs::Figures) -> Metrics {
    let mut metrics = Metrics::new();
    put(&mut metrics, "stream_mb_s", found.stream_mb_s);
    put(&mut metrics, "small_per_second", found.writes_per_second);
    put(&mut metrics, "flushes", found.journal.flushes as f64);
    put(&mut metrics, "transactions", found.journal.transactions as f64);
    syncs(&mut metrics, &found.sync_ms);
    metrics
}

fn of_applications(found: &applications::Measured) -> Metrics {
    let mut metrics = Metrics::new();
    put(&mut metrics, "stream_mb_s", found.stream_mb_s);
    put(&mut metrics, "operations_per_second", found.operations_per_s);
    put(&mut metrics, "records", found.journal.records as f64);
    syncs(&mut metrics, &found.flush_ms);
    if found.request_ms.max > 0.0 {
        put(&mut metrics, "request_ms", found.request_ms.mean);
        put(&mut metrics, "request_p99_ms", found.request_ms.p99);
    }
    metrics
}

/// Name of the latency at a percentile.
pub(super) fn percentile(percent: usize) -> String {
    format!("all_p{percent:02}_us")
}

fn of_row(row: &Row) -> Metrics {
    let mut metrics = Metrics::new();
    for (at, us) in row.all_us.iter().enumerate() {
        put(&mut metrics, &percentile(at + 1), *us);
    }
    let mean = |name: &str, value: Option<f64>, metrics: &mut Metrics| {
        if let Some(value) = value {
            put(metrics, name, value);
        }
    };
    mean("durable_mean_ms", row.durable.mean.map(|us| us / 1e3), &mut metrics);
    mean("reads_mean_ms", row.reads.mean.map(|us| us / 1e3), &mut metrics);
    for (name, value) in [
        ("rate", row.rate),
        ("busy_percent", row.drive_busy_percent),
        ("overloaded", f64::from(u8::from(row.overloaded))),
        ("requests", row.requests as f64),
        ("logged_writes", row.logged_writes as f64),
        ("log_swaps", row.log_swaps as f64),
        ("log_fullest_percent", row.log_fullest_percent),
        ("table_kib", row.table_bytes_max as f64 / 1024.0),
    ] {
        put(&mut metrics, name, value);
    }
    mean("checkpoint_s", row.checkpoint_seconds, &mut metrics);
    if let Some(done) = &row.checkpoint {
        put(&mut metrics, "log_read_s", done.log_read_seconds);
        put(&mut metrics, "home_write_s", done.home_write_seconds);
        put(&mut metrics, "home_writes", done.home_writes as f64);
        put(&mut metrics, "ios_reduced_percent", done.writes_saved_percent);
        put(&mut metrics, "blocks_reduced_percent", done.sectors_saved_percent);
    }
    mean("dirty_bands", row.dirty_bands.map(|bands| bands as f64), &mut metrics);
    metrics
}
