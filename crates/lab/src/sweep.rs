//! Sweeps: every combination of traces, drives, policies, parameters and seeds, on all cores.
//!
//! A [`Sweep`] is read from a file. [`jobs`] says what it comes to, [`Job::run`] does one, and the
//! [`Journal`] keeps what is done, so that a sweep which was ended goes on where it was.
//! [`columns`] gives the rows as columns for CSV and Parquet.

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
