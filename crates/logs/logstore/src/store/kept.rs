//! Versions that are kept in the logs: [`Class::DurabilityOnly`], [`Class::Leading`], which leads
//! to them, and [`Class::KeptMetadata`]. Checkpoints leave them in the logs, and they have a floor
//! of their own, [`Floors::kept`](crate::Floors).

use std::collections::BTreeMap;

use manylogs_block::{Completer, Extent, Sectors};
use manylogs_plant::{self as plant, Bug};

use super::{Displaced, Origin, Place, Room, SlotId, Store};
use crate::{Class, DataSequence, Entry, EntryKind, LogId, Mapped};

/// Account of the kept versions.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Whether versions may be kept: the disk must say so first, because older programs do not know
    /// them.
    on: bool,
    /// Whether metadata is kept as well. Like `on`, and decided by each opening: metadata that an
    /// earlier one kept stays kept until it goes home.
    metadata_on: bool,
    /// Sectors of content whose newest version is kept.
    sectors: u64,
    /// Sectors of metadata whose newest version is kept, without what leads to kept content.
    metadata: u64,
    /// Whether versions are mapped that are not kept.
    waits: bool,
}

/// Sectors of kept versions that went home.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptHome {
    /// Of content.
    pub(super) content: u64,
    /// Of metadata that stays in the logs.
    pub(super) metadata: u64,
}

impl Kept {
    /// Counts a version that recovery found at `place`.
    pub(super) fn found(&mut self, extent: Extent, place: Place) {
        match place {
            Place::Log { class: Class::DurabilityOnly, .. } => self.put(extent.len),
            Place::Log { class: Class::KeptMetadata, .. } => self.put_metadata(extent.len),
            Place::Log { class: Class::Leading, .. } => {}
            _ => self.put_other(),
        }
    }

    /// Counts kept content that became the newest.
    pub(super) const fn put(&mut self, len: Sectors) {
        self.sectors += len.0;
    }

    /// Counts kept metadata that became the newest.
    pub(super) const fn put_metadata(&mut self, len: Sectors) {
        self.metadata += len.0;
    }

    /// Notes that a version that is not kept became the newest.
    pub(super) const fn put_other(&mut self) {
        self.waits = true;
    }

    /// Subtracts sectors that went home and are no longer kept. `waits` says whether versions are
    /// mapped that are not kept.
    pub(super) const fn went_home(&mut self, gone: KeptHome, waits: bool) {
        self.sectors = self.sectors.saturating_sub(gone.content);
        self.metadata = self.metadata.saturating_sub(gone.metadata);
        self.waits = waits;
    }
}

/// Share of a log that kept versions take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptIn {
    /// Sectors whose newest version is a kept one in this log.
    pub live: u64,
    /// Sectors that were appended to the log in its present epoch.
    pub used: u64,
}

impl Store {
    /// From now on versions of the class [`Class::DurabilityOnly`], and [`Class::Leading`], are
    /// kept. The caller has made sure that programs which do not know such versions refuse the
    /// store. Stores with headers apart keep none.
    pub fn keep(&mut self) {
        if !self.kept.on && self.apart.is_none() {
            self.kept.on = true;
            self.kept.waits = !self.map.is_empty();
        }
    }

