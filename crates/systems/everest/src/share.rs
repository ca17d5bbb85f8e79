//! A store's share of its disk: while the disk's own clients wait, the store has a few per cent of
//! the disk's time, and they have the rest.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Extents, Geometry, Handle, Nanos,
    Payload, Request, Time, completion,
};
use manylogs_plant::{self as plant, Bug};

use crate::lender::{DiskLoad, Load};
use crate::meter::Meter;

/// The disk's own clients wait if a request of theirs would wait for longer than this: about three
/// requests of a disk, which is also from when on other stores are chosen.
const OWN_WAIT: Nanos = Nanos::from_millis(15);
/// How often it is looked whether they still wait.
const LOOK: Nanos = Nanos::from_millis(2);
/// The longest pause: a disk that once took a minute for a request holds nobody up for an hour.
const PAUSE_MOST: Nanos = Nanos::from_secs(5);
/// A share that is no bound.
const ALL: u8 = 100;

/// The device of a store on a lent disk. Requests pass at once while the disk's own clients do not
/// wait. While they do, the store's requests are gathered and go together, and after that a pause
/// follows in which others gather: so they have their share of the time, and the disk's head makes
/// the way to the store for many of them at once. The time until the last of them is answered
/// counts as theirs, although the disk may do something else meanwhile: the share is the most that
/// they take. Clones are the same device.
#[derive(Clone)]
pub struct Shared(Rc<State>);

struct State {
    /// Counts the store's requests at the disk.
    device: Meter,
    runtime: Handle,
    disk: Rc<dyn DiskLoad>,
    percent: Cell<u8>,
    /// Requests that wait for their turn, in the order in which they came.
    gathered: RefCell<Vec<Gathered>>,
    /// Whether a task sends what is gathered.
    is_sending: Cell<bool>,
    /// When the next may go although others wait.
    next: Cell<Time>,
}

struct Gathered {
    request: Request,
    urgent: bool,
    completer: Completer<Payload>,
}

impl Shared {
    /// The device of a store on `device`, a part of the disk whose load `disk` tells. There is no
    /// bound until [`Shared::set_percent`] sets one.
    #[must_use]
    pub fn new(runtime: Handle, device: Rc<dyn BlockDevice>, disk: Rc<dyn DiskLoad>) -> Self {
        let device = Meter::new(runtime.clone(), device);
        let (gathered, is_sending) = (RefCell::default(), Cell::default());
        let (percent, next) = (Cell::new(ALL), Cell::default());
        Self(Rc::new(State { device, runtime, disk, percent, gathered, is_sending, next }))
    }

    /// Gives the store `percent` (1 to 100) per cent of the disk's time, from now on, while the
    /// disk's own clients wait. 100 is no bound. Nothing of it is on the disk.
    pub fn set_percent(&self, percent: u8) {
        self.0.percent.set(percent.clamp(1, ALL));
    }

    /// The store's share of the disk's time, in per cent.
    #[must_use]
    pub fn percent(&self) -> u8 {
        self.0.percent.get()
    }

    /// Requests of the store that wait for their turn.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.0.gathered.borrow().len() as u64
    }

    fn send(&self, request: Request, urgent: bool) -> Completion {
        let state = &self.0;
        if state.gathered.borrow().is_empty() && !state.others_wait() {
            // The disk gets the request before this returns, and after those that were gathered.
            return state.pass(request, urgent);
        }
        let (completer, answer): (Completer<Payload>, Completion) = completion();
        state.gathered.borrow_mut().push(Gathered { request, urgent, completer });
        if !state.is_sending.replace(true) {
            state.runtime.spawn(Rc::clone(state).send_gathered());
        }
        answer
    }
}

impl State {
    /// Whether clients of the disk itself wait for longer than they should.
    fn others_wait(&self) -> bool {
        if self.percent.get() >= ALL || plant::is(Bug::ShareIgnored) {
            return false;
        }
        let all = self.disk.load();
        let others = all.in_flight.saturating_sub(self.device.load().in_flight);
        let each = all.wait.0 / all.in_flight.max(1);
        others.saturating_mul(each) > OWN_WAIT.0
    }

    fn pass(&self, request: Request, urgent: bool) -> Completion {
        match urgent {
            true => self.device.submit_urgent(request),
            false => self.device.submit(request),
        }
    }

    /// Sends what is gathered, again and again until nothing is.
    async fn send_gathered(self: Rc<Self>) {
        loop {
            while self.runtime.now() < self.next.get() && self.others_wait() {
                let left = self.next.get().since(self.runtime.now());
                self.runtime.sleep(left.min(LOOK)).await;
            }
            let gathered = self.gathered.take();
            if gathered.is_empty() {
                self.is_sending.set(false);
                return;
            }
            let began = self.runtime.now();
            let send = |one: Gathered| (self.pass(one.request, one.urgent), one.completer);
            let sent: Vec<_> = gathered.into_iter().map(send).collect();
            for (sent, completer) in sent {
                completer.complete(sent.await);
            }
            self.next.set(self.runtime.now() + self.pause(self.runtime.now().since(began)));
        }
    }

    /// The pause after requests that took `took` together, by which they have their share.
    fn pause(&self, took: Nanos) -> Nanos {
        let percent = u64::from(self.percent.get());
        Nanos(took.0.saturating_mul(u64::from(ALL) - percent) / percent).min(PAUSE_MOST)
    }
}

impl DiskLoad for Shared {
    /// The disk's, and what waits here.
    fn load(&self) -> Load {
        let (disk, waiting) = (self.0.disk.load(), self.waiting());
        let left = match waiting {
            0 => Nanos(0),
            _ => self.0.next.get().since(self.0.runtime.now()),
        };
        Load {
            in_flight: disk.in_flight + waiting,
            wait: Nanos(disk.wait.0.saturating_add(left.0)),
        }
    }
}

impl BlockDevice for Shared {
    fn capabilities(&self) -> Capabilities {
        self.0.device.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.send(request, false)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.send(request, true)
    }

    fn has_priorities(&self) -> bool {
        self.0.device.has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.device.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.0.device.geometry()
    }

    fn has_copies(&self) -> bool {
        self.0.device.has_copies()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("percent", &self.percent())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
