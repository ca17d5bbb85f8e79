//! What a volume does, in virtual time and on images.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod adaptive;
mod ahead;
mod bands;
mod checkpoint;
mod day;
mod extents;
mod given;
mod golden;
mod kept;
mod layouts;
mod off_hours;
mod owning;
mod requests;
mod room;
mod sequential;
mod settings;
mod tiny_logs;
