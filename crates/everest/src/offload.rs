//! A base volume whose writes go to a store first (seed 002 section 3.2).

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Handle, IoError, IoResult, Lba,
    Nanos, Payload, Request, Sectors, TaskLock, all_done, completion,
};
use manylogs_logstore::Space;
use manylogs_plant::{self as plant, Bug};

use crate::store::{CircularStore, Found};
use crate::versions::Version;

/// Options of a client.
#[derive(Clone, Copy, Debug)]
pub struct OffloadOptions {
    /// Which base volume of the store it is.
    pub base: Space,
    /// Pause between two rounds of reclaiming while the store has room.
    pub reclaim_every: Nanos,
}

pub(crate) struct Client {
    pub(crate) runtime: Handle,
    pub(crate) base: Rc<dyn BlockDevice>,
    pub(crate) store: CircularStore,
    pub(crate) options: OffloadOptions,
    next_version: Cell<u64>,
    /// Writes that wait for room.
    pub(crate) starved: Cell<u64>,
    /// One round of reclaiming at a time: a slow round must not write an older version over one
    /// that a later round brought home.
    pub(crate) reclaiming: TaskLock,
    pub(crate) closed: Cell<bool>,
    /// Why reclaiming ended, if it did.
    pub(crate) failed: RefCell<Option<IoError>>,
}

/// A base volume of which every write is off-loaded to a store, and reclaimed in the background.
/// Every acknowledged write is durable. Clones are the same volume.
#[derive(Clone)]
pub struct Offloaded(Rc<Client>);

impl Offloaded {
    /// The volume on `base`, with the versions of it that the store holds.
    #[must_use]
    pub fn open(
        runtime: Handle,
        base: Rc<dyn BlockDevice>,
        store: CircularStore,
        options: OffloadOptions,
    ) -> Self {
        let newest = store.newest(options.base);
        let newest = if plant::is(Bug::VersionsCountedAnew) { 0 } else { newest.0 };
        let client = Rc::new(Client {
            runtime: runtime.clone(),
            base,
            store,
            options,
            next_version: Cell::new(newest + 1),
            starved: Cell::new(0),
            reclaiming: TaskLock::default(),
            closed: Cell::new(false),
            failed: RefCell::default(),
        });
        runtime.spawn(Rc::clone(&client).run_reclaim());
        Self(client)
    }

    /// Moves everything home: afterwards the store holds nothing of this volume, if nobody writes
    /// meanwhile.
    ///
    /// # Errors
    /// If the store or the base volume fails. What was not moved is still in the store.
    pub async fn reclaim(&self) -> Result<(), IoError> {
        while self.0.reclaim_some().await? {}
        Ok(())
    }

    /// Ends the background reclaiming.
    pub fn close(&self) {
        self.0.closed.set(true);
        self.0.store.progress().notify();
    }
}

impl BlockDevice for Offloaded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Acknowledged writes are durable in the store.
            volatile_cache: false,
            native_fua: true,
            discard: true,
            fast_zero: true,
            ..self.0.base.capabilities()
        }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Flush => Completion::ready(Ok(Payload::default())),
            Request::Read { extent } => {
                let client = Rc::clone(&self.0);
                let read = self.0.begin_read(extent);
                self.0.answer(async move { client.end_read(extent, read).await })
            }
            Request::Write { extent, payload, .. } => self.0.write(extent, Some(&payload)),
            Request::Discard { extent, .. } | Request::WriteZeroes { extent, .. } => {
                self.0.write(extent, None)
            }
        }
    }
}

/// A read under way. The store was looked up when the read was submitted.
struct Reading {
    stored: Pin<Box<dyn Future<Output = Result<Vec<Found>, IoError>>>>,
    home: Completion,
}

impl Client {
    fn answer(&self, work: impl Future<Output = IoResult> + 'static) -> Completion {
        let (completer, answer): (Completer, Completion) = completion();
        self.runtime.spawn(async move { completer.complete(work.await) });
        answer
    }

    /// Off-loads a version, a long one in parts. Each part waits for room by itself.
    fn write(self: &Rc<Self>, extent: Extent, content: Option<&Payload>) -> Completion {
        let version = Version(self.next_version.get());
        self.next_version.set(version.0 + 1);
        let step = if content.is_some() { self.store.longest_write() } else { extent.len };
        let mut parts = Vec::new();
        let mut skip = Sectors(0);
        while skip < extent.len {
            let len = Sectors(step.0.min(extent.len.0 - skip.0));
            let part = Extent { start: extent.start + skip, len };
            let content = content.map(|content| content.slice(skip, len));
            let client = Rc::clone(self);
            let sent = self.store.write(self.options.base, part, version, content.clone());
            parts.push(self.answer(async move { client.see_through(sent, part, content).await }));
            skip += len;
        }
        self.answer(async move { all_done(parts).await.map(|()| Payload::default()) })
    }

    /// Waits for a part. Where the store has no room for it, it is sent again, as a newer version,
    /// when something was reclaimed.
    async fn see_through(
        &self,
        sent: Completion,
        part: Extent,
        content: Option<Payload>,
    ) -> IoResult {
        let mut sent = sent;
        loop {
            let progress = self.store.progress().wait();
            match sent.await {
                Err(IoError::NoSpace { .. }) if self.failed.borrow().is_none() => {}
                other => return other,
            }
            self.starved.set(self.starved.get() + 1);
            progress.await;
            self.starved.set(self.starved.get() - 1);
            let version = Version(self.next_version.get());
            self.next_version.set(version.0 + 1);
            sent = self.store.write(self.options.base, part, version, content.clone());
        }
    }

    fn begin_read(&self, extent: Extent) -> Reading {
        let stored = Box::pin(self.store.read(self.options.base, extent));
        Reading { stored, home: self.base.submit(Request::Read { extent }) }
    }

    async fn end_read(&self, extent: Extent, reading: Reading) -> IoResult {
        let home = reading.home.await;
        let found = reading.stored.await?;
        let mut content = Payload::default();
        for Found { extent: part, content: newest } in found {
            match newest {
                Some(newest) => content.append(newest),
                None => {
                    let skip = Sectors(part.start.0 - extent.start.0);
                    content.append(home.clone()?.slice(skip, part.len));
                }
            }
        }
        Ok(content)
    }

    /// The content of `extent`, widened to whole physical sectors of the base volume.
    pub(crate) async fn read_whole(&self, extent: Extent) -> Result<(Extent, Payload), IoError> {
        let told = self.base.capabilities();
        let base = Extent { start: Lba(0), len: told.capacity };
        let whole = extent.widened_to(told.physical_sector).intersection(base);
        let reading = self.begin_read(whole);
        Ok((whole, self.end_read(whole, reading).await?))
    }
}

impl std::fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offloaded")
            .field("options", &self.0.options)
            .field("starved", &self.0.starved.get())
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}
