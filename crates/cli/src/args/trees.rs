//! The arguments of `manylogs fs trees`.

use std::path::PathBuf;

use clap::Args;
use manylogs_block::Sectors;
use manylogs_ext4::ReadAhead;
use manylogs_mlfs::JournalMode;

use super::fs::{journal, mode};
use super::serve::OnOff;
use super::suggest::DRIVES;
use crate::args::link::LinkArgs;

fn ahead(text: &str) -> Result<ReadAhead, String> {
    ReadAhead::named(text).ok_or_else(|| "expected off, tables or all".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct FsTreesArgs {
    /// Drives: names (see `manylogs drive list`) or profile files.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "exos-x20",
          value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Vec<String>,
    /// Modes of the journal: ordered, lazy, data, adaptive-jbd2, adaptive, manylogs.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = mode,
          default_value = "ordered,lazy")]
    pub(crate) mode: Vec<JournalMode>,
    /// Directories of the tree, four in each, made level by level.
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) directories: u32,
    /// Files of 4 KiB that are made in the directories, read, and removed.
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub(crate) files: u32,
    /// Metadata that is read ahead: off, tables (of inodes at home, as Linux does), all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ahead,
          default_value = "all")]
    pub(crate) read_ahead: Vec<ReadAhead>,
    /// Make the directories of each level in a random order.
    #[arg(long)]
    pub(crate) shuffled: bool,
    /// In the mode lazy arrange metadata, when the directories are made, in the order of a walk.
    #[arg(long)]
    pub(crate) arranged: bool,
    /// Cut the power at the end of each phase, when all is durable, in place of an unmount.
    #[arg(long)]
    pub(crate) cut: bool,
    /// Size of ext4's own journal, in whole MiB.
    #[arg(long, value_name = "SIZE", value_parser = journal, default_value = "1G")]
    pub(crate) journal: Sectors,
    /// Whether writes may wait in the drive's cache.
    #[arg(long, value_enum, value_name = "on|off", default_value = "on")]
    pub(crate) drive_cache: OnOff,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Decides everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Cases measured at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) threads: Option<u64>,
}
