//! Arguments about chains of drives (Gecko), of the commands that have them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use manylogs_block::Sectors;
use manylogs_gecko::{ChainSettings, Cleaning, SleepSettings};

use crate::units::size;

/// Of `format`.
#[derive(Debug, Args)]
pub(crate) struct GeckoArgs {
    /// Make a chain of these drives (Gecko), two to seven in their order: one block device that
    /// writes like one quiet drive. --size, --sparse, --force and --physical-sector are for each
    /// of them.
    #[arg(long, conflicts_with_all = ["table", "give_up_table", "zero", "label", "shingled",
        "band", "conventional", "drive", "threshold", "log", "group", "table_size"])]
    pub(crate) gecko: bool,
    /// With --gecko: the other drives of the chain.
    #[arg(value_name = "DRIVE", requires = "gecko")]
    pub(crate) others: Vec<PathBuf>,
    /// With --gecko: mirror the drives in pairs: the first and the second one hold the same, the
    /// third and the fourth one, and so on. A pair goes on without one of its halves.
    #[arg(long, requires = "gecko")]
    pub(crate) mirror: bool,
    /// With --gecko: an SSD for the tail cache: what leaves memory goes there. `serve` finds it
    /// again by its label. It must hold nothing, and nothing that is promised depends on it.
    #[arg(long, value_name = "SSD", requires = "gecko")]
    pub(crate) cache: Option<PathBuf>,
    /// With --gecko: size of the device; half of what the drives hold when not given. Cleaning
    /// needs the rest: the less is exported, the faster are writes.
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "gecko")]
    pub(crate) export: Option<Sectors>,
    /// With --gecko: length of a segment, which is cleaned at a time; 64M to 256M when not given,
    /// less on drives below 4 GiB.
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "gecko")]
    pub(crate) segment: Option<Sectors>,
    /// With --gecko: keep a summary of each closed segment on the next link, in 0.3 % of the
    /// drives. An opening after a crash is much faster then, but writes may be slower by 2 % or
    /// more: see docs/gecko.md. Labels have version 5 then: programs that know versions up to 4
    /// refuse them.
    #[arg(long, requires = "gecko")]
    pub(crate) summaries: bool,
}

/// Of `serve`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChainOfArgs {
    /// A member of the chain of drives that the device is of. Members that are not named are
    /// looked for among the disks of this machine and the files beside the device.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["raw", "table", "give_up_table"])]
    pub(crate) member: Vec<PathBuf>,
    /// How a chain of drives makes room: see docs/gecko.md.
    #[arg(long, value_name = "WAY", default_value_t = Cleaning::default())]
    pub(crate) cleaning: Cleaning,
    /// Memory of a chain's tail cache: what was written last is read from there, so that the drive
    /// at the tail only writes. 0 for none.
    #[arg(long, value_parser = size, value_name = "SIZE", default_value = "64M")]
    pub(crate) cache_memory: Sectors,
    /// Refuse to serve a chain that may need more memory than this for its map and its tail cache.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) memory: Option<Sectors>,
    /// An SSD behind that memory: what leaves memory goes there, and is found again after a
    /// restart. It must hold nothing, or be the cache of this chain. No promise depends on it: if
    /// it is lost or fails, reads come from the drives.
    #[arg(long, value_name = "SSD")]
    pub(crate) cache: Option<PathBuf>,
    /// Let one half of each mirrored pair but the tail's sleep: see docs/gecko.md. Nobody waits for
    /// its start, but disks wear with each one. Files and virtual disks never sleep.
    #[arg(long)]
    pub(crate) sleep: bool,
    /// Starts of each drive in 24 hours, if halves sleep. One that has none left stays awake.
    #[arg(long, value_name = "STARTS", requires = "sleep", default_value_t = 24,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) wake_budget: u32,
    /// Go on without a half of a mirrored pair that is missing. It leaves the pair: when it comes
    /// back, it counts for nothing until it joins again (member replace).
    #[arg(long)]
    pub(crate) degraded: bool,
}

impl ChainOfArgs {
    pub(crate) fn settings(&self) -> ChainSettings {
        let (cleaning, degraded, cache) = (self.cleaning, self.degraded, self.cache_memory);
        let wakes_a_day = self.wake_budget;
        let sleep = self.sleep.then(|| SleepSettings { wakes_a_day, ..SleepSettings::default() });
        ChainSettings { cleaning, degraded, cache, sleep, ..ChainSettings::default() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct MemberArgs {
    #[command(subcommand)]
    pub(crate) command: MemberCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the drives of a chain, by pairs and halves, with their states.
    List(MemberListArgs),
    /// Put another drive in the place of a half of a pair. The chain may be served meanwhile. Only
    /// what the pair holds is copied; the old half stays until the new one has everything.
    Replace(MemberReplaceArgs),
    /// Add a link behind the others: a drive, or a pair. The chain may be served meanwhile. What
    /// clients see keeps its size; cleaning has more room.
    Add(MemberAddArgs),
    /// Empty a link, and let it leave the chain. The chain may be served meanwhile. What lives
    /// there moves to the other links, which must bear the export.
    Remove(MemberRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MemberAddArgs {
    /// Any drive of the chain.
    pub(crate) base: PathBuf,
    /// The new drive; of a chain of pairs, both drives of the new pair.
    #[arg(required = true, num_args = 1..=2)]
    pub(crate) new: Vec<PathBuf>,
    /// Overwrite what the new drives hold.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemberRemoveArgs {
    /// The link: a drive of it, or its number in `member list`, for example 2.
    pub(crate) old: String,
    /// Any drive of the chain, if OLD is given as a number.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) of: Option<PathBuf>,
    /// Lose what cannot be read there, because a drive failed: reads of that fail until it is
    /// written. The ranges are printed, and the exit code is 4 if there are any.
    #[arg(long)]
    pub(crate) accept_loss: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemberListArgs {
    /// Any drive of the chain.
    pub(crate) base: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MemberReplaceArgs {
    /// The half to be replaced: its drive, or as `member list` names it, for example 1.2.
    pub(crate) old: String,
    /// The drive that takes its place.
    pub(crate) new: PathBuf,
    /// Any drive of the chain, if OLD is missing or given as a number.
    #[arg(long, value_name = "MEMBER")]
    pub(crate) of: Option<PathBuf>,
    /// Overwrite what the new drive holds.
    #[arg(long)]
    pub(crate) force: bool,
    /// Of a chain that is not served: go on without halves that are missing. They leave their
    /// pairs.
    #[arg(long)]
    pub(crate) degraded: bool,
}
