//! A file system whose transactions are records of a volume, in virtual time.
//!
//! One program holds all tests: each separate program would compile the layers below once more.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod ahead;
mod budget;
mod common;
mod cost;
mod durable;
mod emergency;
mod full;
mod lazy;
mod memory;
mod parts;
mod policies;
mod replace;
mod together;
