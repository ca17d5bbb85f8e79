//! State of the scheduler and the choice of the next request.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Request, Sectors, Time};

use crate::Class;
use crate::answer::Answer;
use crate::contention::Contention;
use crate::database::Syncs;
use crate::estimate::Clock;
use crate::flushes::{Flushes, cached};
use crate::limits::{
    AtOnce, BESIDE_PRIORITY, Bounds, InDevice, Learned, Load, PASSES, Streak, Targets, Turns,
};
use crate::lone::LoneWriter;
use crate::queue::{Departing, Queues, Waiting};
use crate::rhythm::Rhythm;
use crate::run::Run;
use crate::slack::Slack;
use crate::stats::{Cause, Counters, Waits};
use manylogs_plant::{self as plant, Bug};

/// State of the scheduler. See the module.
pub(crate) struct State {
    pub(crate) bounds: Bounds,
    pub(crate) queues: Queues,
    pub(crate) in_device: InDevice,
    pub(crate) learned: Learned,
    pub(crate) clock: Clock,
    pub(crate) rhythm: Rhythm,
    pub(crate) turns: Turns,
    /// Other requests wait until this time for a record that may follow at once.
    pub(crate) grace_until: Time,
    /// Time at which a request other than a record last went, or at which no request waited.
    pub(crate) last_turn: Time,
    pub(crate) streak: Streak,
    /// Contention for the device. All columns of an array share one.
    pub(crate) contention: Rc<RefCell<Contention>>,
    pub(crate) syncs: Syncs,
    pub(crate) run: Run,
    pub(crate) lone: LoneWriter,
    pub(crate) slack: Slack,
    /// Whether clients wait for the volume's own work.
    pub(crate) pressed: bool,
    pub(crate) flushes: Flushes,
    /// Whether a record moved the head since a stream's request last went.
    pub(crate) away: bool,
    /// Until this time only one piece of a stream is in the device. Of two pieces the drive would
    /// begin with the one that passes its head first, and would need another revolution for the
    /// other.
    pub(crate) alone_until: Time,
    pub(crate) at_once: AtOnce,
    /// Number of records that have ended since `last_turn`.
    pub(crate) records_since_turn: u32,
    /// Number of other requests that went while a record was in flight.
    pub(crate) passes: u32,
    /// End of the last client's request that the limits counted and the device has answered.
    pub(crate) head: Option<Lba>,
    /// End of the last piece of a stream that went to the device.
    pub(crate) stream_end: Lba,
    /// Time at which that piece went.
    pub(crate) stream_sent: Time,
    /// Time at which a client last asked for something small.
    pub(crate) small_asked: Time,
    pub(crate) counters: Counters,
    /// Reason why the next request did not go when it was last checked.
    cause: Cause,
    pub(crate) waits: Waits,
}

/// A request that is in the device.
pub(crate) struct Flight {
    pub(crate) class: Class,
    pub(crate) answer: Answer,
    pub(crate) len: Sectors,
    pub(crate) load: Load,
    pub(crate) sent: Time,
    pub(crate) flush: bool,
    pub(crate) end: Option<Lba>,
    /// Whether scattered requests were in the device when the request went.
    pub(crate) beside_scattered: bool,
    /// Whether it is a record that went first, because there was no database beside it.
    pub(crate) goes_first: bool,
}

/// Number of successive records after which other requests get a turn. A single record that the
/// device delays would wait even longer otherwise.
const RECORDS_BEFORE_TURN: u32 = 2;

impl State {
    pub(crate) fn new(targets: Targets, contention: Rc<RefCell<Contention>>, now: Time) -> Self {
        Self {
            bounds: Bounds::of(targets.latency),
            queues: Queues::default(),
            in_device: InDevice::default(),
            learned: Learned::default(),
            clock: Clock::default(),
            rhythm: Rhythm::default(),
            turns: Turns::default(),
            grace_until: Time(0),
            last_turn: now,
            streak: Streak::default(),
            contention,
            syncs: Syncs::default(),
            run: Run::default(),
            lone: LoneWriter::default(),
            slack: Slack::new(now),
            pressed: false,
            flushes: Flushes::default(),
            away: false,
            alone_until: Time(0),
            at_once: AtOnce::ONE_DRIVE,
            records_since_turn: 0,
            passes: 0,
            head: None,
            stream_end: Lba(0),
            stream_sent: Time(0),
            small_asked: Time(0),
            counters: Counters::default(),
            cause: Cause::Record,
            waits: Waits::default(),
        }
    }

