//! The circular store as a system on the engine: records follow one another at the head of the
//! ring.

use std::rc::Rc;

use manylogs_block::{Sectors, Time};
use manylogs_engine::{Engine, RootSlot, Shared, System};
use manylogs_logstore::store::{Batch, Choice, Device, Room, Store};
use manylogs_logstore::{LogId, Space};

use crate::ondisk::root_slots;
use crate::ring::Ring;
use crate::store::{Inner, State};

/// Records in flight at most.
const IN_FLIGHT: usize = 8;

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
        root_slots(self.roots_on_two, |device| self.engine.members.of(device).is_gone())
    }

    fn goes_on_without(&self, device: Device) -> bool {
        // The roots are on the first two, and one of them is enough.
        let mut others = (0..2).map(Device).filter(|other| *other != device);
        self.roots_on_two && others.any(|other| !self.engine.members.of(other).is_gone())
    }

    fn capacity(&self) -> Sectors {
        Space::END
    }

    fn place(&self, state: &State) -> Option<Choice> {
        state.store.choose_log(&Ring { head: state.head })
    }

    fn longest_record(&self) -> Sectors {
        self.record
    }

    fn is_due(self: &Rc<Self>, state: &mut State) -> bool {
        let entries = state.store.entries();
        state.store.read_only().is_none()
            && !entries.pending.is_empty()
            && entries.records.len() < IN_FLIGHT
    }

    fn appended(&self, state: &mut State, log: LogId) {
        state.advance(log);
    }

    fn record_ended(&self, _log: LogId, _sent: Time) {
        self.engine.commit.notify();
        self.engine.wanted.notify();
    }

    fn offer_room(&self) {
        self.engine.progress.notify();
    }

    async fn may_renew(&self) -> bool {
        !self.closing.get()
    }

    fn put_renewed(&self, state: &mut State, batch: Batch, room: Room) {
        state.put(batch, room, None);
    }
}

impl State {
    /// Moves the head to `log`. The rest of the log before it stays unused.
    fn advance(&mut self, log: LogId) {
        if log != self.head {
            let blank = self.store.logs().is_blank(self.head);
            if !blank {
                self.store.seal(self.head);
            }
            self.head = log;
        }
    }
}
