//! The translation of clients' operations into requests to the engine, one for all front ends.
//!
//! A front end decodes its protocol into a [`Call`] and encodes the answer. This module converts
//! ranges of bytes to sectors, and refuses calls that do not fit.

use std::io;

use bytes::Bytes;
use manylogs_block::{
    Extent, Hint, IoError, Lba, Payload, Request, SECTOR_BYTES, Sectors, to_usize,
};
use rustix::io::Errno;
use thiserror::Error;

use crate::range::{sectors_around, sectors_exactly};

/// Operations of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// See [`Request::Read`].
    Read,
    /// See [`Request::Write`].
    Write,
    /// See [`Request::Flush`].
    Flush,
    /// See [`Request::Discard`].
    Discard,
    /// See [`Request::WriteZeroes`].
    WriteZeroes,
}

/// An operation on a range of bytes, in the terms of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// First byte. A flush concerns no bytes.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Durable when answered. Reads and flushes ignore it.
    pub fua: bool,
    /// Fail where zeroing is not fast. Other operations ignore it.
    pub if_fast: bool,
}

/// Why a call cannot become a request.
#[derive(Debug, Error)]
pub enum Untranslatable {
    /// The range is empty, begins or ends within a sector, or is not within the export.
    #[error("{len} bytes at {offset} are not whole sectors within the export")]
    Range {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// The data to write could not be read from the client.
    #[error("cannot fetch the data to write from the client: {0}")]
    Content(#[from] io::Error),
}

impl Untranslatable {
    /// The error number that describes the refusal best.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Range { .. } => Errno::INVAL,
            Self::Content(_) => Errno::IO,
        }
    }
}

impl Call {
    /// An operation on `len` bytes at byte `offset`, not durable.
    #[must_use]
    pub const fn new(operation: Operation, offset: u64, len: u64) -> Self {
        Self { operation, offset, len, fua: false, if_fast: false }
    }

    /// Returns the request with FUA if `fua`.
    #[must_use]
    pub const fn fua(self, fua: bool) -> Self {
        Self { fua, ..self }
    }

    /// Translates the call into a request to an export of `capacity`. For a write, `content`
    /// returns the call's bytes; it is called only if they fit.
    ///
    /// # Errors
    /// See [`Untranslatable`]. Ranges with parts of sectors are refused: the front end has to read,
    /// modify and write the sectors.
    pub fn request(
        &self,
        capacity: Sectors,
        content: impl FnOnce(usize) -> io::Result<Payload>,
    ) -> Result<Request, Untranslatable> {
        let &Self { operation, offset, len, fua, if_fast } = self;
        if operation == Operation::Flush {
            return Ok(Request::Flush);
        }
        let extent = self.whole(capacity).ok_or(Untranslatable::Range { offset, len })?;
        Ok(match operation {
            Operation::Read | Operation::Flush => Request::Read { extent },
            Operation::Write => {
                let payload = content(to_usize(len))?;
                Request::Write { extent, payload, fua, hint: Hint::None }
            }
            Operation::Discard => Request::Discard { extent, fua },
            Operation::WriteZeroes => Request::WriteZeroes { extent, fua, if_fast },
        })
    }

    /// Translates a call without content: any operation except a write.
    ///
    /// # Errors
    /// Those of [`Call::request`]; a write is refused.
    pub fn without_content(&self, capacity: Sectors) -> Result<Request, Untranslatable> {
        self.request(capacity, |_| Err(io::ErrorKind::InvalidInput.into()))
    }

    /// The sectors that the range fills exactly; `None` if it is empty, begins or ends within a
    /// sector, or is not within an export of `capacity`.
    #[must_use]
    pub fn whole(&self, capacity: Sectors) -> Option<Extent> {
        sectors_exactly(capacity, self.offset, self.len)
    }

    /// The sectors that lie wholly within the range; may be empty. A discard may ignore the other
    /// sectors.
    #[must_use]
    pub fn inside(&self) -> Extent {
        let start = self.offset.div_ceil(SECTOR_BYTES);
        let end = self.offset.saturating_add(self.len) / SECTOR_BYTES;
        Extent::between(Lba(start), Lba(end.max(start)))
    }

    /// The sectors that the range touches; `None` if none of them is within an export of
    /// `capacity`.
    #[must_use]
    pub fn around(&self, capacity: Sectors) -> Option<Around> {
        let extent = sectors_around(capacity, self.offset, self.len)?;
        let skip = self.offset - extent.start.0 * SECTOR_BYTES;
        let len = self.len.min(capacity.bytes() - self.offset);
        Some(Around { extent, skip: to_usize(skip), len: to_usize(len) })
    }
}

