//! Whether there is room for an entry.

use super::{Room, Store};

impl Store {
    /// Sets room aside, which [`Store::fits`], for what is not an entry yet.
    pub fn reserve(&mut self, room: Room) {
        self.reserved += room;
    }

    /// Gives room up that [`Store::reserve`] set aside.
    pub fn release(&mut self, room: Room) {
        self.reserved -= room;
    }

    /// Whether there is room for an entry that needs `room` for a record of its own.
    pub fn fits(&mut self, needed: Room) -> bool {
        self.fits_with(needed, false)
    }

    /// As [`Store::fits`], for what a checkpoint cannot do without.
    pub fn fits_spared(&mut self, needed: Room) -> bool {
        self.fits_with(needed, true)
    }

    fn fits_with(&mut self, needed: Room, spared: bool) -> bool {
        let needed = self.reserved + needed;
        if needed.log.0 > self.logs.room() {
            return false;
        }
        self.apart.is_none() || self.fits_apart(needed.apart_bytes, spared)
    }
}
