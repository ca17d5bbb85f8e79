//! Reading from and writing to a connection, with a buffer for bytes that were read ahead.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use manylogs_storage::{Shelf, SocketStream};

/// Size of the buffer: room for many requests, or for one or two small writes.
const INPUT_BYTES: usize = 64 << 10;

/// Both ways of a connection.
pub(crate) trait Duplex {
    /// Reads what is there, at least a byte; nothing at the end.
    async fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as is taken, at least a byte.
    async fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Duplex for SocketStream {
    async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        Self::read(self, into).await
    }

    async fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::write_vectored(self, from).await
    }
}

/// The reading side of a connection, with a buffer.
pub(crate) struct Input<S = SocketStream> {
    stream: Rc<S>,
    buffer: Box<[u8]>,
    used: usize,
    filled: usize,
}

impl<S: Duplex> Input<S> {
    pub(crate) fn new(stream: Rc<S>) -> Self {
        Self { stream, buffer: vec![0; INPUT_BYTES].into(), used: 0, filled: 0 }
    }

    /// Reads bytes until `into` is full.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the peer ends before, or the connection's.
    pub(crate) async fn read_exact(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        loop {
            let len = into.len().min(self.filled - self.used);
            let (here, rest) = into.split_at_mut(len);
            here.copy_from_slice(&self.buffer[self.used..self.used + len]);
            self.used += len;
            if rest.is_empty() {
                return Ok(());
            }
            into = rest;
            // Long payloads are read directly into their destination.
            let read = if into.len() >= self.buffer.len() {
                let read = self.stream.read(into).await?;
                into = &mut into[read..];
                read
            } else {
                (self.used, self.filled) = (0, self.stream.read(&mut self.buffer).await?);
                self.filled
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub(crate) async fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    pub(crate) async fn u32(&mut self) -> io::Result<u32> {
        self.array().await.map(u32::from_be_bytes)
    }

    /// The next `len` bytes, in memory aligned for devices.
    pub(crate) async fn bytes(&mut self, shelf: &Arc<Shelf>, len: usize) -> io::Result<Bytes> {
        if len <= self.filled - self.used {
            let bytes = shelf.copy(&self.buffer[self.used..self.used + len]);
            self.used += len;
            return Ok(bytes);
        }
        let mut buffer = shelf.buffer(len);
        self.read_exact(buffer.bytes_mut()).await?;
        Ok(buffer.freeze())
    }

    /// Reads and drops `len` bytes.
    pub(crate) async fn skip(&mut self, mut len: u64) -> io::Result<()> {
        let mut sink = [0; 4096];
        while len > 0 {
            let part = usize::try_from(len).unwrap_or(usize::MAX).min(sink.len());
            self.read_exact(&mut sink[..part]).await?;
            len -= part as u64;
        }
        Ok(())
    }
}

/// Writes all of `bytes`.
///
/// # Errors
/// The connection's.
pub(crate) async fn write_all(stream: &SocketStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = stream.write_vectored(&[IoSlice::new(bytes)]).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}
