//! Logs, their records and their table, beside simple models.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod batches;
mod forgotten;
mod kept;
mod relocation;
mod scan;
