//! What the scheduler sends first.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod database;
mod flushes;
mod passing;
mod runs;
mod scheduler;
mod stripes;
