//! A client of a file or block device: direct I/O, one call after another.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use manylogs_block::{SECTOR_BYTES, to_usize};
use manylogs_storage::Shelf;
use rustix::fs::{FallocateFlags, OFlags};

use super::{Operation, Target, Teller, What};

/// Linux's number of O_DSYNC. The constant of rustix is O_SYNC, which promises more.
pub(crate) const O_DSYNC: i32 = 0o10000;

/// The same file opened twice: once for writes that are durable when they return, once for other
/// requests.
#[derive(Debug)]
pub(crate) struct FileClient {
    plain: File,
    durable: File,
    memory: Arc<Shelf>,
}

impl FileClient {
    /// # Errors
    /// If the file cannot be opened for direct I/O.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let with = |flags: i32| {
            let flags = OFlags::DIRECT.bits().cast_signed() | flags;
            File::options().read(true).write(true).custom_flags(flags).open(path)
        };
        let (plain, durable) = (with(0)?, with(O_DSYNC)?);
        Ok(Self { plain, durable, memory: Arc::default() })
    }

    fn one(&self, operation: &Operation, teller: &Teller) -> io::Result<Vec<u8>> {
        let Operation { what, at, len, fua } = *operation;
        match what {
            What::Flush => self.plain.sync_data()?,
            What::Read => {
                let mut buffer = self.memory.buffer(to_usize(len));
                self.plain.read_exact_at(buffer.bytes_mut(), at)?;
                return Ok(buffer.bytes_mut().to_vec());
            }
            What::Write(_) => {
                let mut buffer = self.memory.buffer(to_usize(len));
                buffer.bytes_mut().copy_from_slice(&teller.bytes(operation));
                let file = if fua { &self.durable } else { &self.plain };
                file.write_all_at(buffer.bytes_mut(), at)?;
            }
            What::Zero => self.fallocate(FallocateFlags::ZERO_RANGE, at, len)?,
            What::Trim => self.fallocate(FallocateFlags::PUNCH_HOLE, at, len)?,
        }
        Ok(Vec::new())
    }

    fn fallocate(&self, how: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.plain, how | FallocateFlags::KEEP_SIZE, at, len)?)
    }
}

impl Target for FileClient {
    fn grain(&self) -> u64 {
        SECTOR_BYTES
    }

    fn perform(&mut self, batch: &[Operation], teller: &Teller) -> io::Result<()> {
        for operation in batch {
            // No call makes zeroes durable.
            let fua = operation.fua && matches!(operation.what, What::Write(_));
            let operation = Operation { fua, ..*operation };
            let id = teller.begins(&operation);
            let read = self.one(&operation, teller)?;
            teller.ended(id, &operation, &read);
        }
        Ok(())
    }
}
