//! Sending answers and notifications to the kernel.

use std::io::IoSlice;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use manylogs_plant::{Bug, is};
use manylogs_storage::RingAnswer;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, writev};
use zerocopy::IntoBytes;

use crate::answer::{Answer, Entry};
use crate::request::{RequestId, Room};
use crate::values::NodeId;
use crate::wire::{EntryOut, GetxattrOut, InvalidateEntry, InvalidateInode, OutHeader, Prune};

/// The request number of a notification.
const NO_REQUEST: RequestId = RequestId(0);
/// `FUSE_NOTIFY_INVAL_INODE`.
const INVALIDATE_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
const INVALIDATE_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_PRUNE`.
const PRUNE: i32 = 9;

/// Sends the answer to one request: an `A` if all goes well. It works from any thread. If it is
/// dropped the caller gets `EIO`, so that nobody waits for ever.
#[derive(Debug)]
pub struct Reply<A: Answer + ?Sized> {
    pending: Option<Pending>,
    answer: PhantomData<fn(&A)>,
}

/// Has the kernel drop what it caches, for as long as the session lasts.
#[derive(Clone, Debug)]
pub struct Notifier(pub(crate) Weak<OwnedFd>);

impl Notifier {
    fn device(&self) -> Result<Arc<OwnedFd>, Errno> {
        self.0.upgrade().ok_or(Errno::NODEV)
    }

    /// The kernel forgets the attributes of an inode. The call may wait for an inode that the
    /// kernel is just evicting.
    ///
    /// # Errors
    /// [`Errno::NOENT`] if the kernel does not know the inode, others at the session's end.
    pub fn forget_attributes(&self, node: NodeId) -> Result<(), Errno> {
        invalidate(&*self.device()?, node, -1)
    }

    /// The kernel forgets the attributes of an inode, and its content or list of names. The call
    /// waits for any thread that has a page of the inode locked; such a thread may wait for an
    /// answer.
    ///
    /// # Errors
    /// As [`Notifier::forget_attributes`].
    pub fn forget_content(&self, node: NodeId) -> Result<(), Errno> {
        invalidate(&*self.device()?, node, 0)
    }

    /// The kernel forgets what a name stands for, or that it is missing. The call takes the lock of
    /// the directory: a thread that holds the lock may wait for an answer.
    ///
    /// # Errors
    /// [`Errno::NOENT`] if the kernel has no such name cached, others at the session's end.
    pub fn forget_name(&self, dir: NodeId, name: &[u8]) -> Result<(), Errno> {
        let namelen = u32::try_from(name.len()).map_err(|_| Errno::INVAL)?;
        let what = InvalidateEntry { parent: dir.0, namelen, flags: 0 };
        let name = [name, &[0]].concat();
        write(&*self.device()?, NO_REQUEST, INVALIDATE_ENTRY, [what.as_bytes(), &name])
    }

    /// The kernel forgets those of the inodes that nobody uses, and sends the usual requests to
    /// forget them. The call takes locks of the kernel: the thread that answers requests must not
    /// make it.
    ///
    /// # Errors
    /// [`Errno::INVAL`] from kernels that cannot (before Linux 6.18), others at the session's end.
    pub fn prune(&self, nodes: &[NodeId]) -> Result<(), Errno> {
        let device = self.device()?;
        let count = u32::try_from(nodes.len()).map_err(|_| Errno::INVAL)?;
        let numbers: Vec<u64> = nodes.iter().map(|node| node.0).collect();
        let what = Prune { count, ..Prune::default() };
        write(&device, NO_REQUEST, PRUNE, [what.as_bytes(), numbers.as_bytes()])
    }
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) id: RequestId,
    /// The answer's place, if the request came through the ring.
    pub(crate) ring: Option<RingAnswer>,
}

impl<A: Answer + ?Sized> Reply<A> {
    /// The reply to a request.
    pub(crate) const fn new(pending: Pending) -> Self {
        Self { pending: Some(pending), answer: PhantomData }
    }

    /// Sends the answer of a request that succeeded.
    pub fn send(mut self, answer: &A) {
        if let Some(pending) = self.pending.take() {
            answer.with_parts(|parts| pending.send(parts));
        }
    }

    /// The kernel forgets the attributes of an inode that it knows: the request changes some, and
    /// its answer cannot carry them.
    pub fn forget_attributes(&self, node: NodeId) {
        if let Some(pending) = &self.pending {
            // On failure the kernel does not know the inode any more, or the mount is gone.
            let _ = invalidate(&pending.device, node, -1);
        }
    }

    /// Answers that the request failed.
    pub fn error(mut self, errno: Errno) {
        if let Some(pending) = self.pending.take() {
            pending.fail(errno);
        }
    }

    /// Sends the answer, or the error.
    pub fn send_result(self, result: Result<&A, Errno>) {
        match result {
            Ok(answer) => self.send(answer),
            Err(errno) => self.error(errno),
        }
    }
}

impl Reply<Entry> {
    /// Answers that there is no such name; the kernel may keep that for `valid`.
    pub fn missing(mut self, valid: Duration) {
        if let Some(pending) = self.pending.take() {
            let (entry_valid, entry_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
            let none = EntryOut { entry_valid, entry_valid_nsec, ..EntryOut::default() };
            pending.send([none.as_bytes(), &[]]);
        }
    }
}

/// The kernel forgets attributes, and pages from byte `off` on unless that is negative.
fn invalidate(device: &OwnedFd, node: NodeId, off: i64) -> Result<(), Errno> {
    let what = InvalidateInode { ino: node.0, off, len: 0 };
    write(device, NO_REQUEST, INVALIDATE_INODE, [what.as_bytes(), &[]])
}

impl<A: Answer + ?Sized> Drop for Reply<A> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.fail(Errno::IO);
        }
    }
}

impl Room {
    /// Answers with an attribute's value, or with the names of attributes, each followed by a zero.
    /// If the caller's room is 0 the answer is their length; if the room is too small it is
    /// `ERANGE`.
    pub fn answer(self, reply: Reply<[u8]>, value: &[u8]) {
        match u32::try_from(value.len()) {
            Ok(size) if self.0 == 0 => reply.send(GetxattrOut { size, padding: 0 }.as_bytes()),
            Ok(len) if len <= self.0 => reply.send(value),
            _ => reply.error(Errno::RANGE),
        }
    }
}

impl Pending {
    /// Request `id`, which came from `device`.
    pub(crate) const fn from_device(device: Arc<OwnedFd>, id: RequestId) -> Self {
        Self { device, id, ring: None }
    }

    fn send(mut self, parts: [&[u8]; 2]) {
        if let Some(ring) = self.ring.take() {
            let len = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
            let id = RequestId(self.id.0 ^ u64::from(is(Bug::RingAnswerOfAnother)) << 1);
            // An answer that is too long comes back, and is `EIO` when it is dropped.
            return drop(ring.send(&header(len, id, 0), parts));
        }
        // The kernel may refuse an answer (one that is too long, say): the caller must not wait for
        // ever then. Other errors mean that nobody waits: the caller or the mount is gone.
        if let Err(Errno::INVAL) = write(&self.device, self.id, 0, parts) {
            self.fail(Errno::IO);
        }
    }

    fn fail(mut self, errno: Errno) {
        let error = -errno.raw_os_error();
        match self.ring.take() {
            // What is empty fits.
            Some(ring) => {
                drop(ring.send(&header(size_of::<OutHeader>(), self.id, error), [&[], &[]]));
            }
            None => drop(write(&self.device, self.id, error, [&[], &[]])),
        }
    }
}

/// The header of an answer of `len` bytes.
fn header(len: usize, id: RequestId, error: i32) -> [u8; size_of::<OutHeader>()] {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    zerocopy::transmute!(OutHeader { len, error, unique: id.0 })
}

/// Sends a message. In an answer `error` is 0 or a negative error number, in a notification its
/// kind.
fn write(
    device: &OwnedFd,
    id: RequestId,
    error: i32,
    [first, second]: [&[u8]; 2],
) -> Result<(), Errno> {
    let len = size_of::<OutHeader>() + first.len() + second.len();
    let len = u32::try_from(len).map_err(|_| Errno::INVAL)?;
    let header = OutHeader { len, error, unique: id.0 };
    let parts = [header.as_bytes(), first, second].map(IoSlice::new);
    // One call is one message, of which the kernel takes all or nothing.
    loop {
        match writev(device, &parts) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}
