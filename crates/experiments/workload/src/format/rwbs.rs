//! The letters by which the kernel and blkparse describe a block request.

use crate::request::TraceOp;

/// The meaning of the letters of an rwbs field.
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
            [] if pre_flush => (Some(TraceOp::Flush), rest),
            // The kernel knows no letter for write-zeroes and prints that of "other" operations.
            [b'N', flags @ ..] => (Some(TraceOp::WriteZeroes), flags),
            flags => (None, flags),
        };
        Self { op, pre_flush, fua: flags.contains(&b'F') }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_told_apart_by_their_place() {
        let parse = |letters: &str| {
            let rwbs = Rwbs::parse(letters.as_bytes());
            (rwbs.op, rwbs.pre_flush, rwbs.fua)
        };
        assert_eq!(parse("R"), (Some(TraceOp::Read), false, false));
        assert_eq!(parse("RAM"), (Some(TraceOp::Read), false, false));
        assert_eq!(parse("WS"), (Some(TraceOp::Write), false, false));
        assert_eq!(parse("WFS"), (Some(TraceOp::Write), false, true));
        assert_eq!(parse("FWFSM"), (Some(TraceOp::Write), true, true));
        assert_eq!(parse("FF"), (Some(TraceOp::Flush), true, false));
        assert_eq!(parse("F"), (Some(TraceOp::Flush), true, false));
        assert_eq!(parse("DS"), (Some(TraceOp::Discard), false, false));
        assert_eq!(parse("DES"), (Some(TraceOp::Discard), false, false));
        assert_eq!(parse("NS"), (Some(TraceOp::WriteZeroes), false, false));
        assert_eq!(parse("WZS"), (Some(TraceOp::WriteZeroes), false, false));
        assert_eq!(parse("ZR"), (None, false, false));
        assert_eq!(parse(""), (None, false, false));
    }
}
