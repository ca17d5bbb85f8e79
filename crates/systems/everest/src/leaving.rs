//! Stores that leave a base volume: they take no more writes, in this opening and all others, and
//! what they hold goes home or to other stores (`evacuate.rs`). Which these are is in the header.

use bytes::BufMut;
use manylogs_block::narrow;
use manylogs_plant::{self as plant, Bug};

use crate::begin::OffloadError;
use crate::call::StoreId;
use crate::header::{Content, Header, STORES_MAX};
use crate::offload::{Client, Offloaded};
use crate::peer::Peer;

/// Most bytes of a list.
pub(crate) const BYTES_MAX: usize = 4 + STORES_MAX * size_of::<StoreId>();

/// Appends the list: a count, and the ids.
pub(crate) fn encode(leaving: &[StoreId], out: &mut Vec<u8>) {
    out.put_u32_le(narrow(leaving.len()));
    leaving.iter().for_each(|store| out.put_slice(store));
}

/// The list at the start of `bytes`, and its length; `None` if it makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Vec<StoreId>, usize)> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let used = Some(count).filter(|count| *count <= STORES_MAX)? * size_of::<StoreId>();
    let (stores, _) = rest.get(..used)?.as_chunks();
    Some((stores.to_vec(), 4 + used))
}

impl Header {
    /// Whether the header says that a store leaves.
    pub(crate) fn is_leaving(&self, store: StoreId) -> bool {
        self.content().leaving.contains(&store)
    }
}

impl Offloaded {
    /// Empties a store while the base volume is in use. It takes no more writes from now on,
    /// whatever crashes once this returns, until [`Offloaded::add`] calls it back. What it holds
    /// goes home in the background when the base is not busy, before everything else, and to other
    /// stores while the base is over its threshold and they are under theirs. This goes on after
    /// each opening: [`Offloaded::stores`] tells how much is left. When nothing is, the base does
    /// not list the store any more, and [`Offloaded::remove`] returns at once.
    ///
    /// # Errors
    /// [`OffloadError::Unknown`] if it is no store of this base volume, [`OffloadError::Stores`] if
    /// more leave than the header has room for, and [`OffloadError::Base`] if the header cannot be
    /// written: the store takes no more writes in this opening then.
    pub async fn evacuate(&self, store: StoreId) -> Result<(), OffloadError> {
        let is_it = |peer: &Peer| peer.id == store && !peer.gone.get();
        let known = self.0.peers.iter().position(is_it);
        self.0.leave(known.ok_or(OffloadError::Unknown { store })?).await
    }
}

impl Client {
    /// Notes durably that a store leaves. It takes no more writes once this was called.
    ///
    /// # Errors
    /// As [`Offloaded::evacuate`].
    pub(crate) async fn leave(&self, store: usize) -> Result<(), OffloadError> {
        self.begin_to_leave(store);
        let (peer, mut is_full) = (&self.peers[store], false);
        let change = |content: &mut Content| {
            let Content { leaving, stores, kept, .. } = content;
            let is_new = !leaving.contains(&peer.id);
            if is_new && leaving.len() >= STORES_MAX {
                // Some may have been given to earlier openings, and to none since.
                leaving.retain(|one| {
                    self.peers.iter().any(|other| other.id == *one)
                        || stores.contains(one)
                        || kept.iter().any(|kept| kept.id == *one)
                });
            }
            is_full = is_new && leaving.len() >= STORES_MAX;
            if is_new && !is_full {
                leaving.push(peer.id);
            }
            is_new && !is_full
        };
        if plant::is(Bug::EvacuationForgotten) {
            self.header.pretend(change);
        } else {
            self.header.update(change).await?;
        }
        // Unless it was called back meanwhile.
        match self.header.is_leaving(peer.id) {
            true => self.begin_to_leave(store),
            false => peer.leaving.set(None),
        }
        if is_full { Err(OffloadError::Stores) } else { Ok(()) }
    }

    /// Lets stores leave that began to leave in an earlier opening. Comes before the first write.
    pub(crate) fn go_on_leaving(&self) {
        let leaves = |store: &usize| self.header.is_leaving(self.peers[*store].id);
        (0..self.peers.len()).filter(leaves).for_each(|store| self.begin_to_leave(store));
    }

    fn begin_to_leave(&self, store: usize) {
        let leaving = &self.peers[store].leaving;
        let held = || self.table.borrow().sectors(Some(store));
        leaving.set(Some(leaving.get().unwrap_or_else(held)));
        self.changed.notify();
    }

    /// The stores that leave, a bit for each.
    pub(crate) fn leaving(&self) -> u32 {
        let bit = |(store, peer): (usize, &Peer)| u32::from(peer.leaving.get().is_some()) << store;
        self.peers.iter().enumerate().map(bit).sum()
    }
}
