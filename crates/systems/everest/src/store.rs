//! The store as its clients see it.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    Completer, Completion, Extent, IoError, Payload, Sectors, Signal, completion,
};
use manylogs_engine::{Engine, begin_read, wait_durable};
use manylogs_logstore::store::{Batch, NewEntry, Place, Room, Store, Stream, Ticket};
use manylogs_logstore::{Class, EntryKind, LogId, MAX_ENTRIES, Mapped, Space};
use smallvec::SmallVec;

use crate::ages::Ages;
use crate::call::StoreId;
use crate::cleaning::Cleaning;
use crate::versions::{Range, Version, Versions};

/// The stream of all batches of a store. They become durable in order, so that all batches before
/// an acknowledged one are durable.
const ORDER: Stream = Stream(0);

/// Options of making a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Length of a log, the unit of cleaning. A multiple of 8 sectors.
    pub log: Sectors,
    /// Room on the first device for the table that an orderly close leaves, by which the next
    /// opening need not read the logs. A multiple of 8 sectors; with zero the store is one that
    /// programs before the table open too.
    pub table: Sectors,
}

impl StoreOptions {
    /// Room for the table of a store on a device of `sectors`: enough if most of what it holds
    /// comes in blocks of 4 KiB.
    #[must_use]
    pub const fn table_for(sectors: Sectors) -> Sectors {
        Sectors(sectors.0 / 64 / 8 * 8)
    }
}

/// Content that the store has for a part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The part, in addresses of the base volume.
    pub extent: Extent,
    /// The newest content; `None` if the store has none.
    pub content: Option<Payload>,
}

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) versions: Versions,
    pub(crate) ages: Ages,
    /// The log that is appended to.
    pub(crate) head: LogId,
}

impl State {
    /// Like [`Store::put`]; also lists the versions by age, for [`CircularStore::oldest`].
    pub(crate) fn put(&mut self, batch: Batch, room: Room, waiter: Option<Completer>) {
        let mut sequence = self.store.next_data();
        for entry in &batch.entries {
            self.ages.add(sequence, entry.extent);
            sequence = sequence.next();
        }
        self.store.put(batch, room, waiter);
        self.ages.tidy(self.store.map());
    }
}

pub(crate) struct Inner {
    pub(crate) engine: Engine<Self>,
    /// Whether the two slots of the root are on two devices.
    pub(crate) roots_on_two: bool,
    /// Longest payload of a record.
    pub(crate) record: Sectors,
    /// Room that only cleaning may use, and room that only cleaning and deletions may use.
    pub(crate) spared: [Room; 2],
    /// Where an orderly close leaves the table.
    pub(crate) table: Option<Extent>,
    /// The store is being closed: it takes no changes.
    pub(crate) closing: Cell<bool>,
    pub(crate) cleaning: Cleaning,
}

/// A circular store. Clones are the same store. Its tasks run until [`CircularStore::close`], even
/// if all clones are dropped.
#[derive(Clone)]
pub struct CircularStore(pub(crate) Rc<Inner>);

impl std::fmt::Debug for CircularStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.engine.state.borrow();
        f.debug_struct("CircularStore")
            .field("head", &state.head)
            .field("extents", &state.store.map().len())
            .field("room", &state.store.logs().room())
            .field("reserved", &state.store.reserved())
            .field("pending", &state.store.entries().pending.len())
            .field("read_only", &state.store.read_only())
            .finish_non_exhaustive()
    }
}

impl CircularStore {
    /// Longest content of one write.
    #[must_use]
    pub fn longest_write(&self) -> Sectors {
        self.0.record
    }

    /// Stores a version of `extent` of a base volume: `content`, or zeroes if that is `None`.
    /// Resolves when this version and all earlier writes and deletions are durable.
    ///
    /// # Errors
    /// [`IoError::NoSpace`] at once if the store is full: deletions make room.
    /// [`IoError::ReadOnly`] if too many of its logs have failed. [`IoError::OutOfRange`] if the
    /// content is too long or of another length. [`IoError::Gone`] if the store is closed.
    pub fn write(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        content: Option<Payload>,
    ) -> Completion {
        self.put(base, extent, version, content, self.0.spared[0] + self.0.spared[1])
    }

