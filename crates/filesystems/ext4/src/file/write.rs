//! Writing into memory: blocks are promised now, and chosen when the data goes to the device.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use manylogs_plant::{Bug, is};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::extents::Mapping;
use crate::file::writeback::Times;
use crate::inode::{Node, PAGE_COST, Page};
use crate::memory::{Part, Permit};
use crate::metadata::Metadata;
use crate::ondisk::bytes::low32;
use crate::units::{BLOCK, BLOCK_BYTES, FileBlock, Ino};

/// Dirty pages from which on a file is a stream, whose write-back does not wait: 4 MiB.
const STREAM: usize = 1024;

/// Most bytes of a file, given by the largest block number.
pub const SIZE_MOST: u64 = FileBlock::MAX * BLOCK;

impl Core {
    /// Writes into memory, and leaves `kept` blocks free. The data is durable after
    /// [`Core::sync_file`], or when this returns if the file is synchronous.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are no blocks for all of it: nothing is written then.
    pub(crate) async fn write_file(
        &self,
        ino: Ino,
        offset: u64,
        data: Bytes,
        kept: u64,
    ) -> Result<()> {
        let promised = self.write_memory(ino, offset, data, kept).await?;
        if promised { self.sync_content(ino, None).await } else { Ok(()) }
    }

    /// Checks that a file may have `bytes` bytes at `offset`. Returns their end.
    pub(crate) fn check_write(&self, offset: u64, bytes: u64) -> Result<u64> {
        self.check_writable()?;
        self.journal.check()?;
        let end = offset.checked_add(bytes).filter(|end| *end <= SIZE_MOST);
        end.ok_or(Error::TooLarge)
    }

    /// See [`Core::write_file`]. Returns whether the file is synchronous, so that the caller must
    /// sync it.
    async fn write_memory(&self, ino: Ino, offset: u64, data: Bytes, kept: u64) -> Result<bool> {
        let end = self.check_write(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(false);
        }
        let node = self.node(ino);
        let pages = end.div_ceil(BLOCK) - offset / BLOCK;
        // One more page for the old end, if the file becomes longer.
        let mut room = self.wait_for_room(&node, (pages + 1) * PAGE_COST).await?;
        let _alone = node.writers.take().await;
        let _content = node.content.read().await;
        let size = self.file(&node).await?;
        let promised = self.check_content_mutable(ino).await?;
        self.fill_end(&node, end, &mut room).await?;
        let (first, last) = (low32(offset / BLOCK), low32((end - 1) / BLOCK));
        // The edges are read before anything is promised.
        let edges = [
            (first, !offset.is_multiple_of(BLOCK) || end < (u64::from(first) + 1) * BLOCK),
            (last, !end.is_multiple_of(BLOCK)),
        ];
        let mut old = Vec::new();
        for (page, partial) in edges {
            let known = old.iter().any(|(held, _)| *held == page);
            if partial && !known {
                old.push((page, self.page(&node, size, page).await?));
            }
        }
        self.promise(&node, first..last + 1, kept, &mut room).await?;
        drop(room);
        let mut pages = node.pages.borrow_mut();
        for page in first..=last {
            let Some(held) = pages.get_mut(&page) else { continue };
            let start = u64::from(page) * BLOCK;
            let (from, to) = (offset.max(start), end.min(start + BLOCK));
            let part = &data[index(from - offset)..index(to - offset)];
            if held.version == 0
                && let Some((_, bytes)) = old.iter().find(|(number, _)| *number == page)
            {
                held.bytes = bytes.clone();
            }
            held.version += 1;
            held.failures = 0;
            if part.len() == BLOCK_BYTES {
                held.bytes = Bytes::copy_from_slice(part);
                continue;
            }
            let bytes = std::mem::take(&mut held.bytes);
            let mut own = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            own[index(from - start)..index(to - start)].copy_from_slice(part);
            held.bytes = own.freeze();
        }
        if pages.len() > STREAM {
            self.backlog.note_stream();
        }
        drop(pages);
        if end > size {
            node.set_new_size(end);
        }
        node.written_at.set(Some(self.now()));
        self.note_dirty();
        Ok(promised)
    }

    /// Waits for memory for pages, in turn. The write-back task runs meanwhile, so that the device
    /// never waits for the next page. If write-back fails for some file, each writer writes back
    /// its own file, and gets the error if that fails: no writer waits for another's file.
    async fn wait_for_room(&self, node: &Rc<Node>, bytes: u64) -> Result<Permit> {
        let mut room = pin!(self.memory.take(Part::Pages, bytes));
        loop {
            let mut stuck = pin!(self.backlog.stuck.wait());
            let taken = poll_fn(|cx| match room.as_mut().poll(cx) {
                Poll::Ready(room) => Poll::Ready(Some(room)),
                Poll::Pending if self.backlog.is_stuck() => Poll::Ready(None),
                Poll::Pending => {
                    self.journal.note_work();
                    stuck.as_mut().poll(cx).map(|()| None)
                }
            });
            if let Some(room) = taken.await {
                return Ok(room);
            }
            self.write_back(node, Times::Written).await?;
            // Pages of other files that cannot be written are given up after some attempts.
            let _ = self.write_back_all().await;
            self.journal.check()?;
        }
    }

