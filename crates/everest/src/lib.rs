//! Everest (Narayanan et al., OSDI 2008): a store that takes the writes of overloaded volumes for a
//! while.
//!
//! [`CircularStore`] is the store of section 3.1: a log on one device or several, appended to at
//! its head and cleaned from its tail, with blocks of many base volumes and the versions that their
//! owners give them. It is a second client of `manylogs_logstore`, beside the volume of the crate
//! `manylogs`: the store's entries, records, recovery and cleaning are the same.
//!
//! [`Offloaded`] is the simplest client that section 3.2 allows: a base volume all of whose writes
//! are off-loaded and reclaimed in the background. When to off-load, and to whom, is not decided
//! here. It knows its store as a [`Lender`], which may be on another machine.

mod ages;
mod cleaning;
mod error;
mod lender;
mod offload;
mod ondisk;
mod open;
mod reclaim;
mod ring;
mod store;
mod system;
mod versions;

pub use error::StoreError;
pub use lender::{Answer, Lender, LenderError};
pub use offload::{OffloadOptions, Offloaded};
pub use store::{CircularStore, Found, StoreOptions};
pub use versions::{Range, Version};
