//! The arguments of `manylogs fs keeping`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_block::Sectors;
use manylogs_lab::mlfs::keeping::Gate;

use super::suggest::DRIVES;
use crate::args::link::LinkArgs;

/// A load of which something is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeepingGate {
    /// Files are appended to, the oldest are deleted, and power cuts come in between.
    Appended,
    /// One file is overwritten 40 times.
    Ring,
    /// Files are renamed and overwritten.
    Segments,
    /// Small files are written over a day into every log; then others need the room.
    Spread,
    /// One user writes far more than the budget, beside another's log.
    Owners,
    /// What was appended beside readers is read back, from the logs and from home.
    Read,
    /// A checkpoint, with files that live in the logs and without.
    Pass,
}

impl KeepingGate {
    pub(crate) const fn gate(self) -> Gate {
        match self {
            Self::Appended => Gate::Appended,
            Self::Ring => Gate::Ring,
            Self::Segments => Gate::Segments,
            Self::Spread => Gate::Spread,
            Self::Owners => Gate::Owners,
            Self::Read => Gate::Read,
            Self::Pass => Gate::Pass,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FsKeepingArgs {
    /// What is measured.
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "appended,ring,segments,spread,owners,read,pass"
    )]
    pub(crate) gate: Vec<KeepingGate>,
    /// Bytes of all logs together, from 40M on; what is written is in proportion to it.
    #[arg(long, value_name = "SIZE", value_parser = logs, default_value = "1G")]
    pub(crate) logs: Sectors,
    /// Drives: names (see `manylogs drive list`) or profile files.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cheetah-15k5",
          value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Vec<String>,
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

fn logs(text: &str) -> Result<Sectors, String> {
    match crate::units::size(text) {
        Ok(size) if (40 << 20..=64 << 30).contains(&size.bytes()) => Ok(size),
        Ok(_) => Err("expected a size from 40M to 64G".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
