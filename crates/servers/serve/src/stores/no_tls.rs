//! In place of `tls` in a program that was built without it: no machine has a key, and nothing is
//! encrypted.

use std::convert::Infallible;
use std::io::{self, IoSlice};

use manylogs_storage::SocketStream;

use super::keys::{KEY_BYTES, PublicKey};
use crate::channel::Duplex;

/// Whether this program can encrypt.
pub(super) const IS_THERE: bool = false;

/// A machine's key pair, which there is not.
#[derive(Clone, Debug)]
pub(super) struct Pair(Infallible);

/// Settings of a client that encrypts, which there is not.
pub(super) type ClientSeal = Infallible;
/// Settings of a store that encrypts, which there is not.
pub(super) type StoreSeal = Infallible;

impl Pair {
    pub(super) const fn of_private(_: &[u8; KEY_BYTES]) -> Option<(Self, PublicKey)> {
        None
    }

    pub(super) const fn of_client(&self, _: PublicKey) -> Result<ClientSeal, String> {
        match self.0 {}
    }

    pub(super) fn of_store(&self, _: Vec<PublicKey>) -> Result<StoreSeal, String> {
        match self.0 {}
    }
}

/// A connection whose bytes are encrypted, which there is not.
pub(crate) struct Sealed(Infallible);

impl Sealed {
    pub(crate) async fn connect(_: SocketStream, seal: &ClientSeal) -> io::Result<Self> {
        match *seal {}
    }

    pub(crate) async fn accept(_: SocketStream, seal: &StoreSeal) -> io::Result<Self> {
        match *seal {}
    }

    pub(crate) const fn shut_down(&self) {
        match self.0 {}
    }
}

impl Duplex for Sealed {
    async fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    async fn write_vectored(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0 {}
    }
}
