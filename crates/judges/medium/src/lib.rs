//! A disk below the served program: a test tool, not part of the product.
//!
//! [`Medium`] is a file served through FUSE with direct I/O. It has a volatile write cache
//! ([`manylogs_sim::WriteCache`]): a write stays there until an fsync that arrived after the
//! write's answer, or until its own answer if the write is `RWF_DSYNC`. So the medium knows at each
//! moment what a power cut would leave, which no test above the page cache can see. The real
//! program serves the file in a process of its own, and clients use the export. At random events
//! the medium keeps the image of a power cut. Each image is recovered in virtual time, and every
//! sector is compared with what the clients were promised ([`manylogs_sim::Oracle`]).
//!
//! A seed fixes the clients' requests, how writes overtake one another in the medium, and where the
//! cuts fall. It does not fix how the threads interleave: the same seed may pass and fail.

mod client;
mod disk;
mod history;
mod medium;
mod mount;
mod server;
mod units;

pub use client::nbd::NbdClient;
pub use history::{Failure, History, Report};
pub use medium::{Judged, Medium};
pub use mount::Mount;
pub use server::{Below, FrontEnd, Stack};
pub use units::Units;
