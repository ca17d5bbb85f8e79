//! Memory that direct I/O accepts.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of every buffer: enough for any drive.
pub(crate) const PAGE_BYTES: usize = 4096;
/// From this length on, content that was read stays in its buffer and is shared. Shorter content is
/// copied out, because its buffer may be a registered one, or a page much longer than the content.
/// A write of at least this length is taken from where it lies, if direct I/O accepts that. For
/// shorter ones registered memory is cheaper.
const HANDED_ON_FROM: usize = 64 << 10;
/// The most memory that a shelf keeps.
const SHELF_BLOCKS: usize = 64;
const SHELF_PAGES: usize = (32 << 20) / PAGE_BYTES;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Page-aligned memory of a request, to be filled and then shared. The heap block stays where it is
/// when the buffer moves.
pub struct Buffer {
    pages: Vec<Page>,
    len: usize,
    /// Its number among the ring's registered buffers, if it is one of them.
    registered: Option<u16>,
    /// The shelf to which the memory returns for the next request.
    shelf: Option<Arc<Shelf>>,
}

/// The memory of a write: the request's own, or shared bytes that direct I/O accepts.
pub(crate) enum Source {
    Own(Buffer),
    Shared(Bytes),
}

/// Page-aligned memory that is kept for the next request. Fresh pages are the largest cost of a
/// long request. A [`crate::FileDevice`] writes long requests from this memory without a copy.
#[derive(Default)]
pub struct Shelf(Mutex<Vec<Vec<Page>>>);

impl Buffer {
    /// `len` bytes of zeroes.
    pub(crate) fn new(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(PAGE_BYTES))
            .unwrap_or_else(|_| panic!("no memory for a request of {len} bytes"));
        Self { pages, len, registered: None, shelf: None }
    }

    /// `len` bytes with arbitrary content.
    pub(crate) fn from_shelf(shelf: &Arc<Shelf>, len: usize) -> Self {
        let mut buffer = match shelf.take(len.div_ceil(PAGE_BYTES)) {
            Some(pages) => Self { pages, len, registered: None, shelf: None },
            None => Self::new(len),
        };
        buffer.shelf = Some(Arc::clone(shelf));
        buffer
    }

    /// `len` bytes, to be registered with a ring under the number `index`.
    pub(crate) fn registered(len: usize, index: u16) -> Self {
        let mut buffer = Self::new(len);
        buffer.registered = Some(index);
        buffer
    }

    pub(crate) const fn registration(&self) -> Option<u16> {
        self.registered
    }

    /// Sets the length, which must fit the memory.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.pages.len() * PAGE_BYTES, "a buffer does not grow");
        self.len = len;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }

    /// All bytes of the buffer.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }

    /// All bytes, shared and immutable from now on.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Shares the first `len` bytes. Also returns the buffer if it may be used again.
    pub(crate) fn share(mut self, len: usize) -> (Bytes, Option<Self>) {
        if self.registered.is_some() || len < HANDED_ON_FROM {
            return (Bytes::copy_from_slice(&self.bytes()[..len]), Some(self));
        }
        self.set_len(len);
        (Bytes::from_owner(self), None)
    }
}

impl Source {
    /// Shares `bytes` in place, if they are long enough to gain by it and begin at a page.
    pub(crate) fn shared(bytes: &Bytes) -> Option<Self> {
        let fits =
            bytes.len() >= HANDED_ON_FROM && bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES);
        fits.then(|| Self::Shared(bytes.clone()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer.bytes(),
            Self::Shared(bytes) => bytes,
        }
    }

    pub(crate) fn registration(&self) -> Option<u16> {
        match self {
            Self::Own(buffer) => buffer.registration(),
            Self::Shared(_) => None,
        }
    }

    /// The buffer, if its memory may be used again.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Own(buffer) => Some(buffer),
            Self::Shared(_) => None,
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.take() {
            shelf.put(std::mem::take(&mut self.pages));
        }
    }
}

impl Shelf {
    /// Copies `content`. The memory returns to the shelf when its last user drops it.
    #[must_use]
    pub fn copy(self: &Arc<Self>, content: &[u8]) -> Bytes {
        if content.len() < HANDED_ON_FROM {
            return Bytes::copy_from_slice(content);
        }
        let mut buffer = self.buffer(content.len());
        buffer.bytes_mut().copy_from_slice(content);
        buffer.freeze()
    }

    /// `len` bytes with arbitrary content. The memory returns to the shelf when its last user drops
    /// it.
    #[must_use]
    pub fn buffer(self: &Arc<Self>, len: usize) -> Buffer {
        Buffer::from_shelf(self, len)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Page>>> {
        // Nothing panics while the lock is held, so the list is whole even when poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of at least `pages` pages, but not many more, because content read into it may
    /// be kept for long.
    fn take(&self, pages: usize) -> Option<Vec<Page>> {
        let mut kept = self.lock();
        let index = kept.iter().rposition(|block| (pages..=2 * pages).contains(&block.len()))?;
        Some(kept.swap_remove(index))
    }

    fn put(&self, block: Vec<Page>) {
        let mut kept = self.lock();
        let pages: usize = kept.iter().map(Vec::len).sum();
        if kept.len() < SHELF_BLOCKS && pages + block.len() <= SHELF_PAGES {
            kept.push(block);
        }
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shelf({} blocks)", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_content_is_written_from_where_it_lies() {
        let shelf = Arc::new(Shelf::default());
        let content: Vec<u8> = (0..100_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let long = shelf.copy(&content);
        assert_eq!(long, content);
        let source = Source::shared(&long).expect("a page of its own");
        assert_eq!(source.bytes().as_ptr(), long.as_ptr());
        assert!(Source::shared(&long.slice(512..)).is_none(), "not at a page");
        assert!(Source::shared(&shelf.copy(&content[..4096])).is_none(), "copied for less");
        let place = long.as_ptr();
        drop((long, source));
        assert_eq!(shelf.copy(&content).as_ptr(), place);
    }

    #[test]
    fn memory_is_used_again_and_never_much_more_than_asked_for() {
        let shelf = Arc::new(Shelf::default());
        let mut first = Buffer::from_shelf(&shelf, 100_000);
        first.bytes_mut().fill(7);
        let (bytes, buffer) = first.share(80_000);
        assert!(buffer.is_none() && bytes.len() == 80_000);
        assert!(Buffer::from_shelf(&shelf, 100_000).bytes().iter().all(|byte| *byte == 0));
        let place = bytes.as_ptr();
        drop(bytes);
        let small = Buffer::from_shelf(&shelf, 4096);
        assert_ne!(small.bytes().as_ptr(), place, "a page does not hold on to 25");
        let again = Buffer::from_shelf(&shelf, 60_000);
        assert_eq!((again.bytes().as_ptr(), again.bytes().len()), (place, 60_000));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let shelf = Arc::new(Shelf::default());
        let many: Vec<Buffer> =
            (0..2 * SHELF_BLOCKS).map(|_| Buffer::from_shelf(&shelf, 1 << 20)).collect();
        drop(many);
        let kept: usize = shelf.lock().iter().map(Vec::len).sum();
        assert_eq!(kept, SHELF_PAGES);
    }
}
