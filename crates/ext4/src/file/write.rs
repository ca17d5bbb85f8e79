//! Writing into memory: blocks are promised now and chosen when the data goes to the device.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::extents::Mapping;
use crate::file::writeback::Times;
use crate::inode::{Node, Page};
use crate::ondisk::bytes::low32;
use crate::units::{BLOCK, BLOCK_BYTES, FileBlock, Ino};

/// Bytes that a file has at most: its last block has a number.
pub const SIZE_MOST: u64 = FileBlock::MAX * BLOCK;
/// Dirty pages of all files; whoever writes more waits until there are fewer: 64 MiB.
const DIRTY_MOST: usize = 16_384;

impl Core {
    /// Writes into memory. What is written is durable after [`Core::sync_file`].
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are no blocks for it; nothing of it is written then.
    pub(crate) async fn write_file(&self, ino: Ino, offset: u64, data: Bytes) -> Result<()> {
        self.check_writable()?;
        self.journal.check()?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= SIZE_MOST);
        let end = end.ok_or(Error::TooLarge)?;
        if data.is_empty() {
            return Ok(());
        }
        let node = self.node(ino);
        self.wait_for_room(&node).await?;
        let _alone = node.writers.take().await;
        let _content = node.content.read().await;
        let size = self.file(&node).await?;
        self.check_content_mutable(ino).await?;
        self.fill_end(&node, end).await?;
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
        self.promise(&node, first..last + 1).await?;
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
            if part.len() == BLOCK_BYTES {
                held.bytes = Bytes::copy_from_slice(part);
                continue;
            }
            let bytes = std::mem::take(&mut held.bytes);
            let mut own = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            own[index(from - start)..index(to - start)].copy_from_slice(part);
            held.bytes = own.freeze();
        }
        drop(pages);
        if end > size {
            node.set_new_size(end);
        }
        node.written_at.set(Some(self.now()));
        self.note_dirty();
        Ok(())
    }

    /// Waits until memory has room for more. Somebody else writes back meanwhile, so that the
    /// device never waits for the next page; where that fails, the caller hears why.
    async fn wait_for_room(&self, node: &Rc<Node>) -> Result<()> {
        while self.dirty_pages.get() > DIRTY_MOST {
            if !self.writes_back.get() {
                self.write_back(node, Times::Written).await?;
                return self.write_back_all().await;
            }
            let cleaned = self.cleaned.wait();
            self.journal.note_work();
            cleaned.await;
        }
        Ok(())
    }

    /// Whether a file may be written. Who opened it before it became append-only writes anywhere.
    async fn check_content_mutable(&self, ino: Ino) -> Result<()> {
        let _tree = self.journal.tree.read().await;
        Self::check_mutable(&self.inode(ino).await?)
    }

    /// A file that becomes longer reads zeroes behind its old end, whatever its last block holds.
    /// The caller is the only writer and has loaded the size.
    pub(crate) async fn fill_end(&self, node: &Rc<Node>, end: u64) -> Result<()> {
        let size = node.size.get().unwrap_or(0);
        let page = low32(size / BLOCK);
        if end <= size || size.is_multiple_of(BLOCK) || node.pages.borrow().contains_key(&page) {
            return Ok(());
        }
        if !self.has_content(node, page).await? {
            return Ok(());
        }
        let bytes = self.page(node, size, page).await?;
        self.promise(node, page..page + 1).await?;
        if let Some(held) = node.pages.borrow_mut().get_mut(&page)
            && held.version == 0
        {
            held.bytes = bytes;
            held.version = 1;
        }
        self.note_dirty();
        Ok(())
    }

    /// Whether the device has something for a page: holes and unwritten blocks read as zeroes.
    async fn has_content(&self, node: &Node, page: u32) -> Result<bool> {
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(node.ino).await?;
        let mapping = self.map(node.ino, &raw, FileBlock(page)).await?;
        Ok(matches!(mapping, Mapping::Mapped(extent) if extent.written))
    }

    /// The last page of a file that was cut gets zeroes behind the end, on the device too.
    pub(crate) async fn keep_edge(&self, node: &Node, page: u32, bytes: Bytes) -> Result<()> {
        let is_dirty = node.pages.borrow().contains_key(&page);
        if !is_dirty && !self.has_content(node, page).await? {
            return Ok(());
        }
        self.promise(node, page..page + 1).await?;
        if let Some(held) = node.pages.borrow_mut().get_mut(&page) {
            held.bytes = bytes;
            held.version += 1;
        }
        self.note_dirty();
        Ok(())
    }

    /// Makes pages dirty that are not, with a block reserved for each that has none. Their
    /// versions are 0 until they are written to.
    async fn promise(&self, node: &Node, range: std::ops::Range<u32>) -> Result<()> {
        loop {
            match self.promise_now(node, range.clone()).await {
                Err(Error::NoSpace) if self.await_an_end().await => {}
                done => return done,
            }
        }
    }

    async fn promise_now(&self, node: &Node, range: std::ops::Range<u32>) -> Result<()> {
        let mut missing = Vec::new();
        {
            let _tree = self.journal.tree.read().await;
            let raw = self.inode(node.ino).await?;
            Self::check_mutable(&raw)?;
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
        self.space.reserve(holes as u64)?;
        self.dirty_pages.set(self.dirty_pages.get() + missing.len());
        for (page, mapped) in missing {
            let bytes = Bytes::from_static(&[0; BLOCK_BYTES]);
            pages.insert(page, Page { bytes, reserved: !mapped, version: 0 });
        }
        Ok(())
    }
}

fn index(offset: u64) -> usize {
    manylogs_block::to_usize(offset)
}
