//! A half that may sleep: requests to it wake it, and wait.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Copies, Extent, Extents, Geometry, Handle, IoError,
    IoResult, Nanos, Payload, PowerState, PowerTimes, Request, Signal, Time, completion,
};
use manylogs_plant::{self as plant, Bug};

use super::{WakeCause, Wakes};

mod power;

/// What the sleeper does with its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awake,
    /// The command to stop is under way. Requests wait for its end, and then wake the drive.
    Stopping,
    Standby,
    Waking,
}

/// A drive of the chain whose power the chain commands. To its users it is the drive itself: a
/// request to a drive that stands starts it and waits, and no request fails because of that. A
/// flush does not start it, since all it was given is on the medium. Clones are the same drive.
#[derive(Clone)]
pub(crate) struct Sleeper(Rc<Shared>);

struct Shared {
    runtime: Handle,
    below: Rc<dyn BlockDevice>,
    /// The number by which the owner of the chain knows the drive.
    given: usize,
    wakes: Wakes,
    state: Cell<State>,
    /// Told when a start or a stop has ended.
    changed: Signal,
    under_way: Cell<usize>,
    last_used: Cell<Time>,
    times: Cell<PowerTimes>,
    /// Until when `times` counts.
    counted: Cell<Time>,
    /// Requests that waited for a start, and reads among them.
    waited: Cell<u64>,
    reads_waited: Cell<u64>,
    /// The longest start so far.
    longest_start: Cell<Nanos>,
    /// Whether a request failed for another reason than its sectors.
    failed: Cell<bool>,
    /// Whether nothing commands the drive's power.
    is_refused: Cell<bool>,
    /// How often in a row the drive did not stop when it was told to.
    not_stopped: Cell<u32>,
    /// When the drive was last asked whether it stands.
    asked: Cell<Time>,
    /// Whether it shall sleep soon: reads go to its twin meanwhile, so that it can rest.
    is_drowsy: Cell<bool>,
}

impl Sleeper {
    pub(super) fn new(
        runtime: Handle,
        below: Rc<dyn BlockDevice>,
        given: usize,
        wakes: Wakes,
    ) -> Self {
        let now = runtime.now();
        Self(Rc::new(Shared {
            runtime,
            below,
            given,
            wakes,
            state: Cell::new(State::Awake),
            changed: Signal::default(),
            under_way: Cell::default(),
            last_used: Cell::new(now),
            times: Cell::default(),
            counted: Cell::new(now),
            waited: Cell::default(),
            reads_waited: Cell::default(),
            longest_start: Cell::default(),
            failed: Cell::default(),
            is_refused: Cell::default(),
            not_stopped: Cell::default(),
            asked: Cell::new(now),
            is_drowsy: Cell::default(),
        }))
    }

    pub(crate) fn given(&self) -> usize {
        self.0.given
    }

    /// Whether requests would wait now.
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.state.get() != State::Awake
    }

    /// Whether reads should go to its twin: it sleeps, or shall soon.
    pub(crate) fn is_spared(&self) -> bool {
        self.is_asleep() || self.0.is_drowsy.get()
    }

    /// Says whether the drive shall sleep soon.
    pub(super) fn set_drowsy(&self, is_drowsy: bool) {
        self.0.is_drowsy.set(is_drowsy);
    }

    /// Whether nothing commands the drive's power: it never sleeps.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.is_refused.get()
    }

    /// Whether a request failed for another reason than its sectors. Its twin should be awake.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.failed.get()
    }

    pub(super) fn state(&self) -> PowerState {
        match self.0.state.get() {
            State::Awake => PowerState::Awake,
            State::Stopping | State::Standby => PowerState::Standby,
            State::Waking => PowerState::SpinningUp,
        }
    }

    pub(super) fn waited(&self) -> u64 {
        self.0.waited.get()
    }

    pub(super) fn reads_waited(&self) -> u64 {
        self.0.reads_waited.get()
    }

    pub(super) fn longest_start(&self) -> Nanos {
        self.0.longest_start.get()
    }

    /// How long the drive was in which state since the chain was opened. At work it is while
    /// requests are under way.
    pub(super) fn times(&self) -> PowerTimes {
        self.0.count();
        self.0.times.get()
    }

    /// Since when nobody used the drive; `None` while somebody does, or it sleeps.
    pub(super) fn idle_since(&self) -> Option<Time> {
        let is_idle = self.0.under_way.get() == 0 && self.0.state.get() == State::Awake;
        is_idle.then(|| self.0.last_used.get())
    }

    /// Starts the drive if it sleeps. Resolves when it is awake.
    pub(crate) async fn wake(&self, cause: WakeCause) {
        loop {
            let changed = self.0.changed.wait();
            match self.0.state.get() {
                State::Awake => return,
                State::Standby => self.start(cause),
                State::Stopping | State::Waking => {}
            }
            changed.await;
        }
    }

    /// Gives the drive the command to start. A drive that was asleep before the chain was opened
    /// starts, too.
    fn start(&self, cause: WakeCause) {
        self.0.set(State::Waking);
        self.0.wakes.note(self.0.given, cause);
        let shared = Rc::clone(&self.0);
        self.0.runtime.spawn(async move {
            let began = shared.runtime.now();
            // If it does not start, the requests tell what is wrong with the drive.
            let _ = shared.wake_drive().await;
            let took = shared.runtime.now().since(began);
            shared.longest_start.set(shared.longest_start.get().max(took));
            shared.set(State::Awake);
        });
    }
}

