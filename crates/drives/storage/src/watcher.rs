//! Waits for descriptors that others own and read.

use std::cell::Cell;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::Signal;
use rustix::event::PollFlags;

use crate::driver::Driver;
use crate::reactor::Reactor;

/// Waits for descriptors on a reactor's thread, on behalf of tasks that read them.
#[derive(Clone)]
pub struct Watcher(Rc<Driver>);

/// A wait that ends when it is dropped: then nothing here holds the descriptor.
struct Waiting {
    driver: Rc<Driver>,
    key: usize,
    /// Whether the wait has ended, so that the key may belong to another wait.
    over: Rc<Cell<bool>>,
}

impl Reactor {
    /// Makes a watcher that waits on this reactor.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        // Without a ring, poll(2) tells when a descriptor is ready.
        let _ = self.driver().open_ring();
        Watcher(Rc::clone(self.driver()))
    }
}

impl Watcher {
    pub(crate) const fn driver(&self) -> &Rc<Driver> {
        &self.0
    }

    /// Returns when there is data to read from `file`, or its other end is gone. If the future is
    /// dropped before, the descriptor is no longer held here.
    pub async fn readable(&self, file: &Arc<File>) {
        let (signal, over) = (Signal::default(), Rc::new(Cell::new(false)));
        let (heard, ended) = (signal.wait(), Rc::clone(&over));
        let then = Box::new(move |_| {
            ended.set(true);
            signal.notify();
        });
        let key = self.0.watch(file, PollFlags::IN, then);
        let _waiting = Waiting { driver: Rc::clone(&self.0), key, over };
        heard.await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over.get() {
            self.driver.forget(self.key);
        }
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    fn pipe() -> (Arc<File>, File) {
        let (read, write) = UnixStream::pair().unwrap();
        (Arc::new(OwnedFd::from(read).into()), OwnedFd::from(write).into())
    }

    /// Watchers with a ring to wait in, if there is one, and without.
    fn watchers() -> Vec<(Reactor, Watcher)> {
        let (ringed, plain) = (Reactor::new().unwrap(), Reactor::new().unwrap());
        let watchers = (ringed.watcher(), Watcher(Rc::clone(plain.driver())));
        vec![(ringed, watchers.0), (plain, watchers.1)]
    }

    #[test]
    fn what_can_be_read_is_noticed_before_and_after_the_wait_begins() {
        for (reactor, watcher) in watchers() {
            let (read, mut write) = pipe();
            write.write_all(b"x").unwrap();
            reactor.block_on(async move {
                watcher.readable(&read).await;
                let mut byte = [0];
                rustix::io::read(&*read, &mut byte).unwrap();
                let writer = std::thread::spawn(move || write.write_all(b"y").unwrap());
                watcher.readable(&read).await;
                writer.join().unwrap();
                rustix::io::read(&*read, &mut byte).unwrap();
                // The other end is gone.
                watcher.readable(&read).await;
                assert_eq!(rustix::io::read(&*read, &mut byte), Ok(0));
            });
        }
    }

    #[test]
    fn a_wait_that_is_dropped_holds_nothing() {
        for (reactor, watcher) in watchers() {
            let (read, write) = pipe();
            let runtime = reactor.handle();
            let read = reactor.block_on(async move {
                {
                    let mut wait = pin!(watcher.readable(&read));
                    poll_fn(|cx| {
                        assert!(wait.as_mut().poll(cx).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    // Gives the kernel time to take the wait.
                    runtime.sleep(manylogs_block::Nanos::from_millis(1)).await;
                }
                Arc::try_unwrap(read).unwrap()
            });
            drop(read);
            // The kernel, too, sees that the pipe has no reader any more, once it has ended the
            // wait. That may take a while on a busy machine.
            let write = || (&write).write(b"x").map_err(|error| error.kind());
            let mut written = write();
            for _ in 0..10_000 {
                if written.is_err() {
                    break;
                }
                let runtime = reactor.handle();
                reactor.block_on(async move {
                    runtime.sleep(manylogs_block::Nanos::from_millis(1)).await;
                });
                written = write();
            }
            assert_eq!(written, Err(std::io::ErrorKind::BrokenPipe));
            drop(reactor);
        }
    }
}
