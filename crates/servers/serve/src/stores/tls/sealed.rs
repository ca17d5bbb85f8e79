//! A connection whose bytes are encrypted.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use manylogs_storage::SocketStream;
use rustls::pki_types::{DnsName, ServerName};
use rustls::{CertificateError, ClientConnection, Connection, Error, ServerConnection};

use super::{ClientSeal, StoreSeal};
use crate::channel::{Duplex, write_all};

/// Encrypted bytes that are read at a time: a record of TLS and a little more.
const RECORD_BYTES: usize = 18 << 10;
/// Bytes that are encrypted before the kernel has taken those before them.
const UNSENT_BYTES: usize = 256 << 10;
/// TLS wants a name, which is never sent: stores are known by their keys.
const NAME: &str = "store.invalid";

/// A connection whose bytes are encrypted.
pub(crate) struct Sealed {
    stream: SocketStream,
    tls: RefCell<Connection>,
    incoming: Cell<Incoming>,
}

/// Encrypted bytes that were read and not decrypted yet.
#[derive(Default)]
struct Incoming {
    bytes: Box<[u8]>,
    used: usize,
    filled: usize,
}

impl Sealed {
    /// The client's side of `stream`, once the store has proved its key.
    ///
    /// # Errors
    /// The connection's, or why the store is not the one.
    pub(crate) async fn connect(stream: SocketStream, seal: &ClientSeal) -> io::Result<Self> {
        let name = ServerName::from(DnsName::try_from(NAME).map_err(io::Error::other)?);
        let tls = ClientConnection::new(Arc::clone(seal), name).map_err(io::Error::other)?;
        Self::begin(stream, tls.into()).await
    }

    /// The store's side of `stream`, once the client has proved its key.
    ///
    /// # Errors
    /// The connection's, or why the client is not let in.
    pub(crate) async fn accept(stream: SocketStream, seal: &StoreSeal) -> io::Result<Self> {
        let tls = ServerConnection::new(Arc::clone(seal)).map_err(io::Error::other)?;
        Self::begin(stream, tls.into()).await
    }

    async fn begin(stream: SocketStream, mut tls: Connection) -> io::Result<Self> {
        tls.set_buffer_limit(Some(UNSENT_BYTES));
        let sealed = Self { stream, tls: RefCell::new(tls), incoming: Cell::default() };
        loop {
            sealed.flush().await?;
            if !sealed.tls.borrow().is_handshaking() {
                return Ok(sealed);
            }
            sealed.take_more().await?;
        }
    }

    /// Ends the connection: both sides read to the end of what was sent.
    pub(crate) fn shut_down(&self) {
        self.stream.shut_down();
    }

    /// Decrypts more of the bytes that were read; reads more if there are none. The end of the
    /// stream shows in the next read.
    async fn take_more(&self) -> io::Result<()> {
        let mut incoming = self.incoming.take();
        if incoming.used == incoming.filled {
            if incoming.bytes.is_empty() {
                incoming.bytes = vec![0; RECORD_BYTES].into();
            }
            (incoming.used, incoming.filled) = (0, self.stream.read(&mut incoming.bytes).await?);
        }
        let mut rest = &incoming.bytes[incoming.used..incoming.filled];
        let ended = rest.is_empty();
        let processed = {
            let mut tls = self.tls.borrow_mut();
            tls.read_tls(&mut rest)?;
            let processed = tls.process_new_packets();
            let begins = tls.is_handshaking();
            processed.map(|_| ended && begins).map_err(|error| said(error, begins))
        };
        incoming.used = incoming.filled - rest.len();
        self.incoming.set(incoming);
        match processed {
            Ok(true) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(false) => Ok(()),
            Err(error) => {
                // The peer is told why, if it still listens.
                let _ = self.flush().await;
                Err(io::Error::other(error))
            }
        }
    }

    /// Hands all encrypted bytes to the kernel.
    async fn flush(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        while self.tls.borrow().wants_write() {
            self.tls.borrow_mut().write_tls(&mut bytes)?;
        }
        write_all(&self.stream, &bytes).await
    }
}

impl Duplex for Sealed {
    async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.tls.borrow_mut().reader().read(into);
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.take_more().await?;
        }
    }

    async fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush().await?;
        let taken = self.tls.borrow_mut().writer().write_vectored(from)?;
        self.flush().await?;
        Ok(taken)
    }
}

/// An error in words, with advice. `begins` says that keys are not proved yet.
fn said(error: Error, begins: bool) -> String {
    match error {
        Error::AlertReceived(alert) => format!(
            "the other side refused this machine's key ({alert:?}): it must be named there \
             (manylogs lend --allow KEY)"
        ),
        Error::InvalidMessage(_) if begins => {
            "the other side does not encrypt: it was given no keys, or is something else".to_owned()
        }
        Error::InvalidCertificate(CertificateError::Other(why)) => why.to_string(),
        error => error.to_string(),
    }
}
