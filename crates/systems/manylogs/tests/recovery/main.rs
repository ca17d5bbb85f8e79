//! Opening a volume whose disk has unreadable sectors, growing it, and the state of its superblock,
//! root and logs then.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod draining;
mod growing;
mod logs;
#[cfg(feature = "plant")]
mod planted;
mod reshaped;
mod structures;
