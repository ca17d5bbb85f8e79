//! Virtual time: a deterministic executor, nodes that can be killed apart, and a disk that
//! loses power.
//!
//! With the same seed a run is the same run: ready tasks are taken in order of arrival, or in an
//! order drawn from the seed, and time jumps to the next timer when nothing is ready.

mod crash_disk;
mod executor;
mod oracle;

pub use crash_disk::{CrashDisk, CrashDiskConfig, DiskImage, Survival};
pub use executor::{NodeId, Order, Sim, Stopped};
pub use oracle::{FlushId, Oracle, WriteId, Wrong};
