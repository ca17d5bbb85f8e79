//! The state of a client's stores, for people.

use manylogs_block::{Nanos, Sectors, Time};

use crate::call::StoreId;
use crate::offload::{Client, Offloaded};
use crate::peer::Peer;
use crate::policy::Policy;

/// Whether a store takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// It takes writes.
    Lends,
    /// It had no room when it was last asked.
    Full,
    /// It must forget old versions before it takes new ones.
    Forgets,
    /// It takes no more writes: what it holds goes home, or to other stores.
    Leaves,
    /// It takes no more writes and holds nothing any more.
    Empty,
    /// It cannot be reached.
    Away,
}

impl StoreState {
    /// Name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lends => "lends",
            Self::Full => "full",
            Self::Forgets => "forgets",
            Self::Leaves => "leaves",
            Self::Empty => "empty",
            Self::Away => "away",
        }
    }
}

/// A store of a base volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFigures {
    /// Its name.
    pub id: StoreId,
    /// Where it is.
    pub place: String,
    /// Whether it takes writes.
    pub state: StoreState,
    /// Whether the base volume's header lists it as one that may hold data.
    pub is_listed: bool,
    /// Whether the header says where it is, so that every opening borrows it.
    pub is_kept: bool,
    /// Sectors of which it has the newest version.
    pub held: Sectors,
    /// Sectors of which it alone has the newest version.
    pub only_copy: Sectors,
    /// If it takes no more writes: what it held when it began to leave, or when the base volume
    /// was opened. `held` is what is left of that.
    pub left_from: Option<Sectors>,
    /// The time that a request would wait there.
    pub wait: Nanos,
    /// For how long it could not be reached.
    pub away: Nanos,
}

impl Offloaded {
    /// The lost ranges, in addresses of clients: they read as errors until they are written.
    #[must_use]
    pub fn lost(&self) -> Vec<manylogs_block::Extent> {
        self.0.header.content().lost.iter().map(|lost| lost.extent).collect()
    }

    /// The stores of the base volume, in the order in which they were given. Those that were
    /// removed and hold nothing, and those that were forgotten, are left out.
    #[must_use]
    pub fn stores(&self) -> Vec<StoreFigures> {
        let there = |store: &usize| !self.0.peers[*store].gone.get();
        let all = (0..self.0.peers.len()).filter(there).map(|store| self.0.figures_of(store));
        let has_left = |one: &StoreFigures| {
            let is_needed = one.is_listed || one.is_kept || self.0.header.is_leaving(one.id);
            one.left_from.is_some() && !is_needed
        };
        all.filter(|one| !has_left(one)).collect()
    }

    /// Whether the base volume is over the threshold of its policy.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.options.policy.is_over(self.0.home.load())
    }

    /// The most that stores may hold of it, all together; `None` if only they have bounds.
    #[must_use]
    pub fn held_bound(&self) -> Option<Sectors> {
        Some(self.0.options.held_max).filter(|most| *most < Sectors(u64::MAX))
    }

    /// The policy of off-loading.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.0.options.policy
    }

    /// Whether another host has opened the base volume: this opening serves nothing any more.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.0.fenced.get()
    }

    /// Name of the base volume.
    #[must_use]
    pub fn id(&self) -> crate::call::BaseId {
        self.0.base_id
    }
}

impl Client {
    fn figures_of(&self, store: usize) -> StoreFigures {
        let (peer, table) = (&self.peers[store], self.table.borrow());
        let is_listed = self.header.is_listed(peer.id);
        let is_empty = peer.leaving.get().is_some() && !is_listed && peer.busy.get() == 0;
        StoreFigures {
            id: peer.id,
            place: peer.lender.place(),
            state: if is_empty { StoreState::Empty } else { peer.state(self.runtime.now()) },
            is_listed,
            is_kept: self.header.is_kept(peer.id),
            held: table.sectors(Some(store)),
            only_copy: table.only_copies(store),
            left_from: peer.leaving.get(),
            wait: peer.lender.load().wait,
            away: self.lost_for(store),
        }
    }
}

impl Peer {
    fn state(&self, now: Time) -> StoreState {
        match (self.is_live(), self.takes_writes(now)) {
            (false, _) => StoreState::Away,
            (true, _) if self.leaving.get().is_some() => StoreState::Leaves,
            (true, _) if self.full_until.get().is_some() => StoreState::Full,
            (true, true) => StoreState::Lends,
            (true, false) => StoreState::Forgets,
        }
    }
}
