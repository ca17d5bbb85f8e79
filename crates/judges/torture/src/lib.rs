//! The crash campaign: power cuts, killed processes and faults of the medium at arbitrary
//! instants, in virtual time, by seed.
//!
//! A history runs clients against a tiny volume on a simulated disk. At its events the world is
//! forked: the disk loses its power there (any subset of unflushed sectors survives, multi-sector
//! writes are torn), or its user is killed, perhaps again during the recovery. The volume is
//! recovered, from its snapshot and from the logs alone, and every sector is compared with what the
//! rules allow. At its end the history itself crashes, recovers, and goes on. In some histories the
//! device fails requests, and some images are damaged. Some volumes have their table in
//! non-volatile RAM: these are also forked between any two operations on that RAM.
//!
//! Everest's store, a chain of drives, and the file system ext4 with its journal are crashed in the
//! same way. Images of ext4 are also damaged and then used. File systems that MLFS takes over and
//! gives back are crashed on the way.
//!
//! The promises are in `docs/semantics.md`, and for ext4 in `docs/mlfs.md`. The model of them is
//! [`manylogs_sim::Oracle`], and for ext4 a model of names and contents.

mod adopt;
mod campaign;
mod device;
mod everest;
pub mod ext4;
pub mod fuzz;
mod gecko;
mod history;
mod report;
mod tally;
mod volume;

pub use adopt::{AdoptPlan, Roots, Told, tell};
pub use campaign::{
    Campaign, Digest, Ext4Campaign, Failure, Progress, Summary, System, run_adopt, run_everest,
    run_ext4, run_gecko, run_mutant, run_plan, run_seed,
};
pub use everest::EverestPlan;
pub use gecko::GeckoPlan;
pub use report::{Report, Violation};
pub use tally::{FaultCount, Phases, Tally};
pub use volume::fault::{Detected, Fault};
pub use volume::image::{CrashedVolume, new_volume};
pub use volume::parameters::small_config;
pub use volume::plan::Plan;