/// A range of bytes in the sectors that it touches, cut at the end of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// The sectors.
    pub extent: Extent,
    /// Bytes of the first sector that are before the range.
    skip: usize,
    len: usize,
}

impl Around {
    /// Cuts the range's bytes out of the content of the sectors.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] if the device keeps no content.
    pub fn cut(&self, sectors: &Payload) -> Result<Bytes, IoError> {
        let bytes = sectors.to_bytes().ok_or(IoError::Unsupported)?;
        Ok(bytes.slice(self.skip..self.skip + self.len))
    }

    /// Puts the range's bytes over those of the sectors.
    ///
    /// # Panics
    /// If the length of `sectors` or of `bytes` does not fit the range.
    pub fn put(&self, sectors: &mut [u8], bytes: &[u8]) {
        sectors[self.skip..self.skip + self.len].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use manylogs_block::{Media, Rng};

    use super::*;

    const CAPACITY: Sectors = Sectors(16);

    fn zeroes(len: usize) -> io::Result<Payload> {
        Ok(Payload::bytes(vec![0; len]))
    }

    #[test]
    fn whole_sectors_are_requests_with_their_flags() {
        let extent = Extent::new(2, 3);
        let call = |operation| Call::new(operation, 1024, 1536).fua(true);
        let of = |operation| call(operation).request(CAPACITY, zeroes).unwrap();
        assert_eq!(of(Operation::Read), Request::Read { extent });
        assert_eq!(of(Operation::Discard), Request::Discard { extent, fua: true });
        assert_eq!(of(Operation::WriteZeroes), Request::write_zeroes(extent, true));
        let payload = Payload::bytes(vec![0; 1536]);
        assert_eq!(of(Operation::Write), Request::write_fua(extent, payload));
        let fast = Call { if_fast: true, ..call(Operation::WriteZeroes) };
        let wanted = Request::WriteZeroes { extent, fua: true, if_fast: true };
        assert_eq!(fast.without_content(CAPACITY).unwrap(), wanted);
        let flush = Call::new(Operation::Flush, 7, 0);
        assert_eq!(flush.without_content(CAPACITY).unwrap(), Request::Flush);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_its_content_is_fetched() {
        for (offset, len) in [(1, 512), (0, 513), (512, 0), (7680, 1024), (u64::MAX - 511, 512)] {
            let call = Call::new(Operation::Write, offset, len);
            let refused = call.request(CAPACITY, |_| panic!("fetched")).unwrap_err();
            assert_eq!(refused.errno(), Errno::INVAL, "{refused}");
        }
        let call = Call::new(Operation::Write, 0, 512);
        let refused = call.request(CAPACITY, |_| Err(io::Error::other("gone"))).unwrap_err();
        assert_eq!(refused.errno(), Errno::IO);
        assert!(call.without_content(CAPACITY).is_err());
    }

    /// The model is the export as one array of bytes.
    #[test]
    fn ranges_of_bytes_are_cut_from_and_put_into_the_sectors_around_them() {
        let size = CAPACITY.bytes();
        let (mut model, mut media) = (vec![0_u8; to_usize(size)], Media::default());
        let mut rng = Rng::new(5);
        for byte in 1..=250_u8 {
            let offset = rng.below(size);
            let len = 1 + rng.below((size - offset).min(1500));
            let call = Call::new(Operation::Write, offset, len);
            let range = to_usize(offset)..to_usize(offset + len);
            let around = call.around(CAPACITY).unwrap();
            let old = media.read(around.extent);
            assert_eq!(around.cut(&old).unwrap(), model[range.clone()]);
            let mut sectors = old.to_bytes().unwrap().to_vec();
            around.put(&mut sectors, &vec![byte; range.len()]);
            media.write(around.extent, &Payload::bytes(sectors));
            model[range.clone()].fill(byte);
            let inside = call.inside();
            assert!(inside.is_empty() || around.extent.contains(inside));
            assert!(around.extent.len.0 - inside.len.0 <= 2);
            assert_eq!(call.whole(CAPACITY).is_some(), inside == around.extent);
        }
        let whole = Extent { len: CAPACITY, ..Extent::default() };
        assert_eq!(media.read(whole).to_bytes().unwrap(), model);
        let end = Call::new(Operation::Read, size - 100, 4096).around(CAPACITY).unwrap();
        assert_eq!(end.cut(&media.read(end.extent)).unwrap(), model[to_usize(size - 100)..]);
        assert_eq!(Call::new(Operation::Read, size, 1).around(CAPACITY), None);
    }
}
