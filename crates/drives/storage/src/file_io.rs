//! Operations on a file, and the trait that carries them out.

use std::fs::File;
use std::sync::Arc;

use manylogs_plant::{self as plant, Bug};
use rustix::io::Errno;

use crate::buffer::{Buffer, Source};

/// How a write is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteMode {
    /// Whether the data must be durable when the write ends.
    pub(crate) durable: bool,
    /// Whether the write goes before those that the disk has not begun, if the disk has priorities.
    /// Only the ring passes this on.
    pub(crate) urgent: bool,
}

/// One operation on a file. Its buffer belongs to the ring or thread that carries it out, until the
/// end.
pub(crate) enum Op {
    Read {
        at: u64,
        into: Buffer,
    },
    Write {
        at: u64,
        from: Source,
        mode: WriteMode,
    },
    Sync,
    /// A call that may block and has no form of its own.
    Call(Call),
}

impl Op {
    /// The operation as it is carried out with one of these bugs planted.
    pub(crate) fn planted(self, ignores_fua: Bug, skips_sync: Bug) -> Self {
        match self {
            Self::Write { at, from, mode } if plant::is(ignores_fua) => {
                Self::Write { at, from, mode: WriteMode { durable: false, ..mode } }
            }
            Self::Sync if plant::is(skips_sync) => Self::Call(Box::new(|_| Ok(()))),
            op => op,
        }
    }
}

pub(crate) type Call = Box<dyn FnOnce(&File) -> Result<(), Errno> + Send>;

/// The result of an operation.
pub(crate) struct Done {
    /// Bytes moved, which may be fewer than asked for.
    pub(crate) result: Result<usize, Errno>,
    pub(crate) buffer: Option<Buffer>,
}

/// Called with the result of an operation, on the reactor's thread.
pub(crate) type Callback = Box<dyn FnOnce(Done)>;

/// Carries out operations without blocking. A trait, so that a test can make them fail.
pub(crate) trait FileIo {
    /// A buffer for `len` bytes with arbitrary content.
    fn buffer(&self, len: usize) -> Buffer;
    /// Takes a buffer back.
    fn recycle(&self, buffer: Buffer);
    /// Starts `op`; `then` is never called before this returns.
    fn start(&self, file: &Arc<File>, op: Op, then: Callback);
    /// Blocks until an operation has ended or another event woke the thread, and calls back.
    fn wait(&self);
}
