//! What a part of a figure's file says: what runs.

use serde::Deserialize;

use super::chains::Chains;
use super::cleaner::{FsCleaner, FsMounts};
use super::episodes::Episodes;
use super::lent::{Lent, Reclaim, Recovery};
use super::programs::FsPrograms;
use super::random::RandomWrites;
use super::trees::FsTrees;

/// Something that runs: every combination of its lists.
///
/// `series` and `x` are patterns: `{policy}`, `{mode}`, `{drive}`, `{stream}`, `{rate}`, `{load}`,
/// `{depth}`, `{streams}`, `{instances}`, `{flush}` and `{sync-mode}` stand for what the run has of
/// these.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub enum Part {
    /// `manylogs fs interfere`.
    FsInterfere(FsInterfere),
    /// `manylogs fs applications`.
    FsApplications(FsApplications),
    /// `manylogs interfere`.
    Interfere(Interfere),
    /// `manylogs fs trees`.
    FsTrees(FsTrees),
    /// Zipf updates that fill the journal of a file system.
    FsCleaner(FsCleaner),
    /// Mounts of a file system whose journal holds much.
    FsMounts(FsMounts),
    /// Programs that write on a file system.
    FsPrograms(FsPrograms),
    /// Random writes on drives.
    RandomWrites(RandomWrites),
    /// Replays, as of `manylogs sweep`.
    Replay(Replay),
    /// `manylogs episodes`.
    Episodes(Episodes),
    /// Volumes that are busy all the time and borrow drives.
    Lent(Lent),
    /// How fast all goes home.
    Reclaim(Reclaim),
    /// How long the opening of a store takes.
    Recovery(Recovery),
    /// `manylogs chain`.
    Chain(Chains),
}

/// Small durable writes beside a stream on a file system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsInterfere {
    /// What the runs are called.
    pub series: String,
    #[serde(default = "rate")]
    pub(super) x: String,
    pub(super) drives: Vec<String>,
    /// An array of such drives: `raid0:4`.
    #[serde(default)]
    pub(super) array: Option<String>,
    pub(super) modes: Vec<String>,
    pub(super) streams: Vec<String>,
    pub(super) rates: Vec<f64>,
    pub(super) log_every: String,
    #[serde(default)]
    pub(super) threshold: Option<String>,
    pub(super) journal: String,
    #[serde(default)]
    pub(super) drive_cache: bool,
    pub(super) seconds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// Programs beside a reader on a file system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FsApplications {
    pub(super) series: String,
    #[serde(default = "instances")]
    pub(super) x: String,
    pub(super) drives: Vec<String>,
    pub(super) modes: Vec<String>,
    pub(super) program: String,
    pub(super) instances: Vec<u32>,
    /// Clients of a database.
    #[serde(default)]
    pub(super) clients: Option<u32>,
    /// How often a database flushes.
    #[serde(default)]
    pub(super) flush: Vec<String>,
    #[serde(default = "one")]
    pub(super) depths: Vec<u32>,
    pub(super) log_every: String,
    #[serde(default)]
    pub(super) threshold: Option<String>,
    pub(super) journal: String,
    pub(super) memory: String,
    #[serde(default)]
    pub(super) drive_cache: bool,
    pub(super) seconds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// Small durable writes beside streams on a volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Interfere {
    pub(super) series: String,
    #[serde(default = "rate")]
    pub(super) x: String,
    pub(super) drives: Vec<String>,
    pub(super) policies: Vec<String>,
    /// Access patterns: read, write.
    pub(super) kinds: Vec<String>,
    #[serde(default = "one")]
    pub(super) streams: Vec<u32>,
    #[serde(default = "one")]
    pub(super) depths: Vec<u32>,
    pub(super) request: String,
    /// Syncs a second.
    pub(super) rates: Vec<f64>,
    pub(super) writes_per_sync: u32,
    pub(super) sync_modes: Vec<String>,
    #[serde(default)]
    pub(super) drive_cache: bool,
    pub(super) seconds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// Replays of loads under policies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Replay {
    pub(super) series: String,
    #[serde(default = "load")]
    pub(super) x: String,
    pub(super) drives: Vec<String>,
    pub(super) policies: Vec<String>,
    /// Which of the policies the others are compared with.
    pub(super) base: String,
    /// Mixes of Table I (`W1`), or traces of it (`T1`).
    pub(super) loads: Vec<String>,
    /// Length of the window of each trace, in seconds.
    pub(super) window_s: Scaled,
    /// How busy the plain drive shall be; the rate as recorded, if not given.
    #[serde(default)]
    pub(super) busy: Option<f64>,
    /// The most requests that the drive is handed at a time.
    #[serde(default)]
    pub(super) outstanding: Option<u32>,
    /// Latency and speed-up at each percentile become places of the series.
    #[serde(default)]
    pub(super) curve: bool,
    /// A shingled drive does not clean by itself within the run.
    #[serde(default)]
    pub(super) never_idle: bool,
    #[serde(default = "one_seed")]
    pub(super) seeds: Scaled,
    #[serde(default)]
    pub(super) explains: Option<String>,
}

/// A figure at the smallest and at the full scale.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Scaled(pub(super) u64, pub(super) u64);

fn rate() -> String {
    "{rate}".to_owned()
}

fn instances() -> String {
    "{instances}".to_owned()
}

fn load() -> String {
    "{load}".to_owned()
}

pub(super) fn one() -> Vec<u32> {
    vec![1]
}

pub(super) const fn one_seed() -> Scaled {
    Scaled(1, 1)
}

impl Part {
    /// What it explains: then it is no part of the paper's figure, but an experiment beside it.
    #[must_use]
    pub fn explains(&self) -> Option<&str> {
        match self {
            Self::FsInterfere(part) => part.explains.as_deref(),
            Self::FsApplications(part) => part.explains.as_deref(),
            Self::Interfere(part) => part.explains.as_deref(),
            Self::FsTrees(part) => part.explains.as_deref(),
            Self::FsCleaner(part) => part.explains.as_deref(),
            Self::FsMounts(part) => part.explains.as_deref(),
            Self::FsPrograms(part) => part.explains.as_deref(),
            Self::RandomWrites(part) => part.explains.as_deref(),
            Self::Replay(part) => part.explains.as_deref(),
            Self::Episodes(part) => part.explains.as_deref(),
            Self::Lent(part) => part.explains.as_deref(),
            Self::Reclaim(part) => part.explains.as_deref(),
            Self::Recovery(part) => part.explains.as_deref(),
            Self::Chain(part) => part.explains.as_deref(),
        }
    }
}
