//! Names of hosts, looked up on threads of their own: the resolver of the system waits for name
//! servers, and the engine's thread serves the clients of a disk meanwhile.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use manylogs_block::{Handle, Nanos};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::Peer;

use super::address::{PlaceError, peer_of};
use crate::address::NbdAddress;

/// How long an attempt to connect waits for the address of a name.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// Threads that wait for name servers at a time.
const LOOKUPS_MAX: usize = 32;

type Found = Result<Vec<SocketAddr>, String>;
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up. Clones share the bound on threads.
#[derive(Clone)]
pub(super) struct Names {
    resolve: Arc<Resolve>,
    threads: Arc<AtomicUsize>,
}

/// An answer that comes from another thread. Dropping it does not end that thread, which ends when
/// the resolver answers.
struct Lookup(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    found: Option<Found>,
    waiting: Option<Waker>,
}

impl Names {
    /// Names as the system knows them.
    pub(super) fn of_system() -> Self {
        Self::with(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Names as `resolve` knows them, which is called on threads of its own.
    pub(super) fn with(
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { resolve: Arc::new(resolve), threads: Arc::default() }
    }

    fn look_up(&self, host: &str, port: u16) -> io::Result<Lookup> {
        let slot = Arc::new(Mutex::new(Slot::default()));
        if plant::is(Bug::NamesHoldUp) {
            slot.lock().unwrap_or_else(PoisonError::into_inner).found =
                Some((self.resolve)(host, port).map_err(|error| error.to_string()));
            return Ok(Lookup(slot));
        }
        let counted = Counted::new(&self.threads)?;
        let (answer, names, host) = (Arc::clone(&slot), self.clone(), host.to_owned());
        thread::Builder::new().name("names".to_owned()).spawn(move || {
            let found = (names.resolve)(&host, port).map_err(|error| error.to_string());
            drop(counted);
            let mut slot = answer.lock().unwrap_or_else(PoisonError::into_inner);
            slot.found = Some(found);
            let waiting = slot.waiting.take();
            drop(slot);
            waiting.inspect(Waker::wake_by_ref);
        })?;
        Ok(Lookup(slot))
    }
}

/// A thread that waits for a name server, until this is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(threads: &Arc<AtomicUsize>) -> io::Result<Self> {
        let counted = Self(Arc::clone(threads));
        match threads.fetch_add(1, Ordering::Relaxed) {
            0..LOOKUPS_MAX => Ok(counted),
            _ => Err(io::Error::other(format!(
                "{LOOKUPS_MAX} other names are being looked up, and no name server answers"
            ))),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Future for Lookup {
    type Output = Found;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Found> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.found.take() {
            Some(found) => Poll::Ready(found),
            None => {
                slot.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Where a store is.
pub(super) enum Place {
    /// At this address.
    Known(Peer),
    /// Where its name says, which is looked up for each attempt to connect.
    Named(Named),
}

/// A store whose host has a name.
pub(super) struct Named {
    host: String,
    port: u16,
    /// Whether both sides prove keys, so that it may be another machine.
    sealed: bool,
    names: Names,
    /// A lookup that took longer than an attempt waits: the next one takes its answer.
    open: RefCell<Option<Lookup>>,
    /// What was found last: a store that can be reached needs no name server.
    last: RefCell<Option<Peer>>,
}

impl Place {
    /// The place that an address names: on this machine, unless what goes there is `sealed` by
    /// keys. No name is looked up.
    ///
    /// # Errors
    /// [`PlaceError::NotLocal`] if the address is one of another machine and nothing is encrypted.
    pub(super) fn of(at: &NbdAddress, sealed: bool, names: &Names) -> Result<Self, PlaceError> {
        let (host, port) = match at {
            NbdAddress::Unix(path) => return Ok(Self::Known(Peer::Unix(path.clone()))),
            NbdAddress::Tcp { host, port } => (host, *port),
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return peer_of(host, &[(address, port).into()], sealed).map(Self::Known);
        }
        let (open, last) = (RefCell::default(), RefCell::default());
        let (host, names) = (host.clone(), names.clone());
        Ok(Self::Named(Named { host, port, sealed, names, open, last }))
    }

    /// Where to connect to now. Waits for two seconds at most.
    ///
    /// # Errors
    /// If the name is unknown, if no name server answers in time, or if the name is one of another
    /// machine and nothing is encrypted.
    pub(super) async fn find(&self, runtime: &Handle) -> Result<Peer, PlaceError> {
        match self {
            Self::Known(peer) => Ok(peer.clone()),
            Self::Named(named) => named.find(runtime).await,
        }
    }
}

impl Named {
    async fn find(&self, runtime: &Handle) -> Result<Peer, PlaceError> {
        match self.ask(runtime).await {
            Ok(found) => {
                let peer = peer_of(&self.host, &found, self.sealed)?;
                self.last.replace(Some(peer.clone()));
                Ok(peer)
            }
            Err(error) => self.last.borrow().clone().ok_or(error),
        }
    }

    async fn ask(&self, runtime: &Handle) -> Result<Vec<SocketAddr>, PlaceError> {
        let unknown = |why| PlaceError::Unknown { host: self.host.clone(), why };
        let open = self.open.take();
        let mut lookup = match open {
            Some(lookup) => lookup,
            None => {
                let begun = self.names.look_up(&self.host, self.port);
                begun.map_err(|error| unknown(error.to_string()))?
            }
        };
        let found = runtime.within(PATIENCE, &mut lookup).await;
        let Some(found) = found else {
            self.open.replace(Some(lookup));
            return Err(PlaceError::Unanswered { host: self.host.clone(), after: PATIENCE });
        };
        found.map_err(unknown)
    }
}
