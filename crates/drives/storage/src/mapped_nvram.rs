//! A mapped file in place of non-volatile RAM. On a DAX file system it is such memory; elsewhere it
//! is only as fast as the disk.

#![expect(unsafe_code, reason = "a mapping is memory that others could change")]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use manylogs_block::{IoError, Nvram};
use manylogs_plant::{self as plant, Bug};
use memmap2::MmapMut;
use rustix::fs::{FlockOperation, flock};

use crate::image::sync_parent;

/// Page size in which a mapping is written back.
const PAGE: usize = 4096;

/// See the module. Locked against a second user while it is open. Once persisting has failed,
/// nothing counts as persisted any more.
pub struct MappedNvram {
    map: RefCell<MmapMut>,
    /// Set for good by a failure: the kernel reports one once, and may forget the data it could not
    /// write.
    persist_failed: Cell<bool>,
    /// Holds the lock.
    _file: File,
}

impl MappedNvram {
    /// Creates the file, or empties an existing one, and gives it `size` bytes.
    ///
    /// # Errors
    /// If the file cannot be created, sized, locked or mapped.
    pub fn create(path: &Path, size: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        lock(&file)?;
        // Reserves all space now: a store to a page without space would end the process.
        rustix::fs::ftruncate(&file, 0)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size as u64)?;
        file.sync_all()?;
        sync_parent(path)?;
        Self::map(file)
    }

    /// Maps an existing file.
    ///
    /// # Errors
    /// If the file does not exist, or cannot be locked or mapped.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        lock(&file)?;
        Self::map(file)
    }

    fn map(file: File) -> io::Result<Self> {
        // SAFETY: the lock keeps our other programs away from the file. Changes by anybody else are
        // damage like a disk's, which checksums detect; the bytes are only ever copied.
        let map = unsafe { MmapMut::map_mut(&file) }?;
        Ok(Self { map: RefCell::new(map), persist_failed: Cell::default(), _file: file })
    }
}

fn lock(file: &File) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another process has it open"))
}

impl Nvram for MappedNvram {
    fn size(&self) -> usize {
        self.map.borrow().len()
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.map.borrow()[at..at + out.len()]);
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        self.map.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn persist(&self, range: Range<usize>) -> Result<(), IoError> {
        if plant::is(Bug::PersistSkipsSync) {
            return Ok(());
        }
        let start = range.start / PAGE * PAGE;
        let flushed = self.map.borrow().flush_range(start, range.end - start);
        if flushed.is_err() {
            self.persist_failed.set(true);
        }
        let forgotten = flushed.is_ok() && plant::is(Bug::PersistFailureForgotten);
        if self.persist_failed.get() && !forgotten { Err(IoError::FlushFailed) } else { Ok(()) }
    }
}

impl fmt::Debug for MappedNvram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedNvram({} bytes)", self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_there_when_it_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let nvram = MappedNvram::create(&path, 10_000).unwrap();
        nvram.store(5000, b"kept");
        nvram.persist(5000..5004).unwrap();
        assert_eq!(MappedNvram::open(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(nvram);
        let again = MappedNvram::open(&path).unwrap();
        let mut found = [0; 4];
        again.read(5000, &mut found);
        assert_eq!((again.size(), &found), (10_000, b"kept"));
    }
}
