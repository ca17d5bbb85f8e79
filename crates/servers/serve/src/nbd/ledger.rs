//! Limits on the requests and the memory of one client.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::Signal;
use manylogs_plant::{self as plant, Bug};

use super::protocol::REQUEST_BYTES_MAX;
use crate::server::Server;

/// Most requests of one client that are under way or whose answers are unsent. Further requests
/// wait in the socket.
pub(crate) const REQUESTS_MAX: usize = 256;
/// Most bytes that these requests may hold: data to write, and data that was read. More than the
/// longest request of the protocol.
pub(crate) const BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX as usize;

/// Counts the requests and the memory of one client.
pub(super) struct Ledger {
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// Notified when memory or a request was given back.
    changed: Signal,
    server: Rc<Server>,
}

/// The memory of a request, and then of its answer; given back when dropped.
pub(super) struct Held {
    ledger: Rc<Ledger>,
    bytes: Cell<usize>,
}

impl Ledger {
    pub(super) fn new(changed: Signal, server: Rc<Server>) -> Self {
        Self { requests: Cell::default(), bytes: Cell::default(), changed, server }
    }

    /// Whether a request that holds `bytes` may enter.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes.get() == 0 || self.bytes.get() + bytes <= BYTES_MAX;
        self.requests.get() < REQUESTS_MAX && fits
    }

    pub(super) fn enter(self: &Rc<Self>, bytes: usize) -> Held {
        self.requests.set(self.requests.get() + 1);
        self.add(bytes);
        Held { ledger: Rc::clone(self), bytes: Cell::new(bytes) }
    }

    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        if let Some(clients) = &self.server.nbd {
            clients.held_bytes.set(clients.held_bytes.get() + bytes);
        }
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        if let Some(clients) = &self.server.nbd {
            clients.held_bytes.set(clients.held_bytes.get() - bytes);
        }
        self.changed.notify();
    }
}

impl Held {
    /// Notes that the request is answered: from now on only its answer's `bytes` count.
    pub(super) fn answered(self, bytes: usize) -> Option<Self> {
        if plant::is(Bug::NbdUnsentAnswersUncounted) {
            return None;
        }
        self.ledger.add(bytes);
        self.ledger.subtract(self.bytes.replace(bytes));
        Some(self)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ledger.requests.set(self.ledger.requests.get() - 1);
        self.ledger.subtract(self.bytes.get());
    }
}
