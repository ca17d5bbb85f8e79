//! The base volume on a device, with the stores that it borrows.

use std::path::Path;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Nanos, Request};
use manylogs_everest::{
    BaseId, Lender, LenderError, OffloadError, OffloadOptions, Offloaded, Policy, store_name,
};
use manylogs_operate::status::Status;
use manylogs_operate::{Closing, ServedSystem};
use manylogs_storage::{Reactor, VolumeLock};

use super::address::{StoreAddress, peer_at};
use super::keys::Identity;
use super::link::Link;
use super::status::offload_status;
use crate::engine::ServeError;
use crate::stack::StackError;

/// The stores that a base volume borrows, and how it uses them.
#[derive(Clone, Debug)]
pub struct Borrowing {
    /// Stores of other disks.
    pub stores: Vec<StoreAddress>,
    /// The key of this machine, for stores that have one.
    pub identity: Option<Identity>,
    /// Copies of each off-loaded write.
    pub copies: usize,
    /// How long an opening waits for a store, and a read whose newest version is only there.
    pub patience: Nanos,
    /// When to off-load.
    pub policy: Policy,
}

impl Default for Borrowing {
    fn default() -> Self {
        let OffloadOptions { policy, copies, patience, .. } = OffloadOptions::default();
        Self { stores: Vec::new(), identity: None, copies, patience, policy }
    }
}

/// An open base volume. Its lock keeps other processes of this machine from opening one of the same
/// name.
#[derive(Debug)]
pub(crate) struct Base {
    volume: Offloaded,
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
    let links = connect(reactor, borrowing, label.id)?;
    let options = OffloadOptions {
        policy: borrowing.policy,
        copies: borrowing.copies,
        patience: borrowing.patience,
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
    Ok(Some(Base { volume, _lock: lock }))
}

/// Connects to all stores. Those whose names are not given must answer within the patience.
fn connect(
    reactor: &Reactor,
    borrowing: &Borrowing,
    base: BaseId,
) -> Result<Vec<Link>, ServeError> {
    let (connector, mut links) = (reactor.connector(), Vec::new());
    for address in &borrowing.stores {
        let sealed = match (address.key, &borrowing.identity) {
            (Some(key), Some(identity)) => Some(identity.of_client(key)),
            (Some(_), None) => return Err(ServeError::Tls("this machine has no key".to_owned())),
            (None, _) => None,
        };
        let sealed = sealed.transpose().map_err(ServeError::Tls)?;
        let peer = peer_at(&address.at, sealed.is_some())?;
        let (runtime, connector) = (reactor.handle(), connector.clone());
        links.push(Link::start(runtime, connector, address.clone(), (peer, sealed), base));
    }
    let (runtime, waited, patience) = (reactor.handle(), links.clone(), borrowing.patience);
    let addresses = borrowing.stores.clone();
    reactor.block_on(async move {
        let began = runtime.now();
        for (link, address) in waited.into_iter().zip(addresses) {
            let left = Nanos(patience.0.saturating_sub(runtime.now().since(began).0));
            if let Err(why) = link.known(left).await {
                return Err(ServeError::StoreAway { store: address.to_string(), why });
            }
        }
        Ok(())
    })?;
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
