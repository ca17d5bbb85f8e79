//! Memory that direct I/O accepts.

use bytes::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of every buffer: enough for any drive.
const PAGE_BYTES: usize = 4096;
/// A read this long is handed on in the buffer it was read into, a shorter one is copied out: it
/// may lie in a registered buffer, or in a page that is much longer than the content.
const HANDED_ON_FROM: usize = 64 << 10;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Page-aligned memory of a request. The heap block stays where it is when the buffer moves.
pub(crate) struct Buffer {
    pages: Vec<Page>,
    len: usize,
    /// Its number among the buffers registered with a ring, if it is one of them.
    registered: Option<u16>,
}

impl Buffer {
    /// `len` bytes of zeroes.
    pub(crate) fn new(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(PAGE_BYTES))
            .unwrap_or_else(|_| panic!("no memory for a request of {len} bytes"));
        Self { pages, len, registered: None }
    }

    /// The same, to be registered with a ring as number `index`.
    pub(crate) fn registered(len: usize, index: u16) -> Self {
        Self { registered: Some(index), ..Self::new(len) }
    }

    pub(crate) const fn registration(&self) -> Option<u16> {
        self.registered
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Sets the length within the memory that is there.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a buffer does not grow");
        self.len = len;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }

    /// The first `len` bytes as shared bytes, and the buffer if it may be used again.
    pub(crate) fn share(mut self, len: usize) -> (Bytes, Option<Self>) {
        if self.registered.is_some() || len < HANDED_ON_FROM {
            return (Bytes::copy_from_slice(&self.bytes()[..len]), Some(self));
        }
        self.set_len(len);
        (Bytes::from_owner(self), None)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
