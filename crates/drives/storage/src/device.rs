//! Disks, partitions and files as block devices.

use std::cell::Cell;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::{
    Capabilities, Completion, Extent, IoError, IoResult, Payload, Request, SECTOR_BYTES, completion,
};
use manylogs_plant::{self as plant, Bug};
use rustix::io::Errno;

use crate::access::Access;
use crate::buffer::Buffer;
use crate::failure::io_error;
use crate::file_io::{Callback, Done, FileIo, Op, WriteMode};
use crate::gate::Gate;
use crate::spindle::Spindle;
use crate::transfer::has_bytes;
use crate::{partial, range};

/// Kind of file below a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// An ordinary file.
    File,
    /// A disk or a partition.
    Disk {
        /// Whether the disk takes discards, which leave the content undefined.
        discards: bool,
    },
}

/// Resources of a device.
pub(crate) struct Core {
    pub(crate) file: Arc<File>,
    pub(crate) io: Box<dyn FileIo>,
    pub(crate) capabilities: Capabilities,
    pub(crate) medium: Medium,
    pub(crate) writable: bool,
    pub(crate) access: Access,
    /// Whether the disk serves commands with priority first, and we may send such commands.
    pub(crate) priorities: bool,
    /// Keeps apart changes of one logical sector, where that is larger than 512 bytes.
    pub(crate) gate: Rc<Gate>,
    pub(crate) in_flight: Cell<usize>,
    pub(crate) flush_failed: Cell<bool>,
    /// How the disk's spindle is commanded, if it has one of its own.
    pub(crate) spindle: Option<Spindle>,
}

impl Core {
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.io.buffer(len)
    }

    pub(crate) fn recycle(&self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer {
            self.io.recycle(buffer);
        }
    }

    pub(crate) fn start(self: Rc<Self>, op: Op, then: impl FnOnce(Done) + 'static) {
        self.in_flight.set(self.in_flight.get() + 1);
        let this = Rc::clone(&self);
        let counted: Callback = Box::new(move |done| {
            then(done);
            this.in_flight.set(this.in_flight.get() - 1);
        });
        self.io.start(&self.file, op, counted);
    }

    /// Waits until no operation is in flight.
    pub(crate) fn drain(&self) {
        while self.in_flight.get() > 0 {
            self.io.wait();
        }
    }

    /// Translates `errno` into an error, and notes whether later flushes must fail.
    pub(crate) fn failure(&self, errno: Errno, extent: Extent, durable: bool) -> IoError {
        if self.shrank_below(extent) {
            return IoError::Shrunk { extent };
        }
        let error = io_error(errno, extent);
        // A durable write is a write and a flush in one call, and the kernel does not say which of
        // them failed. Past the page cache, a lack of space shows before the flush.
        let flush_is_blameless = match error {
            IoError::NoSpace { .. } => self.access.is_direct(),
            IoError::Medium { .. } | IoError::Transient { .. } | IoError::Gone => false,
            _ => true,
        };
        if durable && !flush_is_blameless && !plant::is(Bug::DurableWriteFailureForgotten) {
            self.flush_failed.set(true);
        }
        error
    }

    /// Whether the device now ends before the end of `extent`. A disk answers a write behind its
    /// end with "no space"; a file grows.
    fn shrank_below(&self, extent: Extent) -> bool {
        self.size().is_some_and(|size| size < extent.end().0 * SECTOR_BYTES)
    }

    /// The present size in bytes.
    fn size(&self) -> Option<u64> {
        match self.medium {
            Medium::File => self.file.metadata().ok().map(|metadata| metadata.len()),
            // No other call uses the position that this sets.
            Medium::Disk { .. } => rustix::fs::seek(&*self.file, rustix::fs::SeekFrom::End(0)).ok(),
        }
    }

    pub(crate) fn flush(self: Rc<Self>, then: impl FnOnce(IoResult) + 'static) {
        if self.flush_failed.get() {
            return then(Err(IoError::FlushFailed));
        }
        let this = Rc::clone(&self);
        self.start(Op::Sync, move |done| then(this.flushed(&done)));
    }

    fn flushed(&self, done: &Done) -> IoResult {
        if done.result.is_err() {
            if plant::is(Bug::StorageFlushFailureForgotten) {
                return Err(IoError::FlushFailed);
            }
            self.flush_failed.set(!plant::is(Bug::FlushFailureIgnored));
        }
        // The kernel reports a failure once: another flush may have got the report for data of this
        // one.
        if self.flush_failed.get() {
            return Err(IoError::FlushFailed);
        }
        let whole = Extent { len: self.capabilities.capacity, ..Extent::default() };
        if self.shrank_below(whole) {
            return Err(IoError::Shrunk { extent: whole });
        }
        Ok(Payload::default())
    }

    pub(crate) fn submit(self: &Rc<Self>, request: Request) -> Completion {
        self.carry_out(request, false)
    }

    /// As `submit`; a write is sent with priority, if the disk supports that.
    pub(crate) fn submit_urgent(self: &Rc<Self>, request: Request) -> Completion {
        self.carry_out(request, self.priorities)
    }

    fn carry_out(self: &Rc<Self>, request: Request, urgent: bool) -> Completion {
        if let Err(error) = self.refuse(&request) {
            return Completion::ready(Err(error));
        }
        let (completer, completion) = completion();
        let core = Rc::clone(self);
        let then = |result| completer.complete(result);
        match request {
            Request::Read { extent } => partial::read(core, extent, then),
            Request::Write { extent, payload, fua, .. } => {
                let mode = WriteMode { durable: fua, urgent };
                partial::write(core, extent, payload, mode, then);
            }
            Request::Flush => core.flush(then),
            Request::Discard { extent, fua } => range::discard(core, extent, fua, then),
            Request::WriteZeroes { extent, fua, if_fast: true } => {
                range::zero_fast(core, extent, fua, then);
            }
            Request::WriteZeroes { extent, fua, .. } => range::zero(core, extent, fua, then),
        }
        completion
    }

    fn refuse(&self, request: &Request) -> Result<(), IoError> {
        self.capabilities.check(request)?;
        match request {
            Request::Read { .. } | Request::Flush => Ok(()),
            _ if !self.writable => Err(IoError::ReadOnly { reason: "it was opened for reading" }),
            Request::Write { payload, .. } if !has_bytes(payload) => Err(IoError::Unsupported),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
