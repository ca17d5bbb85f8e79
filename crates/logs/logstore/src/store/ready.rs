//! Which logs may take records.

use manylogs_block::{Extent, Sectors};

use crate::{DataSequence, Log, LogId};

use super::{Device, Logs, Store};
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// From now on the logs are only emptied: none takes records.
    pub fn take_no_more(&mut self) {
        self.logs.take_no_more();
    }

    /// See [`Logs::raise_largest_record`].
    pub fn raise_largest_record(&mut self, largest: Sectors) {
        self.logs.raise_largest_record(largest);
    }

    /// Takes a log out of use: it takes no more records, but its content can still be read.
    pub fn retire(&mut self, log: LogId) {
        self.logs.with(log, Log::retire);
    }

    /// Takes all logs of a device out of use.
    pub fn retire_all_on(&mut self, device: Device) {
        for log in self.logs.ids_on(device) {
            self.retire(log);
        }
    }

    /// See [`Logs::shut`].
    pub fn shut(&mut self, device: Device) {
        self.logs.shut(device);
    }

    /// Logs are added behind all others, on a device that was added: see [`Logs::grow`]. The root
    /// covers them already.
    pub fn grow(&mut self, regions: &[(Device, Extent)]) {
        self.logs.grow(regions);
    }

    /// A device that is shut and holds nothing goes: see [`Logs::forget`].
    pub fn forget(&mut self, device: Device) {
        self.logs.forget(device);
    }

    /// Another device takes the place of one that went: see [`Logs::open_again`].
    pub fn open_again(&mut self, device: Device) {
        self.logs.open_again(device);
    }

    /// Leaves the rest of the log unused until it begins anew.
    pub fn seal(&mut self, log: LogId) {
        self.logs.with(log, Log::seal);
    }

    /// Forgets the supersede entries of `log`, which are durable elsewhere.
    pub fn clear_supersedes(&mut self, log: LogId) {
        self.logs.adjust(log, Log::clear_supersedes);
    }

    /// Takes the logs out and leaves blank ones behind, for a recovery that fills the logs.
    pub fn take_logs(&mut self) -> Logs {
        self.logs.take()
    }

    /// Whether records may be appended to `log`: it is opened in the root, and its epoch has begun.
    pub fn is_ready(&self, log: LogId) -> bool {
        (self.is_opened(log) || plant::is(Bug::OpenedSetLate)) && self.has_begun(log)
    }

    /// Whether the log's epoch has begun durably, so that records may follow.
    pub fn has_begun(&self, log: LogId) -> bool {
        let floor = self.epoch_floor();
        if plant::is(Bug::EpochNotBegun) {
            return true;
        }
        self.logs.is_begun(log, floor)
    }

    /// If all entries of an old epoch are below this, any record may begin the next epoch.
    pub(super) fn epoch_floor(&self) -> DataSequence {
        let floors = self.floors();
        if plant::is(Bug::KeptEpochNotBegun) { floors.home } else { floors.kept }
    }

    /// Whether the root allows records in `log`.
    pub fn is_opened(&self, log: LogId) -> bool {
        if self.apart.is_some() {
            // Recovery does not look for records in the logs.
            return true;
        }
        let is_late = self.roots.on_disk.notes_copies && plant::is(Bug::CleanMarkKept);
        let opened = !self.roots.on_disk.names_opened()
            || self.roots.on_disk.opened.contains(log)
            || is_late;
        opened
            && self.roots.on_disk.used.contains(log)
            && self.roots.next_opened.as_ref().is_none_or(|next| next.contains(log))
    }
}
