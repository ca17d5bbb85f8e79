//! Blocks of metadata in memory.
//!
//! A buffer's bytes are shared, and copied when they change: a closed transaction keeps the bytes
//! as they were. Only a [`crate::journal::Handle`] changes them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use manylogs_block::{BlockDevice, IoError, Request, narrow};
use manylogs_plant::{Bug, is};

use crate::memory::{Memory, Part, Permit};
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Bytes of memory of a buffer, with its place in the cache.
const BUFFER_COST: u64 = BLOCK_BYTES as u64 + 256;

/// The kind of sound metadata that a buffer was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// Not checked yet.
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
    _held: Permit,
}

/// Blocks by number. The hasher has no random keys, so that the same requests always drop the same
/// blocks.
type Buffers = HashMap<BlockNo, Rc<Buffer>, BuildHasherDefault<DefaultHasher>>;

/// Blocks by number: as many as the memory's share allows, and those that are in use.
#[derive(Debug)]
pub(crate) struct Cache {
    buffers: RefCell<Buffers>,
    memory: Memory,
    /// Number of buffers at which some are dropped.
    most: Cell<usize>,
    /// Memory of its share that is used for what is read ahead, in bytes.
    lent: Cell<u64>,
}

impl Buffer {
    fn new(block: BlockNo, bytes: Bytes, held: Permit) -> Rc<Self> {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES);
        let checked = Cell::new(Checked::No);
        Rc::new(Self { block, bytes: RefCell::new(bytes), checked, _held: held })
    }

    pub(crate) fn block(&self) -> BlockNo {
        self.block
    }

    /// The content now: later changes of the buffer do not change these bytes.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.borrow().clone()
    }

    /// Calls `change` with the content, which is copied first if others hold it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut slot = self.bytes.borrow_mut();
        let bytes = std::mem::take(&mut *slot);
        let mut own = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let result = change(&mut own);
        *slot = own.freeze();
        result
    }

    /// Puts earlier content back.
    pub(crate) fn restore(&self, bytes: Bytes) {
        *self.bytes.borrow_mut() = bytes;
    }

    /// Whether the content is a sound `kind`: it was found so before, or `check` finds it now.
    pub(crate) fn is_checked(&self, kind: Checked, check: impl FnOnce(&[u8]) -> bool) -> bool {
        if self.checked.get() != kind && check(&self.bytes.borrow()) {
            self.checked.set(kind);
        }
        self.checked.get() == kind
    }

    /// Notes that the content is a sound `kind`, because it was made so.
    pub(crate) fn set_checked(&self, kind: Checked) {
        self.checked.set(kind);
    }
}

impl Cache {
    pub(crate) fn new(memory: Memory) -> Self {
        let cache =
            Self { buffers: RefCell::default(), memory, most: Cell::new(0), lent: Cell::new(0) };
        cache.most.set(cache.share());
        cache
    }

    /// How many blocks memory has a share for.
    fn share(&self) -> usize {
        let own = self.memory.most(Part::Metadata).saturating_sub(self.lent.get());
        manylogs_block::to_usize(own / BUFFER_COST)
    }

    /// From now on so many bytes of its share of memory are used for something else.
    pub(crate) fn lend(&self, bytes: u64) {
        self.lent.set(bytes);
        self.most.set(self.share());
    }

    fn new_buffer(&self, block: BlockNo, bytes: Bytes) -> Rc<Buffer> {
        Buffer::new(block, bytes, self.memory.hold(Part::Metadata, BUFFER_COST))
    }

    /// The buffer of a block, if it is there.
    pub(crate) fn get(&self, block: BlockNo) -> Option<Rc<Buffer>> {
        self.buffers.borrow().get(&block).cloned()
    }

    /// The buffer of a block that was read; another task may have read it as well.
    pub(crate) fn insert(&self, block: BlockNo, bytes: Bytes) -> Rc<Buffer> {
        self.drop_some();
        let mut buffers = self.buffers.borrow_mut();
        Rc::clone(buffers.entry(block).or_insert_with(|| self.new_buffer(block, bytes)))
    }

