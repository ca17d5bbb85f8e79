//! The file system on devices in memory, and beside the kernel and its tools.
//!
//! One program holds all of them: each that is linked alone compiles the layers below once more.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod basic;
mod blockmap;
mod calls;
mod collisions;
mod common;
mod damage;
mod data;
mod failing;
mod kernel;
mod lazy;
mod limits;
mod memory;
mod promises;
mod replay;
mod statfs;
mod streams;
mod waits;
mod xattr;
