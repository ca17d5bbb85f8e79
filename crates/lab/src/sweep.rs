//! Sweeps: every combination of traces, drives, policies, parameters and seeds, on all cores.
//!
//! A [`Sweep`] is read from a file. [`jobs`] lists its runs, [`Job::run`] does one run, and the
//! [`Journal`] keeps finished runs, so that an interrupted sweep can continue. [`columns`] turns
//! the rows into columns for CSV and Parquet.

mod columns;
mod file;
mod job;
mod journal;
mod row;
mod summary;

pub use columns::{Column, Columns, columns};
pub use file::{Output, Rate, Seeds, Sweep, SweepError, TraceList, WindowText};
pub use job::{Job, Loads, jobs};
pub use journal::{Journal, JournalError};
pub use row::{Ask, Row};
pub use summary::summary;
