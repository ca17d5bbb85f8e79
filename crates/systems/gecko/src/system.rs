//! The chain as a system on the engine: records of clients follow one another at the tail.

use std::rc::Rc;

use manylogs_block::{Sectors, Time};
use manylogs_engine::{Engine, RootSlot, Shared, System};
use manylogs_logstore::store::{Batch, Choice, Device, Room, Store};
use manylogs_logstore::{LogId, RECORD_PAYLOAD_MAX};

use crate::ondisk::root_slots;
use crate::state::{Inner, State};
use crate::tail::Tail;

/// Most records of clients in flight: while the drive writes one, the next waits in its queue.
const IN_FLIGHT: usize = 2;
/// Queued content of at most this length goes in one record.
const WORTH_TWO: Sectors = Sectors(128);
/// Content that one drive reads before another writes it. Both may be under cleaning, and each
/// switch between reading and writing costs both drives a seek and a revolution.
const MOVES_AT_ONCE: Sectors = Sectors(8 * 2048);
/// Most records of moved content in flight. Those of one turn follow one another on the drive.
const MOVES_IN_FLIGHT: usize = 16;
/// Parts of a segment that cleaning reads at a time.
const READS_AHEAD: usize = 3;

impl Shared for State {
    fn store(&self) -> &Store {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl System for Inner {
    type State = State;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn root_slots(&self) -> [RootSlot; 2] {
        root_slots(&self.keeper.roster(), self.keeper.lost())
    }

    fn goes_on_without(&self, device: Device) -> bool {
        self.goes_on_without_link(device.0.into())
    }

    async fn releases(&self, log: LogId) -> bool {
        self.takes_back(log).await
    }

    fn capacity(&self) -> Sectors {
        self.export
    }

    fn place(&self, state: &State) -> Option<Choice> {
        state.store.choose_log(&self.tail(state))
    }

    fn follows(&self) -> bool {
        false
    }

    fn longest_record(&self) -> Sectors {
        self.longest.get()
    }

    fn is_due(self: &Rc<Self>, state: &mut State) -> bool {
        let entries = state.store.entries();
        if state.store.read_only().is_some() || entries.pending.is_empty() {
            return false;
        }
        let in_flight = entries.new_in_flight();
        let most = RECORD_PAYLOAD_MAX;
        // Two records of half the length keep the drive busy without a pause, where one would lose
        // a revolution each time.
        let halved = in_flight == 0 && state.queued > WORTH_TWO && state.queued < most;
        self.longest.set(if halved { Sectors(state.queued.0.div_ceil(2)) } else { most });
        match in_flight {
            0 => self.is_awaited(state) || state.queued >= most,
            IN_FLIGHT.. => false,
            // A short record behind a long one would end before the next one is queued.
            _ => state.queued >= most || self.is_awaited(state) && is_half(state),
        }
    }

    fn appended(&self, state: &mut State, log: LogId) {
        let content = state.keep_newest();
        if state.cache.is_due() {
            self.cache_wanted.notify();
        }
        let left = state.queued.0.saturating_sub(content.0);
        state.queued = Sectors(if state.store.entries().pending.is_empty() { 0 } else { left });
        state.last_record = content;
        state.advance(log);
    }

    fn committer_rests(self: &Rc<Self>) {
        self.look_again();
    }

    fn record_ended(&self, _: LogId, _sent: Time) {
        self.offer_room_to_clients();
        self.engine.commit.notify();
        self.engine.wanted.notify();
    }

    fn offer_room(&self) {
        self.engine.progress.notify();
        self.engine.wanted.notify();
    }

    async fn may_renew(&self) -> bool {
        self.waits_for_its_turn().await
    }

    async fn may_move(&self, log: LogId) -> bool {
        self.waits_until_in_body(log).await
    }

    async fn may_take(&self, log: LogId, room: Room) -> bool {
        self.waits_for_room(log, room).await
    }

    fn moves_in_flight(&self) -> usize {
        MOVES_IN_FLIGHT
    }

    fn moves_at_once(&self) -> Sectors {
        MOVES_AT_ONCE
    }

    fn moves_live_alone(&self) -> bool {
        true
    }

    fn reads_to_find(&self) -> bool {
        false
    }

    fn has_read(&self, log: LogId, len: Sectors, is_last: bool) {
        self.engine.state.borrow_mut().pace.read(log, len, is_last);
        if is_last {
            self.engine.wanted.notify();
        }
        self.offer_room_to_clients();
    }

    fn moving(&self, state: &mut State, len: Sectors) {
        state.counters.renewed += len;
    }

    fn reads_ahead(&self) -> usize {
        READS_AHEAD
    }

    fn put_renewed(&self, state: &mut State, batch: Batch, room: Room) {
        let content = batch.payload_sectors();
        state.queued += content;
        state.counters.renewed += content;
        state.pace.advance(content);
        state.put(batch, room, None);
        self.keep_young(state);
    }
}

/// Whether the queued content is at least half as long as the record in flight.
fn is_half(state: &State) -> bool {
    2 * state.queued.0 >= state.last_record.0
}

impl Inner {
    pub(crate) fn tail(&self, state: &State) -> Tail {
        Tail {
            at: state.tail,
            per_drive: manylogs_block::narrow(self.geometry.per_drive),
            heaps: state.heaps,
            leaving: state.leaving,
            to_most: !self.is_in_order(state),
        }
    }

    /// Whether the entries that wait for a record should go now.
    fn is_awaited(&self, state: &State) -> bool {
        let entries = state.store.entries();
        let Some(first) = entries.pending.front() else { return false };
        let forced = entries.force.is_some_and(|force| force >= entries.slots.get(*first).ticket);
        let now = self.engine.runtime.now();
        forced || entries.waiters > 0 || entries.volatile_until.is_some_and(|until| until <= now)
    }

    /// Limits how long an entry that nobody waits for stays in memory alone.
    pub(crate) fn keep_young(&self, state: &mut State) {
        if state.store.entries().volatile_until.is_none() {
            let until = self.engine.runtime.now() + self.settings.buffer_age;
            state.store.keep_volatile_until(until);
        }
    }

    /// Calls the committer when the oldest write that nobody waits for is due.
    fn look_again(self: &Rc<Self>) {
        let until = self.engine.state.borrow().store.entries().volatile_until;
        let Some(until) = until.filter(|until| *until > self.engine.runtime.now()) else { return };
        if self.alarm.get().is_some_and(|alarm| alarm <= until) {
            return;
        }
        self.alarm.set(Some(until));
        let chain = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            chain.engine.runtime.sleep_until(until).await;
            chain.alarm.set(None);
            chain.engine.commit.notify();
        });
    }

    /// Admits waiting changes that there is room for now.
    pub(crate) fn offer_room_to_clients(&self) {
        self.admit(&mut self.engine.state.borrow_mut());
    }
}

impl State {
    /// Puts the content of the record that was appended last into the tail cache. Returns its
    /// length.
    fn keep_newest(&mut self) -> Sectors {
        let (entries, map) = (self.store.entries(), self.store.map());
        let Some(record) = entries.records.last() else { return Sectors(0) };
        let mut content = Sectors(0);
        for slot in record.slots.iter().map(|id| entries.slots.get(*id)) {
            content += slot.entry.payload_sectors();
            if let Some(payload) = &slot.payload {
                self.cache.keep(map, &slot.entry, payload);
            }
        }
        content
    }

    /// Moves the tail to `log`. The rest of the segment before it stays unused.
    pub(crate) fn advance(&mut self, log: LogId) {
        if log == self.tail {
            return;
        }
        if !self.store.logs().is_blank(self.tail) {
            self.store.seal(self.tail);
            self.close(self.tail);
        }
        let before = self.tail_drive();
        self.tail = log;
        self.counters.hops += u64::from(self.tail_drive() != before);
    }
}
