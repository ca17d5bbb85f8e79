//! Volumes with their table in non-volatile RAM: their writes, and their state without that memory.
//! The crash campaign tests their guarantees in crashes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod losing;
