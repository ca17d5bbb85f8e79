//! The scheduler, which sends requests to the device.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Completer, Completion, Extent, Geometry, Handle, IoResult, Lba, Nanos, Request,
    Sectors, Time, Watchers, completion,
};

use crate::Class;
use crate::answer::Answer;
use crate::contention::Contention;
use crate::limits::{AtOnce, Bounds, Load, Targets};
use crate::queue::Departing;
use crate::state::{Flight, State};
use crate::stats::ScheduleStats;

/// Tasks that are kept for later requests.
const WATCHERS_KEPT: usize = 2;

/// A scheduler in front of a device. Clones share one scheduler.
///
/// If no records are expected, or clients do not keep the device busy, every request passes at
/// once. If two requests touch the same sectors, and one of them writes, they go in the order of
/// arrival.
#[derive(Clone)]
pub struct Scheduler(Rc<Inner>);

struct Inner {
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    priorities: bool,
    state: RefCell<State>,
    watchers: Watchers<(Rc<Inner>, Flight)>,
    /// Set while requests are being sent: a call from within leaves the rest to that call.
    pumping: Cell<bool>,
    /// Earliest timer.
    armed: Cell<Option<Time>>,
}

impl Scheduler {
    /// Makes a scheduler in front of `device`. Its tasks run on the node of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, device: Rc<dyn BlockDevice>, targets: Targets) -> Self {
        let contention = Rc::new(RefCell::new(Contention::new(targets.contended_after)));
        Self::contended(runtime, device, targets, contention)
    }

    /// Makes a scheduler in front of each of an array's `columns`. They detect together whether
    /// clients keep the array busy without a pause, because a column rests while others lag.
    #[must_use]
    pub fn of_columns(
        runtime: &Handle,
        columns: impl ExactSizeIterator<Item = Rc<dyn BlockDevice>>,
        targets: Targets,
    ) -> Vec<Self> {
        let contention = Contention::of_columns(targets.contended_after, columns.len());
        let contention = Rc::new(RefCell::new(contention));
        let one =
            |column| Self::contended(runtime.clone(), column, targets, Rc::clone(&contention));
        columns.map(one).collect()
    }

    fn contended(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        targets: Targets,
        contention: Rc<RefCell<Contention>>,
    ) -> Self {
        let watchers = Watchers::new(
            runtime.clone(),
            WATCHERS_KEPT,
            |(inner, flight): (Rc<Inner>, Flight), result| {
                inner.ended(flight, result);
            },
        );
        let state = State::new(targets, contention, runtime.now());
        let priorities = device.has_priorities();
        Self(Rc::new(Inner {
            runtime,
            device,
            priorities,
            state: RefCell::new(state),
            watchers,
            pumping: Cell::new(false),
            armed: Cell::new(None),
        }))
    }

    /// This scheduler, in front of an `array` that is scheduled as one device, because records go
    /// to all of its drives. After a record a stripe of a stream goes first: with a single piece in
    /// the array the other drives would idle. Pieces of writes end at stripes, and more of them are
    /// in the array at once.
    #[must_use]
    pub fn over_stripes(self, array: Geometry) -> Self {
        let mut state = self.0.state.borrow_mut();
        state.at_once = AtOnce::on_array(array);
        state.queues.set_array(array);
        drop(state);
        self
    }

    /// Changes the target latency. Requests in the device stay there.
    pub fn set_latency(&self, latency: Nanos) {
        self.0.state.borrow_mut().bounds = Bounds::of(latency);
        self.0.pump();
    }

    /// Takes a request over. A record goes to the device before the call returns. If there is no
    /// target latency and no request waits, requests are not even counted.
    pub fn submit(&self, class: Class, request: Request) -> Completion {
        let inner = &self.0;
        let now = inner.runtime.now();
        let mut state = inner.state.borrow_mut();
        if state.bounds.latency == Nanos(0) && state.queues.is_empty() {
            state.last_turn = now;
            drop(state);
            return inner.hand_over(class, request);
        }
        if class == Class::Record {
            let before = state.queues.before(&request);
            state.rhythm.arrived(now);
            state.grace_until = Time(0);
            drop(state);
            before.into_iter().for_each(|departing| inner.send(departing));
            let (completer, completion) = completion();
            let (arrived, answer) = (now, Answer::Whole(completer));
            inner.send(Departing { request, class, arrived, answer, last: true });
            return completion;
        }
        if state.queues.is_empty() && !state.expects_records(now) {
            state.last_turn = now;
            state.slack.unseen(now);
            // The scheduler does not see the end of a flush that goes here, so the flush does not
            // count.
            if request != Request::Flush {
                state.flushes.sent(&request, now);
            }
            drop(state);
            return inner.device.submit(request);
        }
        if state.queues.is_empty() && state.in_device.others() + state.in_device.records == 0 {
            state.last_turn = now;
        }
        if class == Class::Stream {
            let any = state.queues.waits(Class::Stream) || state.in_device.flowing > 0;
            state.streak.arrived(now, any);
        }
        if class.is_client() {
            state.client_asks(class, &request, now);
        }
        let (completer, completion): (Completer, _) = completion();
        state.queues.push(class, request, now, completer);
        drop(state);
        inner.pump();
        completion
    }

    /// Notes that a client asks for something to be durable. Its record or flush follows.
    pub fn sync_asked(&self) {
        let now = self.0.runtime.now();
        self.0.state.borrow_mut().syncs.asked(now);
    }

    /// Whether clients wait for small reads, and sync so often that the reads need a share of the
    /// time.
    #[must_use]
    pub fn serves_database(&self) -> bool {
        self.0.state.borrow().serves_database(self.0.runtime.now())
    }

    /// Whether lasting streams, and no other requests, compete with records for the device.
    #[must_use]
    pub fn serves_stream(&self) -> bool {
        self.0.state.borrow().serves_stream(self.0.runtime.now())
    }

    /// Says whether clients wait for the volume's own work, because they need room in the logs.
    pub fn set_pressed(&self, pressed: bool) {
        self.0.state.borrow_mut().pressed = pressed;
    }

    /// Position of the head, if requests are held back and it is known: the end of the last
    /// client's request that the device has answered.
    #[must_use]
    pub fn head(&self) -> Option<Lba> {
        let state = self.0.state.borrow();
        state.holds_back(self.0.runtime.now()).then_some(state.head)?
    }

    /// Counters: waiting requests, held-back requests and learned values.
    #[must_use]
    pub fn stats(&self) -> ScheduleStats {
        let state = self.0.state.borrow();
        let waiting = Class::ALL.map(|class| state.queues.len(class) as u64);
        let (waits_for, waited_ns) = state.waits.at(self.0.runtime.now());
        ScheduleStats {
            classes: state.counters.classes(waiting),
            small_depth: state.learned.small.depth() as u64,
            grace_ns: state.rhythm.grace().0,
            waits_for,
            waited_ns,
        }
    }
}

