//! Reading files.

use bytes::{Bytes, BytesMut};
use manylogs_block::{Completion, Request};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::extents::Mapping;
use crate::inode::Node;
use crate::ondisk::bytes::low32;
use crate::ondisk::inode::FileKind;
use crate::units::{BLOCK, BLOCK_BYTES, FileBlock, Ino, Run};

/// A part of a file, and its content on the device.
enum Part {
    Zeroes(u32),
    OnDevice { blocks: u32, read: Completion, newer: Vec<(u32, Bytes)> },
}

impl Core {
    /// The file's bytes from `offset` on: `len`, or fewer at the end of the file.
    pub(crate) async fn read_file(&self, ino: Ino, offset: u64, len: usize) -> Result<Bytes> {
        let node = self.node(ino);
        let _content = node.content.read().await;
        let size = self.file(&node).await?;
        let end = offset.saturating_add(len as u64).min(size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        // Dirty pages are taken now: a page may be clean, at a place that was not read, by the time
        // that the device has answered.
        let held: Vec<_> = {
            let pages = node.pages.borrow();
            let held = pages.range(low32(first)..low32(last));
            held.map(|(page, held)| (*page, held.bytes.clone())).collect()
        };
        let mut bytes = self.blocks_of(ino, low32(first)..low32(last)).await?;
        for (page, held) in held {
            let at = manylogs_block::to_usize((u64::from(page) - first) * BLOCK);
            bytes[at..at + BLOCK_BYTES].copy_from_slice(&held);
        }
        let skip = manylogs_block::to_usize(offset - first * BLOCK);
        let take = manylogs_block::to_usize(end - offset);
        Ok(bytes.freeze().slice(skip..skip + take))
    }

    /// The size of a regular file; the node remembers it.
    pub(crate) async fn file(&self, node: &Node) -> Result<u64> {
        let _tree = self.journal.tree.read().await;
        let raw = self.inode(node.ino).await?;
        match raw.kind() {
            Some(FileKind::File) => Ok(node.load_size(&raw)),
            Some(FileKind::Directory) => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// The content of a file's blocks without dirty pages. The caller makes sure that no block is
    /// taken away meanwhile.
    pub(super) async fn blocks_of(
        &self,
        ino: Ino,
        blocks: std::ops::Range<u32>,
    ) -> Result<BytesMut> {
        let mut parts = Vec::new();
        let mut at = blocks.start;
        {
            let _tree = self.journal.tree.read().await;
            let raw = self.inode(ino).await?;
            while at < blocks.end {
                let left = blocks.end - at;
                let part = match self.map(ino, &raw, FileBlock(at)).await? {
                    Mapping::Mapped(extent) if extent.written => {
                        let run = Run { start: extent.block, blocks: extent.blocks.min(left) };
                        let newer = self.newer_than_device(run);
                        let read = self.device.submit(Request::Read { extent: run.sectors() });
                        Part::OnDevice { blocks: run.blocks, read, newer }
                    }
                    Mapping::Mapped(extent) => Part::Zeroes(extent.blocks.min(left)),
                    Mapping::Hole(hole) => Part::Zeroes(hole.min(left)),
                };
                at += match &part {
                    Part::Zeroes(blocks) | Part::OnDevice { blocks, .. } => *blocks,
                };
                parts.push(part);
            }
        }
        let mut bytes = BytesMut::with_capacity((blocks.end - blocks.start) as usize * BLOCK_BYTES);
        for part in parts {
            match part {
                Part::Zeroes(blocks) => {
                    bytes.resize(bytes.len() + blocks as usize * BLOCK_BYTES, 0);
                }
                Part::OnDevice { read, newer, .. } => {
                    let start = bytes.len();
                    let content = read.await?.to_bytes();
                    let content = content.ok_or(manylogs_block::IoError::Unsupported)?;
                    bytes.extend_from_slice(&content);
                    for (number, block) in newer {
                        let at = start + number as usize * BLOCK_BYTES;
                        bytes[at..at + BLOCK_BYTES].copy_from_slice(&block);
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// One page as programs see it, with zeroes behind the file's end at `size`.
    pub(crate) async fn page(&self, node: &Node, size: u64, page: u32) -> Result<Bytes> {
        let held = node.pages.borrow().get(&page).map(|held| held.bytes.clone());
        let mut bytes = match held {
            Some(held) => BytesMut::from(&held[..]),
            None => self.blocks_of(node.ino, page..page + 1).await?,
        };
        let within = size.saturating_sub(u64::from(page) * BLOCK).min(BLOCK);
        bytes[manylogs_block::to_usize(within)..].fill(0);
        Ok(bytes.freeze())
    }
}
