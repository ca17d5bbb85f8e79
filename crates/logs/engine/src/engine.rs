//! The engine of a system: its members, its store, and the signals between its tasks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{Handle, Signal, Time, Watchers};
use manylogs_logstore::{LogId, RecordSequence};

use crate::commit::record_watchers;
use crate::members::Members;
use crate::system::{Shared, System};

/// The engine of a system. Its tasks are the functions of this crate that take the system.
pub struct Engine<S: System> {
    /// Clock and tasks.
    pub runtime: Handle,
    /// The devices.
    pub members: Members,
    /// The store, and the system's own state.
    pub state: RefCell<S::State>,
    /// Something may be ready to be written into a record.
    pub commit: Signal,
    /// An entry became durable, room was freed, or the store stopped taking entries.
    pub progress: Signal,
    /// A task waits for room.
    pub wanted: Signal,
    /// Placement asks for a log that is not opened, or a log has failed.
    pub log_wanted: Signal,
    /// Tasks that wait for the devices' answers to records.
    pub(crate) records: Watchers<RecordUnderWay<S>>,
    /// Log that placement would like to use, but may not use before it is opened.
    pub(crate) unopened: Cell<Option<LogId>>,
    /// The opener is at work.
    pub(crate) opening: Cell<bool>,
    closed: Cell<bool>,
}

/// A record that was sent to a device, and its system.
pub(crate) struct RecordUnderWay<S: System> {
    pub(crate) system: Rc<S>,
    pub(crate) log: LogId,
    pub(crate) sequence: RecordSequence,
    pub(crate) sent: Time,
}

impl<S: System> Engine<S> {
    /// An engine at rest: no task runs yet.
    #[must_use]
    pub fn new(runtime: Handle, members: Members, state: S::State) -> Self {
        Self {
            records: record_watchers(&runtime),
            runtime,
            members,
            state: RefCell::new(state),
            commit: Signal::default(),
            progress: Signal::default(),
            wanted: Signal::default(),
            log_wanted: Signal::default(),
            unopened: Cell::default(),
            opening: Cell::default(),
            closed: Cell::default(),
        }
    }

    /// Lends the store.
    pub(crate) fn with_store<R>(
        &self,
        work: impl FnOnce(&mut manylogs_logstore::store::Store) -> R,
    ) -> R {
        work(self.state.borrow_mut().store_mut())
    }

    /// Asks the opener to open `log`; it may take records some time later.
    pub fn open_log(&self, log: LogId) {
        self.unopened.set(Some(log));
        self.log_wanted.notify();
    }

    /// Wakes the tasks that wait for durability or room.
    pub fn notify_progress(&self) {
        self.progress.notify();
        self.commit.notify();
    }

    /// Whether the tasks of the engine and of the system should end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Whether the opener is at work: it may write the root, or the begin of a log. When it is not,
    /// and the engine is closed, it writes nothing more. Tasks that wait for progress are notified.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.opening.get()
    }

    /// Ends the engine's tasks. The system's own tasks are woken by the signals, and must look at
    /// [`Engine::is_closed`].
    pub fn close(&self) {
        self.closed.set(true);
        self.with_store(|store| store.sequences_low().notify());
        self.commit.notify();
        self.wanted.notify();
        self.log_wanted.notify();
        self.notify_progress();
    }
}

impl<S: System> std::fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("members", &self.members)
            .field("unopened", &self.unopened.get())
            .field("closed", &self.closed.get())
            .finish_non_exhaustive()
    }
}