    /// Checks that a file may be written. Append-only files pass, because a program that opened the
    /// file before may still write anywhere. Returns whether the file is synchronous.
    async fn check_content_mutable(&self, ino: Ino) -> Result<bool> {
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(ino).await?;
        Metadata::check_mutable(&raw)?;
        Ok(self.is_sync(&raw))
    }

    /// Zeroes the rest of the last page of a file that becomes longer, so that it reads zeroes
    /// behind its old end. The caller is the only writer and has loaded the size.
    pub(crate) async fn fill_end(
        &self,
        node: &Rc<Node>,
        end: u64,
        room: &mut Permit,
    ) -> Result<()> {
        let size = node.size.get().unwrap_or(0);
        let page = low32(size / BLOCK);
        if end <= size || size.is_multiple_of(BLOCK) || node.pages.borrow().contains_key(&page) {
            return Ok(());
        }
        if !self.has_content(node, page).await? {
            return Ok(());
        }
        let bytes = self.page(node, size, page).await?;
        // The last block is mapped or promised already.
        self.promise(node, page..page + 1, 0, room).await?;
        if let Some(held) = node.pages.borrow_mut().get_mut(&page)
            && held.version == 0
        {
            held.bytes = bytes;
            held.version = 1;
        }
        self.note_dirty();
        Ok(())
    }

    /// Whether a page has content on the device: holes and unwritten blocks have none.
    async fn has_content(&self, node: &Node, page: u32) -> Result<bool> {
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(node.ino).await?;
        let mapping = self.map(node.ino, &raw, FileBlock(page)).await?;
        Ok(matches!(mapping, Mapping::Mapped(extent) if extent.written))
    }

    /// Makes a page at the edge of a cut or a hole dirty with `bytes`, so that its zeroes reach the
    /// device too. A clean page without content on the device stays as it is.
    pub(crate) async fn keep_edge(&self, node: &Node, page: u32, bytes: Bytes) -> Result<()> {
        let is_dirty = node.pages.borrow().contains_key(&page);
        if !is_dirty && !self.has_content(node, page).await? {
            return Ok(());
        }
        self.promise(node, page..page + 1, 0, &mut self.room_for_edge()).await?;
        if let Some(held) = node.pages.borrow_mut().get_mut(&page) {
            held.bytes = bytes;
            held.version += 1;
            held.failures = 0;
        }
        self.note_dirty();
        Ok(())
    }

    /// Memory of a page at the edge of a cut or an allocation, taken without waiting: one for each
    /// request under way.
    pub(crate) fn room_for_edge(&self) -> Permit {
        self.memory.hold(Part::Pages, PAGE_COST)
    }

    /// Makes clean pages dirty. A block is reserved for each page without one, so that `kept`
    /// blocks are left, and memory is taken from `room`. Their versions are 0 until they are
    /// written to.
    async fn promise(
        &self,
        node: &Node,
        range: Range<u32>,
        kept: u64,
        room: &mut Permit,
    ) -> Result<()> {
        loop {
            match self.promise_now(node, range.clone(), kept, room).await {
                Err(Error::NoSpace) if self.await_an_end().await => {}
                done => return done,
            }
        }
    }

    async fn promise_now(
        &self,
        node: &Node,
        range: Range<u32>,
        kept: u64,
        room: &mut Permit,
    ) -> Result<()> {
        let mut missing = Vec::new();
        {
            let _tree = self.journal.tree.read().await;
            let raw = self.inode(node.ino).await?;
            Metadata::check_mutable(&raw)?;
            self.check_growth(&raw, u64::from(range.end) * BLOCK)?;
            let mut at = range.start;
            while at < range.end {
                let mapping = self.map(node.ino, &raw, FileBlock(at)).await?;
                let (blocks, mapped) = match mapping {
                    Mapping::Mapped(extent) => (extent.blocks, true),
                    Mapping::Hole(blocks) => (blocks, false),
                };
                let end = at + blocks.min(range.end - at);
                missing.extend((at..end).map(|page| (page, mapped)));
                at = end;
            }
        }
        let mut pages = node.pages.borrow_mut();
        missing.retain(|(page, _)| !pages.contains_key(page));
        let holes = missing.iter().filter(|(_, mapped)| !mapped).count();
        self.space.reserve(holes as u64, kept)?;
        self.backlog.add(missing.len());
        for (page, mapped) in missing {
            let bytes = Bytes::from_static(&[0; BLOCK_BYTES]);
            let held = room.split(if is(Bug::MemoryPagesUncounted) { 0 } else { PAGE_COST });
            let page_of = Page { bytes, reserved: !mapped, version: 0, failures: 0, _held: held };
            pages.insert(page, page_of);
        }
        Ok(())
    }
}

fn index(offset: u64) -> usize {
    manylogs_block::to_usize(offset)
}
