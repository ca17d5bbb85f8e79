//! A store as a client is connected to it.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Nanos, Time};
use manylogs_plant::{self as plant, Bug};

use crate::call::{Ask, Call, Reply, Session, StoreId};
use crate::lender::{Lender, LenderError};
use crate::offload::Client;
use crate::versions::{Range, Versions};

/// A store, and the session with it.
pub(crate) struct Peer {
    pub(crate) lender: Rc<dyn Lender>,
    pub(crate) id: StoreId,
    /// The newest session that was asked for.
    session: Cell<u32>,
    /// Calls of the session.
    next_call: Cell<u64>,
    /// Whether the session goes on.
    live: Cell<bool>,
    /// When it ended.
    pub(crate) lost_since: Cell<Time>,
    /// Writes that are about to go there, or are on their way.
    pub(crate) busy: Cell<u64>,
    /// It is to forget old versions before it takes new ones.
    barred: Cell<bool>,
    /// It had no room when it was last asked to store anything.
    pub(crate) full: Cell<bool>,
}

impl Peer {
    pub(crate) fn new(lender: Rc<dyn Lender>) -> Self {
        let id = lender.id();
        Self {
            lender,
            id,
            session: Cell::default(),
            next_call: Cell::default(),
            live: Cell::default(),
            lost_since: Cell::default(),
            busy: Cell::default(),
            barred: Cell::default(),
            full: Cell::default(),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.get()
    }

    /// Whether it may be sent something to store.
    pub(crate) fn takes_writes(&self) -> bool {
        self.live.get() && !self.full.get() && !self.barred.get()
    }
}

impl Client {
    /// Sends a call to a store. It is under way when this returns.
    pub(crate) fn call(
        self: &Rc<Self>,
        store: usize,
        ask: Ask,
    ) -> impl Future<Output = Result<Reply, LenderError>> + use<> {
        let peer = &self.peers[store];
        let session = peer.session.get();
        let sent = peer.live.get().then(|| peer.lender.call(self.next_call(store, ask)));
        let client = Rc::clone(self);
        async move {
            let Some(sent) = sent else { return Err(LenderError::Unreachable) };
            let answer = sent.await;
            let peer = &client.peers[store];
            let goes_on = peer.live.get() && peer.session.get() == session;
            if !goes_on {
                // It was done before the store said what it holds, or it is not done at all: that
                // is known from there.
                return Err(LenderError::Unreachable);
            }
            if let Err(error) = &answer
                && goes_on
            {
                client.call_failed(store, error);
            }
            answer
        }
    }

    fn next_call(&self, store: usize, ask: Ask) -> Call {
        let peer = &self.peers[store];
        let number = peer.next_call.get();
        peer.next_call.set(number + 1);
        let session = Session { opening: self.opening, number: peer.session.get() };
        Call { base: self.base_id, session, number, ask }
    }

    fn call_failed(&self, store: usize, error: &LenderError) {
        match error {
            LenderError::Foreign => self.fence(),
            LenderError::Failed(_) | LenderError::Newer => {}
            _ => self.lose(store),
        }
    }

    fn lose(&self, store: usize) {
        self.peers[store].live.set(false);
        self.peers[store].lost_since.set(self.runtime.now());
        self.changed.notify();
    }

    /// Begins a session, and learns what the store holds.
    ///
    /// # Errors
    /// Those of the call. [`LenderError::Foreign`] ends the client.
    pub(crate) async fn connect(&self, store: usize) -> Result<Vec<Range>, LenderError> {
        let peer = &self.peers[store];
        peer.session.set(peer.session.get() + 1);
        peer.next_call.set(0);
        let lineage = self.header.content().lineage.clone();
        let claim = Ask::Claim { lineage };
        let session = Session { opening: self.opening, number: peer.session.get() };
        let call = Call { base: self.base_id, session, number: 0, ask: claim };
        match peer.lender.call(call).await {
            Ok(Reply::Held(ranges)) => Ok(ranges),
            Ok(_) => Err(LenderError::NoSession),
            Err(error) => {
                if error == LenderError::Foreign {
                    self.fence();
                }
                Err(error)
            }
        }
    }

    /// Sees to it that there is a session with a store for as long as the client is open.
    pub(crate) async fn run_peer(self: Rc<Self>, store: usize) {
        while !self.is_over() {
            let changed = self.changed.wait();
            if self.peers[store].is_live() {
                changed.await;
            } else if self.reconnect(store).await.is_err() {
                self.runtime.sleep(self.options.reconnect_every).await;
            }
        }
    }

    async fn reconnect(self: &Rc<Self>, store: usize) -> Result<(), LenderError> {
        let ranges = self.connect(store).await?;
        let voids = self.header.voids_of(self.peers[store].id);
        let listed = self.header.is_listed(self.peers[store].id);
        // A store that is not listed was sent nothing since it was last known to hold nothing: what
        // it has is an old state of it.
        let counted = if listed { without(&ranges, &voids) } else { Vec::new() };
        self.table.borrow_mut().reconcile(store, &counted);
        // All of it if the store is not listed, else no more than what is void.
        let old = if listed { Vec::new() } else { ranges };
        self.begin_session(store, !old.is_empty() || !voids.is_empty());
        self.forget_old(store, old, voids).await
    }

    /// A session has begun. If there is anything `old` the store takes no writes yet.
    pub(crate) fn begin_session(&self, store: usize, old: bool) {
        let peer = &self.peers[store];
        peer.barred.set(old);
        peer.full.set(false);
        peer.live.set(true);
        self.changed.notify();
    }

    /// Makes the store forget `old`, and what is void. It takes writes then.
    pub(crate) async fn forget_old(
        self: &Rc<Self>,
        store: usize,
        old: Vec<Range>,
        voids: Vec<Range>,
    ) -> Result<(), LenderError> {
        let peer = &self.peers[store];
        let forgotten = async {
            for Range { extent, version } in old.iter().chain(&voids).copied() {
                self.call(store, Ask::Delete { extent, version }).await?;
            }
            if !voids.is_empty() {
                self.header.forgotten(peer.id, &voids).await?;
            }
            Ok(())
        };
        let result = forgotten.await;
        match result {
            Ok(()) => peer.barred.set(false),
            Err(_) => self.lose(store),
        }
        self.changed.notify();
        result
    }

    /// Another host has opened the base volume: nothing of it is known here any more.
    pub(crate) fn fence(&self) {
        self.fenced.set(true);
        self.peers.iter().for_each(|peer| peer.live.set(false));
        self.changed.notify();
    }

    pub(crate) fn lost_for(&self, store: usize) -> Nanos {
        let peer = &self.peers[store];
        let since = self.runtime.now().since(peer.lost_since.get());
        if peer.is_live() { Nanos(0) } else { since }
    }
}

/// What is left of `ranges` without those that are void.
pub(crate) fn without(ranges: &[Range], voids: &[Range]) -> Vec<Range> {
    let mut map = Versions::new();
    ranges.iter().for_each(|range| map.insert(range.extent, range.version));
    for void in voids.iter().filter(|_| !plant::is(Bug::VoidForgotten)) {
        drop(map.remove(void.extent, void.version));
    }
    map.ranges()
}
