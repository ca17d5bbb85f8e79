//! The bytes of a connection: as they are, or encrypted for keys that were named.

use std::io::{self, IoSlice};

use manylogs_storage::SocketStream;

use super::tls::Sealed;
use crate::channel::Duplex;

/// A connection between a client and a store.
pub(super) enum Wire {
    /// Within this machine.
    Plain(SocketStream),
    /// Between sides that have proved their keys.
    Sealed(Box<Sealed>),
}

impl Duplex for Wire {
    async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into).await,
            Self::Sealed(sealed) => sealed.read(into).await,
        }
    }

    async fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(from).await,
            Self::Sealed(sealed) => sealed.write_vectored(from).await,
        }
    }
}

impl Wire {
    /// Ends the connection: both sides read to the end of what was sent.
    pub(super) fn shut_down(&self) {
        match self {
            Self::Plain(stream) => stream.shut_down(),
            Self::Sealed(sealed) => sealed.shut_down(),
        }
    }
}
