//! Requests for the base volume itself, at its own addresses.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, Hint, IoError, Request, Watcher};

use crate::header::HEADER;
use crate::locks::{Locked, Use};
use crate::offload::Client;

/// The place on the base volume of the clients' `extent`.
pub(crate) fn at_home(extent: Extent) -> Extent {
    Extent { start: extent.start + HEADER, len: extent.len }
}

impl Client {
    /// Writes, zeroes or discards.
    pub(crate) fn change(self: &Rc<Self>, request: Request) -> Completion {
        if self.closed.get() {
            return Completion::ready(Err(IoError::Gone));
        }
        let extent = request.extent().unwrap_or_default();
        if !self.wants_offload(extent) {
            let locked = self.locks.ask(extent, Use::Home);
            if locked.is_held() {
                self.count(|figures| figures.home += 1);
                return self.send_home(request, locked);
            }
        }
        let client = Rc::clone(self);
        self.answer(async move { client.write(request).await })
    }

    /// Sends a change of a locked range home. The base gets it before this returns. The range is
    /// given back when the base answers, whether the caller waits for that or not.
    fn send_home(self: &Rc<Self>, request: Request, locked: Locked) -> Completion {
        self.home.began();
        match self.base.submit(moved_home(request)).watched(self, locked.number()) {
            Ok(written) => {
                locked.keep();
                written
            }
            Err(written) => {
                let client = Rc::clone(self);
                self.answer(async move {
                    let result = written.await;
                    client.home.passed();
                    drop(locked);
                    result
                })
            }
        }
    }
}

impl Watcher for Client {
    /// A change that went home is answered: `number` is that of its lock.
    fn answered(&self, number: u64) {
        self.home.passed();
        self.locks.give_back(number);
    }
}

/// The same request, at the addresses of the base volume.
pub(crate) fn moved_home(request: Request) -> Request {
    match request {
        Request::Read { extent } => Request::Read { extent: at_home(extent) },
        Request::Write { extent, payload, fua, hint } => {
            Request::Write { extent: at_home(extent), payload, fua, hint }
        }
        Request::Discard { extent, fua } => Request::Discard { extent: at_home(extent), fua },
        Request::WriteZeroes { extent, fua, if_fast } => {
            Request::WriteZeroes { extent: at_home(extent), fua, if_fast }
        }
        Request::Flush => Request::Flush,
    }
}

/// The same request, durable when it is acknowledged.
pub(crate) fn made_durable(request: Request) -> Request {
    match request {
        Request::Write { extent, payload, .. } => {
            Request::Write { extent, payload, fua: true, hint: Hint::None }
        }
        Request::Discard { extent, .. } => Request::Discard { extent, fua: true },
        Request::WriteZeroes { extent, if_fast, .. } => {
            Request::WriteZeroes { extent, fua: true, if_fast }
        }
        other => other,
    }
}
