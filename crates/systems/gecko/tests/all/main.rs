//! What a chain does, case by case. Histories of crashes are in the crate torture.

#![allow(clippy::print_stdout, reason = "the figure is of interest")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod cache;
mod held;
mod links;
mod loss;
mod pairs;
mod sleep;
mod sleep_faults;
mod sleep_roots;
mod summaries;