impl Inner {
    /// Sends all requests that may go now.
    fn pump(self: &Rc<Self>) {
        if self.pumping.replace(true) {
            return;
        }
        loop {
            let now = self.runtime.now();
            let departing = self.state.borrow_mut().next(now, self.priorities);
            if departing.is_empty() {
                break;
            }
            departing.into_iter().for_each(|departing| self.send(departing));
        }
        self.pumping.set(false);
        self.state.borrow_mut().note_waits(self.runtime.now());
        self.arm();
    }

    fn hand_over(&self, class: Class, request: Request) -> Completion {
        if class == Class::Record {
            self.device.submit_urgent(request)
        } else {
            self.device.submit(request)
        }
    }

    fn send(self: &Rc<Self>, departing: Departing) {
        let Departing { request, class, arrived, answer, .. } = departing;
        let sent = self.runtime.now();
        let extent = request.extent();
        let len = extent.map_or(Sectors(0), |extent| extent.len);
        let flight = {
            let mut state = self.state.borrow_mut();
            state.flushes.sent(&request, sent);
            let load = state.load(class, extent.unwrap_or_default());
            if class == Class::Stream {
                state.stream_sent = sent;
                state.stream_end = extent.map_or(state.stream_end, Extent::end);
            }
            if class != Class::Stream {
                state.lone.disturb();
            }
            let beside_scattered = state.in_device.scattered > 0;
            let goes_first = class == Class::Record && !state.serves_database(sent);
            state.in_device.note(class, load, false);
            state.counters.sent(class, sent.since(arrived));
            if class == Class::Record {
                state.passes = if state.in_device.records > 1 { state.passes } else { 0 };
            } else {
                state.passes += u32::from(state.in_device.records > 0);
                state.last_turn = sent;
                state.records_since_turn = 0;
            }
            if let Load::Flowing(work) = load
                && std::mem::take(&mut state.away)
            {
                let write = matches!(request, Request::Write { .. });
                // A drive reads ahead, so reads can wait. But the next write must be in the queue
                // before the last one has ended.
                state.alone_until = if write { sent + work } else { sent + state.bounds.longest };
            }
            let flush = request == Request::Flush;
            let end = extent.map(Extent::end);
            Flight { class, answer, end, len, load, sent, flush, beside_scattered, goes_first }
        };
        let completion = self.hand_over(class, request);
        self.watchers.watch(completion, (Rc::clone(self), flight));
    }

    fn ended(self: &Rc<Self>, flight: Flight, result: IoResult) {
        let now = self.runtime.now();
        self.state.borrow_mut().ended(&flight, now);
        flight.answer.complete(result);
        self.pump();
    }

    /// Sets a timer for waiting requests, unless the answer to a request in flight will send them.
    fn arm(self: &Rc<Self>) {
        let at = {
            let state = self.state.borrow();
            if state.queues.is_empty() {
                return;
            }
            let records = state.in_device.records > 0;
            let longest = state.last_turn + state.bounds.longest;
            let now = self.runtime.now();
            let held = [state.grace_until, state.alone_until].into_iter().filter(|at| *at > now);
            let usual =
                if records { longest } else { held.min().map_or(longest, |at| at.min(longest)) };
            // Beside a database a stream waits for its turn, even if requests are answered.
            let turn = state.serves_database(now).then(|| state.stream_turn());
            [usual, turn.unwrap_or(usual)].into_iter().filter(|at| *at > now).min().unwrap_or(now)
        };
        let now = self.runtime.now();
        if at <= now || self.armed.get().is_some_and(|armed| armed <= at && armed > now) {
            return;
        }
        self.armed.set(Some(at));
        let (inner, sleep) = (Rc::clone(self), self.runtime.sleep_until(at));
        self.runtime.spawn(async move {
            sleep.await;
            if inner.armed.get() == Some(at) {
                inner.armed.set(None);
            }
            inner.pump();
        });
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
