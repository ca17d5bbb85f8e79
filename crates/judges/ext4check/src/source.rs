//! Where the blocks to be checked are read from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::units::{BLOCK_BYTES, BlockNo};

/// A block of the device.
pub type Block = [u8; BLOCK_BYTES];

/// A device or an image. It must not change while it is checked.
pub trait Source {
    /// Number of whole blocks.
    fn blocks(&self) -> u64;

    /// Reads an existing block.
    ///
    /// # Errors
    /// Those of the device.
    fn read(&self, block: BlockNo, into: &mut Block) -> io::Result<()>;
}

/// A file or a disk.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    blocks: u64,
}

impl FileSource {
    /// Reads from `file`. Its length is found by seeking, which also works for disks.
    ///
    /// # Errors
    /// Those of the file.
    pub fn new(mut file: File) -> io::Result<Self> {
        let bytes = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(Self { file, blocks: bytes / BLOCK_BYTES as u64 })
    }
}

impl Source for FileSource {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, block: BlockNo, into: &mut Block) -> io::Result<()> {
        self.file.read_exact_at(into, block.0 * BLOCK_BYTES as u64)
    }
}
