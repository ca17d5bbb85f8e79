//! Arguments of lending a disk's room, and of borrowing it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_block::{Nanos, Sectors};
use manylogs_everest::Policy;
use manylogs_serve::{
    Borrowing, Identity, KEY_FILE, KeyError, NbdAddress, PublicKey, StoreAddress,
};

use super::serve::LogFormatArg;
use super::volume::BackendArg;
use crate::units::{Unexpected, duration, expect, size};

/// The stores that a base volume borrows while it is busy.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stores of other disks, for a base volume (format --everest)")]
pub(crate) struct StoreArgs {
    /// A store of another disk, as `manylogs lend` prints it: unix:PATH or tcp:HOST:PORT, #STORE if
    /// only that one will do, and +KEY, the key of the machine that lends it, on another machine.
    /// Give it once for each store.
    #[arg(long = "store", value_name = "ADDRESS[#STORE][+KEY]")]
    pub(crate) stores: Vec<StoreAddress>,
    /// The key of this machine, for stores with keys; made if it is not there.
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    pub(crate) key: PathBuf,
    /// Copies of each write that goes to stores, each in a store of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) copies: usize,
    /// How long a store is waited for that does not answer: when the base volume is opened, and
    /// by reads of what only that store has.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) patience: Nanos,
    /// The most that stores may hold of it, all together, as 20G. Beyond that no more ranges go
    /// there. No bound when not given: each store has one of its own.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) held_max: Option<Sectors>,
    /// Borrow stores on the base volume's own disk, too. That disk has twice the work then: for
    /// trials.
    #[arg(long)]
    pub(crate) same_disk: bool,
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
    ///
    /// # Errors
    /// If a store has a key, and this machine can have none.
    pub(crate) fn borrowing(&self) -> Result<Borrowing, KeyError> {
        let policy = match self.offload {
            OffloadArg::Wait => Policy::DEFAULT,
            OffloadArg::EverestPaper => Policy::PAPER,
            OffloadArg::Always => Policy::Always,
            OffloadArg::Never => Policy::Never,
        };
        let sealed = self.stores.iter().any(|store| store.key.is_some());
        let identity = sealed.then(|| Identity::of_file(&self.key)).transpose()?;
        let (copies, patience) = (self.copies, self.patience);
        let (stores, key) = (self.stores.clone(), self.key.clone());
        let held_max = self.held_max.unwrap_or(Sectors(u64::MAX));
        let same_disk = self.same_disk;
        Ok(Borrowing { stores, identity, key, copies, patience, held_max, policy, same_disk })
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
    /// The most that one client's data may take, in per cent of the lent part. What is beyond goes
    /// to other stores of that client, or stays on its disk.
    #[arg(long, value_name = "PERCENT", default_value_t = 75,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) each: u8,
    /// What the store has of the disk's time while the disk's own clients wait, in per cent. Its
    /// clients wait longer then. 100 is no bound. `manylogs set DEVICE share=15%` changes it.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) share: u8,
    /// Where clients come to: unix:PATH or tcp:HOST:PORT, from other machines only with --allow. A
    /// socket of its own when not given.
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub(crate) listen: Option<NbdAddress>,
    /// Let in clients with this key alone, and encrypt all bytes to and fro. `manylogs stores BASE
    /// key` prints it on the client's machine. Give it once for each client.
    #[arg(long = "allow", value_name = "KEY")]
    pub(crate) allowed: Vec<PublicKey>,
    /// The key of this machine, with --allow; made if it is not there.
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    pub(crate) key: PathBuf,
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
    /// What is asked. The stores and what they hold, if not given.
    #[arg(value_enum, value_name = "WHAT")]
    pub(crate) ask: Option<StoresAsk>,
    /// The store: to add one, its address as `manylogs lend` prints it; to evacuate, remove or
    /// forget one, its name.
    #[arg(value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// The key of this machine; made if it is not there.
    #[arg(long, value_name = "FILE", default_value = KEY_FILE)]
    pub(crate) key: PathBuf,
    /// To forget a store: give up the ranges that only it had. To remove one: give up the ranges
    /// that it returns damaged, and no other store has. They are read errors until they are
    /// written.
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoresAsk {
    /// Print the public key of this machine, by which `manylogs lend --allow` lets it in.
    Key,
    /// Borrow one more store, while the base volume is served: now, and at every later start.
    Add,
    /// Empty a store in the background, while the base volume is served: it takes no more writes,
    /// and what it holds goes home, or to other stores while the base is busy. Goes on after each
    /// start; add calls the store back.
    Evacuate,
    /// Give a store up, while the base volume is served: evacuate it, and drop it when it holds
    /// nothing. If what is left there is damaged, that is listed, and lost only with
    /// --accept-loss.
    Remove,
    /// Forget a store that is gone for good, whether the base volume is served or not. Lists what
    /// is lost, and does it only with --accept-loss.
    Forget,
}

fn listen(text: &str) -> Result<NbdAddress, Unexpected> {
    let parsed = text
        .parse::<StoreAddress>()
        .ok()
        .filter(|address| (address.store, address.key) == (None, None));
    expect(parsed.map(|address| address.at), text, "unix:PATH or tcp:HOST:PORT")
}
