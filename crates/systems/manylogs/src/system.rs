//! The volume as a system on the engine.

use std::rc::Rc;

use manylogs_block::{Sectors, Time};
use manylogs_engine::{Engine, RootSlot, System};
use manylogs_logstore::LogId;
use manylogs_logstore::store::Choice;

use crate::state::{Inner, State};

impl System for Inner {
    type State = State;

    fn engine(&self) -> &Engine<Self> {
        &self.engine
    }

    fn root_slots(&self) -> [RootSlot; 2] {
        RootSlot::on_first(self.layout.roots())
    }

    fn capacity(&self) -> Sectors {
        self.layout.capacity()
    }

    fn place(&self, state: &State) -> Option<Choice> {
        state.store.choose_log(&self.placement(state))
    }

    fn longest_record(&self) -> Sectors {
        self.config().record
    }

    fn may_open(&self, state: &mut State, serves: bool) -> bool {
        self.may_open_now(state, serves)
    }

    fn is_due(self: &Rc<Self>, state: &mut State) -> bool {
        self.record_goes(state)
    }

    fn appended(&self, state: &mut State, log: LogId) {
        self.record_went(state, log);
    }

    fn committer_rests(self: &Rc<Self>) {
        self.look_again();
    }

    /// On an array, the next record goes to another column instead.
    fn follows(&self) -> bool {
        self.device.columns() == 1
    }

    fn record_ended(&self, log: LogId, sent: Time) {
        let now = self.engine.runtime.now();
        let mut state = self.engine.state.borrow_mut();
        state.pacing.record_ended(sent, now);
        let column = self.column_of(&state, log);
        state.columns.record_ended(column, sent, now);
        drop(state);
        self.wake_committer(&self.engine.state.borrow());
    }

    fn offer_room(&self) {
        if !self.engine.state.borrow().starved.is_empty() {
            self.engine.notify_progress();
        }
    }

    /// While a log moves, clients go first.
    async fn may_move(&self, _: LogId) -> bool {
        if self.hurries.get() {
            // Clients need the room, so the move does not wait for them.
            return self.engine.state.borrow().store.read_only().is_none();
        }
        if !self.is_idle() {
            self.engine.runtime.sleep(self.config().idle).await;
        }
        self.is_idle()
    }

    fn moving(&self, state: &mut State, len: Sectors) {
        state.counters.swapped_sectors += len.0;
    }
}
