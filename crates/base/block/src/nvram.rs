//! Memory that keeps its content without power.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use crate::IoError;

/// Non-volatile memory: synchronous, and addressed by bytes.
///
/// A store can be read back at once, and survives the end of the process. But before
/// [`Nvram::persist`] a power cut may take any of its aligned 8-byte words and leave the others.
pub trait Nvram: fmt::Debug {
    /// Size in bytes. Constant while it is open.
    fn size(&self) -> usize;

    /// Fills `out` with the bytes from `at` on.
    fn read(&self, at: usize, out: &mut [u8]);

    /// Replaces the bytes from `at` on.
    fn store(&self, at: usize, bytes: &[u8]);

    /// Makes durable what was stored in `range`.
    ///
    /// # Errors
    /// If the medium behind the memory fails. Stores since the last success may be durable or not.
    fn persist(&self, range: Range<usize>) -> Result<(), IoError>;
}

/// Ordinary memory in the place of non-volatile memory, for replays and tests.
pub struct MemoryNvram(RefCell<Vec<u8>>);

impl MemoryNvram {
    /// `size` bytes of zeroes.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self(RefCell::new(vec![0; size]))
    }
}

impl Nvram for MemoryNvram {
    fn size(&self) -> usize {
        self.0.borrow().len()
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[at..at + out.len()]);
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn persist(&self, _range: Range<usize>) -> Result<(), IoError> {
        Ok(())
    }
}

impl fmt::Debug for MemoryNvram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryNvram({} bytes)", self.size())
    }
}