    /// Drops a quarter of the buffers, if there are too many. Buffers that are held, by a
    /// transaction or a task, stay. If those are nearly all, the next attempt waits until there are
    /// more.
    fn drop_some(&self) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < self.most.get() {
            return;
        }
        let mut doomed = buffers.len() / 4;
        buffers.retain(|_, buffer| {
            let goes = doomed > 0 && Rc::strong_count(buffer) == 1;
            doomed -= usize::from(goes);
            !goes
        });
        let share = self.share();
        self.most.set(share.max(buffers.len() + share / 8));
    }

    /// A new buffer of zeroes, which replaces one that is there.
    pub(crate) fn create(&self, block: BlockNo) -> Rc<Buffer> {
        if !is(Bug::MemoryCacheGrows) {
            self.drop_some();
        }
        let buffer = self.new_buffer(block, Bytes::from(vec![0; BLOCK_BYTES]));
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
/// That of the device; [`IoError::Unsupported`] if the device keeps no content.
pub(crate) async fn read_block(device: &dyn BlockDevice, block: BlockNo) -> Result<Bytes, IoError> {
    let payload = device.submit(Request::Read { extent: block.sectors() }).await?;
    payload.to_bytes().ok_or(IoError::Unsupported)
}

/// Most blocks that [`read_blocks`] reads by one request: 1 MiB.
const TOGETHER_MOST: usize = 256;

/// The blocks as they are on the device: those that lie in one piece by one request, and all
/// requests at once. So it takes hardly longer than one read, also beside other clients.
///
/// # Errors
/// As [`read_block`].
pub(crate) async fn read_blocks(
    device: &dyn BlockDevice,
    blocks: &[BlockNo],
) -> Result<Vec<Bytes>, IoError> {
    let runs = blocks.chunk_by(|one, next| next.0 == one.0 + 1);
    let runs = runs.flat_map(|run| run.chunks(TOGETHER_MOST));
    let reads: Vec<_> = runs
        .map(|run| {
            let run = Run { start: run[0], blocks: narrow(run.len()) };
            device.submit(Request::Read { extent: run.sectors() })
        })
        .collect();
    let mut contents = Vec::with_capacity(blocks.len());
    for read in reads {
        let bytes = read.await?.to_bytes().ok_or(IoError::Unsupported)?;
        let starts = (0..bytes.len()).step_by(BLOCK_BYTES);
        contents.extend(starts.map(|at| bytes.slice(at..at + BLOCK_BYTES)));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use manylogs_block::{Capabilities, Completion, Hint, MemoryDevice, Payload, Sectors};

    use super::*;

    /// Counts requests.
    #[derive(Debug)]
    struct Counted(MemoryDevice, Cell<usize>);

    impl BlockDevice for Counted {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn submit(&self, request: Request) -> Completion {
            self.1.set(self.1.get() + 1);
            self.0.submit(request)
        }
    }

    /// The first byte of each of these blocks, and the number of reads. Each block is full of its
    /// number.
    fn read(blocks: &[u64]) -> (Vec<u8>, usize) {
        let device = Counted(MemoryDevice::new(Sectors(1 << 16)), Cell::new(0));
        for block in blocks {
            let content = vec![u8::try_from(block % 251).unwrap(); BLOCK_BYTES];
            let (extent, hint) = (BlockNo(*block).sectors(), Hint::None);
            let payload = Payload::bytes(content);
            drop(device.submit(Request::Write { extent, payload, fua: false, hint }));
        }
        device.1.set(0);
        let blocks: Vec<BlockNo> = blocks.iter().copied().map(BlockNo).collect();
        let mut found = std::pin::pin!(read_blocks(&device, &blocks));
        match found.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => {
                let found = found.unwrap();
                assert!(found.iter().all(|bytes| bytes.len() == BLOCK_BYTES));
                (found.iter().map(|bytes| bytes[0]).collect(), device.1.get())
            }
            Poll::Pending => panic!("memory answers at once"),
        }
    }

    #[test]
    fn blocks_in_one_piece_are_one_read() {
        assert_eq!(read(&[]), (vec![], 0));
        assert_eq!(read(&[1, 2, 3]), (vec![1, 2, 3], 1));
        assert_eq!(read(&[7, 1, 2, 99]), (vec![7, 1, 2, 99], 3));
        let many: Vec<u64> = (1..=600).collect();
        let content = many.iter().map(|block| u8::try_from(block % 251).unwrap()).collect();
        assert_eq!(read(&many), (content, 3));
    }

    fn uses_more_than_its_share() -> bool {
        let memory = Memory::new(Memory::LEAST);
        let cache = Cache::new(memory.clone());
        let kept: Vec<_> = (0..100).map(|number| cache.create(BlockNo(number))).collect();
        (100..10_000).for_each(|number| drop(cache.create(BlockNo(number))));
        // A buffer that a transaction holds may be newer than the device.
        let stays =
            |held: &Rc<Buffer>| cache.get(held.block()).is_some_and(|it| Rc::ptr_eq(&it, held));
        assert!(kept.iter().all(stays), "they are in use");
        let excess = memory.used(Part::Metadata) > memory.most(Part::Metadata);
        drop((cache, kept));
        assert_eq!(memory.used(Part::Metadata), 0);
        excess
    }

    #[test]
    fn blocks_that_are_created_push_others_out() {
        assert!(!uses_more_than_its_share());
    }

    #[cfg(feature = "plant")]
    #[test]
    fn a_cache_that_only_grows_is_noticed() {
        manylogs_plant::plant(Some(Bug::MemoryCacheGrows));
        assert!(uses_more_than_its_share());
        manylogs_plant::plant(None);
    }
}
