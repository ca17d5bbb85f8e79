//! Arguments of the commands that serve a device and talk to servers.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_operate::log::LogFormat;
use manylogs_serve::{MetricsAddress, ServedChain};

use super::gecko::ChainOfArgs;
use super::link::LinkArgs;
use super::nbd::NbdArgs;
use super::stores::StoreArgs;
use super::suggest::DRIVES;
use super::volume::VolumeArgs;

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Serve as a loop device, over a file through FUSE, which works on any kernel. Prints
    /// /dev/loopN.
    #[arg(long = "loop")]
    pub(crate) as_loop: bool,
    /// Serve as a file through FUSE, without a loop device. Prints its path.
    #[arg(long, conflicts_with = "as_loop")]
    pub(crate) file: bool,
    /// Serve as a device of the kernel's ublk driver. The device outlives a server that is killed:
    /// the next server takes it over. Writes are durable when acknowledged. Prints /dev/ublkbN.
    #[arg(long, conflicts_with_all = ["as_loop", "file", "nbd"])]
    pub(crate) ublk: bool,
    /// With --ublk: acknowledge writes before they are durable, as a disk with a write cache does;
    /// the device then disappears with a server that is killed.
    #[arg(long, requires = "ublk", conflicts_with_all = ["as_loop", "file", "nbd"])]
    pub(crate) write_back: bool,
    /// Serve the device as it is, without a volume, to compare with.
    #[arg(long, conflicts_with_all = ["table", "give_up_table"])]
    pub(crate) raw: bool,
    /// Emulate this drive: every request takes the time that it would take on the drive. The
    /// drive's whole span is scaled to the device.
    #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) emulate: Option<String>,
    /// With --emulate: the device is the beginning of the drive, not its whole span.
    #[arg(long, requires = "emulate")]
    pub(crate) no_fit: bool,
    /// The write cache of the disk's drive while it is served; what it was is put back at the end.
    /// keep, the default, puts back what a killed server has changed. With --emulate: that of the
    /// emulated drive.
    #[arg(long, value_enum, value_name = "on|off|keep", default_value_t = CacheArg::Keep,
        hide_default_value = true)]
    pub(crate) write_cache: CacheArg,
    #[command(flatten)]
    pub(crate) drive_link: LinkArgs,
    /// The drive that the disk is: a name, or a profile file. When not given, it is recognised by
    /// its serial number, its model or its class. The first estimates of the time to drain are for
    /// that drive.
    #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true,
        conflicts_with_all = ["emulate", "raw"])]
    pub(crate) drive: Option<String>,
    /// With --loop or --ublk: a symbolic link to the device, removed at the end. If it ends in a
    /// slash, its name is the volume's id.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["file", "nbd"])]
    pub(crate) link: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://HOST:PORT/metrics; without HOST, to this machine
    /// only.
    #[arg(long, value_name = "[HOST:]PORT")]
    pub(crate) metrics: Option<MetricsAddress>,
    /// Format of messages on standard error.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormatArg::Text)]
    pub(crate) log_format: LogFormatArg,
    #[command(flatten)]
    pub(crate) borrow: StoreArgs,
    #[command(flatten)]
    pub(crate) nbd: NbdArgs,
    #[command(flatten)]
    pub(crate) chain_of: ChainOfArgs,
    /// The chain that the device is of, once it was found.
    #[arg(skip)]
    pub(crate) chain: Option<ServedChain>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArg {
    Text,
    Logfmt,
    Json,
}

impl From<LogFormatArg> for LogFormat {
    fn from(arg: LogFormatArg) -> Self {
        match arg {
            LogFormatArg::Text => Self::Text,
            LogFormatArg::Logfmt => Self::Logfmt,
            LogFormatArg::Json => Self::Json,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// A drive's write cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    On,
    Off,
    #[default]
    Keep,
}

impl CacheArg {
    /// Whether it is to be on; `None` if it stays as it is.
    pub(crate) const fn wish(self) -> Option<bool> {
        match self {
            Self::On => Some(true),
            Self::Off => Some(false),
            Self::Keep => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The disk, partition or image that is served.
    pub(crate) device: PathBuf,
    /// Stop even while the device is in use: its users see I/O errors. Also removes the ublk device
    /// that a killed server left.
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait this many seconds at most, then report what the server waits for. The server goes on
    /// stopping.
    #[arg(long = "timeout", value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout_s: u64,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// The disk, partition or image that is served.
    pub(crate) device: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The disk, partition or image that is served.
    pub(crate) device: PathBuf,
    #[command(flatten)]
    pub(crate) updates: Updates,
}

/// How often a screen is shown.
#[derive(Debug, Args)]
pub(crate) struct Updates {
    /// Seconds between two updates.
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval_s: u64,
    /// Number of updates; until `q` or Ctrl-C when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}
