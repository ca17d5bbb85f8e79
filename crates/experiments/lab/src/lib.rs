//! Experiments: policies x drives x workloads, statistics and reports.

pub mod advise;
pub mod assemble;
pub mod chain;
pub mod episodes;
pub mod exercise;
mod grid;
pub mod interfere;
pub mod known;
pub mod lent;
pub mod load;
pub mod mlfs;
pub mod parallel;
pub mod prepare;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod runs;
pub mod smr;
pub mod stats;
pub mod sweep;
pub mod synthetic;
pub mod table;
pub mod tenants;
pub mod verdict;

pub use manylogs_array::{Level, Shape, ShapeError};
