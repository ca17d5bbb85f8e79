//! The scheduler: hands requests to the device when their time has come.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Completer, Completion, Extent, Handle, IoResult, Lba, Nanos, Request, Sectors,
    Time, Watchers, completion,
};

use crate::Class;
use crate::answer::Answer;
use crate::estimate::Clock;
use crate::limits::{
    BESIDE_PRIORITY, Bounds, InDevice, Learned, Load, PASSES, Streak, Turns, WRITES_LEAST,
};
use crate::queue::{Departing, Queues};
use crate::rhythm::Rhythm;
use crate::stats::{Counters, ScheduleStats};
use manylogs_plant::{self as plant, Bug};

/// Stands before a device and decides what lies in it. Clones are the same scheduler.
///
/// While no records are expected every request passes at once. Of requests that touch the same
/// sectors, one of which writes, the one that arrived first goes first.
#[derive(Clone)]
pub struct Scheduler(Rc<Inner>);

struct Inner {
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    priorities: bool,
    state: RefCell<State>,
    watchers: Watchers<(Rc<Inner>, Flight)>,
    /// A call further up hands out what may go.
    pumping: Cell<bool>,
    /// The earliest timer that is set.
    armed: Cell<Option<Time>>,
}

struct State {
    bounds: Bounds,
    queues: Queues,
    in_device: InDevice,
    learned: Learned,
    clock: Clock,
    rhythm: Rhythm,
    turns: Turns,
    /// Others wait until then for a record that may follow at once.
    grace_until: Time,
    /// When something other than a record last went, or nothing waited.
    last_turn: Time,
    streak: Streak,
    /// A record took the head away since a stream last went.
    away: bool,
    /// Until then one piece of a stream lies in the device alone: of two, the device would begin
    /// with the one that comes under its head first, and go back for the other.
    alone_until: Time,
    /// Records that have ended since.
    records_since_turn: u32,
    /// Others that went while the records under way were.
    passes: u32,
    /// The end of the last client's request that the device has answered.
    head: Option<Lba>,
    /// Where the last piece of a stream that went to the device ends.
    stream_end: Lba,
    counters: Counters,
}

/// A request in the device.
struct Flight {
    class: Class,
    answer: Answer,
    len: Sectors,
    load: Load,
    sent: Time,
    flush: bool,
    end: Option<Lba>,
    /// Whether scattered requests were in the device when it went.
    beside_scattered: bool,
}

/// Records that follow one another without a pause, before others have a turn between them: a
/// single one that the device leaves waiting would wait longer still.
const RECORDS_BEFORE_TURN: u32 = 2;

impl Scheduler {
    /// Before `device`, with the latency that records are to see at most from what lies ahead of
    /// them, or zero to hold nothing back; its tasks on the node of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, device: Rc<dyn BlockDevice>, latency: Nanos) -> Self {
        let watchers =
            Watchers::new(runtime.clone(), |(inner, flight): (Rc<Inner>, Flight), result| {
                inner.ended(flight, result);
            });
        let state = State {
            bounds: Bounds::of(latency),
            queues: Queues::default(),
            in_device: InDevice::default(),
            learned: Learned::default(),
            clock: Clock::default(),
            rhythm: Rhythm::default(),
            turns: Turns::default(),
            grace_until: Time(0),
            last_turn: runtime.now(),
            streak: Streak::default(),
            away: false,
            alone_until: Time(0),
            records_since_turn: 0,
            passes: 0,
            head: None,
            stream_end: Lba(0),
            counters: Counters::default(),
        };
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

    /// Changes the target; what is in the device stays there.
    pub fn set_latency(&self, latency: Nanos) {
        self.0.state.borrow_mut().bounds = Bounds::of(latency);
        self.0.pump();
    }

