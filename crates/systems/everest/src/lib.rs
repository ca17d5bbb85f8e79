//! Everest (Narayanan et al., OSDI 2008): a store that takes the writes of overloaded volumes for a
//! while.
//!
//! [`CircularStore`] is the store of section 3.1: a log on one device or several, appended to at
//! its head and cleaned from its tail, with blocks of many base volumes and the versions that their
//! owners give them. It is a second client of `manylogs_logstore`, beside the volume of the crate
//! `manylogs`: the store's entries, records, recovery and cleaning are the same.
//!
//! [`Lending`] serves such a store to clients, local or remote: it does each call once, and only
//! calls of the newest session of a base volume. Clients use it through the trait [`Lender`].
//!
//! [`Offloaded`] is the client of section 3.2: a base volume whose writes go to stores while it is
//! busy, by a [`Policy`], and are reclaimed in the background. `docs/everest.md` tells what holds
//! when any of them crashes.

mod ages;
mod begin;
mod bring;
mod call;
mod cleaning;
mod damaged;
mod error;
mod evacuate;
mod examine;
mod failed;
mod forget;
mod header;
mod home;
mod kept;
mod label;
mod leaving;
mod left;
mod lender;
mod lending;
mod listed;
mod locks;
mod lost;
mod meter;
pub mod net;
mod noted;
mod offload;
mod ondisk;
mod open;
mod pace;
mod peer;
mod peers;
mod policy;
mod read;
mod reclaim;
mod ring;
mod rolled_back;
mod share;
mod store;
mod stores;
mod system;
mod table;
mod versions;
mod voids;
mod write;
mod written;

pub use begin::{OffloadError, store_name};
pub use call::{Ask, BaseId, Call, Opening, Part, Reply, Session, StoreId};
pub use error::StoreError;
pub use examine::{ExaminedStore, HeldOf, LogFound, StoreFinding, StoreLabel};
pub use forget::Forgotten;
pub use kept::KeptStore;
pub use label::{BASE_HEADER_BYTES, BaseLabel};
pub use lender::{Answer, DiskLoad, Lender, LenderError, Load};
pub use lending::Lending;
pub use meter::Meter;
pub use offload::{OffloadFigures, OffloadOptions, Offloaded};
pub use policy::Policy;
pub use share::Shared;
pub use store::{CircularStore, Found, StoreOptions};
pub use stores::{StoreFigures, StoreState};
pub use versions::{Range, Version};
