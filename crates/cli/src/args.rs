//! The command line.

pub(crate) mod fs;
pub(crate) mod interfere;
pub(crate) mod nbd;
pub(crate) mod serve;
pub(crate) mod torture;
pub(crate) mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use manylogs_block::{Nanos, Sectors};

use crate::units::{Rate, duration, rate, share, size};

/// Small durable writes beside large streams on one disk: would it help, and a volume that does it.
///
/// Exit codes: 0 done; 1 failed; 2 wrong command line or bad input; 3 damaged, nothing lost;
/// 4 acknowledged data is lost; 5 in use, or would be overwritten; 6 no permission; 7 written by
/// another version; 130 ended by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "manylogs", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record the requests that a disk of this machine is asked for.
    Record(RecordArgs),
    /// Look at traces and change them.
    Trace(TraceArgs),
    /// List, show and validate drive profiles.
    Drive(DriveArgs),
    /// Replay a trace on a modelled drive under several policies, and compare them.
    Replay(ReplayArgs),
    /// Measure small durable writes beside streams on modelled drives, under several policies.
    Interfere(interfere::InterfereArgs),
    /// Make a volume on a disk, a partition or in an image file.
    Format(volume::FormatArgs),
    /// Read every structure and record of a volume, and say what is wrong. Changes nothing.
    Check(volume::CheckArgs),
    /// Print what a volume's disk holds: superblock, root, logs, table, records.
    Dump(volume::DumpArgs),
    /// Serve a volume as a block device, in the foreground, until a signal or `manylogs stop`.
    Serve(serve::ServeArgs),
    /// End the server of a device in order.
    Stop(serve::StopArgs),
    /// What a running server does, again and again, until Ctrl-C.
    Top(serve::TopArgs),
    /// What a running server does, as Prometheus reads it.
    Metrics(serve::MetricsArgs),
    /// How a volume is, or was left, and what is at risk in its logs.
    Status(volume::StatusArgs),
    /// Print the settings of a closed volume, or change them for good.
    Set(volume::SetArgs),
    /// Move everything that is logged home.
    Checkpoint(volume::CheckpointArgs),
    /// Empty the logs, so that the disk is readable without this software.
    Drain(volume::DrainArgs),
    /// Print where a drained volume's data is.
    Table(volume::TableArgs),
    /// Read every logged copy and check it.
    Scrub(volume::CheckpointArgs),
    /// Take all of a device that became larger.
    Grow(volume::CheckpointArgs),
    /// Say whether a device holds a volume, and which, as udev reads it. Changes nothing.
    Probe(volume::ProbeArgs),
    /// File systems of our own.
    Fs(fs::FsArgs),
    /// Crash simulated volumes in every way, and check what they hold then.
    Torture(torture::TortureArgs),
    /// Write man pages, one for each command.
    #[command(hide = true)]
    Man(ManArgs),
    /// Print the completions of a shell.
    #[command(hide = true)]
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where to; made if it is not there.
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The block device, as /dev/sdb.
    pub(crate) device: PathBuf,
    /// How long to record; until Ctrl-C when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
    /// The trace to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Arrivals (queue), right for replay, or what the scheduler sends to the drive (issue).
    #[arg(long, value_enum, default_value_t = EventArg::Queue)]
    pub(crate) event: EventArg,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(crate) command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Requests, span, sizes, footprint, overwrites and busiest windows of a trace.
    Stat(StatArgs),
    /// Read a trace in any format, perhaps change it, and write it in our own format.
    Convert(ConvertArgs),
    /// Mix traces of several tenants, each in its own slice of the drive.
    Mix(MixArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// The trace.
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The trace.
    pub(crate) trace: PathBuf,
    /// The trace to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    /// Change arrivals to come this many times as fast, as 0.5 or 2x.
    #[arg(long, value_parser = rate, value_name = "FACTOR")]
    pub(crate) rate: Option<Rate>,
    /// Repeat the trace this often.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) repeat: u64,
    /// Fit the addresses into a drive of this size, as 1T.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) fit: Option<Sectors>,
}

