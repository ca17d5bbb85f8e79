//! Arguments about chains of drives (Gecko), of the commands that have them.

use std::path::PathBuf;

use clap::Args;
use manylogs_block::Sectors;
use manylogs_gecko::{ChainSettings, Cleaning};

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
    /// With --gecko: size of the device; half of what the drives hold when not given. Cleaning
    /// needs the rest: the less is exported, the faster are writes.
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "gecko")]
    pub(crate) export: Option<Sectors>,
    /// With --gecko: length of a segment, which is cleaned at a time; 64M to 256M when not given,
    /// less on drives below 4 GiB.
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "gecko")]
    pub(crate) segment: Option<Sectors>,
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
}

impl ChainOfArgs {
    pub(crate) fn settings(&self) -> ChainSettings {
        ChainSettings { cleaning: self.cleaning, ..ChainSettings::default() }
    }
}
