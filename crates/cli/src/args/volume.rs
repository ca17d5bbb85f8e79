//! Arguments of the commands that work on a volume while nobody has it open.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_block::Sectors;
use manylogs_lab::Shape;
use manylogs_storage::Backend;

use super::gecko::GeckoArgs;
use super::suggest::DRIVES;
use crate::units::{Unexpected, expect, size};

const SETTINGS: &str = "\
Settings, as key=value:

  logging=on|off          off: small writes go home like large ones
  threshold=64K           writes up to this size are logged
  adaptive=off            on: the threshold falls, to 32K at least, while more is logged than a
                          checkpoint can write home
  record=1M               longest payload of a record
  swap=80%                how full a log is that an idle volume empties into another
  checkpoint=WHEN         logged data moves home: 22:00-06:00, idle, every:10min, full
                          (22:00-06:00: in these hours, of this machine's local time)
  checkpoint-rate=20M     bytes a second that a checkpoint moves at most, or none
  watermark=90%           share of the log space from which a checkpoint starts anyway
  idle=300ms              nothing arrives for so long: idle
  appends=4               records in flight together
  buffer=4M               volatile bytes that writes may wait in until a flush
  buffer-age=1s           and for how long
  sequential=home         small writes that continue more than 1 MiB and that nobody waits for
                          go home, many together; or logged, like others
  snapshot=1h             interval of table snapshots, or none
  durable-only=none       ranges that are only logs, as 0+1G or 4G+512M:8G+64M (offset+length):
                          what is written there stays in the logs
  durable-budget=50%      share of the log space that it may take; more goes home, oldest first
  hole=open               closed: on an array with parity no block that nobody was writing is lost
                          in a crash with drives missing (after format --close-hole)
  band=none               length of the bands of a shingled drive that manages itself, as 30M

Sizes are in bytes, or with K, M, G (powers of 1024); times with ms, s, min, h.";

/// The volume.
#[derive(Clone, Debug, Args)]
pub(crate) struct VolumeArgs {
    /// The disk, partition or image that holds the volume.
    pub(crate) device: PathBuf,
    /// How requests reach the kernel.
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    pub(crate) backend: BackendArg,
    /// Where the mapping table is, if not in the logs: `nvram:PATH` is a file that is mapped, best
    /// on non-volatile memory (DAX).
    #[arg(long, value_parser = nvram, value_name = "nvram:PATH")]
    pub(crate) table: Option<Nvram>,
    /// Open with an empty table in place of a lost one. Data that was only in the logs is lost.
    #[arg(long, requires = "table")]
    pub(crate) give_up_table: bool,
}

/// The file that stands for non-volatile RAM.
#[derive(Clone, Debug)]
pub(crate) struct Nvram(pub(crate) PathBuf);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    /// `io_uring`, or threads where it is forbidden.
    Auto,
    Uring,
    Threads,
}

