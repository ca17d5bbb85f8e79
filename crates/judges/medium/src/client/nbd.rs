//! A client of NBD: fixed newstyle, simple replies, many requests in flight.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use manylogs_block::to_usize;

use super::{Operation, Target, Teller, What};
use crate::units::CELL_BYTES;

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const EXPORT_NAME: u32 = 1;
/// Client flags: fixed newstyle, and no 124 zero bytes.
const CLIENT_FLAGS: u32 = 3;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FUA: u16 = 1;

/// A connection to an NBD server. Source: the NBD project's protocol document (proto.md).
#[derive(Debug)]
pub struct NbdClient {
    stream: UnixStream,
    size: u64,
}

impl NbdClient {
    /// Connects to the server at a socket.
    ///
    /// # Errors
    /// If the connection fails, or the server does not speak fixed newstyle.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if &greeting[..8] != b"NBDMAGIC" || &greeting[8..16] != OPTION_MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC);
        hello.extend(EXPORT_NAME.to_be_bytes());
        hello.extend(0_u32.to_be_bytes());
        stream.write_all(&hello)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let (size, _flags) = export.split_at(8);
        let size = u64::from_be_bytes(size.try_into().map_err(io::Error::other)?);
        Ok(Self { stream, size })
    }

    /// The export's size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    fn send(&mut self, cookie: u64, operation: &Operation, bytes: &[u8]) -> io::Result<()> {
        let code: u16 = match operation.what {
            What::Read => 0,
            What::Write(_) => 1,
            What::Flush => 3,
            What::Trim => 4,
            What::Zero => 6,
        };
        let changes = !matches!(operation.what, What::Read | What::Flush);
        let flags = if operation.fua && changes { FUA } else { 0 };
        let (at, len) = match operation.what {
            What::Flush => (0, 0),
            _ => (operation.at, u32::try_from(operation.len).map_err(io::Error::other)?),
        };
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(code.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(at.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(bytes);
        self.stream.write_all(&request)
    }

    /// Reads the header of the next answer and returns its cookie.
    fn answer(&mut self) -> io::Result<u64> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        match (word(0), word(4)) {
            (REPLY_MAGIC, 0) => Ok(u64::from(word(8)) << 32 | u64::from(word(12))),
            (REPLY_MAGIC, errno) => {
                Err(io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(i32::MAX)))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Target for NbdClient {
    fn grain(&self) -> u64 {
        CELL_BYTES
    }

    fn perform(&mut self, batch: &[Operation], teller: &Teller) -> io::Result<()> {
        let mut under_way = BTreeMap::new();
        for operation in batch {
            let id = teller.begins(operation);
            under_way.insert(id, *operation);
            self.send(id, operation, &teller.bytes(operation))?;
        }
        while !under_way.is_empty() {
            let id = self.answer()?;
            let Some(operation) = under_way.remove(&id) else {
                return Err(io::Error::other("an answer to nothing"));
            };
            let read = if operation.what == What::Read { operation.len } else { 0 };
            let mut bytes = vec![0; to_usize(read)];
            self.stream.read_exact(&mut bytes)?;
            teller.ended(id, &operation, &bytes);
        }
        Ok(())
    }
}
