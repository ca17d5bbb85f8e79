//! Replay of a trace on a modelled drive under several policies.
//!
//! Each policy gets a simulated world of its own, on a thread of its own: the trace feeds the
//! policy's volume (or the plain drive), which stands on the modelled drive. See [`run_all`].

mod answers;
mod assemble;
mod policies;
mod pump;
mod recorder;
mod run;
mod stack;
mod utilisation;
mod workload;

pub use assemble::{Setting, assemble};
pub use policies::{NamedPolicy, PolicyListError, parse_policies};
pub use pump::{Control, Durability, Loop, PumpError, PumpReport, PumpSettings, pump};
pub use recorder::{Class, Recorder};
pub use run::{Outcome, Plan, ReplayError, run_all};
pub(crate) use stack::Stack;
pub use stack::{DriveSettings, HeadPoint, QueueSettings, exported_capacity};
pub use utilisation::{RateFound, find_rate};
pub use workload::{Cursor, OpenTrace, TraceSummary, Workload};
