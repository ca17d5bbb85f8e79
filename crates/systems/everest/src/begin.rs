//! Making a base volume, and opening one.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Payload, Request, Sectors};
use manylogs_logstore::new_volume_id;
use manylogs_plant::{self as plant, Bug};
use thiserror::Error;

use crate::call::StoreId;
use crate::header::{Content, HEADER, Header, STORES_MAX};
use crate::lender::{Lender, LenderError};
use crate::offload::{Client, OffloadOptions, Offloaded};
use crate::peer::{Peer, without};
use crate::table::Table;
use crate::versions::{INCARNATION_LAST, Range};

/// Length of the last unit of a device, in which volumes and stores have a copy of their
/// superblock.
const END: Sectors = Sectors(8);

/// Why a base volume cannot be made or opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffloadError {
    /// The base volume failed.
    #[error("the base volume: {0}")]
    Base(#[from] IoError),
    /// The device is no base volume, or its header is damaged.
    #[error("the device has no header of a base volume that is whole")]
    NoHeader,
    /// The device is shorter than the base volume on it.
    #[error(
        "the base volume was made with {} sectors, and the device has {}: a part of it is missing",
        made.0, have.0
    )]
    Shorter {
        /// Size of the base volume with its header.
        made: Sectors,
        /// Size of the device.
        have: Sectors,
    },
    /// The device has no room for a header.
    #[error("a base volume has more than {} sectors, not {}", HEADER.0, have.0)]
    TooSmall {
        /// Size of the device.
        have: Sectors,
    },
    /// A store that may hold newer data was not given.
    #[error("store {} may hold newer data of this base volume: give it too", name(store))]
    MissingStore {
        /// Name of the store.
        store: StoreId,
    },
    /// A store was given twice, or too many.
    #[error("a base volume has up to {STORES_MAX} stores, each once")]
    Stores,
    /// More copies are asked for than there are stores, or none.
    #[error("{copies} copies of each write need as many stores: {stores} are given")]
    Copies {
        /// Copies that were asked for.
        copies: usize,
        /// Stores that were given.
        stores: usize,
    },
    /// A store that may hold newer data cannot be reached or refuses this opening.
    #[error("store {}: {source}", name(store))]
    Store {
        /// Name of the store.
        store: StoreId,
        /// Its error.
        source: LenderError,
    },
    /// A store that was noted to have something has it no more.
    #[error(
        "store {} came back with less than it had: {} of what it alone had {} missing, the first \
         at byte {}. Give it the newest copy of its disk. If there is none, let all be lost that \
         it alone had (manylogs stores BASE forget STORE --accept-loss)",
        name(store),
        ranges(missing.len()),
        if missing.len() == 1 { "is" } else { "are" },
        missing.first().map_or(0, |first| Sectors(first.start.0).bytes())
    )]
    RolledBack {
        /// Name of the store.
        store: StoreId,
        /// What is missing, in addresses of clients. Ranges that the note joined are whole.
        missing: Vec<Extent>,
    },
    /// The address of a store is too long to be kept.
    #[error("the address of a store that is kept has at most {most} bytes")]
    Address {
        /// Most bytes.
        most: usize,
    },
    /// The store is none of this base volume.
    #[error("store {} is no store of this base volume", name(store))]
    Unknown {
        /// Name of the store.
        store: StoreId,
    },
    /// The store can be reached: it is not gone.
    #[error(
        "store {} answers, so nothing is lost: let what it holds go home \
         (manylogs stores BASE remove STORE); if its disk is dead, stop its lender first, and \
         then forget it (manylogs stores BASE forget STORE --accept-loss)",
        name(store)
    )]
    Answers {
        /// Name of the store.
        store: StoreId,
    },
    /// No incarnation is left.
    #[error("the base volume was opened too often: reclaim everything and make it anew")]
    Worn,
}