impl From<BackendArg> for Backend {
    fn from(arg: BackendArg) -> Self {
        match arg {
            BackendArg::Auto => Self::Auto,
            BackendArg::Uring => Self::Uring,
            BackendArg::Threads => Self::Threads,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Create an image file of this size, as 20G.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) size: Option<Sectors>,
    /// Do not reserve the image's space: writes fail if it runs out.
    #[arg(long, requires = "size")]
    pub(crate) sparse: bool,
    /// Format although the device holds something, which is lost.
    #[arg(long)]
    pub(crate) force: bool,
    /// Write zeroes to all space for data. Otherwise blocks read as what the device held before,
    /// until they are written. Takes hours on a disk that cannot zero faster than it writes.
    #[arg(long)]
    pub(crate) zero: bool,
    /// A label, up to 32 bytes.
    #[arg(long, default_value = "")]
    pub(crate) label: String,
    /// For a shingled drive that manages itself: logs that it takes for streams, which bypass its
    /// persistent cache, writes up to 1 MiB are logged, and they go home band by band.
    #[arg(long)]
    pub(crate) shingled: bool,
    /// Length of that drive's bands, if it is known; else 30M.
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "shingled")]
    pub(crate) band: Option<Sectors>,
    /// Not for a shingled drive, whatever a measurement says. Without this and --shingled, a disk
    /// is measured: it is read and written at 128 places, without a change, for some seconds.
    #[arg(long, conflicts_with = "shingled")]
    pub(crate) conventional: bool,
    /// The drive that the disk is: a name (`manylogs drive list`) or a profile file. When not
    /// given: an own profile with its serial number, or the catalogue's of its model.
    #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Option<String>,
    /// Writes up to this size are logged.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) threshold: Option<Sectors>,
    /// Size of a log.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) log: Option<Sectors>,
    /// One log at the end of each group of this size.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) group: Option<Sectors>,
    /// On an array with parity: room to close the write hole of data at home, and close it
    /// (hole=closed). After a crash with drives missing no block is lost that nobody was writing.
    #[arg(long)]
    pub(crate) close_hole: bool,
    /// The array that the whole disk is, as raid5:4:chunk=64K, where Linux does not know it: a
    /// controller's array looks like one disk. Kept in the superblock. Refused where Linux knows
    /// better.
    #[arg(long, value_name = "ARRAY", conflicts_with = "gecko")]
    pub(crate) array: Option<Shape>,
    /// Size of the mapping table's file.
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "table")]
    pub(crate) table_size: Option<Sectors>,
    #[command(flatten)]
    pub(crate) gecko: GeckoArgs,
    /// Physical sector in bytes, where the device does not say: 512 or 4096.
    #[arg(long, value_name = "BYTES", value_parser = physical_sector)]
    pub(crate) physical_sector: Option<Sectors>,
    /// Make a base volume, which borrows stores of other disks while it is busy (`serve --store`):
    /// of the disk as it is, or of the volume that is made on it.
    #[arg(long, value_enum, value_name = "disk|volume")]
    pub(crate) everest: Option<EverestArg>,
}

/// What a base volume is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EverestArg {
    /// The disk, without logs.
    Disk,
    /// A volume on the disk.
    Volume,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Repair what can be repaired, and report what is lost.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Print the records of this log.
    #[arg(long, value_name = "N")]
    pub(crate) log: Option<u32>,
    /// Rebuild the table from the logs alone.
    #[arg(long)]
    pub(crate) ignore_snapshot: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Afterwards reset the lateness of the emulated drive, so that work before a run, such as
    /// making a file system, is not in the report of the run.
    #[arg(long)]
    pub(crate) forget_lateness: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SETTINGS)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// The settings to change, as key=value. Without any, all settings are printed.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) changes: Vec<String>,
    /// Place the logs of a drained volume for the array below as it is now: it was reshaped, or was
    /// not known when the volume was made. The data keeps its addresses. now: the array of format
    /// --array stays, unless Linux knows one; unsaid: that array was wrong, and is forgotten.
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["changes", "json"])]
    pub(crate) geometry: Option<GeometryArg>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which shape of the array the logs are placed for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum GeometryArg {
    /// The present one: what Linux knows, or else the user's word.
    Now,
    /// What Linux knows: the user's word is forgotten.
    Unsaid,
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Overwrite the logs with zeroes, so that no old copies of data stay there.
    #[arg(long)]
    pub(crate) wipe: bool,
    /// Then give the volume a new id: a copy of a disk has the id of the original, and the two
    /// cannot be open at once.
    #[arg(long)]
    pub(crate) new_id: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// The disk, partition or image.
    pub(crate) device: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// As a device-mapper table of linear targets, for `dmsetup create`.
    #[arg(long)]
    pub(crate) dm: bool,
    /// The device to name in it, if not the one given.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device_name: Option<PathBuf>,
    /// Print it although the volume is not drained: logged data is missing there.
    #[arg(long)]
    pub(crate) force: bool,
}

fn nvram(text: &str) -> Result<Nvram, Unexpected> {
    let path = text.strip_prefix("nvram:").filter(|path| !path.is_empty());
    expect(path.map(|path| Nvram(path.into())), text, "nvram:PATH")
}

/// A length that drives may have as their physical sector.
pub(crate) fn physical_sector(text: &str) -> Result<Sectors, Unexpected> {
    let sector = match text {
        "512" => Some(Sectors(1)),
        "4096" | "4K" => Some(Sectors(8)),
        _ => None,
    };
    expect(sector, text, "512 or 4096")
}
