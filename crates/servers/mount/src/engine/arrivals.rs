//! Waits for the kernel's requests.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use manylogs_block::{Handle, Nanos, Time, first_of, yield_now};
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

/// How long to look for the next request before the thread waits for it. A thread that waits must
/// be woken by the program, which takes 2 to 10 us even if no processor sleeps.
const LOOK_LONGEST: Nanos = Nanos::from_micros(100);

/// Decides when to look for the next request, and for how long: the thread does nothing else
/// meanwhile. Looks that found nothing make further ones ever more seldom.
#[derive(Debug, Default)]
struct Looks {
    /// The end of the look under way.
    until: Option<Time>,
    /// Looks in a row that found nothing.
    failed: u32,
    /// Requests still to be served without a look.
    skip: u32,
}

impl Looks {
    /// After so many failures in a row further ones change nothing.
    const FAILED_MOST: u32 = 10;

    /// A request was served at `now`, which is `None` if nobody may look: returns whether a look
    /// begins.
    fn begins(&mut self, now: Option<Time>) -> bool {
        if self.until.take().is_some() {
            self.failed = 0;
        }
        let Some(now) = now else { return false };
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.until = Some(now + LOOK_LONGEST);
        true
    }

    /// No request is there at `now`: returns whether the look goes on.
    fn goes_on(&mut self, now: Time) -> bool {
        let Some(until) = self.until else { return false };
        if now < until {
            return true;
        }
        self.until = None;
        self.failed = (self.failed + 1).min(Self::FAILED_MOST);
        self.skip = 1 << self.failed;
        false
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
    looks: Looks,
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
        let (pace, looks) = (Pace::default(), Looks::default());
        Ok(Self { runtime, watcher, device, readable, pace, looks })
    }

    /// A request was served: waits if the next one is not there yet, as far as one can tell. The
    /// next one is looked for instead if `may_look`.
    pub(super) async fn after_request(&mut self, session: &mut PolledSession, may_look: bool) {
        let looks = self.looks.begins(may_look.then(|| self.runtime.now()));
        if session.ring().is_some() {
            return self.wait(session, looks).await;
        }
        if !looks && self.pace.waits() {
            self.watcher.readable(&self.device).await;
        }
    }

    /// No request was there: waits for one, or looks for it.
    pub(super) async fn next(&mut self, session: &mut PolledSession) {
        let looks = self.looks.goes_on(self.runtime.now());
        self.wait(session, looks).await;
    }

    /// Waits for a request, or only lets other tasks run if the thread `looks` for it. Returns at
    /// once where one may be there. A look notices the device beside a ring as well.
    async fn wait(&mut self, session: &mut PolledSession, looks: bool) {
        let Some(ring) = session.ring() else {
            if looks {
                return yield_now().await;
            }
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
            if looks && !is_due {
                yield_now().await;
            } else if !is_due {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends_in_time_or_with_a_request() {
        let mut looks = Looks::default();
        assert!(!looks.goes_on(Time(0)), "none has begun");
        assert!(looks.begins(Some(Time(0))));
        assert!(looks.goes_on(Time(LOOK_LONGEST.0 - 1)));
        assert!(looks.begins(Some(Time(LOOK_LONGEST.0 - 1))), "a request came");
        assert!(looks.goes_on(Time(LOOK_LONGEST.0)));
        assert!(!looks.goes_on(Time(2 * LOOK_LONGEST.0)));
        assert!(!looks.goes_on(Time(0)), "it has ended");
        let mut looks = Looks::default();
        assert!(looks.begins(Some(Time(0))) && !looks.begins(None));
        assert!(!looks.goes_on(Time(0)), "nobody may look any more");
    }

    /// Requests that are served until a look begins.
    fn until_look(looks: &mut Looks) -> usize {
        (0..).take_while(|_| !looks.begins(Some(Time(0)))).count()
    }

    #[test]
    fn looks_in_vain_come_ever_more_seldom() {
        let mut looks = Looks::default();
        let mut skipped = Vec::new();
        for _ in 0..12 {
            skipped.push(until_look(&mut looks));
            assert!(!looks.goes_on(Time(LOOK_LONGEST.0)));
        }
        assert_eq!(skipped, [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        // One that finds a request makes up for all before.
        until_look(&mut looks);
        assert_eq!(until_look(&mut looks), 0);
        assert!(!looks.goes_on(Time(LOOK_LONGEST.0)));
        assert_eq!(until_look(&mut looks), 2);
    }
}