#[derive(Debug, Args)]
pub(crate) struct MixArgs {
    /// The traces, one for each tenant.
    #[arg(required = true, num_args = 2..)]
    pub(crate) traces: Vec<PathBuf>,
    /// The trace to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Size of the drive that the tenants share in equal slices, as 1T.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) drive_size: Sectors,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// How to read trace files.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reading traces")]
pub(crate) struct OpenArgs {
    /// The format; found out by itself when not given.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// Unit of arrival times, for formats that leave it open.
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) time_unit: Option<TimeUnitArg>,
    /// Pass over malformed records and count them.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Which device of the trace: a number, or `all`, laid out one behind the other.
    #[arg(long, value_name = "N|all", default_value = "all")]
    pub(crate) device: String,
    /// Which event of blktrace and blkparse traces counts as the request.
    #[arg(long, value_enum, default_value_t = EventArg::Queue)]
    pub(crate) event: EventArg,
}

/// What part of a trace to use.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Parts of a trace")]
pub(crate) struct ChangeArgs {
    /// Use a window: START+LENGTH as 1h+5m, or `busiest-writes:5m`, `busiest-reads:1h`,
    /// `random:5m` (by --seed).
    #[arg(long, value_name = "WINDOW")]
    pub(crate) window: Option<WindowArg>,
    /// Use only so many requests from the start.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Decides everything random; the same seed and input give the same results.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeUnitArg {
    S,
    Ms,
    Us,
    Ns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventArg {
    Queue,
    Issue,
}

#[derive(Debug, Args)]
pub(crate) struct DriveArgs {
    #[command(subcommand)]
    pub(crate) command: DriveCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// The drives that come with the program.
    List,
    /// Everything a profile says, with the source of each number.
    Show {
        /// A drive's name, or a profile file.
        drive: String,
    },
    /// Compare the model with service times measured on the real drive.
    Validate {
        /// A drive's name, or a profile file.
        drive: String,
        /// Measured requests (DiskSim validation format).
        #[arg(long, value_name = "FILE")]
        trace: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace; several are mixed, each in its own slice of the drive. `synthetic` is a
    /// generated one: a sequential reader beside small random writes.
    #[arg(required = true)]
    pub(crate) traces: Vec<PathBuf>,
    /// The drive: a name (see `manylogs drive list`) or a profile file.
    #[arg(long, default_value = DEFAULT_DRIVE)]
    pub(crate) drive: String,
    /// The policies to compare, separated by commas; may be repeated. Options follow a colon, as
    /// in mlb:threshold=128K,log=10M,group=100M,swap=0.8,checkpoint=idle.
    #[arg(long, value_name = "LIST", default_value = "nologging,single-log,mlb-32,mlb-256")]
    pub(crate) policy: Vec<String>,
    /// Write the report to this HTML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Let requests in by arrival time, or keep a fixed number in flight.
    #[arg(long = "loop", value_enum, default_value_t = LoopArg::Open)]
    pub(crate) loop_mode: LoopArg,
    /// Requests in flight in a closed loop.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) depth: u32,
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
    /// Writes are durable as the trace says, with the drive's write cache on; otherwise every
    /// write is, with the cache off.
    #[arg(long)]
    pub(crate) recorded_durability: bool,
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
    /// Policies replayed at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// The drive when none is named.
pub(crate) const DEFAULT_DRIVE: &str = "exos-x20";

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

/// A window of a trace, as `--window` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowArg {
    /// From a given time on.
    At { start: Nanos, len: Nanos },
    /// With the most reads.
    BusiestReads(Nanos),
    /// With the most writes.
    BusiestWrites(Nanos),
    /// Anywhere, by the seed.
    Random(Nanos),
}

impl std::str::FromStr for WindowArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((start, len)) = text.split_once('+') {
            return Ok(Self::At { start: duration(start)?, len: duration(len)? });
        }
        let (kind, len) = text.split_once(':').unwrap_or((text, "5m"));
        let len = duration(len)?;
        match kind {
            "busiest-reads" => Ok(Self::BusiestReads(len)),
            "busiest-writes" => Ok(Self::BusiestWrites(len)),
            "random" => Ok(Self::Random(len)),
            _ => Err(format!(
                "unknown window {text:?}: expected START+LENGTH as 1h+5m, busiest-reads:LENGTH, \
                 busiest-writes:LENGTH or random:LENGTH"
            )),
        }
    }
}