impl Shared {
    fn set(&self, state: State) {
        self.count();
        if state == State::Waking {
            let times = self.times.get();
            self.times.set(PowerTimes { starts: times.starts + 1, ..times });
        }
        self.state.set(state);
        self.last_used.set(self.runtime.now());
        self.changed.notify();
    }

    /// Adds the time since the last count to that of the state.
    fn count(&self) {
        let now = self.runtime.now();
        let (span, mut times) = (now.since(self.counted.replace(now)), self.times.get());
        match self.state.get() {
            State::Standby => times.standby += span,
            State::Waking => times.spin_up += span,
            State::Awake | State::Stopping if self.under_way.get() > 0 => times.active += span,
            State::Awake | State::Stopping => times.idle += span,
        }
        self.times.set(times);
    }

    /// Gives the request to the drive, which is awake.
    fn pass(self: &Rc<Self>, request: Request) -> Completion {
        self.count();
        self.under_way.set(self.under_way.get() + 1);
        let sent = self.below.submit(request);
        let (completer, answer) = completion();
        let shared = Rc::clone(self);
        self.runtime.spawn(async move {
            let result = sent.await;
            shared.ended(&result);
            completer.complete(result);
        });
        answer
    }

    fn ended(&self, result: &IoResult) {
        self.count();
        self.under_way.set(self.under_way.get() - 1);
        self.last_used.set(self.runtime.now());
        if let Err(error) = result
            && !matches!(error, IoError::Medium { .. } | IoError::Unsupported)
        {
            self.failed.set(true);
        }
    }
}

impl Sleeper {
    /// Answers a flush when the stop that is under way has ended: it flushes. The drive must not be
    /// started for that.
    fn flush_at_stop(&self) -> Completion {
        let (completer, answer) = completion();
        let shared = Rc::clone(&self.0);
        self.0.runtime.spawn(async move {
            loop {
                let changed = shared.changed.wait();
                match shared.state.get() {
                    State::Standby => break completer.complete(Ok(Payload::default())),
                    State::Awake => break completer.complete(shared.pass(Request::Flush).await),
                    State::Stopping | State::Waking => changed.await,
                }
            }
        });
        answer
    }
}

impl BlockDevice for Sleeper {
    fn capabilities(&self) -> Capabilities {
        self.0.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if !self.is_asleep() || plant::is(Bug::WakeSkipped) {
            return self.0.pass(request);
        }
        let cause = match &request {
            Request::Flush if self.0.state.get() == State::Standby => {
                return Completion::ready(Ok(Payload::default()));
            }
            Request::Flush if self.0.state.get() == State::Stopping => return self.flush_at_stop(),
            Request::Read { .. } => WakeCause::Read,
            _ => WakeCause::Write,
        };
        if plant::is(Bug::SleeperTakenForFailed) {
            return Completion::ready(Err(IoError::Gone));
        }
        self.0.waited.set(self.0.waited.get() + 1);
        let is_read = u64::from(cause == WakeCause::Read);
        self.0.reads_waited.set(self.0.reads_waited.get() + is_read);
        let (completer, answer) = completion();
        let sleeper = self.clone();
        self.0.runtime.spawn(async move {
            sleeper.wake(cause).await;
            completer.complete(sleeper.0.pass(request).await);
        });
        answer
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.below.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.0.below.geometry()
    }

    fn is_reset_first(&self) -> bool {
        self.0.below.is_reset_first()
    }

    fn reset(&self, extent: Extent) -> Completion {
        self.0.below.reset(extent)
    }

    fn has_copies(&self) -> bool {
        self.0.below.has_copies()
    }

    fn copies(&self) -> Copies {
        self.0.below.copies()
    }
}

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = &self.0;
        f.debug_struct("Sleeper")
            .field("given", &shared.given)
            .field("state", &shared.state.get())
            .finish_non_exhaustive()
    }
}
