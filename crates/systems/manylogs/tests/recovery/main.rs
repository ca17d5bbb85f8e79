//! Opening a volume whose disk cannot be read everywhere, growing it, and what its superblock, root
//! and logs hold then.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod draining;
mod growing;
mod logs;
#[cfg(feature = "plant")]
mod planted;
mod structures;
