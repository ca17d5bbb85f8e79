//! Versions that are kept in the logs: [`Class::DurabilityOnly`], and [`Class::Leading`], which
//! leads to them. Checkpoints leave them in the logs, and they have a floor of their own,
//! [`Floors::kept`](crate::Floors).

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
    /// Sectors of content whose newest version is kept.
    sectors: u64,
    /// Whether versions are mapped that are not kept.
    waits: bool,
}

impl Kept {
    /// Counts a version that recovery found at `place`.
    pub(super) fn found(&mut self, extent: Extent, place: Place) {
        match place {
            Place::Log { class: Class::DurabilityOnly, .. } => self.put(extent.len),
            Place::Log { class: Class::Leading, .. } => {}
            _ => self.put_other(),
        }
    }

    /// Counts kept content that became the newest.
    pub(super) const fn put(&mut self, len: Sectors) {
        self.sectors += len.0;
    }

    /// Notes that a version that is not kept became the newest.
    pub(super) const fn put_other(&mut self) {
        self.waits = true;
    }

    /// Subtracts sectors of content that went home and are no longer kept. `waits` says whether
    /// versions are mapped that are not kept.
    pub(super) const fn went_home(&mut self, sectors: u64, waits: bool) {
        self.sectors = self.sectors.saturating_sub(sectors);
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

    /// Sectors of content whose newest version is kept.
    #[must_use]
    pub const fn kept_sectors(&self) -> Sectors {
        Sectors(self.kept.sectors)
    }

    /// Counts a write that was meant to be kept but goes home.
    pub const fn note_kept_home(&mut self, len: Sectors) {
        self.counters.kept_home_sectors += len.0;
    }

    /// Whether versions are mapped that a checkpoint would bring home.
    #[must_use]
    pub fn waits_for_home(&self) -> bool {
        if self.kept.on { self.kept.waits } else { !self.map.is_empty() }
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
            _ if self.kept.on && kind == EntryKind::Data => class,
            Class::DurabilityOnly => Class::Data,
            Class::Leading => Class::Metadata,
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
        for (slot, buffered) in &displaced.buffered {
            let entry = slots.get(*slot).entry;
            sectors += if entry.is_kept() { *buffered } else { 0 };
            content += if entry.is_kept_content() { *buffered } else { 0 };
        }
        self.kept.sectors = self.kept.sectors.saturating_sub(content);
        let entry = &mut slots.get_mut(id).entry;
        entry.over_kept = sectors > 0 && !entry.is_kept() && !plant::is(Bug::KeptNotBuried);
    }
}
