//! A base volume that borrows stores while it is busy (the Everest paper, section 3.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Extents, Geometry, Handle, IoError,
    IoResult, Lba, Nanos, Payload, Request, Sectors, Signal, TaskLock, Time, completion,
};
use manylogs_plant::{self as plant, Bug};

use crate::call::{BaseId, Opening};
use crate::failed::{Failures, Trouble};
use crate::header::{HEADER, Header};
use crate::lender::Load;
use crate::locks::Locks;
use crate::meter::Meter;
use crate::peer::Peer;
use crate::peers::Peers;
use crate::policy::Policy;
use crate::table::Table;
use crate::versions::{Range, Version, Versions};
use crate::written::Written;

/// Options of a client.
#[derive(Clone, Copy, Debug)]
pub struct OffloadOptions {
    /// When to off-load.
    pub policy: Policy,
    /// Copies of each off-loaded write, each on a store of its own.
    pub copies: usize,
    /// A read of a range whose only copies are in stores that cannot be reached fails after this.
    pub patience: Nanos,
    /// Pause between two attempts to reach a store.
    pub reconnect_every: Nanos,
    /// Pause between two rounds of reclaiming.
    pub reclaim_every: Nanos,
    /// Ranges in a round of reclaiming, at least one: the oldest are chosen.
    pub pass: usize,
    /// Ranges that go home together.
    pub together: usize,
    /// Reclaiming in the background waits until the base was under its threshold for so long. In a
    /// burst the base is under it for short times only, and reclaiming then would be in the way of
    /// clients.
    pub calm: Nanos,
    /// Most that stores may hold: at this bound no further ranges are off-loaded.
    pub held_max: Sectors,
    /// What a store alone has is noted on the base when the store was unreachable for so long.
    pub note_after: Nanos,
}

impl Default for OffloadOptions {
    fn default() -> Self {
        Self {
            policy: Policy::DEFAULT,
            copies: 1,
            patience: Nanos::from_secs(30),
            reconnect_every: Nanos::from_millis(500),
            reclaim_every: Nanos::from_millis(100),
            pass: 4096,
            together: 16,
            calm: Nanos::from_millis(300),
            held_max: Sectors(u64::MAX),
            note_after: Nanos::from_secs(2),
        }
    }
}

/// Counters of a client, and how much of its data is in stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadFigures {
    /// Writes that went to stores.
    pub offloaded: u64,
    /// Writes that went home.
    pub home: u64,
    /// Sectors of which a store has the newest version.
    pub held: Sectors,
    /// The largest value of `held` so far.
    pub held_max: Sectors,
    /// Ranges that were brought home.
    pub reclaimed: u64,
    /// Ranges that went from a store that leaves to others.
    pub moved: u64,
}

pub(crate) struct Client {
    pub(crate) runtime: Handle,
    /// The base volume with its header, for reclaiming: its requests do not count as clients' load.
    pub(crate) base: Rc<dyn BlockDevice>,
    /// The same device, metered, for requests of clients.
    pub(crate) home: Meter,
    pub(crate) header: Header,
    pub(crate) base_id: BaseId,
    pub(crate) opening: Opening,
    pub(crate) peers: Peers,
    pub(crate) table: RefCell<Table>,
    /// Versions that stores returned damaged when they should go home.
    pub(crate) damaged: RefCell<Versions>,
    pub(crate) failures: RefCell<Failures>,
    pub(crate) locks: Locks,
    pub(crate) options: OffloadOptions,
    writes: Cell<u64>,
    /// When ranges were off-loaded.
    pub(crate) written: Written,
    /// When the base was last seen over its threshold.
    pub(crate) last_over: Cell<Option<Time>>,
    /// Held by a round of reclaiming, so that only one runs.
    pub(crate) reclaiming: TaskLock,
    /// Notified when a store can be reached again or is lost, and when the client is closed or
    /// fenced.
    pub(crate) changed: Signal,
    pub(crate) closed: Cell<bool>,
    pub(crate) fenced: Cell<bool>,
    pub(crate) figures: Cell<OffloadFigures>,
    /// Whether something may be lost of which the header says nothing: a store came back with less.
    pub(crate) lacks: Cell<bool>,
    /// Sectors in stores, for the bound of [`OffloadOptions::held_max`].
    pub(crate) held: Cell<u64>,
}

