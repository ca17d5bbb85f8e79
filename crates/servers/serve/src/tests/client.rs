//! A client of NBD that sends requests and fetches answers exactly when the test says so. Tests of
//! several packages use it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const ZERO: u16 = 6;
/// The flag of a request that must be durable when it is answered.
pub(crate) const FUA: u16 = 1;
/// The flag of zeroing that must fail where it is not fast.
#[allow(dead_code, reason = "some packages have no use for it")]
pub(crate) const FAST_ZERO: u16 = 16;

/// A connection with simple replies, past its negotiation.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    /// The number of the last request.
    cookie: u64,
}

impl Client {
    pub(crate) const MAGIC: u32 = 0x2560_9513;

    pub(crate) fn connect(socket: &Path, patience: Duration) -> Self {
        Self::try_connect(socket, patience).unwrap()
    }

    /// Connects and negotiates; also fails if the server closes the connection during negotiation.
    pub(crate) fn try_connect(socket: &Path, patience: Duration) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.read_exact(&mut [0; 18])?;
        // Fixed newstyle, without 124 zeroes; then the option that ends negotiation.
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Self { stream, cookie: 0 })
    }

    /// The bytes of a request, and its number.
    pub(crate) fn request(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> (Vec<u8>, u64) {
        self.cookie += 1;
        let mut request = Self::MAGIC.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        (request, self.cookie)
    }

    /// The next answer without the data of a read: the number of its request, and the error number.
    pub(crate) fn answer(&mut self) -> (u64, u32) {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        let (error, cookie) = (reply[4..8].try_into().unwrap(), reply[8..].try_into().unwrap());
        (u64::from_be_bytes(cookie), u32::from_be_bytes(error))
    }

    /// Sends a request and waits for its answer; returns the error number.
    pub(crate) fn ask(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> u32 {
        let (request, cookie) = self.request(flags, command, offset, len, data);
        self.stream.write_all(&request).unwrap();
        let (answered, error) = self.answer();
        assert_eq!(answered, cookie);
        if error == 0 && command == READ {
            self.stream.read_exact(&mut vec![0; len as usize]).unwrap();
        }
        error
    }

    /// Reads a range.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let (request, cookie) = self.request(0, READ, offset, len, &[]);
        self.stream.write_all(&request).unwrap();
        assert_eq!(self.answer(), (cookie, 0));
        let mut content = vec![0; len as usize];
        self.stream.read_exact(&mut content).unwrap();
        content
    }
}
