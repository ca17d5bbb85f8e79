//! Virtual time: a deterministic executor, nodes that can be killed apart, and a disk that
//! loses power.
//!
//! Runs with the same seed are identical: ready tasks are taken in order of arrival, or in an order
//! drawn from the seed, and time jumps to the next timer when no task is ready.

mod crash_disk;
mod executor;
mod image;
mod ledger;
mod nvram;
mod oracle;
mod plane;
mod write_cache;

pub use crash_disk::{CrashDisk, CrashDiskConfig, FailRequest};
pub use executor::{NodeId, Sim, Stopped, TaskOrder};
pub use image::{DiskImage, PastWrite, Survival};
pub use ledger::{Ledger, Moment, SentWrite};
pub use nvram::{CrashNvram, NvramImage};
pub use oracle::{FlushId, Oracle, ReadId, WriteId, Wrong};
pub use plane::{Plane, Stored};
pub use write_cache::{PendingFlush, PendingWrite, WriteCache};
