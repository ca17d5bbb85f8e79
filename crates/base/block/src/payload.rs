//! Content of a request: real bytes, or a stand-in that costs nothing to move.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::units::to_usize;
use crate::{SECTOR_BYTES, Sectors};

/// A run of sectors with one kind of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Real data, a whole number of sectors.
    Bytes(Bytes),
    /// Sectors of zeroes.
    Zeroes(Sectors),
    /// Sector `i` of the run holds the tag `first + i`: content that a test can tell apart and a
    /// timing run need not copy.
    Tags {
        /// Tag of the first sector.
        first: u64,
        /// Number of sectors.
        len: Sectors,
    },
    /// Read from a device that keeps no content (a timing-only run): nothing is known of it.
    Absent(Sectors),
}

impl Piece {
    /// Length in sectors.
    #[must_use]
    pub fn len(&self) -> Sectors {
        match self {
            Self::Bytes(bytes) => Sectors(bytes.len() as u64 / SECTOR_BYTES),
            Self::Zeroes(len) | Self::Absent(len) | Self::Tags { len, .. } => *len,
        }
    }

    /// Whether the piece has no sectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    fn slice(&self, start: u64, len: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes.slice(byte_range(start, len))),
            Self::Zeroes(_) => Self::Zeroes(Sectors(len)),
            Self::Tags { first, .. } => Self::Tags { first: first + start, len: Sectors(len) },
            Self::Absent(_) => Self::Absent(Sectors(len)),
        }
    }

    fn checksum_onto(&self, crc: u32) -> u32 {
        match self {
            Self::Bytes(bytes) => crc32c::crc32c_append(crc, bytes),
            Self::Zeroes(len) => (0..len.0)
                .fold(crc, |crc, _| crc32c::crc32c_append(crc, &[0; to_usize(SECTOR_BYTES)])),
            Self::Tags { first, len } => checksum_of_tags(crc, *first, len.0),
            Self::Absent(_) => crc,
        }
    }
}

fn byte_range(start: u64, len: u64) -> std::ops::Range<usize> {
    to_usize(start * SECTOR_BYTES)..to_usize((start + len) * SECTOR_BYTES)
}

fn checksum_of_tags(mut crc: u32, first: u64, len: u64) -> u32 {
    let mut left = len;
    while left > 0 {
        let (mut buffer, next) = ([0; 64], first + (len - left));
        for (slot, tag) in buffer.chunks_exact_mut(8).zip(next..) {
            slot.copy_from_slice(&tag.to_le_bytes());
        }
        let tags = left.min(8);
        crc = crc32c::crc32c_append(crc, &buffer[..to_usize(tags * 8)]);
        left -= tags;
    }
    crc
}

/// The content of a request: pieces one behind the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Payload {
    pieces: SmallVec<[Piece; 1]>,
}

impl Payload {
    /// No content yet, with room for this many pieces.
    #[must_use]
    pub fn with_room_for(pieces: usize) -> Self {
        Self { pieces: SmallVec::with_capacity(pieces) }
    }

