//! Encoding of numbers, extents and content; numbers have the least significant byte first.

use bytes::Bytes;
use manylogs_block::{Extent, Payload, Piece, SECTOR_BYTES, Sectors, narrow, to_usize};
use manylogs_logstore::Space;

use super::frame::{Frame, FrameError};
use crate::versions::{Range, Version};

/// Sectors of an address space: an extent that ends beyond is refused.
const ADDRESSES: u64 = Space::END.0 >> 15;
/// Longest content in bytes that is copied into the message; longer content is shared.
const COPIED: usize = 4096;

const BYTES: u8 = 1;
const ZEROES: u8 = 2;
const TAGS: u8 = 3;
const ABSENT: u8 = 4;

/// Writes a message.
#[derive(Default)]
pub(super) struct Writer {
    pieces: Vec<Bytes>,
    open: Vec<u8>,
}

impl Writer {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.open.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(narrow(count))
    }

    pub(super) fn extent(&mut self, extent: Extent) -> &mut Self {
        self.u64(extent.start.0).u64(extent.len.0)
    }

    pub(super) fn range(&mut self, Range { extent, version }: Range) -> &mut Self {
        self.extent(extent).u64(version.0)
    }

    pub(super) fn payload(&mut self, payload: &Payload) -> &mut Self {
        self.count(payload.pieces().len());
        for piece in payload.pieces() {
            let (kind, first) = match piece {
                Piece::Bytes(_) => (BYTES, 0),
                Piece::Zeroes(_) => (ZEROES, 0),
                Piece::Tags { first, .. } => (TAGS, *first),
                Piece::Absent(_) => (ABSENT, 0),
            };
            self.u8(kind).u64(piece.len().0).u64(first);
            if let Piece::Bytes(bytes) = piece {
                self.shared(bytes);
            }
        }
        self
    }

    fn shared(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPIED {
            self.bytes(bytes);
            return;
        }
        self.pieces.push(std::mem::take(&mut self.open).into());
        self.pieces.push(bytes.clone());
    }

    pub(super) fn finish(self) -> Vec<Bytes> {
        let mut pieces = self.pieces;
        pieces.push(self.open.into());
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// Reads a message.
pub(super) struct Reader {
    rest: Bytes,
}

const SHORT: FrameError = FrameError::Malformed("it ends too early");

impl Reader {
    pub(super) fn of(frame: &Frame) -> Self {
        let rest = match &frame.body[..] {
            [whole] => whole.clone(),
            pieces => pieces.concat().into(),
        };
        Self { rest }
    }

    fn take(&mut self, len: usize) -> Result<Bytes, FrameError> {
        if len > self.rest.len() {
            return Err(SHORT);
        }
        Ok(self.rest.split_to(len))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (array, _) = self.rest.split_first_chunk().ok_or(SHORT)?;
        let array = *array;
        self.take(N)?;
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.array::<1>().map(|[value]| value)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a number of items of at least `each` bytes. An error if the rest of the frame is too
    /// short for them.
    pub(super) fn count(&mut self, each: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / each { Err(SHORT) } else { Ok(count) }
    }

    /// Reads an extent. An error if it is empty, or not in a base volume's address space.
    pub(super) fn extent(&mut self) -> Result<Extent, FrameError> {
        let (start, len) = (self.u64()?, self.u64()?);
        let end = start.checked_add(len).filter(|end| len > 0 && *end <= ADDRESSES);
        end.map(|_| Extent::new(start, len)).ok_or(FrameError::Malformed("an impossible extent"))
    }

    pub(super) fn version(&mut self) -> Result<Version, FrameError> {
        self.u64().map(Version)
    }

    pub(super) fn range(&mut self) -> Result<Range, FrameError> {
        Ok(Range { extent: self.extent()?, version: self.version()? })
    }

    /// Reads content of exactly `expected` sectors.
    pub(super) fn payload(&mut self, expected: Sectors) -> Result<Payload, FrameError> {
        const WRONG: FrameError = FrameError::Malformed("content of another length");
        let count = self.count(17)?;
        let (mut payload, mut left) = (Payload::default(), expected.0);
        for _ in 0..count {
            let (kind, len, first) = (self.u8()?, self.u64()?, self.u64()?);
            left = left.checked_sub(len).filter(|_| len > 0).ok_or(WRONG)?;
            payload.append(match kind {
                // At most the rest of the frame.
                BYTES if len <= self.rest.len() as u64 / SECTOR_BYTES => {
                    Payload::bytes(self.take(to_usize(len * SECTOR_BYTES))?)
                }
                BYTES => return Err(SHORT),
                ZEROES => Payload::zeroes(Sectors(len)),
                TAGS if first.checked_add(len).is_some() => Payload::tags(first, Sectors(len)),
                ABSENT => Payload::absent(Sectors(len)),
                _ => return Err(FrameError::Malformed("content of an unknown kind")),
            });
        }
        if left == 0 { Ok(payload) } else { Err(WRONG) }
    }

    /// Ends the message: an error if bytes are left.
    pub(super) fn end(self) -> Result<(), FrameError> {
        let nothing = self.rest.is_empty();
        if nothing { Ok(()) } else { Err(FrameError::Malformed("it goes on behind its end")) }
    }
}
