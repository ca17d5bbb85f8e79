//! Histories of file systems that MLFS takes over, uses and gives back. Their disks lose power at
//! any event, and sectors are torn and reordered. The histories need `mkfs.ext4`, and `e2fsck` for
//! a sample.

mod durable;
mod engine;
mod history;
mod judge;
mod model;
mod raw;
mod roots;
mod told;

pub use history::AdoptPlan;
pub(crate) use history::run_history;
pub use roots::Roots;
pub use told::{Told, tell};
