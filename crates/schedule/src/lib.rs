//! When a device turns to which request.
//!
//! A drive's queue prefers what needs no positioning, so that a stream starves whatever is apart
//! from it. The [`Scheduler`] keeps back what the drive would prefer: while records are expected
//! and clients keep the device busy without a pause, the work that lies in the device is bounded in
//! time, and nothing but a record goes while one is under way. It knows devices, classes and times,
//! but no logs; what it needs to know of the device it learns from what the device does.
//! `docs/design.md` says what was taken from where.

mod answer;
mod class;
mod contention;
mod estimate;
mod limits;
mod line;
mod queue;
mod rhythm;
mod scheduler;
mod state;
mod stats;

pub use class::Class;
pub use limits::Targets;
pub use scheduler::Scheduler;
pub use stats::{Cause, ClassStats, ScheduleStats};
