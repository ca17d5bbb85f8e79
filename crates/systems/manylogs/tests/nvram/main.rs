//! Volumes with their table in non-volatile RAM: what they write, and what becomes of them without
//! that memory. The crash campaign has what they promise in any crash.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod losing;
