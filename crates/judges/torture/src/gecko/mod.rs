//! Histories of a chain of drives, crashed and judged like those of a volume. Beside the content of
//! each sector the order of all changes is judged: only the last changes may be lost.

mod clients;
mod flash;
mod history;
mod links;
mod loss;
mod model;
mod pairs;
mod plan;
mod watch;
mod world;

pub(crate) use history::run_history;
pub use plan::GeckoPlan;
