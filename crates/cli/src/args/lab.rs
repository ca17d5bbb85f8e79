//! Arguments of the commands that replay traces.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_block::Sectors;
use manylogs_lab::Shape;
use manylogs_lab::replay::Durability;

use super::link::LinkArgs;
use super::suggest::{DRIVES, POLICIES};
use super::{ChangeArgs, OpenArgs};
use crate::units::{Rate, rate, share, size};

/// The drive when none is named.
pub(crate) const DEFAULT_DRIVE: &str = "exos-x20";

/// A load, and the drive that it is replayed on.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    /// The trace; several are mixed, each in its own slice of the drive. `synthetic` is a
    /// generated one: a sequential reader beside small random writes.
    #[arg(required = true)]
    pub(crate) traces: Vec<PathBuf>,
    /// The drive: a name (see `manylogs drive list`), a profile file, or a disk of this machine.
    /// When not given: the disk of --disk or --device, or the one that the trace was recorded on,
    /// if it notes that, or exos-x20.
    #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Option<String>,
    /// An array of such drives: raid0:N, raid1:N, raid10:N, raid5:N or raid6:N, with :chunk=64K and
    /// :placement=known|ignored; ignored takes the array for one drive. With :safe-mode=200ms and
    /// :bitmap=64M md writes to the members by itself. A single drive when not given. `advise`
    /// compares the plain array, ignored and known.
    #[arg(long, value_name = "ARRAY")]
    pub(crate) array: Option<Shape>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// How much of a shingled drive's persistent cache is in use when the load begins: empty, full,
    /// or a share as 0.5 (by small writes all over the drive). Empty when not given; `advise` tells
    /// both where they differ.
    #[arg(long, value_parser = smr_cache, value_name = "empty|full|SHARE")]
    pub(crate) smr_cache: Option<f64>,
    /// Write the report to this HTML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Arrivals this many times as fast as recorded (0.5, 2x), or `auto`: as busy as
    /// --utilisation says.
    #[arg(long, value_parser = rate, default_value = "1", value_name = "FACTOR|auto")]
    pub(crate) rate: Rate,
    /// With --rate auto: how busy the drive shall be without logging.
    #[arg(long, value_parser = share, default_value = "0.5", value_name = "SHARE")]
    pub(crate) utilisation: f64,
    /// Fit addresses beyond the drive into it.
    #[arg(long)]
    pub(crate) fit: bool,
    /// Replay the trace this often, one pass behind the other.
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) repeat: u64,
    /// When writes are durable: `recorded` (the trace's FUA writes and flushes), `all` (each when
    /// it is answered, drive cache off), or `sync-every=5s` (by a flush so often). What was
    /// recorded when not given, or `all` if the trace has no flush and no FUA write.
    #[arg(long, value_name = "HOW")]
    pub(crate) durability: Option<Durability>,
    /// Replay each policy from so many seeds; more make intervals narrower.
    #[arg(long, default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: u32,
    /// Replays at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

impl LoadArgs {
    /// Threads to work on.
    pub(crate) fn threads(&self) -> usize {
        threads(self.threads)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// The policies to compare, separated by commas; may be repeated. Options follow a colon, as
    /// in mlb:threshold=128K,log=10M,group=100M,swap=0.8,checkpoint=idle; cache=off turns the
    /// drive's write cache off. When not given: the plain drive (with its cache on and off, unless
    /// every write is durable), one log, ours, and the paper's.
    #[arg(long, value_name = "LIST", value_parser = POLICIES, hide_possible_values = true)]
    pub(crate) policy: Vec<String>,
    /// Let requests in by arrival time, or keep a fixed number in flight.
    #[arg(long = "loop", value_enum, default_value_t = LoopArg::Open)]
    pub(crate) loop_mode: LoopArg,
    /// Requests in flight in a closed loop.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) depth: u32,
    /// Writes up to this size count as small in the figures (256K, or the largest threshold).
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) small: Option<Sectors>,
    /// In an open loop: requests handed to the device at a time; more wait their turn.
    #[arg(long, default_value_t = 1024, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) outstanding: u32,
    /// What to do when that many are outstanding.
    #[arg(long, value_enum, default_value_t = OverloadArg::Continue)]
    pub(crate) on_overload: OverloadArg,
    /// Do not empty the logs after the replay.
    #[arg(long)]
    pub(crate) no_checkpoint: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoopArg {
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverloadArg {
    Continue,
    Stop,
}

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// The disk that the advice is for, as /dev/sdb: commands name it, its link and FUA count, not
    /// those of the profile, and what contradicts the profile is said. When not given, commands
    /// name the disk that was recorded, where the trace says so.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) disk: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// What to replay, in TOML: traces, drives, policies, parameters, seeds, output; see
    /// docs/sweeps.md.
    pub(crate) file: PathBuf,
    /// Runs at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
}

impl SweepArgs {
    /// Threads to work on.
    pub(crate) fn threads(&self) -> usize {
        threads(self.threads)
    }
}

fn smr_cache(text: &str) -> Result<f64, String> {
    match text {
        "empty" => Ok(0.0),
        "full" => Ok(1.0),
        share_of => share(share_of).map_err(|_| {
            format!("expected empty, full or a share between 0 and 1, as 0.5, found {share_of:?}")
        }),
    }
}

fn threads(given: Option<u64>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    given.map_or(cores, manylogs_block::to_usize)
}
