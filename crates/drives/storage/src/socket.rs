//! Sockets whose peers are served on the reactor's own thread.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use manylogs_block::Signal;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, accept_with, recv, sendmsg,
    shutdown, sockopt,
};

use crate::driver::Driver;
use crate::reactor::Reactor;

/// Size of the kernel's buffer for answers that the reader has not fetched, if the kernel allows
/// that much: a long read fits.
const SEND_BUFFER_BYTES: usize = 2 << 20;

/// A TCP peer that is silent for this long is asked whether it is still there. After `PROBES`
/// questions without an answer the connection ends.
const SILENCE: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// A listening socket. Dropping it closes it, and ends waits for connections.
#[derive(Debug)]
pub struct Listener(Socket);

/// A connection. Dropping it closes it, also for the peer, and ends waits on it.
#[derive(Debug)]
pub struct SocketStream(pub(crate) Socket);

pub(crate) struct Socket {
    file: Arc<File>,
    driver: Rc<Driver>,
    /// Whether this side has shut it down.
    down: Cell<bool>,
    /// Whether the last read took all data: another read before there is more would waste a call.
    drained: Cell<bool>,
}

impl Reactor {
    /// Accepts connections of `listener` on the reactor's thread.
    ///
    /// # Errors
    /// If the kernel cannot make the socket non-blocking.
    pub fn listen(&self, listener: impl Into<OwnedFd>) -> io::Result<Listener> {
        // Either kind of listener works here, because only the descriptor is used.
        let listener = UnixListener::from(listener.into());
        listener.set_nonblocking(true)?;
        // Without a ring, poll(2) tells when a socket is ready.
        let _ = self.driver().open_ring();
        Ok(Listener(Socket::new(listener.into(), Rc::clone(self.driver()))))
    }
}

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionAborted`] once the listener was shut down, or the kernel's error.
    /// Of those, too many open files may pass.
    pub async fn accept(&self) -> io::Result<SocketStream> {
        // The kernel's own error for a listener that was shut down is the same.
        while !self.0.down.get() {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(&*self.0.file, flags) {
                Ok(accepted) => {
                    // Only TCP has this option, and both options affect speed only.
                    let _ = sockopt::set_tcp_nodelay(&accepted, true);
                    keep_alive(&accepted);
                    let _ =
                        sockopt::set_socket_send_buffer_size_force(&accepted, SEND_BUFFER_BYTES)
                            .or_else(|_| {
                                sockopt::set_socket_send_buffer_size(&accepted, SEND_BUFFER_BYTES)
                            });
                    return Ok(SocketStream(Socket::new(accepted, Rc::clone(&self.0.driver))));
                }
                Err(Errno::AGAIN) => self.0.ready(PollFlags::IN).await,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Stops taking connections: [`Listener::accept`] ends.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }
}

impl SocketStream {
    /// Reads the data that is there, at least a byte; zero bytes at the end of the stream.
    ///
    /// # Errors
    /// Those of recv(2).
    pub async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.drained.take() {
            self.0.ready(PollFlags::IN).await;
        }
        loop {
            match recv(&*self.0.file, &mut *into, RecvFlags::empty()) {
                Ok((read, _)) => {
                    // At the end of the stream another read returns at once.
                    self.0.drained.set(0 < read && read < into.len());
                    return Ok(read);
                }
                Err(Errno::AGAIN) => self.0.ready(PollFlags::IN).await,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Writes as much as the kernel takes, at least a byte.
    ///
    /// # Errors
    /// Those of sendmsg(2); there is no signal if the peer is gone.
    pub async fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let mut none = SendAncillaryBuffer::default();
            match sendmsg(&*self.0.file, from, &mut none, SendFlags::NOSIGNAL) {
                Ok(written) => return Ok(written),
                Err(Errno::AGAIN) => self.0.ready(PollFlags::OUT).await,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Ends the connection. Both sides can still read the data that was sent. Waits end.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }
}

/// Detects a peer whose machine or network failed; otherwise its connection would stay for ever.
/// Sockets other than TCP refuse, and do not need it.
pub(crate) fn keep_alive(socket: &OwnedFd) {
    let _ = sockopt::set_socket_keepalive(socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(socket, SILENCE))
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, PROBE_EVERY))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, PROBES));
}

impl Socket {
    pub(crate) fn new(socket: OwnedFd, driver: Rc<Driver>) -> Self {
        Self {
            file: Arc::new(File::from(socket)),
            driver,
            down: Cell::default(),
            drained: Cell::default(),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) async fn ready(&self, events: PollFlags) {
        let signal = Signal::default();
        let heard = signal.wait();
        // An error shows when the call is tried again.
        self.driver.watch(&self.file, events, Box::new(move |_| signal.notify()));
        heard.await;
    }

    fn shut_down(&self) {
        self.down.set(true);
        // The socket may be shut down already, or never have been connected.
        let _ = shutdown(&*self.file, Shutdown::Both);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A wait whose future is gone still holds the descriptor, and a reactor waits for it.
        self.shut_down();
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Socket").field(&self.file).finish()
    }
}

#[cfg(test)]
mod tests;
