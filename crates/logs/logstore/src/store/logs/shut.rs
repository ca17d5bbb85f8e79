//! Devices that come and go: their logs take no records any more, or take the first.

use manylogs_block::Extent;

use super::{Device, Logs};
use crate::{Log, LogId};

impl Logs {
    /// Adds logs behind all others, on a device that comes after those of the others.
    pub fn grow(&mut self, regions: &[(Device, Extent)]) {
        for (device, region) in regions {
            self.logs.push(None);
            self.devices.push(*device);
            self.regions.push(*region);
            self.sectors += region.len.0;
        }
        self.count_room();
    }

    /// From now on the logs of a device take no records, and their room does not count. What they
    /// hold can be read and moved.
    pub fn shut(&mut self, device: Device) {
        if !self.is_shut(device) {
            self.shut.push(device);
            self.ids_on(device).into_iter().for_each(|id| self.adjust(id, Log::seal));
            self.count_room();
        }
    }

    /// Forgets what the logs of a device that is shut held: it goes.
    ///
    /// # Panics
    /// If one of them is still needed.
    pub fn forget(&mut self, device: Device) {
        for id in self.ids_on(device) {
            let log = self.logs[id.0 as usize].take();
            assert!(log.is_none_or(|log| log.may_reset()), "a log that is needed is forgotten");
        }
        self.used = self.iter().map(|log| log.used().0).sum();
        self.retired = self.iter().filter(|log| log.is_retired()).count();
        self.count_room();
    }

    /// Another device took the place of one that was forgotten. Its logs are blank.
    pub fn open_again(&mut self, device: Device) {
        self.shut.retain(|shut| *shut != device);
        self.count_room();
    }

    /// Whether logs of the device take no records: see [`Logs::shut`].
    pub fn is_shut(&self, device: Device) -> bool {
        self.shut.contains(&device)
    }

    /// Whether the log takes no records because its device is shut.
    pub fn is_shut_for(&self, id: LogId) -> bool {
        !self.shut.is_empty() && self.is_shut(self.device(id))
    }

    /// Room that is left if the logs of a device take no records any more.
    pub fn room_without(&self, device: Device) -> u64 {
        self.room - self.ids_on(device).into_iter().map(|id| self.room_in(id)).sum::<u64>()
    }
}