    /// Records the arrival of a client's request.
    pub(crate) fn client_asks(&mut self, class: Class, request: &Request, now: Time) {
        self.slack.arrived(now, self.contention.borrow().pause(now));
        let goes_on = match request.extent() {
            Some(extent) if class == Class::Stream => self.run.asked(extent, !self.client_waits()),
            _ => {
                self.small_asked = now;
                self.run.small_asked(self.small_reads());
                false
            }
        };
        self.contention.borrow_mut().arrived(now, goes_on);
    }

    /// Requests that go now: none, or one request after those that must go before it.
    pub(crate) fn next(&mut self, now: Time, priorities: bool) -> Vec<Departing> {
        if self.queues.is_empty() {
            self.last_turn = now;
            return Vec::new();
        }
        if self.is_overdue(now) {
            self.slack.used_up(now);
        }
        if !self.holds_back(now) {
            let class = Class::ALL.into_iter().find(|class| self.queues.waits(*class));
            let class = class.filter(|class| !self.waits_for_flush(*class, now));
            return class.map_or_else(Vec::new, |class| self.queues.take(class, now, false));
        }
        if self.serves_database(now) {
            return self.next_beside_database(now);
        }
        let Some(class) = self.class(now) else { return Vec::new() };
        if self.waits_for_flush(class, now) {
            return Vec::new();
        }
        let Some(next) = self.queues.next(class, now) else { return Vec::new() };
        let streams = self.queues.waits(Class::Stream) || self.in_device.flowing > 0;
        let long = if self.is_a_run(now) { self.bounds.run } else { self.bounds.streak };
        let goes_on = self.streak.is_long(now, long, streams);
        let Some(piece) = next.next_piece(true) else {
            let held_back = self.is_held_back(class, Load::Scattered, goes_on, now, priorities);
            self.cause = Cause::Record;
            return if held_back { Vec::new() } else { self.queues.take(class, now, false) };
        };
        let (load, writes) = (self.load(class, piece), next.writes());
        if self.is_held_back(class, load, goes_on, now, priorities) {
            self.cause = Cause::Record;
            return Vec::new();
        }
        if !self.has_room(load, writes, now, priorities) {
            self.cause = Cause::Room;
            return Vec::new();
        }
        // A request that needs its own seek goes whole.
        let flows = matches!(load, Load::Flowing(_));
        // So does one beside requests that need a seek: they move the head away, and each piece
        // would need a seek back.
        let undisturbed = !self.queues.waits(Class::Small) && self.in_device.scattered == 0;
        let in_pieces = flows && goes_on && undisturbed && self.pieces_pay(class, now);
        self.queues.take(class, now, in_pieces || class == Class::Background)
    }

    /// Whether pieces of the next request, a part of a stream, cost the stream nothing. Pieces of a
    /// lone writer's request may.
    fn pieces_pay(&mut self, class: Class, now: Time) -> bool {
        let next = self.queues.next(class, now);
        let Some(len) = next.and_then(Waiting::divisible_write) else { return true };
        let lone = self.in_device.others() == 0 && self.queues.len(Class::Stream) == 1;
        if !lone {
            self.lone.disturb();
            return true;
        }
        let in_pieces = self.lone.goes_in_pieces();
        if !self.away && self.in_device.records == 0 {
            self.lone.sent(now, len, in_pieces);
        }
        in_pieces
    }

    /// Whether the next request of `class` must wait for a flush.
    fn waits_for_flush(&mut self, class: Class, now: Time) -> bool {
        if !self.flushes.hold_back(now, self.bounds.longest) {
            return false;
        }
        let next = self.queues.next(class, now);
        let held = next.is_some_and(|next| cached(&next.request).is_some());
        if held {
            self.cause = Cause::Room;
        }
        held
    }

    /// Notes why the next request does not go now.
    pub(crate) fn note_waits(&mut self, now: Time) {
        let cause = if self.queues.is_empty() { None } else { Some(self.cause) };
        self.waits.note(cause, now);
    }