/// A base volume that borrows stores. Writes that went to stores are durable when they are
/// acknowledged; the others are as durable as the base volume makes them. Clones are the same
/// volume.
#[derive(Clone)]
pub struct Offloaded(pub(crate) Rc<Client>);

impl Client {
    pub(crate) fn new(
        runtime: Handle,
        base: Rc<dyn BlockDevice>,
        header: Header,
        peers: Vec<Peer>,
        options: OffloadOptions,
    ) -> Self {
        let (base_id, opening) = (header.content().base, header.content().opening());
        let table = RefCell::new(Table::new(peers.len()));
        let written = Written::from(runtime.now());
        Self {
            home: Meter::new(runtime.clone(), Rc::clone(&base)),
            runtime,
            base,
            header,
            base_id,
            opening,
            peers: Peers::new(peers),
            table,
            damaged: RefCell::new(Versions::new()),
            failures: RefCell::new(Failures::new()),
            locks: Locks::default(),
            options,
            writes: Cell::default(),
            written,
            last_over: Cell::default(),
            reclaiming: TaskLock::default(),
            changed: Signal::default(),
            closed: Cell::default(),
            fenced: Cell::default(),
            figures: Cell::default(),
            lacks: Cell::default(),
            held: Cell::default(),
        }
    }

    /// Ends the client's tasks, and waits for their requests to the base volume. If it was opened,
    /// notes what each store alone has.
    pub(crate) async fn close(&self, was_opened: bool) {
        self.closed.set(true);
        self.changed.notify();
        if plant::is(Bug::ClosedBeforeTasksEnd) {
            return;
        }
        drop(self.reclaiming.take().await);
        if was_opened && !self.fenced.get() {
            // What it cannot note is known as lost as long as the client lives.
            drop(self.note_losses().await);
            self.note_all().await;
        }
        self.header.seal().await;
    }

    /// Whether the client's tasks should end.
    pub(crate) fn is_over(&self) -> bool {
        self.closed.get() || self.fenced.get()
    }

    pub(crate) fn next_version(&self) -> Version {
        self.writes.set(self.writes.get() + 1);
        let anew = plant::is(Bug::VersionsCountedAnew);
        Version::new(if anew { 1 } else { self.opening.incarnation }, self.writes.get())
    }

    /// The newest version that was given so far.
    pub(crate) fn last_version(&self) -> Version {
        Version::new(self.opening.incarnation, self.writes.get())
    }

    pub(crate) fn answer<T: 'static>(
        &self,
        work: impl Future<Output = IoResult<T>> + 'static,
    ) -> Completion<T> {
        let (completer, answer): (Completer<T>, Completion<T>) = completion();
        self.runtime.spawn(async move { completer.complete(work.await) });
        answer
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut OffloadFigures)) {
        let mut figures = self.figures.get();
        change(&mut figures);
        self.figures.set(figures);
    }

    /// Counts the sectors in stores anew from the table.
    pub(crate) fn weigh(&self) {
        let held = self.table.borrow().sectors(None);
        self.held.set(held.0);
        self.count(|figures| figures.held_max = figures.held_max.max(held));
    }
}

