//! The arguments of `manylogs fs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use manylogs_block::Sectors;
use manylogs_lab::interfere::StreamKind;
use manylogs_mlfs::JournalMode;

use super::applications::FsApplicationsArgs;
use super::keeping::FsKeepingArgs;
use super::suggest::DRIVES;
use super::trees::FsTreesArgs;
use crate::args::arrays::ArrayArgs;
use crate::args::link::LinkArgs;
use crate::args::serve::{CacheArg, OnOff, Updates};

#[derive(Debug, Args)]
pub(crate) struct FsArgs {
    #[command(subcommand)]
    pub(crate) command: FsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// Mount an ext4 file system with blocks of 4096 bytes, until it is unmounted or Ctrl-C.
    Mount(FsMountArgs),
    /// Unmount it, and wait until the last write is on the disk.
    Unmount(FsUnmountArgs),
    /// Take an ext4 file system over for MLFS, in place: room for logs is allocated, and then only
    /// MLFS can use it. Nothing is copied.
    Adopt(FsAdoptArgs),
    /// Give a file system back: what the logs hold goes home, and it is plain ext4 again. Also
    /// undoes what was interrupted.
    Release(FsReleaseArgs),
    /// Show what a file system is: its features, what is free, its state. Changes nothing.
    Status(FsStatusArgs),
    /// Read all metadata of a file system that nobody uses, and the logs of an adopted one, and
    /// report damage. Changes nothing, unless --repair is given.
    Check(FsCheckArgs),
    /// Show what programs ask of a mounted file system and what it writes, again and again.
    Top(FsTopArgs),
    /// Move everything home that is in the logs of an adopted file system, mounted or not, or in a
    /// journal that keeps it (mode lazy), while that is mounted.
    Checkpoint(FsCheckpointArgs),
    /// Write the metadata of a file system that is mounted in the mode lazy to its journal anew, in
    /// the order in which a walk of the tree meets it, so that walks read it in sequence.
    Arrange(FsArrangeArgs),
    /// Read all metadata that stays in the journal of a file system that is mounted in the mode
    /// lazy, compare it with its checksums, and write anew what is damaged and known. Exits with 4
    /// if something is lost, with 3 if a damaged descriptor stays, at which a replay by a kernel
    /// would end, and with 1 if it ended early.
    Scrub(FsScrubArgs),
    /// Lengthen the journal of a file system that nobody uses. What it holds goes home first.
    Journal(FsJournalArgs),
    /// Measure small durable writes beside a stream on modelled drives, in each mode of the
    /// journal.
    Interfere(FsInterfereArgs),
    /// Measure programs (mail servers, file servers, databases) beside a reader on modelled drives,
    /// in each mode of the journal.
    Applications(FsApplicationsArgs),
    /// Measure how long trees of directories take to make, list and remove on modelled drives, in
    /// each mode of the journal.
    Trees(FsTreesArgs),
    /// Measure what the logs keep of files that need durability and no place, against what is
    /// promised of it.
    Keeping(FsKeepingArgs),
    /// Show or change the settings of an adopted file system's logs, mounted or not. They are kept.
    Set(FsSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FsMountArgs {
    /// The disk, partition or image file.
    pub(crate) source: PathBuf,
    /// The directory to mount on.
    pub(crate) target: PathBuf,
    /// Where the journal is, and what it holds. When not given: manylogs for an adopted file
    /// system, ordered for plain ext4.
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeArg>,
    /// Options as `mount -o` has them: ro, noatime, relatime, strictatime, nodiratime,
    /// errors=continue, errors=remount-ro, mode=MODE, data=ordered, data=journal, memory=SIZE,
    /// durable=PATTERN:PATTERN, nodev, nosuid, noexec, sync, dirsync, auto_da_alloc,
    /// noauto_da_alloc, commit=SECONDS, max-age=SPAN, savemap, emulate=DRIVE, write_cache=WORD.
    /// What the kernel keeps is turned off by noattrcache, lookupcache=positive or none,
    /// nodircache, nolinkcache, noreaddirplus, nodatacache; requests come as uring, nouring and
    /// noawake say.
    /// Others of ext4 are taken where nothing is lost by it.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Files under such names need durability and no place, as pg_wal/*,WiredTigerLog.*: what is
    /// written to them stays in the logs for as long as it lives. Judged when a file is created or
    /// renamed. As -o durable= with colons between. The attribute user.manylogs.durable says it.
    #[arg(long, value_name = "PATTERNS")]
    pub(crate) durable: Vec<String>,
    /// What is written through descriptors opened with O_DSYNC or O_SYNC needs no place either:
    /// that write alone, not the file. As -o durable_dsync.
    #[arg(long)]
    pub(crate) durable_dsync: bool,
    /// Bounds what the server uses of memory, as 256M or 1G; programs wait for more. 64M is the
    /// least. When not given: a sixteenth of the machine's, or of its group's if that is less,
    /// from 64M to 512M.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Return when the file system is mounted; its server goes on.
    #[arg(long)]
    pub(crate) background: bool,
    /// Emulate this drive: every request takes the time that it would take on the drive. The
    /// drive's whole span is scaled to the device.
    #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) emulate: Option<String>,
    /// With --emulate: the device is the beginning of the drive, not its whole span.
    #[arg(long)]
    pub(crate) no_fit: bool,
    /// The write cache of the disk's drive while it is mounted, also as -o write_cache=; what it
    /// was is put back at the end. keep, the default, puts back what a killed server has changed.
    /// With --emulate: that of the emulated drive.
    #[arg(long, value_enum, value_name = "on|off|keep")]
    pub(crate) write_cache: Option<CacheArg>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FsUnmountArgs {
    /// The directory that it is mounted on.
    pub(crate) target: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FsAdoptArgs {
    /// The disk, partition or image file, which is not mounted and was unmounted cleanly.
    pub(crate) source: PathBuf,
    /// One log of 10 MiB in so many bytes, as 128M; one in eight block groups when not given,
    /// which is 10 MiB in a GiB.
    #[arg(long, value_name = "BYTES", value_parser = crate::units::size)]
    pub(crate) log_every: Option<Sectors>,
    /// Physical sector in bytes, where the device does not say, as of an image that will be copied
    /// to a disk: 512 or 4096.
    #[arg(long, value_name = "BYTES", value_parser = super::volume::physical_sector)]
    pub(crate) physical_sector: Option<Sectors>,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// The table of file systems in which nothing may say that this one is ext4.
    #[arg(long, value_name = "FILE", default_value = "/etc/fstab")]
    pub(crate) fstab: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FsReleaseArgs {
    /// The disk, partition or image file, which is not mounted.
    pub(crate) source: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FsStatusArgs {
    /// The directory that it is mounted on, or the disk, partition or image file. Of a file or
    /// directory in it: whether the logs keep what is written there.
    pub(crate) place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FsTopArgs {
    /// The directory that it is mounted on, or the disk, partition or image file.
    pub(crate) place: PathBuf,
    #[command(flatten)]
    pub(crate) updates: Updates,
}

#[derive(Debug, Args)]
pub(crate) struct FsCheckpointArgs {
    /// The directory that it is mounted on, or the disk, partition or image file.
    pub(crate) place: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FsArrangeArgs {
    /// The directory that it is mounted on, or the disk, partition or image file.
    pub(crate) place: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FsScrubArgs {
    /// The directory that it is mounted on, or the disk, partition or image file.
    pub(crate) place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FsJournalArgs {
    /// The disk, partition or image file, which is not mounted and not adopted.
    pub(crate) source: PathBuf,
    /// How long the journal becomes, as 10G. At most 39 GiB; it is never shortened.
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size)]
    pub(crate) size: Sectors,
}

#[derive(Debug, Args)]
pub(crate) struct FsSetArgs {
    /// The directory that it is mounted on, or the disk, partition or image file.
    pub(crate) place: PathBuf,
    /// The settings to change, as key=value. Without any, all settings are printed.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) changes: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options that take lists (values separated by commas) multiply: each combination is a case. Time
/// is virtual: the same command gives the same figures on any machine. Needs mkfs.ext4.
#[derive(Debug, Args)]
pub(crate) struct FsInterfereArgs {
    /// Drives: names (see `manylogs drive list`) or profile files.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cheetah-15k5",
          value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Vec<String>,
    #[command(flatten)]
    pub(crate) arrays: ArrayArgs,
    /// Modes of the journal: ordered, lazy, data, adaptive-jbd2 (content of small writes joins
    /// ext4's own journal, as the paper's adaptive journaling has it), adaptive, manylogs.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = mode,
          default_value = "ordered,data,adaptive,manylogs")]
    pub(crate) mode: Vec<JournalMode>,
    /// What the stream does with a file of 2 GiB, 1 MiB at a time: read, write.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "read,write",
          value_parser = sequential)]
    pub(crate) stream: Vec<StreamKind>,
    /// Small writes a second: 4 KiB into each of 20 files all over the disk, and a sync.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "40,80,160,320")]
    pub(crate) rate: Vec<f64>,
    /// One log of 10 MiB in so many bytes, as for `fs adopt`.
    #[arg(long, value_name = "BYTES", value_parser = crate::units::size)]
    pub(crate) log_every: Option<Sectors>,
    /// The longest write that goes to a log; 32K when not given.
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size)]
    pub(crate) threshold: Option<Sectors>,
    /// Size of ext4's own journal, in whole MiB.
    #[arg(long, value_name = "SIZE", value_parser = journal, default_value = "1G")]
    pub(crate) journal: Sectors,
    /// Whether writes may wait in the drive's cache.
    #[arg(long, value_enum, value_name = "on|off", default_value = "off")]
    pub(crate) drive_cache: OnOff,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Decides everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Simulated seconds that are measured.
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Cases measured at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) threads: Option<u64>,
}

pub(super) fn mode(text: &str) -> Result<JournalMode, String> {
    let known = || JournalMode::ALL.map(JournalMode::name).join(", ");
    JournalMode::named(text).ok_or_else(|| format!("expected a mode (there are: {})", known()))
}

pub(super) fn journal(text: &str) -> Result<Sectors, String> {
    let size = crate::units::size(text).map_err(|error| error.to_string())?;
    let whole = size.bytes().is_multiple_of(1 << 20) && size.bytes() >= 4 << 20;
    let expected = "expected whole MiB, at least 4M: mke2fs takes no less";
    whole.then_some(size).ok_or_else(|| expected.to_owned())
}

fn sequential(text: &str) -> Result<StreamKind, String> {
    match text.parse() {
        Ok(kind @ (StreamKind::Read | StreamKind::Write)) => Ok(kind),
        _ => Err("expected read or write".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct FsCheckArgs {
    /// The disk, partition or image file.
    pub(crate) source: PathBuf,
    /// Repair the logs of an adopted file system, or a damaged journal: bring home what can be
    /// read, and give up what cannot. The file system itself is e2fsck's, of an adopted one after
    /// `manylogs fs release`.
    #[arg(long, conflicts_with = "json")]
    pub(crate) repair: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Ext4's own, with metadata; data is written before what refers to it.
    Ordered,
    /// Ext4's own, with metadata, which stays there until the journal needs the room. An unmount
    /// leaves it there: any mount, also by the kernel, or e2fsck brings it home.
    Lazy,
    /// Ext4's own, with metadata and data.
    Data,
    /// The log nearest the head: each transaction is one record, with small data. The file system
    /// is adopted.
    Manylogs,
    /// The same, and metadata stays in the logs until they need the room. The disk without them is
    /// old then.
    #[value(name = "manylogs+lazy")]
    ManylogsLazy,
    /// The logs in the middle of the device, wherever the head is. The file system is adopted.
    Adaptive,
}

impl From<ModeArg> for JournalMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Ordered => Self::Ordered,
            ModeArg::Lazy => Self::Lazy,
            ModeArg::Data => Self::Data,
            ModeArg::Manylogs => Self::Manylogs,
            ModeArg::ManylogsLazy => Self::ManylogsLazy,
            ModeArg::Adaptive => Self::Adaptive,
        }
    }
}
