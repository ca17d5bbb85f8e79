//! The export over NBD, on the engine's own thread. Requests that arrive in one read of the socket
//! enter the engine together, and answers that are ready together leave in one write.
//!
//! This server is for local clients. TLS, access lists and filters come with nbdkit, for which
//! there is a plugin. docs/operations.md says which one to use, docs/results/speed.md what each
//! costs.

mod connection;
mod gate;
mod ledger;
mod negotiate;
mod protocol;
mod service;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_block::{Nanos, Signal};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::{Listener, SocketStream};

use crate::server::Server;
use connection::Connection;
use manylogs_operate::log::{Level, line};
use service::Service;

pub(crate) use ledger::BYTES_MAX;

/// Most clients at a time. Each may hold [`BYTES_MAX`].
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Grace period before remaining clients are disconnected.
const GRACE: Nanos = Nanos::from_secs(1);
/// Pause after a connection could not be accepted.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Figures of the clients for a status.
#[derive(Debug)]
pub(crate) struct NbdClients {
    /// Number of connected clients; other threads read it too.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Bytes held by their requests under way and unsent answers.
    pub(crate) held_bytes: Cell<usize>,
}

impl NbdClients {
    pub(crate) fn counted_in(connections: Arc<AtomicUsize>) -> Self {
        Self { connections, held_bytes: Cell::default() }
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The server of all connected NBD clients.
pub(crate) struct NbdServer {
    listener: Listener,
    service: Rc<Service>,
    connections: RefCell<Vec<Weak<Connection>>>,
    closing: Cell<bool>,
    /// A client was refused for lack of room, and none was accepted since.
    crowded: Cell<bool>,
    /// Notified when a connection has ended, or has written all its answers.
    changed: Signal,
}

impl NbdServer {
    /// Serves clients that connect to `listener`, until [`NbdServer::close`].
    pub(crate) fn start(server: &Rc<Server>, listener: Listener) -> Rc<Self> {
        let this = Rc::new(Self {
            listener,
            service: Rc::new(Service::new(Rc::clone(server))),
            connections: RefCell::default(),
            closing: Cell::default(),
            crowded: Cell::default(),
            changed: Signal::default(),
        });
        let accepting = Rc::clone(&this);
        server.runtime.spawn(async move { accepting.accept().await });
        this
    }

    async fn accept(self: Rc<Self>) {
        loop {
            match self.listener.accept().await {
                Ok(stream) if !self.closing.get() && !self.is_full() => self.welcome(stream),
                // Dropping the stream closes the connection at once, so that the client does not
                // wait.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return,
                Err(error) => {
                    let message = format!("cannot let an NBD client in: {error}");
                    line(Level::Warning, None, &message, &[]);
                    self.service.server.runtime.sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether no more clients may be accepted; logged when that begins.
    fn is_full(&self) -> bool {
        let count = self.clients().map_or(0, NbdClients::count);
        let full = count >= CONNECTIONS_MAX && !plant::is(Bug::NbdConnectionsUnlimited);
        if full && !self.crowded.replace(true) {
            let message = format!("{count} NBD clients are connected: others are sent away");
            line(Level::Warning, None, &message, &[("connections", count.into())]);
        }
        full
    }

    fn clients(&self) -> Option<&NbdClients> {
        self.service.server.nbd.as_ref()
    }

    fn welcome(self: &Rc<Self>, stream: SocketStream) {
        self.crowded.set(false);
        let connection = Connection::new(stream, self.changed.clone(), &self.service);
        let connection = Rc::new(connection);
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Rc::downgrade(&connection));
        drop(connections);
        let counted = self.clients().map(|clients| Arc::clone(&clients.connections));
        let count = counted.unwrap_or_default();
        count.fetch_add(1, Ordering::SeqCst);
        let this = Rc::clone(self);
        self.service.server.runtime.spawn(async move {
            // An error concerns only this client, which is gone.
            let _ = connection.serve(&this.service).await;
            count.fetch_sub(1, Ordering::SeqCst);
            this.changed.notify();
        });
    }

    /// From now on refuses requests and new clients.
    pub(crate) fn refuse(&self) {
        self.closing.set(true);
        self.service.refuse();
        self.listener.shut_down();
    }

    /// After [`NbdServer::refuse`], ends all connections once their clients have fetched the
    /// answers.
    pub(crate) async fn close(&self) {
        let runtime = &self.service.server.runtime;
        let (changed, timer) = (self.changed.clone(), runtime.clone());
        runtime.spawn(async move {
            timer.sleep(GRACE).await;
            changed.notify();
        });
        let until = runtime.now() + GRACE;
        let connections = self.connections.take();
        loop {
            let changed = self.changed.wait();
            let open = connections.iter().filter_map(Weak::upgrade);
            if runtime.now() >= until || open.into_iter().all(|open| open.has_said_all()) {
                break;
            }
            changed.await;
        }
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.shut_down();
        }
    }
}
