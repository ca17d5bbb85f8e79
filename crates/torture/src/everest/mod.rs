//! Histories of Everest: base volumes whose writes are off-loaded to a circular store, crashed and
//! judged as those of a volume are.

mod clients;
mod history;
mod plan;
mod trouble;
mod world;

pub(crate) use history::run_history;
pub use plan::EverestPlan;
