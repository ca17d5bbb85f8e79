//! The command line.

pub(crate) mod applications;
pub(crate) mod arrays;
pub(crate) mod chain;
pub(crate) mod drive;
pub(crate) mod episodes;
pub(crate) mod exercise;
pub(crate) mod fleet;
pub(crate) mod fs;
pub(crate) mod gecko;
pub(crate) mod groups;
pub(crate) mod interfere;
pub(crate) mod keeping;
pub(crate) mod lab;
pub(crate) mod link;
pub(crate) mod nbd;
pub(crate) mod reproduce;
pub(crate) mod serve;
pub(crate) mod stores;
pub(crate) mod suggest;
pub(crate) mod torture;
pub(crate) mod trees;
pub(crate) mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use manylogs_block::{Nanos, Sectors};

use self::suggest::{FORMATS, FORMATS_WRITTEN};
use crate::units::{Rate, Unexpected, duration, expect, rate, size};

/// Make small durable writes beside large streams on one disk fast: replay traces to see the gain,
/// and keep a volume that does it.
///
/// Exit codes: 0 done; 1 failed; 2 wrong command line or bad input; 3 damaged, nothing lost; 4
/// acknowledged data is lost; 5 in use, or would be overwritten; 6 no permission; 7 written by
/// another version; 130 ended by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "manylogs", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record the requests to a disk of this machine.
    Record(RecordArgs),
    /// Show statistics of traces, convert and mix them.
    Trace(TraceArgs),
    /// Describe, recognise, show, validate and compare drives.
    Drive(drive::DriveArgs),
    /// Replay a trace on a modelled drive under several policies, and compare them.
    Replay(lab::ReplayArgs),
    /// Say whether a volume helps a load on a drive, with which settings, and how sure that is.
    Advise(lab::AdviseArgs),
    /// Replay every combination of traces, drives, policies, parameters and seeds in a file.
    Sweep(lab::SweepArgs),
    /// Judge a fleet of disks: which gain by a volume, which do not, and why. Needs the Python
    /// package.
    Fleet(fleet::FleetArgs),
    /// Measure small durable writes beside streams on modelled drives, under several policies.
    Interfere(Box<interfere::InterfereArgs>),
    /// Measure a chain of drives (Gecko) on modelled drives: what its gates ask for, and what it
    /// reaches.
    Chain(chain::ChainArgs),
    /// Measure generated peaks of a mail server (Everest) on modelled drives, alone and with stores
    /// of other drives, against their gates.
    Episodes(episodes::EpisodesArgs),
    /// Run the figures of the papers, and put what comes out beside what they have.
    Reproduce(reproduce::ReproduceArgs),
    /// List the volumes of this machine and their servers.
    List(volume::ListArgs),
    /// Make a volume on a disk, a partition or in an image file.
    Format(volume::FormatArgs),
    /// Read every structure and record of a volume, and report damage. Changes nothing without
    /// --repair.
    Check(volume::CheckArgs),
    /// Print what a volume's disk holds: superblock, root, logs, table, records.
    Dump(volume::DumpArgs),
    /// Serve a volume as a block device, in the foreground, until a signal or `manylogs stop`.
    Serve(Box<serve::ServeArgs>),
    /// Lend a part of a disk to base volumes at their peak, in the foreground, until a signal or
    /// `manylogs stop`. Prints what `serve --store` takes.
    Lend(stores::LendArgs),
    /// Show the stores that a base volume borrows, and what they hold of it.
    Stores(stores::StoresArgs),
    /// List the drives of a chain (Gecko), and replace halves of its pairs.
    Member(gecko::MemberArgs),
    /// End the server of a device in order.
    Stop(serve::StopArgs),
    /// Show what a running server does, repeatedly, until `q` or Ctrl-C.
    Top(serve::TopArgs),
    /// Print the metrics of a running server in the format of Prometheus.
    Metrics(serve::MetricsArgs),
    /// Show the state of a volume, and the data at risk in its logs.
    Status(volume::StatusArgs),
    /// Print the settings of a closed volume, or change them for good.
    Set(volume::SetArgs),
    /// Move everything that is logged home.
    Checkpoint(volume::CheckpointArgs),
    /// Empty the logs, so that the disk is readable without this software.
    Drain(volume::DrainArgs),
    /// Print where the data of a drained volume is on the disk.
    Table(volume::TableArgs),
    /// Read every logged copy and check it.
    Scrub(volume::CheckpointArgs),
    /// Let a volume use all of a device that became larger.
    Grow(volume::CheckpointArgs),
    /// Print which volume a device holds, in the format of udev. Changes nothing.
    Probe(volume::ProbeArgs),
    /// File systems of our own.
    Fs(fs::FsArgs),
    /// Crash simulated volumes at many moments, and check what they hold afterwards.
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
    /// The directory; made if it does not exist.
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
    /// Read a trace in any format, perhaps change it, and write it in another one.
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
    #[command(flatten)]
    pub(crate) output: TraceOutputArgs,
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
    #[command(flatten)]
    pub(crate) output: TraceOutputArgs,
    /// Size of the drive that the tenants share in equal slices, as 1T.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) drive_size: Sectors,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Where a trace goes, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceOutputArgs {
    /// The trace to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The format to write. When not given, the output's extension says it: a format's name, as
    /// in o.csv or o.msr, .iolog (fio3) or .vscsi (vscsi1); any other name means our own format.
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS_WRITTEN)]
    pub(crate) to: Option<String>,
}

/// How to read trace files.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reading traces")]
pub(crate) struct OpenArgs {
    /// The format; detected when not given.
    #[arg(long, value_name = "FORMAT", value_parser = FORMATS)]
    pub(crate) format: Option<String>,
    /// Unit of arrival times, for formats that leave it open.
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) time_unit: Option<TimeUnitArg>,
    /// Skip malformed records and count them.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Which device of the trace: a number, or `all`, one behind the other in one address space. A
    /// disk of this machine, as /dev/sdb, is the drive to replay on, instead of --drive.
    #[arg(long, value_name = "N|all|DISK", default_value = "all")]
    pub(crate) device: String,
    /// Which event of blktrace and blkparse traces counts as the request.
    #[arg(long, value_enum, default_value_t = EventArg::Queue)]
    pub(crate) event: EventArg,
}

/// The part of a trace to use.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Parts of a trace")]
pub(crate) struct ChangeArgs {
    /// Use a window: START+LENGTH as 1h+5m, or `busiest-writes:5m`, `busiest-reads:1h`,
    /// `random:5m` (by --seed).
    #[arg(long, value_name = "WINDOW")]
    pub(crate) window: Option<WindowArg>,
    /// Use only this many requests from the start.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// The seed of all random decisions; the same seed and input give the same results.
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
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        if let Some((start, len)) = text.split_once('+') {
            return Ok(Self::At { start: duration(start)?, len: duration(len)? });
        }
        let (kind, len) = text.split_once(':').unwrap_or((text, "5m"));
        let len = duration(len)?;
        let window = match kind {
            "busiest-reads" => Some(Self::BusiestReads(len)),
            "busiest-writes" => Some(Self::BusiestWrites(len)),
            "random" => Some(Self::Random(len)),
            _ => None,
        };
        expect(
            window,
            text,
            "START+LENGTH as 1h+5m, busiest-reads:LENGTH, busiest-writes:LENGTH or random:LENGTH",
        )
    }
}
