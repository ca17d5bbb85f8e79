//! Stores that a base volume keeps: where they are is in its header, so that an opening finds them
//! again.

use std::rc::Rc;

use bytes::{Buf, BufMut};
use manylogs_block::{IoError, narrow};
use manylogs_plant::{self as plant, Bug};

use crate::begin::OffloadError;
use crate::call::StoreId;
use crate::failed::Trouble;
use crate::forget::Forgotten;
use crate::header::{Content, Header, STORES_MAX};
use crate::lender::Lender;
use crate::offload::{Client, Offloaded};
use crate::peer::Peer;

/// Longest address, in bytes.
const ADDRESS_MAX: usize = 512;

/// A store that a base volume borrows whenever it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptStore {
    /// Its name.
    pub id: StoreId,
    /// Where it is, as whoever added it wrote it, with its key if it has one. At most 512 bytes.
    pub address: String,
}

/// Most bytes of a list.
pub(crate) const KEPT_BYTES_MAX: usize = 4 + STORES_MAX * (size_of::<StoreId>() + 4 + ADDRESS_MAX);

/// Appends the list: a count, and for each store its id, the length of its address, and that.
pub(crate) fn encode(kept: &[KeptStore], out: &mut Vec<u8>) {
    out.put_u32_le(narrow(kept.len()));
    for KeptStore { id, address } in kept {
        out.put_slice(id);
        out.put_u32_le(narrow(address.len()));
        out.put_slice(address.as_bytes());
    }
}

/// The list at the start of `bytes`, and its length; `None` if it makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Vec<KeptStore>, usize)> {
    let (mut rest, mut kept) = (bytes, Vec::new());
    let count = rest.try_get_u32_le().ok()? as usize;
    if count > STORES_MAX {
        return None;
    }
    for _ in 0..count {
        let mut id = StoreId::default();
        rest.try_copy_to_slice(&mut id).ok()?;
        let len = rest.try_get_u32_le().ok()? as usize;
        let (address, others) = rest.split_at_checked(len).filter(|_| len <= ADDRESS_MAX)?;
        let address = String::from_utf8(address.to_vec()).ok()?;
        kept.push(KeptStore { id, address });
        rest = others;
    }
    Some((kept, bytes.len() - rest.len()))
}

impl Content {
    /// False if the list is full: adds may overlap, so each looks when its turn has come.
    fn keep(&mut self, store: &KeptStore) -> bool {
        let is_new = self.kept.iter().all(|kept| kept.id != store.id);
        if is_new && self.kept.len() >= STORES_MAX {
            return false;
        }
        self.kept.retain(|kept| kept.id != store.id);
        self.kept.push(store.clone());
        self.leaving.retain(|leaving| *leaving != store.id);
        true
    }

    /// Keeps a store no longer; false if it was neither kept nor leaving.
    pub(crate) fn forget(&mut self, store: StoreId) -> bool {
        let before = self.kept.len() + self.leaving.len();
        self.kept.retain(|kept| kept.id != store);
        self.leaving.retain(|leaving| *leaving != store);
        self.kept.len() + self.leaving.len() < before
    }
}

impl Header {
    /// Whether a store is kept.
    pub(crate) fn is_kept(&self, store: StoreId) -> bool {
        self.content().kept.iter().any(|kept| kept.id == store)
    }

    /// Keeps a store if there is room, which `has_room` says for the caller. Returns whether it is.
    async fn keep(&self, store: KeptStore, has_room: impl Fn() -> bool) -> Result<bool, IoError> {
        if plant::is(Bug::KeptInMemory) {
            self.pretend(|content| content.keep(&store));
            return Ok(true);
        }
        self.update(|content| has_room() && content.keep(&store)).await
    }
}

impl Offloaded {
    /// Borrows one more store, from now on and whenever the base volume is opened: where it is gets
    /// durable on the base before this returns. A store that was given at the opening is kept from
    /// now on. One that is leaving stays. False if `lender` is not used, because there was one to
    /// this store already.
    ///
    /// # Errors
    /// [`OffloadError::Stores`] if there are too many, [`OffloadError::Address`] if the address is
    /// too long, and [`OffloadError::Base`] if the header cannot be written.
    pub async fn add(&self, lender: Rc<dyn Lender>, address: &str) -> Result<bool, OffloadError> {
        if address.len() > ADDRESS_MAX {
            return Err(OffloadError::Address { most: ADDRESS_MAX });
        }
        let (client, id) = (&self.0, lender.id());
        let known = || client.peers.iter().find(|peer| peer.id == id);
        let has_room = || known().is_some() || client.peers.len() < STORES_MAX;
        let store = KeptStore { id, address: address.to_owned() };
        if !client.header.keep(store, has_room).await? {
            return Err(OffloadError::Stores);
        }
        if let Some(peer) = known() {
            if !client.header.is_leaving(id) {
                peer.leaving.set(None);
            }
            peer.gone.set(false);
            client.changed.notify();
            return Ok(false);
        }
        let number = client.peers.push(Peer::new(lender)).ok_or(OffloadError::Stores)?;
        client.table.borrow_mut().one_more();
        client.runtime.spawn(Rc::clone(client).run_peer(number));
        Ok(true)
    }

