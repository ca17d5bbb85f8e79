//! Manylogs at block level (seed 000, MLB): small writes are appended to the log nearest to where
//! the head already is, large ones go home, and a cleaner moves the logged ones home later.
//!
//! [`Volume`] is a [`manylogs_block::BlockDevice`] over a block device. What holds after a crash
//! is in `docs/semantics.md`, the bytes on the disk in `docs/format.md`, the reasons in
//! `docs/design.md`.

mod backlog;
mod bypass;
mod checkpoint;
mod close;
mod commit;
mod config;
mod error;

mod flush;
#[doc(hidden)]
pub mod fuzz;
mod grow;
mod home_lock;
mod identity;
mod inspect;

mod maintenance;
mod nvram;
mod ondisk;
mod open;
mod outlook;
mod patience;
mod phase;
mod placement;

mod policy;
mod probe;
mod read;

mod recover;
mod repair;
mod reserve;
mod room;
mod scrub;
mod settings;

mod snapshot;
mod state;
mod stats;
mod store;
mod structures;
mod swap;

mod volume;
mod write;

pub use backlog::Backlog;
pub use checkpoint::CheckpointReport;
pub use close::{DrainOptions, DrainReport};
pub use config::{CheckpointPolicy, EngineConfig, LogPlacement, TablePlace};
pub use error::{NvramError, VolumeError};
pub use grow::GrowReport;
pub use inspect::{
    Finding, Identity, Inspection, LeftAs, LogSummary, Severity, check, check_with, identify,
    inspect, inspect_log, inspect_with,
};
pub use ondisk::layout::{Layout, LogRun};
pub use open::{CreateOptions, LogDamage, OpenOptions, RecoveryReport};
pub use patience::PatientReads;
pub use phase::{Phase, PhaseProbe, Written};
pub use policy::{Policy, PolicyError};
pub use probe::{HEAD_BYTES, Probed, probe};
pub use repair::RepairReport;
pub use scrub::ScrubReport;
pub use settings::{Settings, SettingsError};
pub use stats::{Health, LogOccupancy, VolumeStats};
pub use volume::{MappedExtent, Volume};
