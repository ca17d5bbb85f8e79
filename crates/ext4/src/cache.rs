//! Blocks of metadata in memory.
//!
//! A buffer's bytes are shared and copied when they change: a transaction that was closed keeps
//! what they were. Only a [`crate::journal::Handle`] changes them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use manylogs_block::{BlockDevice, IoError, Request};

use crate::units::{BLOCK_BYTES, BlockNo};

/// Buffers that are kept although nobody uses them: 64 MiB.
const BUFFERS_MOST: usize = 16_384;

/// What the content of a buffer was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// Nothing yet.
    No,
    Bitmap,
    ExtentNode,
    DirectoryLeaf,
    DirectoryIndex,
    Xattrs,
}

/// One block.
#[derive(Debug)]
pub(crate) struct Buffer {
    block: BlockNo,
    bytes: RefCell<Bytes>,
    checked: Cell<Checked>,
}

/// Blocks by number. The hasher has no random keys: the same requests meet the same cache each
/// time, whatever was dropped from it.
type Buffers = HashMap<BlockNo, Rc<Buffer>, BuildHasherDefault<DefaultHasher>>;

/// Blocks by number.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    buffers: RefCell<Buffers>,
}

impl Buffer {
    pub(crate) fn new(block: BlockNo, bytes: Bytes) -> Rc<Self> {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES);
        let checked = Cell::new(Checked::No);
        Rc::new(Self { block, bytes: RefCell::new(bytes), checked })
    }

    pub(crate) fn block(&self) -> BlockNo {
        self.block
    }

    /// The content now; it stays what it is whatever becomes of the buffer.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.borrow().clone()
    }

    /// Calls `change` with the content, which is copied first if somebody else holds it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut slot = self.bytes.borrow_mut();
        let bytes = std::mem::take(&mut *slot);
        let mut own = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let result = change(&mut own);
        *slot = own.freeze();
        result
    }

    /// Puts back what was there.
    pub(crate) fn restore(&self, bytes: Bytes) {
        *self.bytes.borrow_mut() = bytes;
    }

    /// Whether the content was found to be a sound `kind`; else `check` is asked.
    pub(crate) fn is_checked(&self, kind: Checked, check: impl FnOnce(&[u8]) -> bool) -> bool {
        if self.checked.get() != kind && check(&self.bytes.borrow()) {
            self.checked.set(kind);
        }
        self.checked.get() == kind
    }

    /// The content is a sound `kind`: it was made so.
    pub(crate) fn set_checked(&self, kind: Checked) {
        self.checked.set(kind);
    }
}

impl Cache {
    /// The buffer of a block, if it is there.
    pub(crate) fn get(&self, block: BlockNo) -> Option<Rc<Buffer>> {
        self.buffers.borrow().get(&block).cloned()
    }

    /// The buffer of a block that was read; another task may have read it as well.
    pub(crate) fn insert(&self, block: BlockNo, bytes: Bytes) -> Rc<Buffer> {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() > BUFFERS_MOST {
            // What a transaction holds stays, and so does what somebody works with.
            let mut doomed = buffers.len() / 4;
            buffers.retain(|_, buffer| {
                let goes = doomed > 0 && Rc::strong_count(buffer) == 1;
                doomed -= usize::from(goes);
                !goes
            });
        }
        Rc::clone(buffers.entry(block).or_insert_with(|| Buffer::new(block, bytes)))
    }

    /// A new buffer of zeroes, whatever was there.
    pub(crate) fn create(&self, block: BlockNo) -> Rc<Buffer> {
        let buffer = Buffer::new(block, Bytes::from(vec![0; BLOCK_BYTES]));
        self.buffers.borrow_mut().insert(block, Rc::clone(&buffer));
        buffer
    }

    /// Forgets a block that holds no metadata any more.
    pub(crate) fn forget(&self, block: BlockNo) {
        self.buffers.borrow_mut().remove(&block);
    }
}

/// Reads one block of the device.
///
/// # Errors
/// That of the device; one that keeps no content cannot hold a file system.
pub(crate) async fn read_block(device: &dyn BlockDevice, block: BlockNo) -> Result<Bytes, IoError> {
    let payload = device.submit(Request::Read { extent: block.sectors() }).await?;
    payload.to_bytes().ok_or(IoError::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever else is read: what a transaction holds may be newer than the device.
    #[test]
    fn what_somebody_holds_stays_and_what_nobody_holds_goes() {
        let (cache, bytes) = (Cache::default(), Bytes::from(vec![0; BLOCK_BYTES]));
        let held: Vec<_> =
            (0..100).map(|block| cache.insert(BlockNo(block), bytes.clone())).collect();
        for block in 100..3 * BUFFERS_MOST as u64 {
            cache.insert(BlockNo(block), bytes.clone());
        }
        for buffer in &held {
            assert!(cache.get(buffer.block()).is_some_and(|found| Rc::ptr_eq(&found, buffer)));
        }
        assert!(cache.buffers.borrow().len() <= BUFFERS_MOST + 1);
    }
}
