//! Names of hosts, looked up on threads of their own: the resolver of the system waits for name
//! servers, and the engine's thread serves the clients of a disk meanwhile.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use manylogs_block::{Handle, Inbox, Nanos, mailbox};
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
struct Lookup(Inbox<Found>);

impl Lookup {
    async fn answer(&self) -> Found {
        let ended = || Err("the thread that looks it up has ended".to_owned());
        self.0.take().await.pop_front().unwrap_or_else(ended)
    }
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
        let (answer, lookup) = mailbox();
        if plant::is(Bug::NamesHoldUp) {
            answer.push((self.resolve)(host, port).map_err(|error| error.to_string()));
            return Ok(Lookup(lookup));
        }
        let counted = Counted::new(&self.threads)?;
        let (names, host) = (self.clone(), host.to_owned());
        thread::Builder::new().name("names".to_owned()).spawn(move || {
            let found = (names.resolve)(&host, port).map_err(|error| error.to_string());
            drop(counted);
            answer.push(found);
        })?;
        Ok(Lookup(lookup))
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
        let lookup = match open {
            Some(lookup) => lookup,
            None => {
                let begun = self.names.look_up(&self.host, self.port);
                begun.map_err(|error| unknown(error.to_string()))?
            }
        };
        let found = runtime.within(PATIENCE, lookup.answer()).await;
        let Some(found) = found else {
            self.open.replace(Some(lookup));
            return Err(PlaceError::Unanswered { host: self.host.clone(), after: PATIENCE });
        };
        found.map_err(unknown)
    }
}
