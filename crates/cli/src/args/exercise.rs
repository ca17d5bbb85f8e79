//! Arguments of `manylogs drive exercise`.

use clap::{Args, ValueEnum};
use manylogs_block::Sectors;
use manylogs_lab::exercise::LoadKind;

use super::link::LinkArgs;
use super::serve::OnOff;
use super::suggest::{DRIVES, POLICIES};
use crate::units::size;

#[derive(Debug, Args)]
pub(crate) struct ExerciseArgs {
    /// A drive's name, or a profile file.
    #[arg(value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: String,
    /// What the drive is asked for.
    #[arg(long, value_name = "LOAD")]
    pub(crate) load: LoadArg,
    /// Simulated seconds.
    #[arg(long, value_name = "N", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) seconds: u64,
    /// What stands between the load and the drive, as `manylogs replay` takes it.
    #[arg(long, value_name = "POLICY", default_value = "nologging", value_parser = POLICIES,
          hide_possible_values = true)]
    pub(crate) policy: String,
    /// Whether the drive's write cache is on; as its profile says when not given.
    #[arg(long, value_name = "ON|OFF")]
    pub(crate) drive_cache: Option<OnOff>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// A drive of this size that takes the times of the whole one, with a share of its persistent
    /// cache.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) capacity: Option<Sectors>,
    /// Decides everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Loads, as [`LoadKind`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadArg {
    /// Writes of 4 KiB at random places.
    #[value(name = "random-4k")]
    Random4k,
    /// Writes of 1 MiB, one behind the other.
    Stream,
    /// Files of 4 KiB to 1 MiB, written and read, with their metadata and journal.
    Fileserver,
    /// Random reads and durable writes of 8 KiB beside a sequential read.
    Mixed,
    /// A database like PostgreSQL beside a sequential read: 16 clients with random reads, durable
    /// appends to one write-ahead log, and pages written back.
    Postgres,
}

impl From<LoadArg> for LoadKind {
    fn from(load: LoadArg) -> Self {
        match load {
            LoadArg::Random4k => Self::Random4k,
            LoadArg::Stream => Self::Stream,
            LoadArg::Fileserver => Self::Fileserver,
            LoadArg::Mixed => Self::Mixed,
            LoadArg::Postgres => Self::Postgres,
        }
    }
}
