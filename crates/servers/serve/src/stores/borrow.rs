//! The base volume on a device, with the stores that it borrows.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Request, Sectors};
use manylogs_everest::net::LiesOn;
use manylogs_everest::{
    BaseId, BaseLabel, Forgotten, KeptStore, Lender, LenderError, OffloadError, OffloadOptions,
    Offloaded, Policy, StoreId, store_name,
};
use manylogs_operate::control::{Answer, Order, OrderError};
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::Status;
use manylogs_operate::{Closing, Obeying, ServedSystem};
use manylogs_storage::{Connector, Reactor, VolumeLock};

use super::address::{StoreAddress, parse_store};
use super::keys::{Identity, KEY_FILE};
use super::link::{GREETING, Link};
use super::names::{Names, Place};
use super::status::offload_status;
use crate::engine::ServeError;
use crate::lies_on::lies_on;
use crate::stack::StackError;

/// The stores that a base volume borrows, and how it uses them.
#[derive(Clone, Debug)]
pub struct Borrowing {
    /// Stores of other disks.
    pub stores: Vec<StoreAddress>,
    /// The key of this machine, for stores that have one.
    pub identity: Option<Identity>,
    /// The file of that key, if `identity` is not given and a store that the base volume keeps has
    /// one. It is made if it is not there.
    pub key: PathBuf,
    /// Copies of each off-loaded write.
    pub copies: usize,
    /// How long an opening waits for a store, and a read whose newest version is only there.
    pub patience: Nanos,
    /// Most that stores may hold of the base volume, all together.
    pub held_max: Sectors,
    /// When to off-load.
    pub policy: Policy,
    /// Borrow also stores on the base volume's own disk.
    pub same_disk: bool,
}

impl Default for Borrowing {
    fn default() -> Self {
        let OffloadOptions { policy, copies, patience, held_max, .. } = OffloadOptions::default();
        let key = PathBuf::from(KEY_FILE);
        let (stores, identity, same_disk) = (Vec::new(), None, false);
        Self { stores, identity, key, copies, patience, held_max, policy, same_disk }
    }
}

/// An open base volume. Its lock keeps other processes of this machine from opening one of the same
/// name.
#[derive(Debug)]
pub(crate) struct Base {
    volume: Offloaded,
    connecting: Connecting,
    _lock: VolumeLock,
}

impl Base {
    /// The device for clients.
    pub(crate) fn device(&self) -> Rc<dyn BlockDevice> {
        Rc::new(self.volume.clone())
    }
}

impl ServedSystem for Base {
    fn kind(&self) -> &'static str {
        "a base volume of Everest"
    }

    fn id(&self) -> [u8; 16] {
        self.volume.id()
    }

    fn tell(&self, status: &mut Status) {
        status.offload = Some(offload_status(&self.volume));
    }

    fn obey(&self, order: Order) -> Obeying {
        let (volume, connecting) = (self.volume.clone(), self.connecting.clone());
        Box::pin(async move {
            match order {
                Order::AddStore { address } => connecting.add(&volume, &address).await,
                Order::EvacuateStore { store } => evacuate(&volume, &store).await,
                Order::RemoveStore { store, accept_loss } => {
                    let removed = volume.remove(named(&store)?, accept_loss).await;
                    Ok(forgotten_answer(&store, &removed.map_err(|error| refused(&error))?))
                }
                Order::ForgetStore { store, accept_loss } => {
                    let forgotten = volume.forget(named(&store)?, accept_loss).await;
                    Ok(forgotten_answer(&store, &forgotten.map_err(|error| refused(&error))?))
                }
                _ => Err(OrderError::bad_input("a base volume knows no such order")),
            }
        })
    }

    fn close(&self) -> Closing {
        let volume = self.volume.clone();
        Box::pin(async move {
            volume.submit(Request::Flush).await?;
            volume.close().await;
            Ok(())
        })
    }
}

