//! A write cache over a medium. It knows which writes are durable, which a power cut may lose, and
//! which are in flight.
//!
//! The cache has no clock and no queue: its user says when a request begins and when it is
//! answered. [`crate::CrashDisk`] uses it in virtual time.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Payload, Rng, Sectors, Time};

use crate::image::{DiskImage, Survival, versions};

/// A write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PendingWrite(u64);

/// A flush under way: it covers the writes that were answered before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingFlush {
    covered: u64,
}

/// A volatile write cache over an image.
#[derive(Clone, Debug)]
pub struct WriteCache {
    image: DiskImage,
    physical_sector: Sectors,
    volatile: bool,
    /// Writes that began and are not answered yet.
    in_flight: BTreeMap<PendingWrite, (Extent, Payload)>,
    applied: u64,
    begun: u64,
}

impl WriteCache {
    /// A cache over `image`. A torn write keeps or loses whole sectors of `physical_sector`. Unless
    /// the cache is `volatile`, every answered write is durable.
    #[must_use]
    pub fn new(image: DiskImage, physical_sector: Sectors, volatile: bool) -> Self {
        // Versions in the image must stay older than those written from now on.
        let applied = image.newest_applied();
        Self { image, physical_sector, volatile, in_flight: BTreeMap::new(), applied, begun: 0 }
    }

    /// Content of medium and cache, without writes in flight.
    #[must_use]
    pub const fn image(&self) -> &DiskImage {
        &self.image
    }

    /// A write begins: from now on any of its physical sectors may reach the medium.
    pub fn begin_write(&mut self, extent: Extent, payload: Payload) -> PendingWrite {
        self.begun += 1;
        let write = PendingWrite(self.begun);
        self.in_flight.insert(write, (extent, payload));
        write
    }

    /// A write is answered: reads see it; with `fua` it is durable.
    ///
    /// # Panics
    /// If the write was answered before.
    pub fn end_write(&mut self, write: PendingWrite, fua: bool) {
        self.apply(write, fua, || true);
    }

    /// A write is answered with an error: it takes effect in those physical sectors for which
    /// `reached` returns true.
    pub(crate) fn fail_write(&mut self, write: PendingWrite, reached: impl FnMut() -> bool) {
        self.apply(write, false, reached);
    }

    fn apply(&mut self, write: PendingWrite, fua: bool, mut reached: impl FnMut() -> bool) {
        let Some((extent, payload)) = self.in_flight.remove(&write) else {
            unreachable!("a write is answered once");
        };
        self.applied += 1;
        for (sector, version) in versions(extent, &payload, self.applied, self.physical_sector) {
            if !reached() {
                continue;
            }
            self.image.push(sector, version);
            if fua || !self.volatile {
                // Older cached versions of the sector cannot replace this one any more.
                self.image.settle_sector(sector, u64::MAX);
            }
        }
    }

    /// A flush begins.
    #[must_use]
    pub const fn begin_flush(&self) -> PendingFlush {
        PendingFlush { covered: self.applied }
    }

    /// Records the answer to a flush: writes answered before it began are durable.
    pub fn end_flush(&mut self, flush: PendingFlush) {
        self.image.settle_up_to(flush.covered);
    }

    /// Remembers the content that a write under way is about to replace, so that faults can bring
    /// it back.
    pub(crate) fn remember(&mut self, write: PendingWrite) {
        if let Some((extent, payload)) = self.in_flight.get(&write) {
            self.image.remember(*extent, payload);
        }
    }

    /// Enters a write under way in the image's ledger.
    pub(crate) fn note_submitted(&mut self, write: PendingWrite, at: Time) {
        if let Some((extent, payload)) = self.in_flight.get(&write) {
            self.image.note_submitted(write.0, *extent, payload, at);
        }
    }

    /// Notes in the image's ledger that a write was answered and is durable.
    pub(crate) fn note_durable(&mut self, write: PendingWrite, at: Time) {
        self.image.note_durable(write.0, at);
    }

    /// Content of the disk after its user crashed: the cache is kept, and any part of each write in
    /// flight may still arrive.
    #[must_use]
    pub fn after_kill(&self, rng: &mut Rng) -> DiskImage {
        let mut image = self.image.clone();
        let physical = self.physical_sector;
        for (applied, (extent, payload)) in (self.applied + 1..).zip(self.in_flight.values()) {
            for (sector, version) in versions(*extent, payload, applied, physical) {
                if rng.one_in(2) {
                    image.push(sector, version);
                }
            }
        }
        if !self.volatile {
            image.settle_up_to(u64::MAX);
        }
        image
    }

    /// Content of the disk after a power cut at this moment.
    #[must_use]
    pub fn after_power_cut(&self, survival: Survival, rng: &mut Rng) -> DiskImage {
        let mut image = self.image.clone();
        for (extent, payload) in self.in_flight.values() {
            for (sector, version) in versions(*extent, payload, u64::MAX, self.physical_sector) {
                image.push(sector, version);
            }
        }
        image.cut(survival, self.physical_sector, rng);
        image
    }
}