    /// Takes `request` over. A record goes to the device before this returns.
    pub fn submit(&self, class: Class, request: Request) -> Completion {
        let inner = &self.0;
        let now = inner.runtime.now();
        let mut state = inner.state.borrow_mut();
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
            if class != Class::Background {
                state.head = request.extent().map(Extent::end).or(state.head);
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
        let (completer, completion): (Completer, _) = completion();
        state.queues.push(class, request, now, completer);
        drop(state);
        inner.pump();
        completion
    }

    /// Where the head is, as far as one can know: at the end of the last client's request that the
    /// device has answered, or got, where nothing is held back.
    #[must_use]
    pub fn head(&self) -> Option<Lba> {
        self.0.state.borrow().head
    }

    /// What waits, what was held back and what was learned.
    #[must_use]
    pub fn stats(&self) -> ScheduleStats {
        let state = self.0.state.borrow();
        let waiting = Class::ALL.map(|class| state.queues.len(class) as u64);
        state.counters.stats(waiting, state.learned.small.depth() as u64, state.rhythm.grace())
    }
}

impl Inner {
    /// Hands out what may go now.
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
        self.arm();
    }

    fn send(self: &Rc<Self>, departing: Departing) {
        let Departing { request, class, arrived, answer, .. } = departing;
        let sent = self.runtime.now();
        let extent = request.extent();
        let len = extent.map_or(Sectors(0), |extent| extent.len);
        let flight = {
            let mut state = self.state.borrow_mut();
            let load = state.load(class, extent.unwrap_or_default());
            if class == Class::Stream {
                state.stream_end = extent.map_or(state.stream_end, Extent::end);
            }
            let beside_scattered = state.in_device.scattered > 0;
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
                // A drive reads on by itself. A write must be followed before it has ended.
                state.alone_until = if write { sent + work } else { sent + state.bounds.longest };
            }
            let flush = request == Request::Flush;
            let end = extent.map(Extent::end);
            Flight { class, answer, end, len, load, sent, flush, beside_scattered }
        };
        let completion = if class == Class::Record {
            self.device.submit_urgent(request)
        } else {
            self.device.submit(request)
        };
        self.watchers.watch(completion, (Rc::clone(self), flight));
    }

    fn ended(self: &Rc<Self>, flight: Flight, result: IoResult) {
        let now = self.runtime.now();
        self.state.borrow_mut().ended(&flight, now);
        flight.answer.complete(result);
        self.pump();
    }

    /// Sees to it that what waits goes when its time has come, where no answer is under way that
    /// would see to it.
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
            if records { longest } else { held.min().map_or(longest, |at| at.min(longest)) }
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

impl State {
    /// What goes now: nothing, or a request and what must go before it.
    fn next(&mut self, now: Time, priorities: bool) -> Vec<Departing> {
        if self.queues.is_empty() {
            self.last_turn = now;
            return Vec::new();
        }
        if !self.expects_records(now) {
            let class = Class::ALL.into_iter().find(|class| self.queues.waits(*class));
            return class.map_or_else(Vec::new, |class| self.queues.take(class, now, false));
        }
        let Some(class) = self.class(now) else { return Vec::new() };
        let Some(next) = self.queues.next(class, now) else { return Vec::new() };
        let streams = self.queues.waits(Class::Stream) || self.in_device.flowing > 0;
        let goes_on = self.streak.is_long(now, self.bounds.streak, streams);
        let Some(piece) = next.next_piece(true) else {
            let held_back = self.is_held_back(class, Load::Scattered, goes_on, now, priorities);
            return if held_back { Vec::new() } else { self.queues.take(class, now, false) };
        };
        let (load, writes) = (self.load(class, piece), next.writes());
        if self.is_held_back(class, load, goes_on, now, priorities)
            || !self.has_room(load, writes, now, priorities)
        {
            return Vec::new();
        }
        // What takes a movement of its own goes whole: it is worth it.
        let flows = matches!(load, Load::Flowing(_));
        self.queues.take(class, now, flows && goes_on || class == Class::Background)
    }