    /// Real data.
    ///
    /// # Panics
    /// If `bytes` is not a whole number of sectors.
    #[must_use]
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        assert!((bytes.len() as u64).is_multiple_of(SECTOR_BYTES), "payload cuts a sector");
        Self::from(Piece::Bytes(bytes))
    }

    /// Sectors of zeroes.
    #[must_use]
    pub fn zeroes(len: Sectors) -> Self {
        Self::from(Piece::Zeroes(len))
    }

    /// Tagged sectors; see [`Piece::Tags`].
    #[must_use]
    pub fn tags(first: u64, len: Sectors) -> Self {
        Self::from(Piece::Tags { first, len })
    }

    /// Content that is not known; see [`Piece::Absent`].
    #[must_use]
    pub fn absent(len: Sectors) -> Self {
        Self::from(Piece::Absent(len))
    }

    /// The pieces in order; none is empty.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Length in sectors.
    #[must_use]
    pub fn len(&self) -> Sectors {
        self.pieces.iter().fold(Sectors(0), |sum, piece| sum + piece.len())
    }

    /// Whether there is no sector at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether all of it is known to be zeroes.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.pieces.iter().all(|piece| match piece {
            Piece::Zeroes(_) => true,
            Piece::Bytes(bytes) => bytes.iter().all(|byte| *byte == 0),
            Piece::Tags { .. } | Piece::Absent(_) => false,
        })
    }

    /// Adds `other` at the end.
    pub fn append(&mut self, mut other: Self) {
        // One piece is the usual number, and moves faster without an iterator.
        if other.pieces.len() == 1 {
            other.pieces.pop().into_iter().for_each(|piece| self.push(piece));
            return;
        }
        for piece in other.pieces {
            self.push(piece);
        }
    }

    /// Adds `len` sectors of zeroes at the end.
    pub fn append_zeroes(&mut self, len: Sectors) {
        self.push(Piece::Zeroes(len));
    }

    #[inline]
    fn push(&mut self, piece: Piece) {
        if piece.is_empty() {
            return;
        }
        match (self.pieces.last_mut(), &piece) {
            (Some(Piece::Zeroes(a)), Piece::Zeroes(b))
            | (Some(Piece::Absent(a)), Piece::Absent(b)) => *a += *b,
            (Some(Piece::Tags { first, len }), Piece::Tags { first: next, len: more })
                if *first + len.0 == *next =>
            {
                *len += *more;
            }
            _ => self.pieces.push(piece),
        }
    }

    /// The `len` sectors from sector `start`, sharing the bytes.
    ///
    /// # Panics
    /// If the range reaches beyond the payload.
    #[must_use]
    pub fn slice(&self, start: Sectors, len: Sectors) -> Self {
        let mut out = Self::default();
        self.walk(start, len, |piece, from, count| out.push(piece.slice(from, count)));
        out
    }

    /// CRC-32C of the `len` sectors from `start`. A tagged sector counts as the eight bytes of its
    /// tag, which is what makes timing runs cheap; absent sectors count for nothing.
    ///
    /// # Panics
    /// If the range reaches beyond the payload.
    #[must_use]
    pub fn checksum(&self, start: Sectors, len: Sectors) -> u32 {
        // Usually the payload is one piece, and the caller asks for all of it.
        if let [piece] = self.pieces.as_slice()
            && start == Sectors(0)
            && len == piece.len()
        {
            return piece.checksum_onto(0);
        }
        let mut crc = 0;
        self.walk(start, len, |piece, from, count| {
            crc = if from == 0 && count == piece.len().0 {
                piece.checksum_onto(crc)
            } else {
                piece.slice(from, count).checksum_onto(crc)
            };
        });
        crc
    }

    /// Whether the range's checksum is `expected`. Content that is absent cannot be wrong.
    #[must_use]
    pub fn verifies(&self, start: Sectors, len: Sectors, expected: u32) -> bool {
        let mut absent = false;
        self.walk(start, len, |piece, _, _| absent |= matches!(piece, Piece::Absent(_)));
        absent || self.checksum(start, len) == expected
    }

    /// The content as one run of bytes; `None` if it holds tags or absent sectors.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Bytes> {
        if let [Piece::Bytes(bytes)] = self.pieces.as_slice() {
            return Some(bytes.clone());
        }
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Zeroes(len) => out.resize(out.len() + byte_range(0, len.0).end, 0),
                Piece::Tags { .. } | Piece::Absent(_) => return None,
            }
        }
        Some(out.into())
    }

    fn walk(&self, start: Sectors, len: Sectors, mut visit: impl FnMut(&Piece, u64, u64)) {
        let (mut skip, mut left) = (start.0, len.0);
        for piece in &self.pieces {
            if left == 0 {
                return;
            }
            let have = piece.len().0;
            if skip >= have {
                skip -= have;
                continue;
            }
            let count = left.min(have - skip);
            visit(piece, skip, count);
            skip = 0;
            left -= count;
        }
        assert!(left == 0, "range reaches {left} sectors beyond the payload");
    }
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        // One piece is the usual number, and is copied faster by itself.
        match self.pieces.as_slice() {
            [piece] => Self { pieces: SmallVec::from_buf([piece.clone()]) },
            _ => Self { pieces: self.pieces.clone() },
        }
    }
}

impl From<Piece> for Payload {
    fn from(piece: Piece) -> Self {
        if piece.is_empty() {
            return Self::default();
        }
        Self { pieces: SmallVec::from_buf([piece]) }
    }
}
