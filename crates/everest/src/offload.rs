//! A base volume whose writes go to a store first (the Everest paper, section 3.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Geometry, Handle, IoError, IoResult,
    Lba, Nanos, Payload, Request, Sectors, TaskLock, all_done, completion,
};
use manylogs_logstore::Space;
use manylogs_plant::{self as plant, Bug};

use crate::lender::{Answer, Lender, LenderError};
use crate::store::Found;
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
    pub(crate) store: Rc<dyn Lender>,
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
    ///
    /// # Errors
    /// If the store cannot be reached, or fails: nobody else knows which versions it holds.
    pub async fn open(
        runtime: Handle,
        base: Rc<dyn BlockDevice>,
        store: Rc<dyn Lender>,
        options: OffloadOptions,
    ) -> Result<Self, LenderError> {
        let held = store.oldest(options.base, usize::MAX).await?;
        let newest = held.iter().map(|range| range.version).max().unwrap_or_default();
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
        Ok(Self(client))
    }

    /// Moves everything home: afterwards the store holds nothing of this volume, if nobody writes
    /// meanwhile.
    ///
    /// # Errors
    /// If the store or the base volume fails, or the store cannot be reached. What was not moved is
    /// still in the store.
    pub async fn reclaim(&self) -> Result<(), LenderError> {
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
                let stored = self.0.store.read(self.0.options.base, extent);
                self.0.answer(async move { client.with_homes(extent, stored).await })
            }
            Request::Write { extent, payload, .. } => self.0.write(extent, Some(&payload)),
            Request::Discard { extent, .. } | Request::WriteZeroes { extent, .. } => {
                self.0.write(extent, None)
            }
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        self.0.base.geometry()
    }
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
        sent: Answer<()>,
        part: Extent,
        content: Option<Payload>,
    ) -> IoResult {
        let mut sent = sent;
        loop {
            let progress = self.store.progress().wait();
            match sent.await {
                Err(LenderError::Failed(IoError::NoSpace { .. }))
                    if self.failed.borrow().is_none() => {}
                Err(error) => return Err(error.of_request(part)),
                Ok(()) => return Ok(Payload::default()),
            }
            self.starved.set(self.starved.get() + 1);
            progress.await;
            self.starved.set(self.starved.get() - 1);
            let version = Version(self.next_version.get());
            self.next_version.set(version.0 + 1);
            sent = self.store.write(self.options.base, part, version, content.clone());
        }
    }

    /// What the store has of `extent`, and the rest from home. Homes are read when the store has
    /// answered: what it does not have any more is there by then.
    async fn with_homes(&self, extent: Extent, stored: Answer<Vec<Found>>) -> IoResult {
        let found = stored.await.map_err(|error| error.of_request(extent))?;
        let read = |part: Found| match part.content {
            Some(newest) => Completion::ready(Ok(newest)),
            None => self.base.submit(Request::Read { extent: part.extent }),
        };
        let parts: Vec<Completion> = found.into_iter().map(read).collect();
        let (mut content, mut result) = (Payload::default(), Ok(()));
        for part in parts {
            match part.await {
                Ok(part) => content.append(part),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| content)
    }

    /// The content of `extent`, widened to whole physical sectors of the base volume.
    pub(crate) async fn read_whole(&self, extent: Extent) -> Result<(Extent, Payload), IoError> {
        let told = self.base.capabilities();
        let base = Extent { start: Lba(0), len: told.capacity };
        let whole = extent.widened_to(told.physical_sector).intersection(base);
        let stored = self.store.read(self.options.base, whole);
        Ok((whole, self.with_homes(whole, stored).await?))
    }
}

impl std::fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offloaded")
            .field("options", &self.0.options)
            .field("starved", &self.0.starved.get())
            .field("crowded", &self.0.store.is_crowded())
            .finish_non_exhaustive()
    }
}