    /// Whether versions may be kept.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        self.kept.on
    }

    /// From now on versions of the class [`Class::KeptMetadata`] are kept, if versions may be kept
    /// at all. The caller has made sure that programs which do not know the class refuse the store.
    /// Before this call they count as [`Class::Metadata`].
    pub const fn keep_metadata(&mut self) {
        self.kept.metadata_on = self.kept.on;
    }

    /// Whether new metadata stays in the logs.
    #[must_use]
    pub const fn keeps_metadata(&self) -> bool {
        self.kept.metadata_on
    }

    /// Sectors of metadata whose newest version is kept, without what leads to kept content.
    #[must_use]
    pub const fn kept_metadata_sectors(&self) -> Sectors {
        Sectors(self.kept.metadata)
    }

    /// Sectors of content whose newest version is kept.
    #[must_use]
    pub const fn kept_sectors(&self) -> Sectors {
        Sectors(self.kept.sectors)
    }

    /// Counts a write that was meant to be kept but goes home.
    pub const fn note_kept_home(&mut self, len: Sectors) {
        self.counters.kept_home_sectors += len.0;
    }

    /// Counts kept content that was logged anew, so that older content could go home.
    pub const fn note_kept_moved(&mut self, len: Sectors) {
        self.counters.kept_moved_sectors += len.0;
    }

    /// Whether versions are mapped that a checkpoint would bring home.
    #[must_use]
    pub fn waits_for_home(&self) -> bool {
        let leaves = self.kept.metadata > 0 && !self.kept.metadata_on;
        if self.kept.on { self.kept.waits || leaves } else { !self.map.is_empty() }
    }

    /// The largest data sequence of the metadata that is kept, or will be once it is durable. Looks
    /// at the whole map.
    #[must_use]
    pub fn newest_kept_metadata(&self) -> Option<DataSequence> {
        let slots = &self.entries.slots;
        let is_kept = |mapped: &Mapped<Place>| match mapped.value {
            Place::Buffered { slot, .. } => slots.get(slot).entry.is_kept_metadata(),
            place => place.is_kept_metadata(),
        };
        let kept = self.map.iter().filter(|(_, mapped)| is_kept(mapped));
        kept.map(|(_, mapped)| mapped.sequence).max()
    }

    /// The smallest data sequence of the kept versions that are mapped. Entries that displaced
    /// others may still be under way. Looks at the whole map.
    #[must_use]
    pub fn oldest_kept(&self) -> Option<DataSequence> {
        if !self.kept.on {
            return None;
        }
        self.kept().map(|(_, mapped)| mapped.sequence).min()
    }

    /// The kept versions in logs, by address.
    pub fn kept(&self) -> impl Iterator<Item = (Extent, Mapped<Place>)> {
        self.map.iter().filter(|(_, mapped)| mapped.value.is_kept())
    }

    /// The logs that hold kept versions, or entries that say that older kept ones are dead.
    #[must_use]
    pub fn logs_that_keep(&self) -> BTreeMap<LogId, KeptIn> {
        let mut found: BTreeMap<LogId, KeptIn> = BTreeMap::new();
        if !self.kept.on {
            return found;
        }
        for log in self.logs.iter().filter(|log| log.buries_kept()) {
            found.entry(log.id()).or_default();
        }
        for (extent, mapped) in self.kept() {
            if let Some(log) = mapped.value.log() {
                found.entry(log).or_default().live += extent.len.0;
            }
        }
        for (log, kept) in &mut found {
            kept.used = self.logs.get(*log).map_or(0, |log| log.used().0);
        }
        found
    }

    /// The class that an entry gets: kept versions only where they are allowed.
    pub(super) fn class_of(&self, kind: EntryKind, class: Class) -> Class {
        match class {
            Class::KeptMetadata if !self.kept.metadata_on => Class::Metadata,
            _ if self.kept.on && kind == EntryKind::Data => class,
            Class::DurabilityOnly => Class::Data,
            Class::Leading | Class::KeptMetadata => Class::Metadata,
            Class::Data | Class::Metadata => class,
        }
    }

    /// Queues an entry that says that versions of `extent` before `sequence` are dead. A newer one
    /// went home and took `displaced` out of the map. [`Store::make_pending`] must follow.
    pub fn queue_supersede(
        &mut self,
        extent: Extent,
        sequence: DataSequence,
        displaced: Displaced,
        (waiter, reserved): (Option<Completer>, Room),
    ) -> SlotId {
        let entry = Entry::new(extent, sequence, EntryKind::Supersede);
        let id = self.queue(entry, None, waiter, reserved, Origin::Client);
        self.bury(id, &displaced);
        if displaced.is_empty() && self.kept.on {
            // It repeats an earlier entry that is not durable yet, and that one may be over kept
            // versions.
            self.entries.slots.get_mut(id).entry.over_kept = true;
        }
        self.book_displaced(id, displaced);
        id
    }

    /// Marks the slot's entry if it displaced kept versions. A marked entry must be found as long
    /// as they can be, even if it is below the floor.
    pub(super) fn bury(&mut self, id: SlotId, displaced: &Displaced) {
        let slots = &mut self.entries.slots;
        let (mut sectors, mut content) = (displaced.kept, displaced.content);
        let mut metadata = displaced.metadata;
        for (slot, buffered) in &displaced.buffered {
            let entry = slots.get(*slot).entry;
            sectors += if entry.is_kept() { *buffered } else { 0 };
            content += if entry.is_kept_content() { *buffered } else { 0 };
            metadata += if entry.is_kept_metadata() { *buffered } else { 0 };
        }
        self.kept.sectors = self.kept.sectors.saturating_sub(content);
        self.kept.metadata = self.kept.metadata.saturating_sub(metadata);
        if plant::is(Bug::MetadataFreedNotBuried) {
            sectors -= metadata;
        }
        let entry = &mut slots.get_mut(id).entry;
        entry.over_kept = sectors > 0 && !entry.is_kept() && !plant::is(Bug::KeptNotBuried);
    }
}
