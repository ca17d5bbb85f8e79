//! Operations on a file, and the trait that carries them out.

use std::fs::File;
use std::sync::Arc;

use manylogs_plant::{self as plant, Bug};
use rustix::io::Errno;

use crate::buffer::{Buffer, Source};

/// How something is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteMode {
    /// Durable when it has ended.
    pub(crate) durable: bool,
    /// Before what the disk has not begun, where it has priorities. The ring tells the disk so.
    pub(crate) urgent: bool,
}

/// One operation on a file. Its buffer belongs to whoever carries it out, until the end.
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
    /// Something that may block and has no form of its own.
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

/// The end of an operation.
pub(crate) struct Done {
    /// Bytes moved, which may be fewer than asked for.
    pub(crate) result: Result<usize, Errno>,
    pub(crate) buffer: Option<Buffer>,
}

/// Called with the end of an operation, on the reactor's thread.
pub(crate) type Callback = Box<dyn FnOnce(Done)>;

/// Carries out operations without blocking. A trait so that a test can let them fail.
pub(crate) trait FileIo {
    /// A buffer for `len` bytes; its content is whatever it last was.
    fn buffer(&self, len: usize) -> Buffer;
    /// Takes a buffer back.
    fn recycle(&self, buffer: Buffer);
    /// Starts `op`; `then` is never called before this returns.
    fn start(&self, file: &Arc<File>, op: Op, then: Callback);
    /// Blocks until an operation has ended or something else woke the thread, and calls back.
    fn wait(&self);
}
