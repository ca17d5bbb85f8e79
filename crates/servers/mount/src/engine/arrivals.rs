//! Waits for the kernel's requests.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use manylogs_block::{Handle, Nanos, first_of};
use manylogs_fuse::PolledSession;
use manylogs_storage::Watcher;

/// Predicts whether the next request is already there when one is answered. It is not if a single
/// program sends one request after another: a read before each wait would be a wasted system call.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Number of requests still to be waited for without a try to read.
    waits: u32,
}

impl Pace {
    /// Requests that are waited for at once after a read found nothing.
    const WAITS: u32 = 15;

    fn found_nothing(&mut self) {
        self.waits = Self::WAITS;
    }

    /// Whether to wait without a try to read.
    fn waits(&mut self) -> bool {
        let waits = self.waits > 0;
        self.waits = self.waits.saturating_sub(1);
        waits
    }
}

/// Least time between two looks at the device beside a ring. What comes there can wait, and the
/// kernel puts what it has forgotten meanwhile into one request.
const DEVICE_PAUSE: Nanos = Nanos::from_millis(2);

type Readable = Pin<Box<dyn Future<Output = ()>>>;

/// Waits for requests of one session. They come through the session's ring, and some through the
/// device; without a ring, all through the device.
pub(super) struct Arrivals {
    runtime: Handle,
    watcher: Watcher,
    device: Arc<File>,
    /// Beside a ring, one wait for the device goes on until it is readable.
    readable: Readable,
    pace: Pace,
}

impl Arrivals {
    pub(super) fn new(
        session: &PolledSession,
        watcher: &Watcher,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let device = Arc::new(File::from(session.to_wait_for()?));
        let (watcher, runtime) = (watcher.clone(), runtime.clone());
        let readable = readable(runtime.clone(), watcher.clone(), Arc::clone(&device));
        Ok(Self { runtime, watcher, device, readable, pace: Pace::default() })
    }

    /// A request was served: waits if the next one is not there yet, as far as one can tell.
    pub(super) async fn after_request(&mut self, session: &mut PolledSession) {
        if session.ring().is_some() {
            return self.next(session).await;
        }
        if self.pace.waits() {
            self.watcher.readable(&self.device).await;
        }
    }

    /// Waits for a request. Returns at once where one may be there.
    pub(super) async fn next(&mut self, session: &mut PolledSession) {
        let Some(ring) = session.ring() else {
            self.pace.found_nothing();
            return self.watcher.readable(&self.device).await;
        };
        let (arrival, is_due) = (ring.arrival(), session.is_due());
        let readable = &mut self.readable;
        let by_device = async {
            readable.as_mut().await;
            true
        };
        let by_ring = async {
            if !is_due {
                arrival.await;
            }
            false
        };
        if first_of(by_device, by_ring).await {
            self.device_is_due(session);
        }
    }

    fn device_is_due(&mut self, session: &mut PolledSession) {
        let (runtime, watcher) = (self.runtime.clone(), self.watcher.clone());
        self.readable = readable(runtime, watcher, Arc::clone(&self.device));
        session.device_is_due();
    }
}

/// Resolves when `device` is readable, but not at once.
fn readable(runtime: Handle, watcher: Watcher, device: Arc<File>) -> Readable {
    Box::pin(async move {
        runtime.sleep(DEVICE_PAUSE).await;
        watcher.readable(&device).await;
    })
}
