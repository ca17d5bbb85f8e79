//! The connection of a client to a store.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Nanos, Sectors, Time};
use manylogs_plant::{self as plant, Bug};

use crate::call::{Ask, Call, Reply, Session, StoreId};
use crate::lender::{Lender, LenderError};
use crate::offload::Client;
use crate::pace::Pace;
use crate::versions::{Range, Versions};

/// How long a store that had no room is not asked for any.
const FULL_AGAIN: Nanos = Nanos::from_secs(1);

/// A store, and the session with it.
pub(crate) struct Peer {
    pub(crate) lender: Rc<dyn Lender>,
    pub(crate) id: StoreId,
    /// Number of the newest session that was asked for.
    session: Cell<u32>,
    /// Number of the next call in the session.
    next_call: Cell<u64>,
    /// Whether the session goes on.
    live: Cell<bool>,
    /// When the session ended.
    pub(crate) lost_since: Cell<Time>,
    /// Writes that are about to be sent to the store, or are on their way.
    pub(crate) busy: Cell<u64>,
    /// Whether the store must forget old versions before it takes new ones.
    barred: Cell<bool>,
    /// If the store had no room when it was last asked to store a version: when it is asked again
    /// all the same, since others may have made room.
    pub(crate) full_until: Cell<Option<Time>>,
    /// Whether the store leaves and takes no more writes: then what it held when it began to, or
    /// when the base volume was opened.
    pub(crate) leaving: Cell<Option<Sectors>>,
    /// Whether a session is about to begin.
    pub(crate) begins: Cell<bool>,
    /// Whether the store is gone for good: no session is begun.
    pub(crate) gone: Cell<bool>,
    /// How long it takes for a write.
    pub(crate) pace: Pace,
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
            full_until: Cell::default(),
            leaving: Cell::default(),
            begins: Cell::default(),
            gone: Cell::default(),
            pace: Pace::default(),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.get()
    }

    /// Whether a version may be sent to the store now.
    pub(crate) fn takes_writes(&self, now: Time) -> bool {
        let is_full = self.full_until.get().is_some_and(|until| now < until);
        self.live.get() && !is_full && !self.barred.get() && self.leaving.get().is_none()
    }

    /// The store has refused a version. If it only had no room, it is asked again after a while.
    pub(crate) fn refused(&self, had_no_room: bool, now: Time) {
        let again = had_no_room && !plant::is(Bug::FullForEver);
        self.full_until.set(Some(if again { now + FULL_AGAIN } else { Time(u64::MAX) }));
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
                // The call was done before the store said at the claim what it holds, or it is
                // never done: that answer tells which.
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

    /// Begins a session. Returns what the store holds.
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

    /// Keeps up a session with a store as long as the client is open.
    pub(crate) async fn run_peer(self: Rc<Self>, store: usize) {
        while !self.is_over() {
            let changed = self.changed.wait();
            if self.peers[store].is_live() || self.peers[store].gone.get() {
                changed.await;
            } else if self.reconnect(store).await.is_err() {
                self.runtime.sleep(self.options.reconnect_every).await;
            }
        }
    }

    async fn reconnect(self: &Rc<Self>, store: usize) -> Result<(), LenderError> {
        let ranges = self.connect(store).await?;
        // Nothing is noted of any store until the session has begun.
        self.peers[store].begins.set(true);
        let begun = self.begin_with(store, ranges).await;
        self.peers[store].begins.set(false);
        let (old, voids) = begun?;
        self.forget_old(store, old, voids).await
    }

    /// Begins a session with a store that answered what it holds. Returns the versions that it must
    /// forget, and those that are void.
    async fn begin_with(
        &self,
        store: usize,
        ranges: Vec<Range>,
    ) -> Result<(Vec<Range>, Vec<Range>), LenderError> {
        let (peer, unreachable) = (&self.peers[store], |_| LenderError::Unreachable);
        let voids = self.header.voids_of(peer.id);
        // A store that is not listed was sent nothing since it was last known to hold nothing. So
        // it has come back in another state: all of that is old, but what is missing without it.
        let (counted, old) = if self.header.is_listed(peer.id) {
            (without(&ranges, &voids), Vec::new())
        } else {
            let back = self.table.borrow().returned(&ranges);
            if !back.is_empty() {
                self.header.list(peer.id).await.map_err(unreachable)?;
            }
            let old = without(&ranges, &back);
            (back, old)
        };
        self.table.borrow_mut().reconcile(store, &counted);
        self.lacks.set(true);
        // Nothing older may be shown after a crash.
        self.drop_notes_for_losses().await.map_err(unreachable)?;
        if peer.gone.get() || self.is_over() {
            return Err(LenderError::Unreachable);
        }
        self.begin_session(store, !old.is_empty() || !voids.is_empty());
        Ok((old, voids))
    }

    /// Notes that a session has begun. With `old` the store takes no writes until it has forgotten
    /// old versions.
    pub(crate) fn begin_session(&self, store: usize, old: bool) {
        let peer = &self.peers[store];
        peer.barred.set(old);
        peer.full_until.set(None);
        peer.live.set(true);
        self.changed.notify();
    }

    /// Makes the store forget the versions `old` and `voids`; then it takes writes.
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

    /// Notes that another host has opened the base volume: this opening serves nothing more.
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

/// The parts of `ranges` that are not void.
pub(crate) fn without(ranges: &[Range], voids: &[Range]) -> Vec<Range> {
    let mut map = Versions::of(ranges.iter().copied());
    for void in voids.iter().filter(|_| !plant::is(Bug::VoidForgotten)) {
        drop(map.remove(void.extent, void.version));
    }
    map.ranges()
}