    /// Whether the next request of `class` must wait for a record.
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
        // A device with priorities serves the record first, even if it has many small reads.
        let by_priority = priorities && class == Class::Small;
        let overwhelmed = scattered && backlog.overwhelms(now, &self.bounds);
        // A single request that is not part of a lasting stream delays a record only shortly.
        let alone = !goes_on && self.rhythm.grace() == Nanos(0) && self.passes < PASSES;
        !(by_priority || overwhelmed || alone && backlog.is_small())
    }

    pub(crate) fn load(&self, class: Class, extent: Extent) -> Load {
        Load::of(class, extent, self.stream_end, self.learned.stream)
    }

    /// Whether requests are held back and limited because records are expected. A run is held back
    /// from its second request on, as long as the device has time for that. Other requests are held
    /// back once clients have kept the device busy for a while: earlier ones may be a burst, all of
    /// which the device needs to order it.
    pub(crate) fn holds_back(&self, now: Time) -> bool {
        self.expects_records(now) && (self.is_a_run(now) || self.contention.borrow().lasts(now))
    }

    /// Whether clients wait for small reads, and sync so often that records do not go before the
    /// reads. If more requests of streams wait than small ones, the streams matter more: turns now
    /// and then would not be enough. If clients wait for the volume's own work, it must not wait
    /// for turns either.
    pub(crate) fn serves_database(&self, now: Time) -> bool {
        let reads = self.small_reads();
        let mostly = reads > 0 && self.queues.len(Class::Stream) <= reads;
        mostly
            && !self.pressed
            && self.syncs.are_frequent(now, &self.bounds)
            && self.holds_back(now)
    }

    /// Time from which another request of a stream may go beside a database.
    pub(crate) fn stream_turn(&self) -> Time {
        let between = Nanos(self.bounds.between.0 * self.small_reads() as u64);
        self.stream_sent + between.min(self.bounds.longest)
    }

    /// Number of clients' small requests in the scheduler and in the device.
    fn small_reads(&self) -> usize {
        self.in_device.small + self.queues.len(Class::Small)
    }

    /// As [`State::next`] beside a database: small reads and records are in the device together,
    /// and it orders them. Streams send one request at a time, and less often the more reads there
    /// are.
    fn next_beside_database(&mut self, now: Time) -> Vec<Departing> {
        let stream = self.in_device.streams == 0
            && (now >= self.stream_turn() && !plant::is(Bug::DatabaseStarvesStreams));
        let class = match self.class(now) {
            // One request at a time: no other limit applies here.
            Some(Class::Background) if self.in_device.background == 0 => Some(Class::Background),
            _ if self.queues.waits(Class::Small) => Some(Class::Small),
            _ if self.queues.waits(Class::Stream) && stream => Some(Class::Stream),
            _ => None,
        };
        self.cause = Cause::Room;
        let class = class.filter(|class| !self.waits_for_flush(*class, now));
        class.map_or_else(Vec::new, |class| self.queues.take(class, now, false))
    }

    /// Whether records are expected, so that all requests are counted.
    pub(crate) fn expects_records(&self, now: Time) -> bool {
        // A record that the device delays for seconds must not be forgotten: its client sends no
        // other meanwhile.
        let under_way = self.in_device.records > 0;
        self.bounds.latency > Nanos(0) && (under_way || self.rhythm.expects(now))
    }

    /// The class that has the turn.
    fn class(&mut self, now: Time) -> Option<Class> {
        let waits = |class| self.queues.waits(class);
        if waits(Class::Background) {
            let clients = self.client_waits();
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

    /// Whether the next request, with load `load`, may go.
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
            Load::Flowing(_) if now < self.alone_until && there.flowing >= self.at_once.first => {
                false
            }
            Load::Flowing(work) => {
                let least = if writes { self.at_once.writes } else { 1 };
                there.flowing < least || there.work + work <= self.bounds.stream
            }
        }
    }

    pub(crate) fn ended(&mut self, flight: &Flight, now: Time) {
        let busy = self.clock.end(flight.sent, now);
        if flight.class.is_client() {
            self.head = flight.end.or(self.head);
            if flight.answer.is_last() {
                self.contention.borrow_mut().ended(now);
                self.lone.ended(now);
            }
        }
        self.in_device.note(flight.class, flight.load, true);
        if flight.flush {
            self.flushes.ended();
        }
        if matches!(flight.load, Load::Flowing(_)) {
            self.streak.ended(now);
            self.alone_until = Time(0);
        }
        match flight.class {
            Class::Stream if flight.len >= Sectors(64) => {
                self.learned.stream.observe(flight.len, busy);
            }
            // The latency of a flush says nothing of records.
            Class::Record if flight.goes_first && !flight.flush => {
                let took = now.since(flight.sent);
                self.syncs.record_took(took.min(self.bounds.longest));
                if flight.beside_scattered {
                    self.learned.small.observe(took, self.bounds.small);
                }
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