    /// As [`CircularStore::write`], but waits for room and may use that of deletions: for versions
    /// without which nothing can be deleted.
    pub(crate) async fn write_first(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        content: Payload,
    ) -> Result<(), IoError> {
        loop {
            let progress = self.0.engine.progress.wait();
            let spared = self.0.spared[0];
            match self.put(base, extent, version, Some(content.clone()), spared).await {
                Err(IoError::NoSpace { .. }) => progress.await,
                other => return other.map(drop),
            }
        }
    }

    fn put(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        content: Option<Payload>,
        spared: Room,
    ) -> Completion {
        let fits =
            content.as_ref().is_none_or(|c| c.len() == extent.len && c.len() <= self.0.record);
        if !fits || extent.is_empty() {
            return Completion::ready(Err(IoError::OutOfRange { extent, capacity: self.0.record }));
        }
        let kind = if content.is_some() { EntryKind::Data } else { EntryKind::Zeroes };
        let address = base.address(extent);
        let class = Class::Data;
        let entry = NewEntry { extent: address, kind, class, version: version.0, payload: content };
        let batch = Batch { entries: SmallVec::from_buf([entry]), after: Some(ORDER) };
        let mut state = self.0.engine.state.borrow_mut();
        if let Err(error) = self.0.takes_changes(&state) {
            return Completion::ready(Err(error));
        }
        let room = state.store.room_of(&batch);
        let needed = room + spared;
        if !state.store.fits(needed) {
            if !state.store.logs().may_ever_take(needed.log) {
                let reason = "too few logs of the store are in use";
                return Completion::ready(Err(IoError::ReadOnly { reason }));
            }
            self.0.engine.wanted.notify();
            return Completion::ready(Err(IoError::NoSpace { extent }));
        }
        state.versions.insert(address, version);
        let (completer, durable) = completion();
        state.put(batch, room, Some(completer));
        self.0.engine.commit.notify();
        durable
    }

    /// Forgets the store's versions of `extent` up to `version`. When this resolves, no crash
    /// brings them back.
    ///
    /// # Errors
    /// If the store's devices fail, or it is closed.
    pub async fn delete(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
    ) -> Result<(), IoError> {
        self.delete_if(base, extent, version, || true).await
    }

    /// As [`CircularStore::delete`], but only if `still` holds when there is room for the record.
    ///
    /// # Errors
    /// [`IoError::Gone`] if it does not hold, and those of [`CircularStore::delete`].
    pub(crate) async fn delete_if(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        still: impl Fn() -> bool,
    ) -> Result<(), IoError> {
        let address = base.address(extent);
        let room = Room::of_one(EntryKind::Supersede, address, self.0.shape());
        // One record supersedes all parts, so that each needs less room than it would alone.
        let parts = |state: &State| {
            state.versions.lookup(address).filter(|(_, found)| *found <= version).count() as u64
        };
        let last = loop {
            let progress = self.0.engine.progress.wait();
            {
                let mut state = self.0.engine.state.borrow_mut();
                self.0.takes_changes(&state)?;
                if !still() {
                    return Err(IoError::Gone);
                }
                let count = parts(&state).max(1);
                let needed = Room { log: Sectors(room.log.0 * count), ..room };
                if state.store.fits(needed + self.0.spared[0]) {
                    break self.forget(&mut state, address, version);
                }
            }
            self.0.engine.wanted.notify();
            progress.await;
        };
        // Waits even if there was nothing to forget: an earlier deletion may be on its way.
        match last {
            Some(last) => wait_durable(&*self.0, last).await,
            None => Ok(()),
        }
    }

    fn forget(&self, state: &mut State, address: Extent, version: Version) -> Option<Ticket> {
        let parts = state.versions.remove(address, version);
        for parts in parts.chunks(MAX_ENTRIES) {
            let entries = parts.iter().map(|part| NewEntry {
                extent: *part,
                kind: EntryKind::Supersede,
                class: Class::Data,
                version: version.0,
                payload: None,
            });
            let batch = Batch { entries: entries.collect(), after: Some(ORDER) };
            let room = state.store.room_of(&batch);
            state.store.put(batch, room, None);
        }
        self.0.engine.commit.notify();
        state.store.entries().tickets.last()
    }

