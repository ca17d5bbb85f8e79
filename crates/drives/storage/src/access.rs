//! Whether I/O bypasses the page cache, and in which units.

use std::fs::File;

use manylogs_block::{Extent, SECTOR_BYTES, Sectors, to_usize};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::buffer::{Buffer, PAGE_BYTES};
use crate::open::Opened;

/// The largest unit of direct I/O that is supported: the largest logical sector that Linux has.
const UNIT_MAX: Sectors = Sectors((64 << 10) / SECTOR_BYTES);

/// The kernel's magic numbers of a file system without a disk, and of one with a server.
pub(crate) const TMPFS: u64 = 0x0102_1994;
pub(crate) const FUSE: u64 = 0x6573_5546;

/// How I/O reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the page cache, in any units. Nothing is durable before a flush.
    Cached,
    /// Past the page cache.
    Direct {
        /// The logical sector: addresses and lengths are multiples of it.
        unit: Sectors,
    },
}

impl Access {
    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Direct { .. })
    }

    /// The unit of reads and writes.
    pub(crate) const fn unit(self) -> Sectors {
        match self {
            Self::Cached => Sectors(1),
            Self::Direct { unit } => unit,
        }
    }

    /// Widens `extent` to whole units.
    pub(crate) fn covering(self, extent: Extent) -> Extent {
        extent.widened_to(self.unit())
    }

    /// Splits `extent` into the whole units in it and the parts before and behind them. If there is
    /// no whole unit, all of `extent` is the part before.
    pub(crate) fn split(self, extent: Extent) -> Split {
        let whole = extent.narrowed_to(self.unit());
        if whole.is_empty() {
            let nothing = Extent { len: Sectors(0), ..extent };
            return Split { head: extent, whole: nothing, tail: nothing };
        }
        Split {
            head: Extent::between(extent.start, whole.start),
            whole,
            tail: Extent::between(whole.end(), extent.end()),
        }
    }
}

/// See [`Access::split`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) head: Extent,
    pub(crate) whole: Extent,
    pub(crate) tail: Extent,
}

/// Lets I/O on a file or disk of `size` bytes bypass the page cache, if possible.
pub(crate) fn bypass_cache(file: &File, is_disk: bool, size: u64) -> Result<Access, Errno> {
    let Some(least) = told_unit(file, is_disk)? else { return Ok(Access::Cached) };
    let flags = rustix::fs::fcntl_getfl(file)?;
    if rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(Access::Cached);
    }
    match shown_unit(file, least, size) {
        // A write of the last unit would lengthen a file whose length is not a multiple of the
        // unit.
        Some(unit) if size.is_multiple_of(unit.bytes()) => Ok(Access::Direct { unit }),
        _ => {
            rustix::fs::fcntl_setfl(file, flags)?;
            Ok(Access::Cached)
        }
    }
}

/// The unit of direct I/O that the kernel reports, one sector if it reports none; `None` if there
/// is no direct I/O.
fn told_unit(file: &File, is_disk: bool) -> Result<Option<Sectors>, Errno> {
    let unit = if is_disk {
        rustix::fs::ioctl_blksszget(file)?
    } else {
        // Old kernels do not know this request.
        let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
        let knows = StatxFlags::DIOALIGN.bits();
        let Some(told) = told.filter(|told| told.stx_mask & knows != 0) else {
            return Ok(Some(Sectors(1)));
        };
        if to_usize(told.stx_dio_mem_align.into()) > PAGE_BYTES {
            return Ok(None);
        }
        told.stx_dio_offset_align
    };
    let usable = unit.is_power_of_two() && u64::from(unit) <= UNIT_MAX.bytes();
    Ok(usable.then_some(Sectors::from_bytes_ceil(unit.into())))
}

/// The smallest unit of at least `least` that reads accept: shows the unit of file systems that do
/// not report it.
fn shown_unit(file: &File, least: Sectors, size: u64) -> Option<Sectors> {
    let units = std::iter::successors(Some(least), |unit| Some(Sectors(unit.0 * 2)));
    let mut units = units.take_while(|unit| *unit <= UNIT_MAX && 2 * unit.bytes() <= size);
    units.find(|unit| {
        let mut buffer = Buffer::new(to_usize(unit.bytes()));
        // Reads the second unit: the first begins at zero, which every alignment accepts.
        rustix::io::pread(file, buffer.bytes_mut(), unit.bytes()) != Err(Errno::INVAL)
    })
}

/// Whether the content is in memory. A disk's is not, although its node in `/dev` lies in a file
/// system without a disk.
pub(crate) fn is_in_memory(opened: &Opened) -> bool {
    opened.disk.is_none() && lies_in(&opened.file, TMPFS)
}

/// Whether the file lies in a file system of this kind.
pub(crate) fn lies_in(file: &File, magic: u64) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|told| u64::try_from(told.f_type) == Ok(magic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_covered_and_split_at_units() {
        let direct = Access::Direct { unit: Sectors(8) };
        for (extent, covering, head, whole, tail) in [
            ((8, 16), (8, 16), (8, 0), (8, 16), (24, 0)),
            ((9, 15), (8, 16), (9, 7), (16, 8), (24, 0)),
            ((7, 18), (0, 32), (7, 1), (8, 16), (24, 1)),
            ((9, 2), (8, 8), (9, 2), (9, 0), (9, 0)),
            ((15, 2), (8, 16), (15, 2), (15, 0), (15, 0)),
        ] {
            let [extent, covering, head, whole, tail] = [extent, covering, head, whole, tail]
                .map(|(start, sectors)| Extent::new(start, sectors));
            assert_eq!(direct.covering(extent), covering);
            assert_eq!(direct.split(extent), Split { head, whole, tail }, "{extent}");
            assert_eq!(Access::Cached.covering(extent), extent);
            assert_eq!(Access::Cached.split(extent).whole, extent);
        }
    }
}
