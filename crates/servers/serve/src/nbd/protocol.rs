//! The encoding of NBD, as far as a server of one export needs it: fixed newstyle negotiation,
//! simple and structured replies, `base:allocation`. All numbers are big-endian.
//!
//! Source: the NBD project's protocol document (proto.md).

/// Magic numbers: of the server's greeting, of an option, of a reply.
pub(super) const GREETING: [u8; 8] = *b"NBDMAGIC";
pub(super) const OPTION_MAGIC: [u8; 8] = *b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags: fixed newstyle, and the 124 zeroes may be left out.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

/// The longest request: the limit that the protocol states for clients that do not ask.
pub(super) const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Length of a request without the data to write.
pub(super) const REQUEST_BYTES: usize = 28;
/// Most bytes before the data of a read's answer: the head of a chunk, and its offset.
pub(super) const ANSWER_HEAD_BYTES_MAX: usize = 20 + 8;
/// The number of the one meta context.
pub(super) const ALLOCATION_ID: u32 = 1;
/// Name of the metadata context for allocation.
pub(super) const ALLOCATION: &str = "base:allocation";

/// Options of the negotiation.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options.
pub(super) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const UNSUPPORTED: u32 = 0x8000_0001;
    pub(crate) const POLICY: u32 = 0x8000_0002;
    pub(crate) const INVALID: u32 = 0x8000_0003;
    pub(crate) const TOO_BIG: u32 = 0x8000_0009;
}

/// Transmission flags of an export.
pub(super) mod export_flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const ROTATIONAL: u16 = 1 << 4;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DF: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub(super) mod flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 2;
    pub(crate) const DF: u16 = 4;
    pub(crate) const REQ_ONE: u16 = 8;
    pub(crate) const FAST_ZERO: u16 = 16;
}

/// Commands of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// A command that this server does not know.
    Other(u16),
}

impl Command {
    const fn of(code: u16) -> Self {
        match code {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            code => Self::Other(code),
        }
    }

    /// The flags that are valid with this command.
    pub(super) const fn flags(self) -> u16 {
        match self {
            // FUA is valid with every command; without a change it has no meaning.
            Self::Read => flag::FUA | flag::DF,
            Self::WriteZeroes => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            Self::BlockStatus => flag::FUA | flag::REQ_ONE,
            _ => flag::FUA,
        }
    }
}

/// A request without the data to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: u16,
    pub(super) command: Command,
    /// The client's number of the request.
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Header {
    /// Decodes `bytes`; `None` if they are no request: the rest of the stream cannot be decoded
    /// either then.
    pub(super) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut bytes = Fields(bytes);
        (bytes.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: bytes.u16()?,
            command: Command::of(bytes.u16()?),
            cookie: bytes.u64()?,
            offset: bytes.u64()?,
            len: bytes.u32()?,
        })
    }

    pub(super) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Takes numbers and texts from the beginning of bytes, one by one.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text, preceded by its length.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}

/// The answer of kind `kind` to `option`.
pub(super) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(option.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend(length(data).to_be_bytes());
    reply.extend(data);
    reply
}

/// A length that the protocol limits to far less than 32 bits.
pub(super) fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or_else(|_| unreachable!("answers are short"))
}

/// The head of a simple reply, 16 bytes, to be followed by the data that was read.
pub(super) fn simple_reply(cookie: u64, error: u32) -> Vec<u8> {
    let mut reply = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(cookie.to_be_bytes());
    reply
}

/// Kind of a chunk of a structured reply.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    Data = 1,
    BlockStatus = 5,
    Error = 0x8001,
}

/// A structured reply of one chunk, without the last `more` bytes of the chunk, which the caller
/// sends.
pub(super) fn structured_reply(cookie: u64, kind: Chunk, data: &[u8], more: u32) -> Vec<u8> {
    const DONE: u16 = 1;
    let mut reply = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(DONE.to_be_bytes());
    reply.extend((kind as u16).to_be_bytes());
    reply.extend(cookie.to_be_bytes());
    reply.extend((length(data) + more).to_be_bytes());
    reply.extend(data);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_field_by_field() {
        let mut bytes = Vec::from(REQUEST_MAGIC.to_be_bytes());
        bytes.extend([0, 5, 0, 6]);
        bytes.extend(0x1122_3344_5566_7788_u64.to_be_bytes());
        bytes.extend(4096_u64.to_be_bytes());
        bytes.extend(512_u32.to_be_bytes());
        let bytes: [u8; REQUEST_BYTES] = bytes.try_into().unwrap();
        let header = Header::parse(&bytes).unwrap();
        assert!(header.has(flag::FUA) && header.has(flag::DF) && !header.has(flag::NO_HOLE));
        assert_eq!(header.command, Command::WriteZeroes);
        assert_eq!((header.offset, header.len), (4096, 512));
        assert_eq!(header.cookie, 0x1122_3344_5566_7788);
        assert_eq!(Header::parse(&[0; REQUEST_BYTES]), None);
    }

    #[test]
    fn texts_end_with_the_bytes_there_are() {
        assert_eq!(Fields(&[0, 0, 0, 2, b'h', b'i', 9]).text(), Some(&b"hi"[..]));
        assert_eq!(Fields(&[0, 0, 0, 3, b'h', b'i']).text(), None);
        assert_eq!(Fields(&[255, 255, 255, 255, 1]).text(), None);
    }

    #[test]
    fn replies_say_how_long_they_are() {
        let reply = structured_reply(7, Chunk::Data, &[0; 8], 4096);
        assert_eq!(reply.len(), 28);
        assert_eq!(reply[16..20], 4104_u32.to_be_bytes());
        assert_eq!(simple_reply(7, 5).len(), 16);
        assert_eq!(option_reply(7, answer::ACK, &[]).len(), 20);
    }
}
