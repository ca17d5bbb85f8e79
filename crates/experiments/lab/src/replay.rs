//! Replay of a trace on a modelled drive under several policies.
//!
//! Each policy gets a simulated world of its own, on a thread of its own: the trace feeds the
//! policy's volume (or the plain drive), which stands on the modelled drive. See [`run_all`].

mod answers;
mod asks;
mod drives;
mod durability;
mod policies;
mod pump;
mod recorder;
mod requests;
mod run;
mod served;
mod stack;
mod streams;
mod syncs;
mod utilisation;
mod workload;

pub(crate) use drives::Drives;
pub use drives::{ArraySettings, SlowMember};
pub use durability::Durability;
pub(crate) use policies::SHINGLED;
pub use policies::{NamedPolicy, Own, OwnPolicies, PolicyListError, parse_policies};
pub use pump::{Loop, Progress, PumpError, PumpReport, PumpSettings, SMALL_WRITE, pump};
pub use recorder::{Answered, LatencyClass, Recorder};
pub use requests::{KeptRequest, Requests, TooMany};
pub use run::{Outcome, Plan, ReplayError, run, run_all};
pub use served::Served;
pub(crate) use stack::Stack;
pub use stack::{DriveSettings, HeadPoint, QueueSettings, exported_capacity};
pub(crate) use utilisation::{Probe, find_rate_by, highest_rate_by};
pub use utilisation::{RateFound, find_rate};
pub use workload::{Cursor, OpenTrace, Workload};
