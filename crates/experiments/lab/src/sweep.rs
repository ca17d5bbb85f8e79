//! Sweeps: every combination of traces, drives, policies, parameters and seeds, on all cores.
//!
//! A [`Sweep`] is read from a file. [`jobs`] lists its runs, [`Job::run`] does one run, and
//! [`Kept`](crate::runs::Kept) keeps finished runs, so that an interrupted sweep can continue.
//! [`columns`] turns the rows into columns for CSV and Parquet.

mod columns;
mod file;
mod job;
mod load;
mod row;
mod runs;
mod summary;

pub use columns::{Column, Columns, columns};
pub use file::{Output, Rate, Seeds, Sweep, SweepError, TraceList, WindowText};
pub use job::{Job, JobError, Jobs, Measured, drive, jobs, requests};
pub use load::{LoadRate, LoadSpec};
pub use row::{Ask, Checkpointed, Figures, Row};
pub use runs::{Runs, run_jobs};
pub use summary::summary;
