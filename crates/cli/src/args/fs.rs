//! The arguments of `manylogs fs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct FsArgs {
    #[command(subcommand)]
    pub(crate) command: FsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// Mount an ext4 file system with blocks of 4096 bytes, until it is unmounted or Ctrl-C.
    Mount(FsMountArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FsMountArgs {
    /// The disk, partition or image file.
    pub(crate) source: PathBuf,
    /// The directory to mount on.
    pub(crate) target: PathBuf,
    /// What the journal holds.
    #[arg(long, value_enum, default_value_t = ModeArg::Ordered)]
    pub(crate) mode: ModeArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Metadata; data is written before what refers to it.
    Ordered,
}
