//! The letters by which the kernel and blkparse describe a block request.

use crate::request::TraceOp;

/// What the letters of an rwbs field say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rwbs {
    /// The operation; `None` for one that is not replayed (zone management, driver private).
    pub(crate) op: Option<TraceOp>,
    /// The volatile cache is to be flushed first.
    pub(crate) pre_flush: bool,
    /// The data must be durable on completion.
    pub(crate) fua: bool,
}

impl Rwbs {
    /// Reads `F` as a pre-flush before the operation's letter and as FUA behind it, as the
    /// kernel writes them; an `F` alone is a flush.
    pub(crate) fn parse(letters: &[u8]) -> Self {
        let (pre_flush, rest) = match letters.strip_prefix(b"F") {
            Some(rest) => (true, rest),
            None => (false, letters),
        };
        let (op, flags) = match rest {
            [b'W', b'Z', flags @ ..] => (Some(TraceOp::WriteZeroes), flags),
            [b'D', b'E', flags @ ..] | [b'D', flags @ ..] => (Some(TraceOp::Discard), flags),
            [b'W', flags @ ..] => (Some(TraceOp::Write), flags),
            [b'R', flags @ ..] => (Some(TraceOp::Read), flags),
            // A flush request of its own prints FF: the first letter was the pre-flush.
            [b'F', flags @ ..] => (Some(TraceOp::Flush), flags),
            [] | [b'N', ..] if pre_flush => (Some(TraceOp::Flush), rest),
            flags => (None, flags),
        };
        Self { op, pre_flush, fua: flags.contains(&b'F') }
    }
}
