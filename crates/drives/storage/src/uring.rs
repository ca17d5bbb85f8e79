//! The kernel's two kinds of io_uring: with entries of 64 bytes, and of 128 for commands of
//! drivers.

#![expect(unsafe_code, reason = "the kernel is given pointers")]

use std::io;

use io_uring::cqueue::CompletionQueue;
use io_uring::squeue::{self, Entry, Entry128};
use io_uring::{Builder, IoUring, Parameters, Submitter};

const ENTRIES: u32 = 256;

/// An io_uring. Kernels that take commands of drivers have entries that are wide enough for them.
pub(crate) enum Uring {
    Wide(IoUring<Entry128>),
    Plain(IoUring),
}

/// The queue is full.
pub(crate) struct Full;

impl Uring {
    /// A ring whose completions wait until its thread asks for them, which is always soon.
    /// Otherwise each completion would interrupt the thread. Kernels before 6.1 have no such ring;
    /// theirs takes no commands.
    pub(crate) fn new() -> io::Result<Self> {
        let mut wide = IoUring::<Entry128>::builder();
        quiet(&mut wide);
        if let Ok(ring) = wide.build(ENTRIES) {
            return Ok(Self::Wide(ring));
        }
        let mut plain = IoUring::builder();
        quiet(&mut plain);
        plain.build(ENTRIES).or_else(|_| IoUring::new(ENTRIES)).map(Self::Plain)
    }

    /// Whether [`Uring::push_wide`] works.
    pub(crate) const fn is_wide(&self) -> bool {
        matches!(self, Self::Wide(_))
    }

    pub(crate) fn params(&self) -> &Parameters {
        match self {
            Self::Wide(ring) => ring.params(),
            Self::Plain(ring) => ring.params(),
        }
    }

    pub(crate) fn submitter(&self) -> Submitter<'_> {
        match self {
            Self::Wide(ring) => ring.submitter(),
            Self::Plain(ring) => ring.submitter(),
        }
    }

    pub(crate) fn completion(&mut self) -> CompletionQueue<'_> {
        match self {
            Self::Wide(ring) => ring.completion(),
            Self::Plain(ring) => ring.completion(),
        }
    }

    /// Whether the queue holds no entry, and whether the kernel holds completions back.
    pub(crate) fn state(&mut self) -> (bool, bool) {
        fn of<E: squeue::EntryMarker>(queue: &squeue::SubmissionQueue<'_, E>) -> (bool, bool) {
            (queue.is_empty(), queue.taskrun())
        }
        match self {
            Self::Wide(ring) => of(&ring.submission()),
            Self::Plain(ring) => of(&ring.submission()),
        }
    }

    /// Queues an entry.
    ///
    /// # Safety
    /// Its memory and descriptor must last until it is complete.
    pub(crate) unsafe fn push(&mut self, entry: &Entry) -> Result<(), Full> {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                Self::Wide(ring) => ring.submission().push(&Entry128::from(entry.clone())),
                Self::Plain(ring) => ring.submission().push(entry),
            }
        }
        .map_err(|_| Full)
    }

    /// Queues a command of a driver. A ring without wide entries is always full.
    ///
    /// # Safety
    /// As for [`Uring::push`].
    pub(crate) unsafe fn push_wide(&mut self, entry: &Entry128) -> Result<(), Full> {
        match self {
            // SAFETY: as the caller promises.
            Self::Wide(ring) => unsafe { ring.submission().push(entry) }.map_err(|_| Full),
            Self::Plain(_) => Err(Full),
        }
    }
}

fn quiet<E: squeue::EntryMarker>(builder: &mut Builder<E>) {
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
}