/// Opens the base volume on `device`, the content of the disk at `path`; `None` if there is none,
/// or if the device is to be served as it is.
pub(crate) fn open_base(
    reactor: &Reactor,
    device: &Rc<dyn BlockDevice>,
    borrowing: &Borrowing,
    (path, raw): (&Path, bool),
) -> Result<Option<Base>, ServeError> {
    let failed = |error| ServeError::Offload { path: path.to_owned(), error };
    let (runtime, looked_at) = (reactor.handle(), Rc::clone(device));
    let label = reactor.block_on(async move { Offloaded::identify(&runtime, looked_at).await });
    let Some(label) = label.map_err(failed)? else {
        return match borrowing.stores[..] {
            [] => Ok(None),
            _ => Err(ServeError::NotABase { path: path.to_owned() }),
        };
    };
    if raw {
        return match label.stores.first() {
            None => Ok(None),
            Some(store) => Err(failed(OffloadError::MissingStore { store: *store })),
        };
    }
    let lock = VolumeLock::take(label.id, path).map_err(StackError::from)?;
    let connecting = Connecting {
        runtime: reactor.handle(),
        connector: reactor.connector(),
        names: Names::of_system(),
        identity: borrowing.identity.clone(),
        key: borrowing.key.clone(),
        patience: borrowing.patience,
        base: label.id,
        apart_from: (!borrowing.same_disk).then(|| lies_on(path)),
        listed: label.stores.clone(),
    };
    let links = connect(reactor, &connecting, &borrowing.stores, &label)?;
    let options = OffloadOptions {
        policy: borrowing.policy,
        copies: borrowing.copies,
        patience: borrowing.patience,
        held_max: borrowing.held_max,
        ..OffloadOptions::default()
    };
    let lender = |link: &Link| -> Rc<dyn Lender> { Rc::new(link.clone()) };
    let (runtime, base) = (reactor.handle(), Rc::clone(device));
    let lenders = links.iter().map(lender).collect();
    let opened =
        reactor.block_on(async move { Offloaded::open(runtime, base, lenders, options).await });
    let volume = opened.map_err(|error| match unreached(&error, &links) {
        Some(unreached) => unreached,
        None => failed(error),
    })?;
    Ok(Some(Base { volume, connecting, _lock: lock }))
}

/// What it takes to connect a base volume to one more store.
#[derive(Clone)]
struct Connecting {
    runtime: Handle,
    connector: Connector,
    names: Names,
    identity: Option<Identity>,
    key: PathBuf,
    patience: Nanos,
    base: BaseId,
    /// The disks of the base volume; `None` if stores may lie there.
    apart_from: Option<LiesOn>,
    /// The stores that may hold newer data: these are used wherever they lie.
    listed: Vec<StoreId>,
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connecting").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Connecting {
    fn link(&self, address: &StoreAddress) -> Result<Link, ServeError> {
        let tls = |error: &dyn std::fmt::Display| ServeError::Tls(error.to_string());
        let sealed = match (address.key, &self.identity) {
            (Some(key), Some(identity)) => Some(identity.of_client(key)),
            (Some(key), None) => {
                let identity = Identity::of_file(&self.key).map_err(|error| tls(&error))?;
                Some(identity.of_client(key))
            }
            (None, _) => None,
        };
        let sealed = sealed.transpose().map_err(ServeError::Tls)?;
        let place = Place::of(&address.at, sealed.is_some(), &self.names)?;
        let (runtime, connector) = (self.runtime.clone(), self.connector.clone());
        let link = Link::start(runtime, connector, address.clone(), (place, sealed), self.base);
        let is_needed = address.store.is_some_and(|store| self.listed.contains(&store));
        if let Some(disks) = self.apart_from.clone().filter(|_| !is_needed) {
            link.keep_apart_from(disks);
        }
        Ok(link)
    }

    /// Lets the base volume borrow the store at an address, which must answer.
    async fn add(&self, volume: &Offloaded, address: &str) -> Answer {
        let given: StoreAddress = address.parse().map_err(OrderError::bad_input)?;
        let link = self.link(&given).map_err(OrderError::bad_input)?;
        if let Err(why) = link.reached(self.patience).await {
            let refused = link.refusal(Nanos(0)).await.is_some();
            link.end();
            let told = format!("store {given}: {why}");
            return Err(if refused { OrderError::bad_input(told) } else { OrderError::new(told) });
        }
        let named = StoreAddress { store: Some(link.id()), ..given }.to_string();
        let added = volume.add(Rc::new(link.clone()), &named).await;
        if added != Ok(true) {
            link.end();
        }
        added.map_err(|error| refused(&error))?;
        Ok(serde_json::json!({ "store": named }))
    }
}

