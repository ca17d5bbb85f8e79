//! The export over NBD, on the engine's own thread: what arrives in one read of the socket enters
//! the engine together, and what is answered together leaves in one write.
//!
//! It is for local clients: TLS, access lists and filters are nbdkit's, for which there is a
//! plugin. docs/operations.md says which to take, docs/results.md what each costs.

mod channel;
mod connection;
mod gate;
mod negotiate;
mod protocol;
mod service;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_block::{Nanos, Signal};
use manylogs_storage::{Listener, Stream};

use crate::engine::Server;
use crate::log::{Level, line};
use connection::Connection;
use service::Service;

/// How long a client has to fetch its last answers.
const GRACE: Nanos = Nanos::from_secs(1);
/// How long nobody is let in after the system ran out of something.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Everybody who is connected.
pub(crate) struct NbdServer {
    listener: Listener,
    service: Rc<Service>,
    connections: RefCell<Vec<Weak<Connection>>>,
    /// The same, for other threads to see.
    count: Arc<AtomicUsize>,
    closing: Cell<bool>,
    /// A connection has ended, or has answered all.
    changed: Signal,
}

impl NbdServer {
    /// Serves whoever comes to `listener`, until [`NbdServer::close`].
    pub(crate) fn start(
        server: &Rc<Server>,
        listener: Listener,
        count: Arc<AtomicUsize>,
    ) -> Rc<Self> {
        let this = Rc::new(Self {
            listener,
            service: Rc::new(Service::new(Rc::clone(server))),
            connections: RefCell::default(),
            count,
            closing: Cell::default(),
            changed: Signal::default(),
        });
        let accepting = Rc::clone(&this);
        server.runtime.spawn(async move { accepting.accept().await });
        this
    }

    async fn accept(self: Rc<Self>) {
        loop {
            match self.listener.accept().await {
                Ok(stream) if !self.closing.get() => self.welcome(stream),
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

    fn welcome(self: &Rc<Self>, stream: Stream) {
        let connection = Rc::new(Connection::new(stream, self.changed.clone()));
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Rc::downgrade(&connection));
        drop(connections);
        self.count.fetch_add(1, Ordering::SeqCst);
        let this = Rc::clone(self);
        self.service.server.runtime.spawn(async move {
            // Nobody is there to hear of an error.
            let _ = connection.serve(&this.service).await;
            this.count.fetch_sub(1, Ordering::SeqCst);
            this.changed.notify();
        });
    }

    /// From now on requests are refused, and nobody is let in.
    pub(crate) fn refuse(&self) {
        self.closing.set(true);
        self.service.refuse();
        self.listener.shut_down();
    }

    /// After [`NbdServer::refuse`], ends all connections once their clients have fetched what was
    /// answered.
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
