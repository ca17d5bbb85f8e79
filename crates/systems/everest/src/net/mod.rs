//! Calls and answers as they go over a connection: bounded frames with a version and a checksum.
//!
//! The decoders here read bytes of strangers. Bad bytes are an error and never a panic, and take no
//! more memory than the reader's bound.

mod answer;
mod call;
mod coder;
mod frame;
mod lies_on;

/// The longest extent that is read with one call over a connection.
pub const LONGEST_READ: manylogs_block::Sectors = manylogs_block::Sectors((64 << 20) / 512);

pub use answer::{AnswerPart, Answers};
pub use call::{Hello, Welcome};
pub use frame::{FRAME_HEAD_BYTES, FRAME_VERSION, Frame, FrameError, FrameHead, FrameKind};
pub use lies_on::LiesOn;
