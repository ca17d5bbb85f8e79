//! Experiments: policies x drives x workloads, statistics and reports.

pub mod stats;
