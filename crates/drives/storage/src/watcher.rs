//! Waiting for descriptors that others own and read.

use std::cell::Cell;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::Signal;
use rustix::event::PollFlags;

use crate::driver::Driver;
use crate::reactor::Reactor;

/// Waits for descriptors on a reactor's thread, for tasks that read them.
#[derive(Clone)]
pub struct Watcher(Rc<Driver>);

/// A wait that ends when it is dropped: nothing holds the descriptor afterwards.
struct Waiting {
    driver: Rc<Driver>,
    key: usize,
    /// The key is another one's by now.
    over: Rc<Cell<bool>>,
}

impl Reactor {
    /// What waits for descriptors.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        // Without a ring readiness is asked for with poll(2).
        let _ = self.driver().open_ring();
        Watcher(Rc::clone(self.driver()))
    }
}

impl Watcher {
    /// Returns when there is something to read from `file`, or its other end is gone. Who drops
    /// the wait before holds the descriptor no longer.
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

    /// With a ring to wait in, where there is one, and without.
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
                    // The kernel is given it.
                    runtime.sleep(manylogs_block::Nanos::from_millis(1)).await;
                }
                Arc::try_unwrap(read).unwrap()
            });
            drop(read);
            // Nobody can read it any more, in the kernel's view either.
            let written = (&write).write(b"x").map_err(|error| error.kind());
            assert_eq!(written, Err(std::io::ErrorKind::BrokenPipe));
            drop(reactor);
        }
    }
}
