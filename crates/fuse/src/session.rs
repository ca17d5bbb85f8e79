//! Serving a mounted file system until it is unmounted.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rustix::fd::OwnedFd;
use rustix::io::{Errno, IoSlice, read, writev};
use zerocopy::IntoBytes;

use crate::decode::{DecodeError, Dialect};
use crate::dispatch::{Next, dispatch};
use crate::filesystem::Filesystem;
use crate::mount::Mount;
use crate::negotiate::{Agreed, Answered, Wanted, negotiate};
use crate::reply::Reply;
use crate::request::{Operation, Request, RequestId};
use crate::wire::{InitOut, OutHeader};

/// Least bytes that the kernel wants to be read at once.
const READ_LEAST: usize = 8192;
/// Room for what comes before the data of a write: headers, and names of other requests.
const BEFORE_DATA: usize = 4096;

/// Where requests come from and answers go.
#[derive(Debug)]
pub(crate) struct Channel {
    device: Arc<OwnedFd>,
    agreed: Agreed,
    buffer: Vec<u8>,
}

/// A mounted file system that waits to be served; see [`crate::Superblock::attach`].
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    mount: Mount,
}

/// The end of a session. The kernel may wait until this is dropped: unmounting a file system on a
/// disk returns then.
#[derive(Debug)]
pub struct Ended(#[expect(dead_code, reason = "is answered when it is dropped")] Option<Reply<()>>);

/// A session that is served by a thread of its own.
#[derive(Debug)]
pub struct BackgroundSession {
    mount: Arc<Mount>,
    thread: JoinHandle<io::Result<()>>,
}

impl Channel {
    /// Waits for the kernel's introduction on `device` and answers it.
    pub(crate) fn open(device: OwnedFd, wanted: &Wanted) -> io::Result<Self> {
        let max_write = usize::try_from(wanted.max_write).map_err(io::Error::other)?;
        let bytes = (max_write + BEFORE_DATA).max(READ_LEAST);
        let mut buffer = vec![0; bytes];
        let device = Arc::new(device);
        loop {
            let len = receive(&device, &mut buffer)?.ok_or(Errno::NODEV)?;
            let request = Request::decode(&buffer[..len], Dialect::default());
            let request = request.map_err(io::Error::other)?;
            let Operation::Init(init) = request.operation else {
                return Err(io::Error::other("the kernel did not introduce itself"));
            };
            match negotiate(&init, wanted) {
                Ok(Answered::Again(out)) => introduce(&device, request.id, &out)?,
                Ok(Answered::Agreed(out, agreed)) => {
                    introduce(&device, request.id, &out)?;
                    return Ok(Self { device, agreed, buffer });
                }
                Err(error) => {
                    Reply::<()>::new(device, request.id).error(Errno::PROTO);
                    return Err(io::Error::new(io::ErrorKind::Unsupported, error));
                }
            }
        }
    }

    /// The kernel's end of the connection.
    pub(crate) const fn device(&self) -> &Arc<OwnedFd> {
        &self.device
    }

    fn serve_until_unmounted(
        mut self,
        fs: &impl Filesystem,
        mount: &Mount,
    ) -> io::Result<Option<Reply<()>>> {
        let served = self.serve(fs);
        // The connection ends before the mount is taken away: nobody would answer the kernel.
        drop(self);
        if served.is_ok() {
            mount.set_gone();
        }
        served
    }

    /// Serves requests until the kernel has none any more. The answer that it may wait for then.
    pub(crate) fn serve(&mut self, fs: &impl Filesystem) -> io::Result<Option<Reply<()>>> {
        while let Some(len) = receive(&self.device, &mut self.buffer)? {
            match Request::decode(&self.buffer[..len], self.agreed.dialect) {
                Ok(request) => match dispatch(fs, request, &self.device) {
                    Next::Request => {}
                    Next::Destroy(reply) => return Ok(Some(reply)),
                },
                Err(DecodeError::TooShort { id, .. }) => {
                    Reply::<()>::new(Arc::clone(&self.device), id).error(Errno::IO);
                }
                Err(error @ DecodeError::NoRequest { .. }) => return Err(io::Error::other(error)),
            }
        }
        Ok(None)
    }
}

impl Session {
    pub(crate) const fn new(channel: Channel, mount: Mount) -> Self {
        Self { channel, mount }
    }

    /// What kernel and server agreed upon.
    #[must_use]
    pub const fn agreed(&self) -> Agreed {
        self.channel.agreed
    }

    /// Serves requests until the file system is unmounted.
    ///
    /// # Errors
    /// Those of reading from the kernel; the file system is unmounted then, lazily.
    pub fn run(self, fs: &impl Filesystem) -> io::Result<Ended> {
        self.channel.serve_until_unmounted(fs, &self.mount).map(Ended)
    }

    /// Serves requests in a thread of its own.
    ///
    /// # Errors
    /// There is no thread left; the file system is unmounted then.
    pub fn spawn(self, fs: impl Filesystem + Send + 'static) -> io::Result<BackgroundSession> {
        let Self { channel, mount } = self;
        let mount = Arc::new(mount);
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
    /// The file system cannot be unmounted, as it is in use; or the thread's error.
    pub fn unmount_and_join(self) -> io::Result<()> {
        self.mount.unmount()?;
        let panicked = |_| io::Error::other("the thread that serves FUSE panicked");
        self.thread.join().map_err(panicked)?
    }
}

/// Reads one request; `None` when the file system is unmounted.
fn receive(device: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        return match read(device, &mut *buffer) {
            Ok(0) | Err(Errno::NODEV) => Ok(None),
            Ok(len) => Ok(Some(len)),
            // The caller of the request has gone away, or a signal came.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Answers the kernel's introduction.
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
