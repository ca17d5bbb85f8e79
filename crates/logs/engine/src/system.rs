//! What the engine needs from a system.

use std::rc::Rc;

use manylogs_block::{Sectors, Time};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Batch, Choice, Device, Room, Store};

use crate::engine::Engine;
use crate::root::RootSlot;

/// The state that a system changes together with its store, under one borrow.
pub trait Shared {
    /// The store.
    fn store(&self) -> &Store;

    /// The store, to be changed.
    fn store_mut(&mut self) -> &mut Store;
}

/// A log-structured system: the decisions over an [`Engine`], which does the work.
///
/// Methods that are not async do not wait: work that takes time is a task of the engine, or of the
/// system.
pub trait System: Sized + 'static {
    /// The store, and the system's own state beside it.
    type State: Shared;

    /// The engine of the system.
    fn engine(&self) -> &Engine<Self>;

    /// Where the two slots of the root are.
    fn root_slots(&self) -> [RootSlot; 2];

    /// Whether the system goes on, until it is closed, when `device` is gone. The logs on it are
    /// then out of use, and [`System::root_slots`] name other devices. Every device has two places
    /// for a root, so that a torn write leaves one.
    fn goes_on_without(&self, _device: Device) -> bool {
        false
    }

    /// End of the addresses of the store's map: no entry reaches beyond it.
    fn capacity(&self) -> Sectors;

    // Where a record goes.

    /// The log for the next record, by the system's policy: see [`Store::choose_log`].
    fn place(&self, state: &Self::State) -> Option<Choice>;

    /// Whether the next record goes behind one that is under way: a drive writes both in one pass.
    /// If not, it goes where [`System::place`] says.
    fn follows(&self) -> bool {
        true
    }

    /// Longest payload of a record that several batches share.
    fn longest_record(&self) -> Sectors;

    /// Whether a log that `place` would like is opened now. `serves` says whether another log takes
    /// the record meanwhile.
    fn may_open(&self, _state: &mut Self::State, _serves: bool) -> bool {
        true
    }

    /// Sees to it that `log`, which is held ([`Store::is_held`]), may begin an epoch, and releases
    /// it; false if that is not possible now.
    fn releases(&self, _log: LogId) -> impl Future<Output = bool> {
        async { true }
    }

    // What is due.

    /// Whether the next record goes now. Asked after each call of the engine's `commit` signal, and
    /// after each record.
    fn is_due(self: &Rc<Self>, state: &mut Self::State) -> bool;

    /// A record was appended to `log`, and is about to be submitted.
    fn appended(&self, _state: &mut Self::State, _log: LogId) {}

    /// The committer has nothing to do until the next signal: a good time to set timers.
    fn committer_rests(self: &Rc<Self>) {}

    // What follows when something became durable.

    /// A record that was sent to `log` at `sent` has ended, well or not. Tasks that wait for
    /// progress have been notified.
    fn record_ended(&self, log: LogId, sent: Time);

    /// A read or a move may have freed a log. The system notifies tasks that wait for room, because
    /// no other event may do so.
    fn offer_room(&self);

    // How a log is cleaned.

    /// Whether a move of `log` may go on now. Asked between two of its records, before more is
    /// read.
    fn may_move(&self, _log: LogId) -> impl Future<Output = bool> {
        async { true }
    }

    /// Whether renewing a log may go on now. Asked before each chunk that is read.
    fn may_renew(&self) -> impl Future<Output = bool> {
        async { true }
    }

    /// Waits until content of `log` that needs `room` may be appended elsewhere; false if that will
    /// not be. Asked before each record of moved content, and each renewed version.
    fn may_take(&self, _log: LogId, _room: Room) -> impl Future<Output = bool> {
        async { true }
    }

    /// Whether only those parts of a log are moved that are still live when their record is made:
    /// clients may have overwritten others since they were found and read.
    fn moves_live_alone(&self) -> bool {
        false
    }

    /// Whether the content of a log is found by the log's records, which are read, and not by the
    /// extents that the logs keep of their entries.
    fn reads_to_find(&self) -> bool {
        true
    }

    /// Records of moved versions that are in flight at a time.
    fn moves_in_flight(&self) -> usize {
        1
    }

    /// Length of content that is read before any of it is moved; if zero, each chunk moves at once.
    fn moves_at_once(&self) -> Sectors {
        Sectors(0)
    }

    /// Number of chunks of a log that are read at a time while it is cleaned.
    fn reads_ahead(&self) -> usize {
        1
    }

    /// A part of `log` was read that is about to be moved or renewed: versions of this length. With
    /// the last part the log's device is free for other reads, while content is still on its way.
    fn has_read(&self, _log: LogId, _len: Sectors, _is_last: bool) {}

    /// A record of moved versions is about to be submitted.
    fn moving(&self, _state: &mut Self::State, _len: Sectors) {}

    /// Queues a batch of renewed versions: see [`Store::put`].
    fn put_renewed(&self, state: &mut Self::State, batch: Batch, room: Room) {
        state.store_mut().put(batch, room, None);
    }
}
