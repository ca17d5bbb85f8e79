//! Volumes, chains of drives, and devices without either, under unmodified applications.
//!
//! ```text
//!   FUSE file + loop     nbdkit plugin     ublk                threads of the front ends
//!          \________________|_______________/
//!                          Port                                 from any thread to one
//!                            |
//!      Engine: a thread with a reactor, a volume, a device,     and nobody else touches those
//!              and a socket for NBD clients, if one is given
//! ```
//!
//! The front ends are thin: they translate requests, and the engine's thread answers them. The
//! operator's requests go the same way, through a socket of the volume's own
//! ([`manylogs_operate::control`]).

mod address;
mod chain;
mod channel;
mod emulation;
mod ending;
mod engine;
mod errno;
mod front_end;
mod fuse;
mod hygiene;
mod lies_on;
mod link;
mod listen;
mod loop_device;
pub mod machine;
mod nbd;
pub mod nbdkit;
mod notify;
mod occupant;
mod panics;
mod port;
mod range;
mod scrape;
mod server;
mod stack;
mod stores;
#[cfg(test)]
mod tests;
mod translate;
mod users;

pub use address::{AddressError, MetricsAddress, NbdAddress};
pub use chain::{
    ChainRefused, ChainView, LossTold, Member, MembersError, ServedChain, identity, is_member,
    is_same, link_of, place_of, refuse_link_member, refuse_member,
};
pub use emulation::Emulation;
pub use ending::{End, Ending};
pub use engine::{About, Engine, EngineOptions, Left, Recognised, ServeError};
pub use errno::{errno, nbd_errno};
pub use front_end::{FrontEnd, LinkError, LoopFrontEnd, NbdFrontEnd, Shown};
pub use fuse::{FuseError, FuseFile};
pub use hygiene::{Unprotected, protect};
pub use listen::ListenError;
pub use loop_device::{LoopDevice, LoopError, Orphan};
pub use notify::notify;
pub use occupant::{Occupant, OccupantError};
pub use port::{Port, content};
pub use scrape::answer_scrapes;
pub use stack::{RESTART_PATIENCE, Stack, StackError, StackOptions};
pub use stores::{
    Borrowing, Guard, Identity, KEY_FILE, KeyError, LendOptions, PlaceError, PublicKey,
    PublicKeyError, StoreAddress, StoreFrontEnd, forgotten_answer, parse_store, peer_at,
    share_percent,
};
pub use translate::{Around, Call, Operation, Untranslatable};