    /// The content of `extent`, part by part, that is newest when this is called.
    ///
    /// # Errors
    /// If a device fails, or a checksum does not match.
    pub fn read(
        &self,
        base: Space,
        extent: Extent,
    ) -> impl Future<Output = Result<Vec<Found>, IoError>> + use<> {
        let address = base.address(extent);
        let mut state = self.0.engine.state.borrow_mut();
        let lookup: Vec<_> = state.store.map().lookup(address).collect();
        let begun = |(part, mapped): (Extent, Option<Mapped<Place>>)| {
            let source = mapped.map(|at| begin_read(&*self.0, &mut state, part, at.value));
            (part, source)
        };
        let sources: Vec<_> = lookup.into_iter().map(begun).collect();
        drop(state);
        let inner = Rc::clone(&self.0);
        async move {
            let mut found = Vec::with_capacity(sources.len());
            let mut result = Ok(());
            for (part, source) in sources {
                let extent = Space::of(part).1;
                let content = match source {
                    None => Ok(None),
                    Some(source) => source.content(&*inner, part, extent).await.map(Some),
                };
                match content {
                    Ok(content) => found.push(Found { extent, content }),
                    // The other reads are awaited too: each keeps its log from a reset until it
                    // ends.
                    Err(error) => result = result.and(Err(error)),
                }
            }
            result.map(|()| found)
        }
    }

    /// The ranges that the store holds of a base volume, the oldest first, as they should be
    /// reclaimed. A client that lost its state learns from this where its newest versions are.
    #[must_use]
    pub fn ranges(&self, base: Space) -> Vec<Range> {
        self.oldest(base, usize::MAX)
    }

    /// The first `most` of [`CircularStore::ranges`], in time that grows with `most`, not with all.
    #[must_use]
    pub fn oldest(&self, base: Space, most: usize) -> Vec<Range> {
        let mut state = self.0.engine.state.borrow_mut();
        let State { store, versions, ages, .. } = &mut *state;
        ages.oldest(base, most, store.map(), versions)
    }

    /// The parts of `extent` that the store has, and the version of each.
    #[must_use]
    pub fn versions(&self, base: Space, extent: Extent) -> Vec<Range> {
        let state = self.0.engine.state.borrow();
        let found = state.versions.lookup(base.address(extent));
        found.map(|(part, version)| Range { extent: Space::of(part).1, version }).collect()
    }

    /// Bytes of memory that its tables take: of places, checksums, versions and ages.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        let State { store, versions, ages, .. } = &*self.0.engine.state.borrow();
        store.table_bytes() + (versions.bytes() + ages.bytes()) as u64
    }

    /// Sectors that the store holds of a base volume.
    #[must_use]
    pub fn held(&self, base: Space) -> Sectors {
        self.0.engine.state.borrow().versions.held(base)
    }

    /// Sectors that the store would hold of a base volume with a version of `extent`.
    pub(crate) fn held_with(&self, base: Space, extent: Extent) -> Sectors {
        let versions = &self.0.engine.state.borrow().versions;
        let had = versions.sectors(base.address(extent));
        Sectors(versions.held(base).0 + extent.len.0 - had.0)
    }

    /// Name of the store.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.0.engine.state.borrow().store.volume()
    }

    /// The largest version of a base volume that the store holds.
    #[must_use]
    pub fn newest(&self, base: Space) -> Version {
        self.ranges(base).iter().map(|range| range.version).max().unwrap_or_default()
    }

    /// Whether more than half of the logs are in use, so that clients should reclaim.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.0.engine.state.borrow().store.logs().occupancy() > 0.5
    }

    /// Notified when something became durable or a log became free.
    #[must_use]
    pub fn progress(&self) -> &Signal {
        &self.0.engine.progress
    }

    /// Waits until all writes and deletions so far are durable, and ends the store's tasks. If the
    /// store has room for it, its table is left for the next opening. Nothing depends on that: a
    /// crash meanwhile leaves the logs as they were.
    ///
    /// # Errors
    /// If a device fails.
    pub async fn close(&self) -> Result<(), IoError> {
        if let Some(place) = self.0.table
            && !self.0.engine.is_closed()
        {
            return self.0.leave(place).await;
        }
        let last = self.0.engine.state.borrow().store.entries().tickets.last();
        let done = match last {
            Some(last) => wait_durable(&*self.0, last).await,
            None => Ok(()),
        };
        self.0.engine.close();
        done
    }
}

impl Inner {
    pub(crate) fn shape(&self) -> manylogs_logstore::RecordShape {
        self.engine.state.borrow().store.logs().shape()
    }

    fn takes_changes(&self, state: &State) -> Result<(), IoError> {
        let over = self.engine.is_closed() || self.closing.get();
        if over { Err(IoError::Gone) } else { state.store.writable() }
    }
}
