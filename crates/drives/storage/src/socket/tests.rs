use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use tempfile::TempDir;

use super::*;

/// Runs a reactor that echoes to clients, with a ring or without.
fn echoes(ring: bool) {
    let (dir, reactor) = (TempDir::new().unwrap(), Reactor::new().unwrap());
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let listener = if ring {
        reactor.listen(listener).unwrap()
    } else {
        listener.set_nonblocking(true).unwrap();
        Listener(Socket::new(listener.into(), Rc::clone(reactor.driver())))
    };
    // Longer than the kernel's buffers, so that both sides wait for each other.
    let client = thread::spawn(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        let mut back = stream.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let mut said = Vec::new();
            back.read_to_end(&mut said).unwrap();
            said
        });
        let words: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        stream.write_all(&words).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(reader.join().unwrap(), words);
    });
    reactor.block_on(async move {
        let stream = listener.accept().await.unwrap();
        let mut chunk = vec![0; 1 << 20];
        loop {
            let read = stream.read(&mut chunk).await.unwrap();
            if read == 0 {
                return;
            }
            let mut rest = &chunk[..read];
            while !rest.is_empty() {
                let written = stream.write_vectored(&[IoSlice::new(rest)]).await.unwrap();
                rest = &rest[written..];
            }
        }
    });
    client.join().unwrap();
}

#[test]
fn what_is_sent_is_read_and_answered() {
    echoes(true);
    echoes(false);
}

#[test]
fn a_listener_that_is_shut_down_and_a_silent_client_hold_nobody_up() {
    let (dir, reactor) = (TempDir::new().unwrap(), Reactor::new().unwrap());
    let path = dir.path().join("socket");
    let listener = Rc::new(reactor.listen(UnixListener::bind(&path).unwrap()).unwrap());
    let client = UnixStream::connect(path).unwrap();
    let (accepting, ended) = (Rc::clone(&listener), Signal::default());
    let (heard, runtime) = (ended.wait(), reactor.handle());
    reactor.handle().spawn(async move {
        let stream = accepting.accept().await.unwrap();
        // This read waits for ever, until the reactor ends.
        runtime.spawn(async move {
            let _ = stream.read(&mut [0; 16]).await;
        });
        let error = accepting.accept().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        ended.notify();
    });
    let runtime = reactor.handle();
    reactor.block_on(async move {
        runtime.sleep(manylogs_block::Nanos::from_millis(5)).await;
        listener.shut_down();
        heard.await;
    });
    drop(reactor);
    drop(client);
}