    /// Whether a request of `class` that comes next waits for a record.
    fn is_held_back(
        &self,
        class: Class,
        load: Load,
        goes_on: bool,
        now: Time,
        priorities: bool,
    ) -> bool {
        if self.in_device.records == 0 && now >= self.grace_until {
            return false;
        }
        let held = now.since(self.last_turn);
        let many = self.records_since_turn >= RECORDS_BEFORE_TURN;
        let impatient = held >= self.bounds.patience && many || held >= self.bounds.longest;
        if impatient && !plant::is(Bug::RecordsStarveOthers) {
            return false;
        }
        if class == Class::Background {
            return true;
        }
        let backlog = self.queues.backlog(now);
        let scattered = matches!(load, Load::Scattered);
        // A device with priorities goes on with the record, whatever small reads it has.
        let by_priority = priorities && class == Class::Small;
        let overwhelmed = scattered && backlog.overwhelms(now, &self.bounds);
        // What comes alone, as part of no stream that goes on, does not keep a record for long.
        let alone = !goes_on && self.rhythm.grace() == Nanos(0) && self.passes < PASSES;
        !(by_priority || overwhelmed || alone && backlog.is_small())
    }

    fn load(&self, class: Class, extent: Extent) -> Load {
        Load::of(class, extent, self.stream_end, self.learned.stream)
    }

    /// Whether requests are held back, and bounded, for records that may come.
    fn expects_records(&self, now: Time) -> bool {
        self.bounds.latency > Nanos(0) && self.rhythm.expects(now)
    }

    /// Whose turn it is.
    fn class(&mut self, now: Time) -> Option<Class> {
        let waits = |class| self.queues.waits(class);
        if waits(Class::Background) {
            let clients = waits(Class::Small) || waits(Class::Stream) || self.in_device.clients > 0;
            let oldest = self.queues.oldest(Class::Background).unwrap_or(now);
            if !clients || self.turns.background(now, oldest, &self.bounds) {
                return Some(Class::Background);
            }
        }
        match (waits(Class::Small), waits(Class::Stream)) {
            (true, true) => Some(self.turns.at(now, self.bounds.turn)),
            (true, false) => Some(Class::Small),
            (false, true) => Some(Class::Stream),
            (false, false) => None,
        }
    }

    /// Whether a request of `load` that comes next may go.
    fn has_room(&self, load: Load, writes: bool, now: Time, priorities: bool) -> bool {
        let there = &self.in_device;
        if there.others() == 0 {
            return true;
        }
        match load {
            Load::Scattered => {
                let learned = self.learned.small.depth();
                let depth = if priorities { BESIDE_PRIORITY } else { learned };
                there.scattered < self.queues.backlog(now).depth(depth)
            }
            Load::Flowing(_) if now < self.alone_until && there.flowing > 0 => false,
            Load::Flowing(work) => {
                let least = if writes { WRITES_LEAST } else { 1 };
                there.flowing < least || there.work + work <= self.bounds.stream
            }
        }
    }

    fn ended(&mut self, flight: &Flight, now: Time) {
        let busy = self.clock.end(flight.sent, now);
        if matches!(flight.class, Class::Small | Class::Stream) {
            self.head = flight.end.or(self.head);
        }
        self.in_device.note(flight.class, flight.load, true);
        if matches!(flight.load, Load::Flowing(_)) {
            self.streak.ended(now);
            self.alone_until = Time(0);
        }
        match flight.class {
            Class::Stream if flight.len >= Sectors(64) => {
                self.learned.stream.observe(flight.len, busy);
            }
            Class::Record if !flight.flush && flight.beside_scattered => {
                self.learned.small.observe(now.since(flight.sent), self.bounds.small);
            }
            _ => {}
        }
        if flight.class == Class::Record {
            self.away = true;
        }
        self.records_since_turn += u32::from(flight.class == Class::Record);
        if flight.class == Class::Record && self.in_device.records == 0 {
            self.rhythm.ended(now);
            self.grace_until = now + self.rhythm.grace();
        }
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
