//! Arguments of lending a disk's room, and of borrowing it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_block::{Nanos, Sectors};
use manylogs_everest::Policy;
use manylogs_serve::{Borrowing, NbdAddress, StoreAddress};

use super::serve::LogFormatArg;
use super::volume::BackendArg;
use crate::units::{Unexpected, duration, expect, size};

/// The stores that a base volume borrows while it is busy.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stores of other disks, for a base volume (format --everest)")]
pub(crate) struct StoreArgs {
    /// A store of another disk, as `manylogs lend` prints it: unix:PATH or tcp:HOST:PORT, on this
    /// machine, and #STORE if only that one will do. Give it once for each store.
    #[arg(long = "store", value_name = "ADDRESS[#STORE]")]
    pub(crate) stores: Vec<StoreAddress>,
    /// Copies of each write that goes to stores, each in a store of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) copies: usize,
    /// How long a store is waited for that does not answer: when the base volume is opened, and
    /// by reads of what only that store has.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) patience: Nanos,
    /// When writes go to stores: while requests would wait (wait), by the counts of the Everest
    /// paper, always, or never.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = OffloadArg::Wait)]
    pub(crate) offload: OffloadArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OffloadArg {
    /// While a request would wait for longer than 15 ms at the base, and for less at a store.
    Wait,
    /// While the base has more than 32 requests in flight, and a store's disk fewer.
    EverestPaper,
    /// Every write.
    Always,
    /// Only what overwrites a range that stores hold.
    Never,
}

impl StoreArgs {
    /// As the engine takes it.
    pub(crate) fn borrowing(&self) -> Borrowing {
        let policy = match self.offload {
            OffloadArg::Wait => Policy::DEFAULT,
            OffloadArg::EverestPaper => Policy::PAPER,
            OffloadArg::Always => Policy::Always,
            OffloadArg::Never => Policy::Never,
        };
        let (copies, patience) = (self.copies, self.patience);
        Borrowing { stores: self.stores.clone(), copies, patience, policy }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LendArgs {
    /// The disk or partition to lend, or a file, which is made if it is not there. A store that is
    /// there already is lent again, with what it holds.
    pub(crate) device: PathBuf,
    /// Make a file of this size, as 20G. Its space is reserved at once.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) size: Option<Sectors>,
    /// Where clients come to: unix:PATH or tcp:HOST:PORT, on this machine. A socket of its own when
    /// not given.
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub(crate) listen: Option<NbdAddress>,
    /// Lend it although it holds something, which is lost.
    #[arg(long)]
    pub(crate) force: bool,
    /// How requests reach the kernel.
    #[arg(long, value_enum, default_value_t = BackendArg::Auto)]
    pub(crate) backend: BackendArg,
    /// Format of messages on standard error.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormatArg::Text)]
    pub(crate) log_format: LogFormatArg,
}

#[derive(Debug, Args)]
pub(crate) struct StoresArgs {
    /// The base volume's disk, partition or image.
    pub(crate) device: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn listen(text: &str) -> Result<NbdAddress, Unexpected> {
    let parsed = text.parse::<StoreAddress>().ok().filter(|address| address.store.is_none());
    expect(parsed.map(|address| address.at), text, "unix:PATH or tcp:HOST:PORT")
}
