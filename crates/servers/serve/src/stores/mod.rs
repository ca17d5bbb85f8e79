//! Both ends of the connections between base volumes and stores on other disks.
//!
//! ```text
//!   base volume's server                        store's server
//!   Offloaded -- Link == sockets, perhaps TLS == LentServer -- Lending -- CircularStore
//! ```
//! A connection carries the calls of `manylogs_everest` and their answers, in frames. When the
//! connection ends, every open call on it is answered "unreachable": it is unknown whether the
//! store has carried it out. With the next connection the client begins a new session, and the
//! store says what it holds.

mod address;
mod borrow;
mod connection;
mod frames;
mod kernel_load;
mod keys;
mod lend;
mod lent;
mod link;
mod names;
mod status;
#[cfg(test)]
pub(crate) mod tests;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod wire;

pub use address::{PlaceError, StoreAddress, parse_store, peer_at};
pub use borrow::{Borrowing, forgotten_answer};
pub use keys::{Identity, KEY_FILE, KeyError, PublicKey, PublicKeyError};
pub use lend::{Guard, LendOptions, StoreFrontEnd, share_percent};

pub(crate) use borrow::open_base;
