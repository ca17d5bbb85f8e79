//! The drive's buffer: read-ahead segments and cached writes.

pub(crate) mod read;
pub(crate) mod write;
