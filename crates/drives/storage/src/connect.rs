//! Outgoing connections, served on the reactor's own thread like those of [`crate::Listener`].

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use crate::driver::Driver;
use crate::reactor::Reactor;
use crate::socket::{Socket, SocketStream, keep_alive};

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A port.
    Tcp(SocketAddr),
}

/// Makes connections. Clones use the same reactor.
#[derive(Clone)]
pub struct Connector(Rc<Driver>);

impl Reactor {
    /// A maker of connections that the reactor's thread serves.
    #[must_use]
    pub fn connector(&self) -> Connector {
        // Without a ring, poll(2) tells when a socket is ready.
        let _ = self.driver().open_ring();
        Connector(Rc::clone(self.driver()))
    }
}

impl Connector {
    /// Connects to `peer`. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// The kernel's: no process listens there, or it refuses the connection.
    pub async fn connect(&self, peer: &Peer) -> io::Result<SocketStream> {
        let family = match peer {
            Peer::Unix(_) => AddressFamily::UNIX,
            Peer::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Peer::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if matches!(peer, Peer::Tcp(_)) {
            // The option affects speed only.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            keep_alive(&socket);
        }
        let socket = Socket::new(socket, Rc::clone(&self.0));
        let begun = match peer {
            Peer::Unix(path) => connect(socket.file(), &SocketAddrUnix::new(path)?),
            Peer::Tcp(address) => connect(socket.file(), address),
        };
        match begun {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::INTR) => {
                socket.ready(PollFlags::OUT).await;
                sockopt::socket_error(socket.file())??;
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(SocketStream(socket))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn say(peer: Peer) -> io::Result<()> {
        let reactor = Reactor::new().unwrap();
        let connector = reactor.connector();
        reactor.block_on(async move {
            let stream = connector.connect(&peer).await?;
            stream.write_vectored(&[IoSlice::new(b"hello")]).await?;
            Ok(())
        })
    }

    #[test]
    fn who_listens_is_reached_and_others_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(say(Peer::Unix(path.clone())).is_err());
        let unix = UnixListener::bind(&path).unwrap();
        say(Peer::Unix(path)).unwrap();
        let mut said = String::new();
        unix.accept().unwrap().0.read_to_string(&mut said).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        say(Peer::Tcp(address)).unwrap();
        tcp.accept().unwrap().0.read_to_string(&mut said).unwrap();
        assert_eq!(said, "hellohello");
        drop(tcp);
        let refused = say(Peer::Tcp(address)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
