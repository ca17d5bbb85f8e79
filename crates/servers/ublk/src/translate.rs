//! Translates requests of the block layer for the engine, and answers for the kernel.

use std::io;

use manylogs_block::{IoResult, Lba, Payload, Request, SECTOR_BYTES, Sectors, to_usize};
use manylogs_plant::{self as plant, Bug};
use manylogs_serve::{Call, Operation, errno};
use rustix::io::Errno;

use crate::Cache;

/// Operation codes of the driver.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;
/// Mask of the operation in the lowest bits of a command; the other bits are flags.
const OPERATION: u32 = 0xff;
const FUA: u32 = 1 << 13;

/// A request as the driver describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Operation and flags.
    pub(crate) op_flags: u32,
    pub(crate) start: Lba,
    pub(crate) len: Sectors,
}

impl Command {
    const fn operation(self) -> u32 {
        self.op_flags & OPERATION
    }

    /// Number of bytes that the kernel expects from a read; `None` for other operations.
    pub(crate) fn reads(self) -> Option<usize> {
        (self.operation() == READ).then(|| to_usize(self.len.bytes()))
    }

    /// Translates the request for the engine. `content` returns the bytes to write.
    pub(crate) fn request(
        self,
        capacity: Sectors,
        cache: Cache,
        content: impl FnOnce(usize) -> io::Result<Payload>,
    ) -> Result<Request, Errno> {
        let (operation, ignores_fua) = match self.operation() {
            FLUSH if !plant::is(Bug::UblkFlushIsRead) => (Operation::Flush, None),
            READ | FLUSH => (Operation::Read, None),
            WRITE => (Operation::Write, Some(Bug::UblkFuaIgnored)),
            DISCARD => (Operation::Discard, Some(Bug::UblkDiscardNotDurable)),
            WRITE_ZEROES => (Operation::WriteZeroes, Some(Bug::UblkZeroFuaIgnored)),
            _ => return Err(Errno::OPNOTSUPP),
        };
        // The kernel sends no flushes to a write-through device.
        let through = cache == Cache::WriteThrough && !plant::is(Bug::UblkThroughNotDurable);
        let fua = through || self.op_flags & FUA != 0;
        let fua = fua && !ignores_fua.is_some_and(plant::is);
        // A saturated value is not a multiple of a sector and is refused.
        let offset = self.start.0.saturating_mul(SECTOR_BYTES);
        let call = Call::new(operation, offset, self.len.bytes()).fua(fua);
        call.request(capacity, content).map_err(|refused| refused.errno())
    }

    /// Result for the kernel: the number of bytes read or written, or the error.
    pub(crate) fn answer(self, result: &IoResult) -> i32 {
        match result {
            Err(error) => refusal(errno(error)),
            Ok(_) if matches!(self.operation(), READ | WRITE) => {
                i32::try_from(self.len.bytes()).unwrap_or_else(|_| refusal(Errno::INVAL))
            }
            Ok(_) => 0,
        }
    }
}

/// Error number for the driver.
pub(crate) fn refusal(error: Errno) -> i32 {
    -error.raw_os_error()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use manylogs_block::{Extent, Hint, IoError};

    use super::*;

    const CAPACITY: Sectors = Sectors(64);

    fn command(op_flags: u32, start: u64, len: u64) -> Command {
        Command { op_flags, start: Lba(start), len: Sectors(len) }
    }

    fn request(command: Command, cache: Cache) -> Result<Request, Errno> {
        let payload = |len: usize| Ok(Payload::bytes(vec![7; len]));
        command.request(CAPACITY, cache, payload)
    }

    #[test]
    fn with_a_cache_the_kernel_says_what_is_durable() {
        let extent = Extent::new(8, 3);
        let back = |op, flags| request(command(op | flags, 8, 3), Cache::WriteBack).unwrap();
        assert_eq!(back(READ, 0), Request::Read { extent });
        assert_eq!(back(FLUSH, 0), Request::Flush);
        assert_eq!(back(DISCARD, 0), Request::Discard { extent, fua: false });
        for (flags, fua) in [(0, false), (FUA, true), (FUA | 1 << 8, true), (1 << 15, false)] {
            let payload = Payload::bytes(vec![7; 1536]);
            let write = Request::Write { extent, payload, fua, hint: Hint::None };
            assert_eq!(back(WRITE, flags), write);
            assert_eq!(back(WRITE_ZEROES, flags), Request::write_zeroes(extent, fua));
        }
    }

    #[test]
    fn through_the_cache_everything_is_durable_before_it_is_acknowledged() {
        let extent = Extent::new(0, 64);
        let through = |op| request(command(op, 0, 64), Cache::WriteThrough).unwrap();
        assert!(matches!(through(WRITE), Request::Write { fua: true, .. }));
        assert_eq!(through(DISCARD), Request::Discard { extent, fua: true });
        assert_eq!(through(WRITE_ZEROES), Request::write_zeroes(extent, true));
        assert_eq!(through(READ), Request::Read { extent });
    }

    #[test]
    fn what_does_not_fit_or_is_not_known_is_refused() {
        let refused = |op, start, len| request(command(op, start, len), Cache::WriteBack);
        assert_eq!(refused(READ, 60, 5), Err(Errno::INVAL));
        assert_eq!(refused(WRITE, 0, 0), Err(Errno::INVAL));
        assert_eq!(refused(WRITE, u64::MAX, 1), Err(Errno::INVAL));
        assert_eq!(refused(13, 0, 8), Err(Errno::OPNOTSUPP));
        let broken = |_| Err(io::Error::other("gone"));
        let write = command(WRITE, 0, 1).request(CAPACITY, Cache::WriteBack, broken);
        assert_eq!(write, Err(Errno::IO));
    }

    #[test]
    fn answers_count_bytes_or_name_the_error() {
        let done = Ok(Payload::default());
        assert_eq!(command(WRITE, 0, 3).answer(&done), 1536);
        assert_eq!(command(READ, 0, 3).answer(&done), 1536);
        assert_eq!(command(DISCARD, 0, 3).answer(&done), 0);
        assert_eq!(command(FLUSH, 0, 0).answer(&done), 0);
        assert_eq!(command(WRITE, 0, 3).answer(&Err(IoError::Gone)), -19);
        assert_eq!(command(READ, 0, 3).reads(), Some(1536));
        assert_eq!(command(WRITE, 0, 3).reads(), None);
    }

    #[cfg(feature = "plant")]
    #[test]
    fn every_planted_bug_is_noticed() {
        let tests: [fn(); 2] = [
            with_a_cache_the_kernel_says_what_is_durable,
            through_the_cache_everything_is_durable_before_it_is_acknowledged,
        ];
        std::panic::set_hook(Box::new(|_| ()));
        let is_missed = |bug: &&Bug| {
            tests.iter().for_each(|test| test());
            plant::plant(Some(**bug));
            let noticed = tests.iter().any(|test| std::panic::catch_unwind(test).is_err());
            plant::plant(None);
            println!("{bug:?}: {}", if noticed { "noticed" } else { "MISSED" });
            !noticed
        };
        let missed: Vec<&Bug> = plant::UBLK.iter().filter(is_missed).collect();
        let _ = std::panic::take_hook();
        assert!(missed.is_empty(), "not noticed: {missed:?}");
    }
}
