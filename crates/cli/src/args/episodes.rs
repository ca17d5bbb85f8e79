//! `manylogs episodes`.

use std::path::PathBuf;

use clap::Args;
use manylogs_block::Nanos;

use super::suggest::DRIVES;
use crate::units::duration;

/// Three volumes of one drive each take a generated episode of a mail server (the Everest paper,
/// tables 1 and 2): a busy one, and two that lend. Each is run without stores, by the paper's
/// counts, by our default and always, and on a volume with logs. All in virtual time.
#[derive(Debug, Args)]
pub(crate) struct EpisodesArgs {
    /// The drive of each volume: a name (see `manylogs drive list`) or a profile file.
    #[arg(long, value_name = "DRIVE", default_value = "cheetah-15k5", value_parser = DRIVES,
          hide_possible_values = true)]
    pub(crate) drive: String,
    /// Turn the drives' caches on.
    #[arg(long)]
    pub(crate) drive_cache: bool,
    /// Episodes: 1 (a peak of writes), 2 (of reads), 3 (a small one).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=3))]
    pub(crate) episode: Vec<u32>,
    /// Seeds: each decides everything random in a run.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    pub(crate) seed: Vec<u64>,
    /// Threshold of the default policy, to try another one.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) threshold: Option<Nanos>,
    /// How long the base is under its threshold before anything goes home, to try another time.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) calm: Option<Nanos>,
    /// Ranges that go home together, to try another number.
    #[arg(long, value_name = "N")]
    pub(crate) together: Option<usize>,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Runs at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
}
