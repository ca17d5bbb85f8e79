//! Whether there is room for an entry.

use super::{Room, Store};

impl Store {
    /// Sets aside room for a later entry. [`Store::fits`] must hold for it.
    pub fn reserve(&mut self, room: Room) {
        self.reserved += room;
    }

    /// Gives back room that [`Store::reserve`] set aside.
    pub fn release(&mut self, room: Room) {
        self.reserved -= room;
    }

    /// Whether there is room for an entry that needs `room` for a record of its own.
    pub fn fits(&mut self, needed: Room) -> bool {
        self.fits_with(needed, false)
    }

    /// As [`Store::fits`], for entries that a checkpoint needs: they may use the spared room.
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