/// Name of a store as text for people: 32 hexadecimal digits.
#[must_use]
pub fn store_name(store: &StoreId) -> String {
    store.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name(store: &StoreId) -> String {
    store_name(store)
}

fn ranges(count: usize) -> String {
    if count == 1 { "one range".to_owned() } else { format!("{count} ranges") }
}

impl Offloaded {
    /// Makes a base volume of `base`: overwrites its first sectors with a header, and the last
    /// ones with zeroes.
    ///
    /// # Errors
    /// If the device is too small, or fails.
    pub async fn create(runtime: &Handle, base: Rc<dyn BlockDevice>) -> Result<(), OffloadError> {
        let have = base.capabilities().capacity;
        if have <= HEADER {
            return Err(OffloadError::TooSmall { have });
        }
        // Volumes and stores have a copy of their superblock there: an old one must not be found.
        let last = Extent::new((have.0 - END.0) & !(END.0 - 1), END.0);
        if last.start.0 >= HEADER.0 {
            base.submit(Request::write_fua(last, Payload::zeroes(END))).await?;
        }
        Ok(Header::create(base, Content::new(new_volume_id(runtime), have)).await?)
    }

    /// Opens the base volume on `base`, which off-loads to `stores`. Waits only for the stores that
    /// may hold newer data.
    ///
    /// # Errors
    /// If the device is no base volume or fails. Also if a store that may hold newer data was not
    /// given, cannot be reached within [`OffloadOptions::patience`] or refuses: only that store
    /// knows what it holds. [`OffloadError::RolledBack`] if it holds less than the base noted at
    /// the last close, or while it was away.
    pub async fn open(
        runtime: Handle,
        base: Rc<dyn BlockDevice>,
        stores: Vec<Rc<dyn Lender>>,
        options: OffloadOptions,
    ) -> Result<Self, OffloadError> {
        let peers: Vec<Peer> = stores.into_iter().map(Peer::new).collect();
        let twice = |(n, peer): (usize, &Peer)| peers[..n].iter().any(|other| other.id == peer.id);
        if peers.len() > STORES_MAX || peers.iter().enumerate().any(twice) {
            return Err(OffloadError::Stores);
        }
        let (copies, stores) = (options.copies, peers.len());
        if copies == 0 {
            return Err(OffloadError::Copies { copies, stores });
        }
        let header = Header::find(&runtime, Rc::clone(&base)).await?;
        let header = header.ok_or(OffloadError::NoHeader)?;
        // Stores that are kept come and go while the base volume is used. With too few of them
        // writes go home, as they do while stores are away.
        if copies > stores && stores > 0 && header.content().kept.is_empty() {
            return Err(OffloadError::Copies { copies, stores });
        }
        let (made, have) = (header.content().sectors, base.capabilities().capacity);
        if made > have {
            return Err(OffloadError::Shorter { made, have });
        }
        if header.content().opening().incarnation >= INCARNATION_LAST {
            return Err(OffloadError::Worn);
        }
        let listed = header.content().stores.clone();
        for store in &listed {
            if !peers.iter().any(|peer| peer.id == *store) {
                return Err(OffloadError::MissingStore { store: *store });
            }
        }
        let token = runtime.random();
        let opened = |content: &mut Content| {
            content.opened(token);
            true
        };
        if plant::is(Bug::IncarnationNotDurable) {
            header.pretend(opened);
        } else {
            // Durable before any store hears of the opening, so that no other opening has its
            // number and token.
            header.update(opened).await?;
        }
        let client = Rc::new(Client::new(runtime, base, header, peers, options));
        if let Err(error) = client.learn(&listed).await {
            // The next attempt will be a new opening.
            client.close(false).await;
            return Err(error);
        }
        client.go_on_leaving();
        client.run();
        Ok(Self(client))
    }
}

impl Client {
    /// Asks all listed stores at the same time what they hold.
    async fn learn(self: &Rc<Self>, listed: &[StoreId]) -> Result<(), OffloadError> {
        let mut stores: Vec<usize> = (0..self.peers.len()).collect();
        stores.retain(|store| listed.contains(&self.peers[*store].id));
        let ask = |&store: &usize| {
            let client = Rc::clone(self);
            self.answer(async move { Ok(client.connect_patiently(store).await) })
        };
        let asked: Vec<_> = stores.iter().map(ask).collect();
        let (mut held, mut result) = (Vec::new(), Ok(()));
        for (store, asked) in stores.into_iter().zip(asked) {
            let id = self.peers[store].id;
            match asked.await? {
                Ok(ranges) => held.push((store, ranges)),
                Err(LenderError::Unreachable) if plant::is(Bug::OpenedWithoutStore) => {}
                Err(source) => result = Err(OffloadError::Store { store: id, source }),
            }
        }
        result?;
        for (store, ranges) in held.iter().filter(|_| !plant::is(Bug::NoteNotCompared)) {
            let store = self.peers[*store].id;
            let missing = self.header.content().missing(store, ranges);
            if !missing.is_empty() {
                return Err(OffloadError::RolledBack { store, missing });
            }
        }
        self.header.drop_notes().await?;
        for (store, ranges) in &mut held {
            *ranges = without(ranges, &self.header.voids_of(self.peers[*store].id));
        }
        self.table.replace(Table::opened(self.peers.len(), &held, &self.header.content().lost));
        self.weigh();
        for (store, _) in held {
            let voids = self.header.voids_of(self.peers[store].id);
            self.begin_session(store, !voids.is_empty());
            let client = Rc::clone(self);
            self.runtime.spawn(async move {
                drop(client.forget_old(store, Vec::new(), voids).await);
            });
        }
        Ok(())
    }

    async fn connect_patiently(self: Rc<Self>, store: usize) -> Result<Vec<Range>, LenderError> {
        let deadline = self.runtime.now() + self.options.patience;
        loop {
            let progress = self.peers[store].lender.progress().wait();
            match self.connect(store).await {
                Err(LenderError::Unreachable | LenderError::NoSession | LenderError::Repeated)
                    if self.runtime.now() < deadline => {}
                other => return other,
            }
            self.runtime.within(self.options.reconnect_every, progress).await;
        }
    }

    fn run(self: &Rc<Self>) {
        for store in 0..self.peers.len() {
            self.runtime.spawn(Rc::clone(self).run_peer(store));
        }
        self.runtime.spawn(Rc::clone(self).run_notes());
        self.runtime.spawn(Rc::clone(self).run_reclaim());
    }
}
