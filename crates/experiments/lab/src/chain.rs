//! A chain of drives in virtual time: what its clients get, beside readers and cleaning, as a share
//! of what one drive writes sequentially.
//!
//! The Gecko paper measures such chains (figures 4 to 10). Here each gate is one case, and the
//! drive's own sequential bandwidth where the tail was is the measure: see [`run_gates`].

mod bandwidth;
mod blockwise;
mod case;
mod clients;
mod gates;
mod measure;
mod sleep;
mod subject;
mod table;

pub use case::{ChainCase, Durability, Fill, Layout, Pattern, UnknownPattern};
pub use gates::{Gate, GateGroup, GateResult, gates, run_gates};
pub use measure::{ChainFailure, ChainMeasured, measure};
pub use sleep::{SleepCase, SleepMeasured, measure_sleep, run_sleep, sleep_text};
pub use table::text;
