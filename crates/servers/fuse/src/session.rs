//! Serving a mounted file system until it is unmounted.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use manylogs_storage::{RingAnswer, Watcher};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, IoSlice, read, writev};
use zerocopy::IntoBytes;

use crate::decode::{DecodeError, Dialect};
use crate::dispatch::{Next, dispatch};
use crate::filesystem::Filesystem;
use crate::mount::Mount;
use crate::negotiate::{Agreed, Answered, Wanted, negotiate};
use crate::polled::PolledSession;
use crate::reply::{Notifier, Pending, Reply};
use crate::request::{Operation, Request, RequestId};
use crate::tally::Tally;
use crate::values::InitFlags;
use crate::wire::{InitOut, OutHeader};

/// Least bytes that the kernel wants to be read at once.
const READ_LEAST: usize = 8192;
/// Room for the headers before the data of a write, and for the names of other requests.
const BEFORE_DATA: usize = 4096;

/// Where requests come from and answers go.
#[derive(Debug)]
pub(crate) struct Channel {
    device: Arc<OwnedFd>,
    pub(crate) agreed: Agreed,
    pub(crate) tally: Tally,
    buffer: Vec<u8>,
}

/// A mounted file system that waits to be served; see [`crate::Superblock::attach`].
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    mount: Arc<Mount>,
}

