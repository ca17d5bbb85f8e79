//! What a base volume and its stores do, case by case. Histories of crashes are in the crate torture.

#![allow(clippy::print_stdout, reason = "the figures are of interest")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod closing;
mod damaged;
mod evacuate;
mod examine;
mod failing;
mod far;
mod forget;
mod frames;
mod full;
mod memory;
#[cfg(feature = "plant")]
mod noticed;
mod peaks;
mod put_back;
mod quiet;
mod reclaim;
mod share;
mod vanished;