async fn evacuate(volume: &Offloaded, store: &str) -> Answer {
    let id = named(store)?;
    volume.evacuate(id).await.map_err(|error| refused(&error))?;
    let stores = volume.stores();
    let held = stores.iter().find(|one| one.id == id).map_or(0, |one| one.held.bytes());
    Ok(serde_json::json!({ "store": store, "held_bytes": held }))
}

fn named(store: &str) -> Result<StoreId, OrderError> {
    let name = || OrderError::bad_input(format!("{store}: a store's name has 32 digits, 0 to f"));
    parse_store(store).ok_or_else(name)
}

/// What is answered when a store was forgotten or removed, or would be: its name, whether it is,
/// and the lost ranges in bytes of the base volume.
#[must_use]
pub fn forgotten_answer(store: &str, forgotten: &Forgotten) -> serde_json::Value {
    let range = |extent: &Extent| {
        serde_json::json!({
            "start_bytes": Sectors(extent.start.0).bytes(),
            "bytes": extent.len.bytes(),
        })
    };
    let lost: Vec<_> = forgotten.lost.iter().map(range).collect();
    serde_json::json!({ "store": store, "forgotten": forgotten.done, "lost": lost })
}

fn refused(error: &OffloadError) -> OrderError {
    match error {
        OffloadError::Base(_) => OrderError::new(error),
        _ => OrderError::bad_input(error),
    }
}

/// Connects to all stores: those that are given, and the others that the base volume keeps. Those
/// whose names are not given must answer within the patience.
fn connect(
    reactor: &Reactor,
    connecting: &Connecting,
    given: &[StoreAddress],
    label: &BaseLabel,
) -> Result<Vec<Link>, ServeError> {
    let links: Result<Vec<Link>, _> = given.iter().map(|at| connecting.link(at)).collect();
    let mut links = links?;
    let (runtime, waited, patience) = (reactor.handle(), links.clone(), connecting.patience);
    let addresses = given.to_vec();
    reactor.block_on(async move {
        let began = runtime.now();
        for (link, address) in waited.into_iter().zip(addresses) {
            let left = Nanos(patience.0.saturating_sub(runtime.now().since(began).0));
            let (known, store) = (link.known(left).await, address.to_string());
            // One that is named and away is waited for only as long as a greeting takes.
            let greeting = Nanos(GREETING.0.saturating_sub(runtime.now().since(began).0));
            if let Some(why) = link.refusal(left.min(greeting)).await {
                return Err(ServeError::OwnDisk { store, why });
            }
            if let Err(why) = known {
                return Err(ServeError::StoreAway { store, why });
            }
        }
        Ok(())
    })?;
    for KeptStore { id, address } in &label.kept {
        if links.iter().any(|link| link.id() == *id) {
            continue;
        }
        let wrong = |error: crate::address::AddressError| ServeError::StoreAway {
            store: store_name(id),
            why: format!("the address in the base volume's header is none: {error}"),
        };
        let link = address.parse().map_err(wrong).and_then(|at| connecting.link(&at));
        match link {
            Ok(link) => links.push(link),
            // An opening does not need it: `manylogs stores BASE remove` forgets it.
            Err(error) if !label.stores.contains(id) => {
                let message = format!("store {} is left out: {error}", store_name(id));
                line(Level::Warning, None, &message, &[]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(links)
}

/// Describes an unreachable store that may hold newer data, with its address.
fn unreached(error: &OffloadError, links: &[Link]) -> Option<ServeError> {
    let OffloadError::Store { store, source: LenderError::Unreachable } = error else {
        return None;
    };
    let link = links.iter().find(|link| link.id() == *store)?;
    let why = format!("{}, and it may hold newer data of this base volume", link.trouble());
    let store = format!("{} at {}", store_name(store), link.place());
    Some(ServeError::StoreAway { store, why })
}
