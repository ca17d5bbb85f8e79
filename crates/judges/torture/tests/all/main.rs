//! Small crash campaigns of every system, bugs planted in them, and histories that once lost data.
//!
//! All of them are one program: each program would compile and link the layers below once more.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod adopt;
mod adopt_planted;
mod adopt_refused;
mod arrays;
mod campaign;
#[cfg(feature = "plant")]
mod common;
mod durable_files;
mod everest;
mod ext4;
mod ext4_planted;
mod failing_logs;
mod gecko;
mod keeping;
mod lazy_planted;
mod logs_settings;
mod mlfs;
mod mlfs_arrays;
mod mlfs_planted;
mod moved_logs;
mod planted;
mod short_logs;
mod stories;
mod told;
mod unchanged;
mod used;
