//! Histories of a chain of drives, crashed and judged as those of a volume are. Beside each sector
//! the order of all changes is judged: only a suffix of them may be lost.

mod clients;
mod history;
mod model;
mod plan;
mod world;

pub(crate) use history::run_history;
pub use plan::GeckoPlan;
