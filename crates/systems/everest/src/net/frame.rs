//! Frames: a head of 32 bytes, and a body whose length is in it.

use bytes::Bytes;
use manylogs_block::{Nanos, narrow};
use manylogs_plant::{self as plant, Bug};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::lender::Load;

/// Version of the protocol.
pub const FRAME_VERSION: u16 = 2;
/// Bytes of a head.
pub const FRAME_HEAD_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"EVFR";
const MORE: u8 = 1;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A client says who it is: its first frame.
    Hello,
    /// A store says who it is: the answer.
    Welcome,
    /// A call.
    Call,
    /// An answer, or a part of one, to the call with the frame's number.
    Answer,
    /// Only tells how busy the store's disk is.
    Load,
}

impl FrameKind {
    const ALL: [Self; 5] = [Self::Hello, Self::Welcome, Self::Call, Self::Answer, Self::Load];

    const fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Welcome => 2,
            Self::Call => 3,
            Self::Answer => 4,
            Self::Load => 5,
        }
    }
}

/// Why bytes are no frame, or no message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes do not begin with the magic number.
    #[error("what arrived is no frame of Manylogs: something else listens, or connects, there")]
    NotAFrame,
    /// The peer speaks another version.
    #[error("the other side speaks version {found}, this program version {FRAME_VERSION} only")]
    Version {
        /// What the frame says.
        found: u16,
    },
    /// The body is longer than the reader allows.
    #[error("a frame of {len} bytes arrived where {most} are the most")]
    TooLong {
        /// Length of its body.
        len: usize,
        /// The longest body that the reader allows.
        most: usize,
    },
    /// The checksum does not match head and body.
    #[error("the checksum of a frame is wrong: the connection damages what it carries")]
    Checksum,
    /// A frame or a message that makes no sense here.
    #[error("a message makes no sense: {0}")]
    Malformed(&'static str),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    version: U16,
    kind: u8,
    flags: u8,
    len: U32,
    checksum: U32,
    number: U64,
    in_flight: U32,
    wait_us: U32,
}

const _: () = assert!(size_of::<Raw>() == FRAME_HEAD_BYTES);

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: FrameKind,
    /// Whether the message goes on in another frame.
    pub more: bool,
    /// Number of the call that it belongs to, on this connection.
    pub number: u64,
    /// How busy the sender's disk is; zeroes from a client.
    pub load: Load,
    /// The message, in pieces.
    pub body: Vec<Bytes>,
}

impl Frame {
    /// A frame with number 0 and the load of an idle disk.
    #[must_use]
    pub fn new(kind: FrameKind, body: Vec<Bytes>) -> Self {
        Self { kind, more: false, number: 0, load: Load::default(), body }
    }

    /// The bytes of the frame, in pieces, so that content is not copied.
    ///
    /// # Panics
    /// If the body has 4 GiB or more.
    #[must_use]
    pub fn encode(self) -> Vec<Bytes> {
        let len: usize = self.body.iter().map(Bytes::len).sum();
        let most = |value: u64| U32::new(u32::try_from(value).unwrap_or(u32::MAX));
        let mut raw = Raw {
            magic: MAGIC,
            version: U16::new(FRAME_VERSION),
            kind: self.kind.code(),
            flags: if self.more { MORE } else { 0 },
            len: U32::new(narrow(len)),
            checksum: U32::ZERO,
            number: U64::new(self.number),
            in_flight: most(self.load.in_flight),
            wait_us: most(self.load.wait.0 / 1000),
        };
        raw.checksum = U32::new(checksum(raw, self.body.iter().map(|piece| &piece[..])));
        let mut pieces = Vec::with_capacity(1 + self.body.len());
        pieces.push(Bytes::copy_from_slice(raw.as_bytes()));
        pieces.extend(self.body);
        pieces
    }
}

fn checksum<'a>(raw: Raw, body: impl Iterator<Item = &'a [u8]>) -> u32 {
    let raw = Raw { checksum: U32::ZERO, ..raw };
    body.fold(crc32c::crc32c(raw.as_bytes()), crc32c::crc32c_append)
}

/// The head of a frame that arrives.
#[derive(Clone, Copy)]
pub struct FrameHead {
    raw: Raw,
    kind: FrameKind,
}

impl FrameHead {
    /// Decodes a head whose body has at most `most` bytes.
    ///
    /// # Errors
    /// If the bytes are no head of a frame, the version is another, or the body is longer.
    pub fn parse(bytes: &[u8; FRAME_HEAD_BYTES], most: usize) -> Result<Self, FrameError> {
        let raw = Raw::read_from_bytes(bytes).map_err(|_| FrameError::NotAFrame)?;
        if raw.magic != MAGIC {
            return Err(FrameError::NotAFrame);
        }
        let found = raw.version.get();
        if found != FRAME_VERSION {
            return Err(FrameError::Version { found });
        }
        let kind = FrameKind::ALL.into_iter().find(|kind| kind.code() == raw.kind);
        let kind = kind.ok_or(FrameError::Malformed("a frame of an unknown kind"))?;
        if raw.flags & !MORE != 0 {
            return Err(FrameError::Malformed("a frame with unknown flags"));
        }
        let len = raw.len.get() as usize;
        if len > most {
            return Err(FrameError::TooLong { len, most });
        }
        Ok(Self { raw, kind })
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.raw.len.get() as usize
    }

    /// Whether there is no body.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The frame of this head and `body`.
    ///
    /// # Errors
    /// [`FrameError::Checksum`] if length or checksum do not match.
    pub fn frame(self, body: Bytes) -> Result<Frame, FrameError> {
        let raw = self.raw;
        let found = checksum(raw, [&body[..]].into_iter());
        let whole = found == raw.checksum.get() || plant::is(Bug::FrameDamageTaken);
        if body.len() != self.len() || !whole {
            return Err(FrameError::Checksum);
        }
        let in_flight = raw.in_flight.get().into();
        let load = Load { in_flight, wait: Nanos(u64::from(raw.wait_us.get()) * 1000) };
        let (more, number) = (raw.flags & MORE != 0, raw.number.get());
        Ok(Frame { kind: self.kind, more, number, load, body: vec![body] })
    }
}

impl std::fmt::Debug for FrameHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameHead").field("kind", &self.kind).field("len", &self.len()).finish()
    }
}