impl Offloaded {
    /// Moves everything home: afterwards the stores hold nothing of this volume, if nobody writes
    /// meanwhile.
    ///
    /// # Errors
    /// If the base volume fails, or a store that holds something cannot be reached or fails;
    /// [`IoError::Medium`] if nothing is left but ranges that no store returns whole. Ranges that
    /// were not moved are still in the stores.
    pub async fn reclaim(&self) -> Result<(), IoError> {
        loop {
            if self.0.table.borrow().is_empty() {
                return Ok(());
            }
            let passed = self.0.reclaim_some(usize::MAX).await;
            let is_next = passed.goes_on && passed.trouble.is_some();
            if !passed.some && !is_next {
                if let Some(Range { extent, .. }) = self.0.stuck(None).first().copied() {
                    return Err(IoError::Medium { extent });
                }
                let whole = Extent { start: Lba(0), len: self.capabilities().capacity };
                match passed.trouble {
                    Some(Trouble::Base(error)) => return Err(error),
                    // Of the volume nothing is gone for good.
                    Some(Trouble::Store(..)) => return Err(IoError::Transient { extent: whole }),
                    None => {}
                }
                if !self.0.may_reclaim_all() {
                    return Err(IoError::Transient { extent: whole });
                }
                // Only writes on their way to a store are left.
                self.0.runtime.sleep(self.0.options.reclaim_every).await;
            }
        }
    }

    /// Ends the work in the background. Stores keep what they hold. If all requests were answered
    /// before, this opening sends the base volume nothing more, so that it may be opened anew.
    pub async fn close(&self) {
        self.0.close(true).await;
    }

    /// The counters of the client, and how much of its data is in stores.
    #[must_use]
    pub fn figures(&self) -> OffloadFigures {
        OffloadFigures { held: self.0.table.borrow().sectors(None), ..self.0.figures.get() }
    }

    /// Bytes of memory that the table of off-loaded ranges takes.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.0.table.borrow().bytes() as u64
    }

    /// How long ago the oldest range was written of those whose newest version is in stores alone;
    /// `None` if there is none. What was there when the base volume was opened counts from then.
    /// At most a second too much if the range is young, and a share of the age if it is old.
    #[must_use]
    pub fn oldest(&self) -> Option<Nanos> {
        let version = self.0.table.borrow().oldest()?;
        Some(self.0.runtime.now().since(self.0.written.when(version)))
    }

    /// How busy the base volume is with requests of clients.
    #[must_use]
    pub fn load(&self) -> Load {
        self.0.home.load()
    }
}

impl BlockDevice for Offloaded {
    fn capabilities(&self) -> Capabilities {
        let base = self.0.base.capabilities();
        Capabilities { capacity: Sectors(base.capacity.0.saturating_sub(HEADER.0)), ..base }
    }

    fn submit(&self, request: Request) -> Completion {
        if self.0.fenced.get() {
            return Completion::ready(Err(IoError::Gone));
        }
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Flush if plant::is(Bug::BaseFlushSkipped) => {
                Completion::ready(Ok(Payload::default()))
            }
            Request::Flush => self.0.home.submit(Request::Flush),
            Request::Read { extent } => self.0.read(extent),
            Request::Discard { .. } if !self.capabilities().discard => {
                // A discard would only cost time, and uncover versions older than those in stores.
                Completion::ready(Ok(Payload::default()))
            }
            change => self.0.change(change),
        }
    }

    /// Everything counts as data.
    fn extents(&self, within: Extent) -> Completion<Extents> {
        if let Err(error) = self.capabilities().check(&Request::Read { extent: within }) {
            return Completion::ready(Err(error));
        }
        Completion::ready(Ok(Extents::of(within, manylogs_block::ExtentKind::Data)))
    }

    fn geometry(&self) -> Option<Geometry> {
        // The header moves every address, so that chunks do not begin where the base's do.
        None
    }
}

impl std::fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let live: Vec<bool> = self.0.peers.iter().map(Peer::is_live).collect();
        f.debug_struct("Offloaded")
            .field("options", &self.0.options)
            .field("figures", &self.0.figures.get())
            .field("table", &self.0.table.borrow())
            .field("live", &live)
            .field("locks", &self.0.locks)
            .finish_non_exhaustive()
    }
}
