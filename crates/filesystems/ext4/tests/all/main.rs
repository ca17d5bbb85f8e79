//! The file system on devices in memory, compared with the kernel and its tools.
//!
//! One program holds all tests: each separate program would compile the layers below once more.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod arrange_idle;
mod basic;
mod blockmap;
mod broken_log;
mod calls;
mod cleaner;
mod collisions;
mod common;
mod damage;
mod damaged_copy;
mod data;
mod expire;
mod failing;
mod freed_meanwhile;
mod kernel;
mod lazy;
mod lengthen;
mod limits;
mod lists;
mod memory;
mod promises;
mod replay;
mod saved_map;
mod scrub;
mod scrub_ends;
mod statfs;
mod streams;
mod together;
mod unread;
mod waits;
mod xattr;
