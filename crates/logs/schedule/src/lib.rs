//! Decides when requests go to a device.
//!
//! A drive's queue prefers requests that need no positioning, so that a stream starves all requests
//! that are far from it. The [`Scheduler`] holds requests back: while records are expected and
//! clients keep the device busy without a pause, it bounds the work in the device by time, and
//! sends only records while a record is in flight. The scheduler knows devices, classes and times,
//! but no logs. It learns the speed of the device from its answers. `docs/design.md` names the
//! sources of these ideas.

mod answer;
mod class;
mod contention;
mod database;
mod estimate;
mod flushes;
mod limits;
mod line;
mod lone;
mod queue;
mod rhythm;
mod run;
mod scheduler;
mod slack;
mod state;
mod stats;

pub use class::Class;
pub use limits::Targets;
pub use scheduler::Scheduler;
pub use stats::{Cause, ClassStats, ScheduleStats};
