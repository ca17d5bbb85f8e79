//! Manylogs at block level (MLB in the Manylogs paper). Small writes are appended to the log
//! nearest to the head, large ones go home, and a cleaner moves the logged ones home later.
//!
//! [`Volume`] is a [`manylogs_block::BlockDevice`] over a block device. `docs/semantics.md` says
//! what holds after a crash, `docs/format.md` describes the bytes on the disk, and `docs/design.md`
//! gives the reasons.

mod checks;
mod cleaning;
mod error;
mod lifecycle;
mod ondisk;
mod records;
mod reports;
mod requests;
mod roots;
mod settings;
mod state;
mod system;
mod volume;

pub use checks::inspect::{
    Finding, Identity, Inspection, LeftAs, LogSummary, Severity, check, check_with, identify,
    identify_at, inspect, inspect_log, inspect_with,
};
pub use checks::scrub::ScrubReport;
pub use cleaning::checkpoint::{CheckpointReport, HomeForm, Owner, Owners};
pub use error::VolumeError;
pub use lifecycle::close::{DrainOptions, DrainReport};
pub use lifecycle::geometry::{GeometryReport, Unfit};
pub use lifecycle::grow::GrowReport;
pub use lifecycle::open::Opening;
pub use lifecycle::options::{CreateOptions, LogDamage, OpenOptions, RecoveryReport};
pub use lifecycle::probe::{HEAD_BYTES, Probed, probe};
pub use lifecycle::repair::RepairReport;
pub use lifecycle::scattered::{ScatteredTimes, measure_scattered};
pub use manylogs_engine::{PatientReads, Phase, PhaseProbe, Written};
pub use manylogs_logstore::{LogId, NvramError};
pub use ondisk::layout::{Anchors, Layout, LayoutError, LogRun};
pub use ondisk::superblock::Superblock;
pub use records::own::{LogsWithRoom, OwnPolicy, OwnWrite};
pub use reports::backlog::Backlog;
pub use reports::home_pace::{HomePace, measure_homes};
pub use reports::outlook::DrainEstimate;
pub use reports::stats::{Health, LogOccupancy, VolumeStats, WritePaths};
pub use requests::ahead::AheadMemory;
pub use requests::read::ReadAround;
pub use settings::config::{CheckpointPolicy, LogPlacement, TablePlace, VolumeConfig};
pub use settings::config_error::ConfigError;
pub use settings::durable::DurableOnly;
pub use settings::policy::{Policy, PolicyError};
pub use settings::{Settings, SettingsError};
pub use volume::{MappedExtent, Volume};

pub use manylogs_schedule::{Cause, Class, ClassStats, ScheduleStats};
