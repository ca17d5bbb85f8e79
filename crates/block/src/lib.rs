//! The block device contract: everything is a [`BlockDevice`] that may wrap block devices.
//!
//! A layer sees only devices, a clock and a task spawner (see [`Runtime`]), so the code that
//! serves a real kernel is the code that runs in virtual time.

mod units;

pub use units::{Extent, Lba, Nanos, SECTOR_BYTES, Sectors, Time};