/// Keeps a file system mounted. When it and the session are dropped the file system is unmounted,
/// lazily. Unmounting may wait for the connection to end, and a connection with a ring ends with
/// its reactor: so the guard must be dropped after the reactor.
#[derive(Debug)]
pub struct MountGuard(#[expect(dead_code, reason = "it is dropped")] Arc<Mount>);

/// The end of a session. Until it is dropped the kernel may wait: unmounting a file system on a
/// disk returns only then. With a ring it returns when the reactor is dropped as well.
#[derive(Debug)]
pub struct Ended(pub(crate) Option<Reply<()>>);

/// What [`PolledSession::serve_next`] found.
#[derive(Debug)]
pub enum Turn {
    /// A request, which was handed to the file system.
    Request {
        /// The thread that sent it, by its number in the mount's namespace; 0 if the kernel sent it
        /// for no thread, or the thread is of another namespace.
        thread: u32,
    },
    /// No request: the session is readable when there is one.
    Nothing,
    /// The file system is unmounted.
    Ended(Ended),
}

/// A session that is served by a thread of its own.
#[derive(Debug)]
pub struct BackgroundSession {
    mount: Arc<Mount>,
    thread: JoinHandle<io::Result<()>>,
}

impl Channel {
    /// Waits for the kernel's first request (`INIT`) on `device` and answers it.
    pub(crate) fn open(device: OwnedFd, wanted: &Wanted) -> io::Result<Self> {
        let max_write = usize::try_from(wanted.max_write).map_err(io::Error::other)?;
        let bytes = (max_write + BEFORE_DATA).max(READ_LEAST);
        let mut buffer = vec![0; bytes];
        let device = Arc::new(device);
        loop {
            let Received::Request(len) = receive(&device, &mut buffer)? else {
                return Err(Errno::NODEV.into());
            };
            let request = Request::decode(&buffer[..len], Dialect::default());
            let request = request.map_err(io::Error::other)?;
            let Operation::Init(init) = request.operation else {
                return Err(io::Error::other("the kernel did not introduce itself"));
            };
            match negotiate(&init, wanted) {
                Ok(Answered::Again(out)) => introduce(&device, request.id, &out)?,
                Ok(Answered::Agreed(out, agreed)) => {
                    introduce(&device, request.id, &out)?;
                    return Ok(Self { device, agreed, tally: Tally::default(), buffer });
                }
                Err(error) => {
                    let pending = Pending::from_device(device, request.id);
                    Reply::<()>::new(pending).error(Errno::PROTO);
                    return Err(io::Error::new(io::ErrorKind::Unsupported, error));
                }
            }
        }
    }

    /// The connection to the kernel.
    pub(crate) const fn device(&self) -> &Arc<OwnedFd> {
        &self.device
    }

    /// Bytes of the longest payload of a request or answer.
    pub(crate) fn payload_bytes(&self) -> usize {
        usize::try_from(self.agreed.payload_bytes).unwrap_or(usize::MAX)
    }

    fn serve_until_unmounted(
        mut self,
        fs: &impl Filesystem,
        mount: &Mount,
    ) -> io::Result<Option<Reply<()>>> {
        let served = self.serve(fs);
        // The connection is closed before the mount goes, because nobody would answer the kernel.
        drop(self);
        if served.is_ok() {
            mount.set_gone();
        }
        served
    }

    /// Serves requests until the session ends. Returns the answer that the kernel then may wait
    /// for.
    pub(crate) fn serve(&mut self, fs: &impl Filesystem) -> io::Result<Option<Reply<()>>> {
        loop {
            // A blocking read returns with a request, or at the end.
            if let Turn::Ended(Ended(reply)) = self.serve_next(fs)? {
                return Ok(reply);
            }
        }
    }

    /// Serves a request that comes through the device, if there is one.
    pub(crate) fn serve_next(&mut self, fs: &impl Filesystem) -> io::Result<Turn> {
        let len = match receive(&self.device, &mut self.buffer)? {
            Received::Request(len) => len,
            Received::Nothing => return Ok(Turn::Nothing),
            Received::End => return Ok(Turn::Ended(Ended(None))),
        };
        self.serve_one(fs, [&self.buffer[..len], &[]], None)
    }

    /// Serves the request in two pieces, which came through the ring if there is a place in it for
    /// the answer.
    pub(crate) fn serve_one(
        &self,
        fs: &impl Filesystem,
        request: [&[u8]; 2],
        ring: Option<RingAnswer>,
    ) -> io::Result<Turn> {
        if let Some(opcode) = opcode_of(request[0]) {
            self.tally.count(opcode);
        }
        let pending = |id| Pending { device: Arc::clone(&self.device), id, ring };
        match Request::decode_parted(request, self.agreed.dialect) {
            Ok(request) => {
                let thread = request.context.pid;
                let pending = pending(request.id);
                match dispatch(fs, request, pending) {
                    Next::Request => Ok(Turn::Request { thread }),
                    Next::Destroy(reply) => Ok(Turn::Ended(Ended(Some(reply)))),
                }
            }
            Err(DecodeError::TooShort { id, .. }) => {
                Reply::<()>::new(pending(id)).error(Errno::IO);
                Ok(Turn::Request { thread: 0 })
            }
            Err(error @ DecodeError::NoRequest { .. }) => Err(io::Error::other(error)),
        }
    }
}

impl Session {
    pub(crate) fn new(channel: Channel, mount: Mount) -> Self {
        Self { channel, mount: Arc::new(mount) }
    }

    /// Keeps the file system mounted although the session is dropped.
    #[must_use]
    pub fn guard(&self) -> MountGuard {
        MountGuard(Arc::clone(&self.mount))
    }

    /// What kernel and server agreed upon.
    #[must_use]
    pub const fn agreed(&self) -> Agreed {
        self.channel.agreed
    }

    /// A notifier, which has the kernel drop what it caches.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier(Arc::downgrade(self.channel.device()))
    }

    /// A session without a reactor has no ring: the kernel would wait for one for ever.
    fn is_by_device(&self) -> io::Result<()> {
        if self.channel.agreed.flags.contains(InitFlags::OVER_IO_URING) {
            let message = "only a polled session serves FUSE over io_uring: do not ask for it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// Serves requests until the file system is unmounted.
    ///
    /// # Errors
    /// Those of reading from the kernel, or if kernel and server agreed upon a ring; the file
    /// system is unmounted then, lazily.
    pub fn run(self, fs: &impl Filesystem) -> io::Result<Ended> {
        self.is_by_device()?;
        self.channel.serve_until_unmounted(fs, &self.mount).map(Ended)
    }

    /// The session for a thread that also does other work, and waits with `watcher`: reads do not
    /// block. If kernel and server agreed upon [`InitFlags::OVER_IO_URING`], requests come through
    /// the watcher's ring from now on, or the kernel is told that they do not: see
    /// [`PolledSession::ring`]. Its entries have `ring_bytes` of memory at most, but no fewer than
    /// eight are kept for each processor.
    ///
    /// # Errors
    /// If the connection cannot be made non-blocking.
    ///
    /// [`InitFlags::OVER_IO_URING`]: crate::InitFlags::OVER_IO_URING
    pub fn polled(self, watcher: &Watcher, ring_bytes: u64) -> io::Result<PolledSession> {
        let Self { channel, mount } = self;
        PolledSession::new(channel, mount, watcher, ring_bytes)
    }

    /// Serves requests in a thread of its own.
    ///
    /// # Errors
    /// If no thread can be started, or kernel and server agreed upon a ring; the file system is
    /// unmounted then.
    pub fn spawn(self, fs: impl Filesystem + Send + 'static) -> io::Result<BackgroundSession> {
        self.is_by_device()?;
        let Self { channel, mount } = self;
        let mounted = Arc::clone(&mount);
        let serve = move || channel.serve_until_unmounted(&fs, &mounted).map(drop);
        let thread = Builder::new().name("fuse".to_owned()).spawn(serve)?;
        Ok(BackgroundSession { mount, thread })
    }
}

impl BackgroundSession {
    /// Unmounts the file system and waits for the thread, which ends when nobody uses it.
    ///
    /// # Errors
    /// If the file system is in use and cannot be unmounted; or the thread's error.
    pub fn unmount_and_join(self) -> io::Result<()> {
        self.mount.unmount()?;
        let panicked = |_| io::Error::other("the thread that serves FUSE panicked");
        self.thread.join().map_err(panicked)?
    }
}

/// The result of a read from the kernel.
enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// No request; only where reads do not block.
    Nothing,
    /// The file system is unmounted.
    End,
}

/// The number of a request's operation, which its header has behind the length.
fn opcode_of(request: &[u8]) -> Option<u32> {
    request.get(4..)?.first_chunk().map(|number| u32::from_ne_bytes(*number))
}

/// Reads one request.
fn receive(device: &OwnedFd, buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        return match read(device, &mut *buffer) {
            Ok(0) | Err(Errno::NODEV) => Ok(Received::End),
            Ok(len) => Ok(Received::Request(len)),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            // The caller of the request has gone away, or a signal came.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Answers the kernel's first request (`INIT`).
fn introduce(device: &OwnedFd, id: RequestId, out: &InitOut) -> io::Result<()> {
    let len = u32::try_from(size_of::<OutHeader>() + size_of::<InitOut>());
    let header = OutHeader { len: len.map_err(io::Error::other)?, error: 0, unique: id.0 };
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(out.as_bytes())];
    writev(device, &parts)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
