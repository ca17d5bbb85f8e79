//! Calls on the exported file as requests to the engine.

use manylogs_block::{Payload, Request, SECTOR_BYTES, Sectors};
use manylogs_fuse::{Errno, OpenFlags};
use manylogs_plant::{self as plant, Bug};
use rustix::fs::{FallocateFlags, OFlags};

use crate::translate::{Call, Operation, Untranslatable};

/// When the effect of a call is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durable {
    /// When the call returns.
    AtOnce,
    /// After the next `fsync`.
    WithFsync,
}

impl Durable {
    /// When writes are durable under the flags of an open file or of a write. The kernel also adds
    /// `O_DSYNC` or `O_SYNC` to the flags of a write for `RWF_DSYNC`, `RWF_SYNC` and `mount -o
    /// sync`. For files opened for direct I/O it sends no fsync after such a write: the server must
    /// make it durable.
    pub(super) fn of(flags: OpenFlags) -> Self {
        let flags = OFlags::from_bits_retain(flags.0);
        if flags.intersects(OFlags::DSYNC | OFlags::SYNC) { Self::AtOnce } else { Self::WithFsync }
    }

    const fn is_at_once(self) -> bool {
        matches!(self, Self::AtOnce)
    }
}

/// A write of `len` bytes at byte `offset`; `payload` copies the bytes, and is called only if they
/// fit.
///
/// # Errors
/// `EINVAL` for parts of sectors, or if the range is not in a file of `capacity`.
pub(super) fn write(
    capacity: Sectors,
    offset: u64,
    len: usize,
    durable: Durable,
    payload: impl FnOnce() -> Payload,
) -> Result<Request, Errno> {
    let fua = durable.is_at_once() && !plant::is(Bug::FuseDsyncIgnored);
    let write = Call::new(Operation::Write, offset, len as u64).fua(fua);
    write.request(capacity, |_| Ok(payload())).map_err(|refused| refusal(&refused))
}

/// `fsync` and `fdatasync`.
pub(super) fn sync() -> Option<Request> {
    (!plant::is(Bug::FuseFsyncSkipped)).then_some(Request::Flush)
}

/// `fallocate`; no request if there is nothing to do.
///
/// # Errors
/// `EINVAL` for parts of sectors, or if the range is not in a file of `capacity`; `EOPNOTSUPP` for
/// modes that would move the rest of the file.
pub(super) fn allocate(
    capacity: Sectors,
    offset: u64,
    len: u64,
    mode: u32,
    durable: Durable,
) -> Result<Option<Request>, Errno> {
    let mode = FallocateFlags::from_bits_retain(mode);
    let zeroing = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
    let mut zeroes = Call::new(Operation::WriteZeroes, offset, len);
    if plant::is(Bug::FusePunchRoundedOutwards) {
        zeroes.offset = offset / SECTOR_BYTES * SECTOR_BYTES;
        zeroes.len = (offset + len).next_multiple_of(SECTOR_BYTES) - zeroes.offset;
    }
    // Discards and requests for zeroes arrive as the same call, and file systems rely on zeroes
    // after both.
    let fua = durable.is_at_once() && !plant::is(Bug::FuseDsyncPunchIgnored);
    let request = zeroes.fua(fua).without_content(capacity);
    let request = request.map_err(|refused| refusal(&refused))?;
    if mode.intersects(zeroing) {
        Ok(Some(request))
    } else if mode.is_empty() || mode == FallocateFlags::KEEP_SIZE {
        // The whole file is allocated already.
        Ok(None)
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

fn refusal(refused: &Untranslatable) -> Errno {
    refused.errno()
}

#[cfg(test)]
pub(crate) mod tests {
    use manylogs_block::{Extent, Hint};

    use super::*;

    const CAPACITY: Sectors = Sectors(64);

    fn flags(flags: OFlags) -> OpenFlags {
        OpenFlags(flags.bits())
    }

    #[test]
    pub(crate) fn writes_with_dsync_or_sync_are_durable_when_answered() {
        for (given, durable) in [
            (OFlags::RDWR, false),
            (OFlags::RDWR | OFlags::DIRECT, false),
            (OFlags::WRONLY | OFlags::DSYNC, true),
            (OFlags::RDWR | OFlags::SYNC, true),
        ] {
            let durable_when = Durable::of(flags(given));
            let payload = || Payload::zeroes(Sectors(2));
            let wanted = Request::Write {
                extent: Extent::new(3, 2),
                payload: payload(),
                fua: durable,
                hint: Hint::None,
            };
            let made = write(CAPACITY, 1536, 1024, durable_when, payload);
            assert_eq!(made.ok(), Some(wanted), "{given:?}");
        }
    }

    #[test]
    pub(crate) fn holes_punched_with_dsync_or_sync_are_durable_when_answered() {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (given, fua) in [(OFlags::RDWR, false), (OFlags::RDWR | OFlags::DSYNC, true)] {
            let durable = Durable::of(flags(given));
            let made = allocate(CAPACITY, 512, 1024, mode.bits(), durable);
            let extent = Extent::new(1, 2);
            assert_eq!(made.ok(), Some(Some(Request::write_zeroes(extent, fua))), "{given:?}");
        }
    }

    #[test]
    pub(crate) fn an_fsync_flushes() {
        assert_eq!(sync(), Some(Request::Flush));
    }

    #[test]
    pub(crate) fn holes_are_whole_sectors_or_refused() {
        let of = |offset, len, mode: FallocateFlags| {
            let mode = mode.bits();
            allocate(CAPACITY, offset, len, mode, Durable::WithFsync)
        };
        let (einval, unsupported) = (Errno::INVAL, Errno::OPNOTSUPP);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (offset, len) in [(100, 1000), (0, 700), (512, 32_768), (u64::MAX - 511, 512)] {
            assert_eq!(of(offset, len, punch), Err(einval), "{len} at {offset}");
        }
        assert_eq!(of(0, 512, FallocateFlags::empty()), Ok(None));
        assert_eq!(of(0, 512, FallocateFlags::KEEP_SIZE), Ok(None));
        assert_eq!(of(0, 512, FallocateFlags::COLLAPSE_RANGE), Err(unsupported));
    }
}