    /// Gives up a store: evacuates it, and returns when it holds nothing and the base, durably,
    /// neither lists nor keeps it. That is at once if the store is empty already. If the base
    /// volume is opened anew before that, the store goes on to be emptied, and is kept.
    ///
    /// Ranges that no store returns whole can go nowhere. When nothing else is left in the store,
    /// this returns and names them, with [`Forgotten::done`] false: the store is not dropped. With
    /// `accept` they are lost, as by [`Offloaded::forget`], and the store is dropped. The same
    /// holds for ranges that no store has any more, whichever had them, if the header has no room
    /// to note them ([`Offloaded::unnoted_losses`]).
    ///
    /// # Errors
    /// [`OffloadError::Unknown`] if it is no store of this base volume, [`OffloadError::Stores`] if
    /// more stores leave than the header has room for, and [`OffloadError::Base`] if the header
    /// cannot be written, or the base volume is closed meanwhile. If nothing leaves it any more,
    /// [`OffloadError::Base`] because the base does not take it, or [`OffloadError::Store`] because
    /// a store's disk fails without a word of damage, this one's or that of another which has the
    /// newest of what it holds: the store goes on to be emptied. If
    /// [`Offloaded::add`] calls it back meanwhile, this returns, and it stays.
    pub async fn remove(&self, store: StoreId, accept: bool) -> Result<Forgotten, OffloadError> {
        let client = &self.0;
        let known = client.peers.iter().position(|peer| peer.id == store);
        let mut lost = Vec::new();
        let Some(number) = known else {
            // A store of which nothing is needed may be kept though no opening can reach it.
            let forget =
                |content: &mut Content| !content.stores.contains(&store) && content.forget(store);
            return match client.header.update(forget).await? {
                true => Ok(Forgotten { lost, done: true }),
                false => Err(OffloadError::Unknown { store }),
            };
        };
        client.leave(number).await?;
        let _ = client.take_trouble(number);
        loop {
            client.note_losses().await?;
            let stuck = client.stuck(Some(number));
            if stuck.is_empty() {
                if client.has_left(number).await? {
                    break;
                }
                if client.is_over() {
                    return Err(IoError::Gone.into());
                }
                client.told_trouble(number)?;
                client.runtime.sleep(client.options.reclaim_every).await;
                continue;
            }
            let given_up = client.give_up(&stuck, accept).await?;
            if !accept && !given_up.is_empty() {
                return Ok(Forgotten { lost: given_up, done: false });
            }
            lost.extend(given_up);
        }
        lost.sort_unstable_by_key(|one| one.start);
        Ok(Forgotten { lost, done: true })
    }
}

impl Client {
    /// Why nothing left a store in the last pass that tried what it holds, if it was not for want
    /// of time.
    fn told_trouble(&self, number: usize) -> Result<(), OffloadError> {
        match self.take_trouble(number) {
            None => Ok(()),
            Some(Trouble::Base(error)) => Err(error.into()),
            Some(Trouble::Store(of, error)) => {
                Err(OffloadError::Store { store: self.peers[of].id, source: error.into() })
            }
        }
    }

    /// Drops a store that leaves from the header once it holds nothing. True if it is dropped, or
    /// was called back.
    async fn has_left(&self, number: usize) -> Result<bool, IoError> {
        let peer = &self.peers[number];
        let forget = |content: &mut Content| {
            let is_idle = peer.busy.get() == 0 && !content.stores.contains(&peer.id);
            peer.leaving.get().is_some() && is_idle && content.forget(peer.id)
        };
        if self.header.update(forget).await? || peer.leaving.get().is_none() {
            return Ok(true);
        }
        Ok(!self.header.is_listed(peer.id) && peer.busy.get() == 0)
    }
}
