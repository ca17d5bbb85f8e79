//! Volumes that are busy all the time and borrow other drives, in virtual time (the Everest paper,
//! sections 4.2 and 4.3): what their clients get, how fast all goes home, and how long the opening
//! of a store takes.
//!
//! Clients ask as long as the measurement lasts: each for its next request as soon as the last one
//! is answered. Every write is durable, and volumes are drives or arrays of them.

mod case;
mod reclaim;
mod recover;
mod run;
mod world;

pub use case::{LentCase, LentFigures, LentLoad, LoadAt};
pub use reclaim::{ReclaimCase, ReclaimFigures, reclaim};
pub use recover::{RecoveryCase, RecoveryFigures, recover};
pub use run::run;
