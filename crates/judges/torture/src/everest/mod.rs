//! Histories of Everest: base volumes off-load to stores on other machines, over links that lose
//! messages. Machines crash apart and together, and are judged like those of a volume.

mod clients;
mod gone;
mod history;
mod leaving;
mod life;
mod opening;
mod plan;
mod recovery;
mod trouble;
mod wire;
mod world;

pub(crate) use history::run_history;
pub use plan::EverestPlan;
