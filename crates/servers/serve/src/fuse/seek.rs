//! Finds data and holes of the exported file, for `lseek`.

use manylogs_block::{Extent, Extents, Lba, SECTOR_BYTES, Sectors};
use manylogs_fuse::{Errno, Found, Reply};

use super::errno;
use crate::port::Port;

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seek {
    Data,
    Hole,
}

impl Seek {
    /// Decodes the kernel's number.
    pub(super) const fn of(whence: u32) -> Option<Self> {
        match whence {
            3 => Some(Self::Data),
            4 => Some(Self::Hole),
            _ => None,
        }
    }

    /// The first byte from `offset` on that is data or a hole (as `self` says); `None` if `known`
    /// has none.
    fn find(self, known: &Extents, offset: u64) -> Option<u64> {
        let hole = self == Self::Hole;
        let found = known.iter().find(|(_, kind)| kind.reads_as_zeroes() == hole);
        found.map(|(extent, _)| (extent.start.0 * SECTOR_BYTES).max(offset))
    }

    /// The answer if nothing was found: behind all data the file ends with a hole.
    fn at_end(self, capacity: Sectors) -> Result<u64, Errno> {
        match self {
            Self::Data => Err(Errno::NXIO),
            Self::Hole => Ok(capacity.bytes()),
        }
    }
}

/// Answers with the first byte from `offset` on that is data or a hole, as `what` says. `offset` is
/// within the file. Asks the engine about one part of the file after the other.
pub(super) fn seek(port: &Port, capacity: Sectors, what: Seek, offset: u64, reply: Reply<Found>) {
    let within = Extent::between(Lba(offset / SECTOR_BYTES), Lba(capacity.0));
    let again = port.clone();
    port.extents_then(within, move |known| {
        let known = match known {
            Ok(known) => known,
            Err(error) => return reply.error(errno(&error)),
        };
        let next = known.whole().end().0 * SECTOR_BYTES;
        match what.find(&known, offset) {
            Some(found) => reply.send(&Found(found)),
            None if next >= capacity.bytes() || next <= offset => {
                reply
                    .send_result(what.at_end(capacity).map(Found).as_ref().map_err(|errno| *errno));
            }
            None => seek(&again, capacity, what, next, reply),
        }
    });
}

#[cfg(test)]
mod tests {
    use manylogs_block::ExtentKind;

    use super::*;

    #[test]
    fn data_and_holes_are_found_from_any_byte_on() {
        let mut known = Extents::of(Extent::new(2, 2), ExtentKind::Logged);
        known.push(Extent::new(4, 2), ExtentKind::Hole);
        known.push(Extent::new(6, 1), ExtentKind::Zero);
        known.push(Extent::new(7, 1), ExtentKind::Data);
        assert_eq!(Seek::Data.find(&known, 1100), Some(1100));
        assert_eq!(Seek::Hole.find(&known, 1100), Some(2048));
        let mut zeroes = Extents::of(Extent::new(4, 3), ExtentKind::Hole);
        assert_eq!(Seek::Data.find(&zeroes, 2048), None);
        assert_eq!(Seek::Data.at_end(Sectors(8)), Err(Errno::NXIO));
        zeroes.push(Extent::new(7, 1), ExtentKind::Data);
        assert_eq!(Seek::Data.find(&zeroes, 2048), Some(3584));
        assert_eq!(Seek::Hole.at_end(Sectors(8)), Ok(4096));
        assert_eq!([2, 3, 4, 5].map(Seek::of), [None, Some(Seek::Data), Some(Seek::Hole), None]);
    }
}
