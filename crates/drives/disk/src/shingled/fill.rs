//! Fills a persistent cache before the run, as earlier work would have done.

use manylogs_block::{Extent, Rng, Time};

use super::Shingled;

/// Length of the filling writes: 4 KiB.
const WRITE_SECTORS: u64 = 8;
/// Keeps the places of these writes independent of other draws from the same seed.
const FILL: u64 = 0x5368_696e_676c_6564;

impl Shingled {
    /// Fills the persistent cache up to `share` (1: no further write finds room) with small writes
    /// at places drawn from `seed`. Takes no time: the last write ends at `now`. The figures do not
    /// count them.
    pub(crate) fn fill(&mut self, share: f64, seed: u64, now: Time) {
        self.last_command = now;
        let mut rng = Rng::new(seed ^ FILL);
        let places = (self.capacity().0 / WRITE_SECTORS).max(1);
        let logs = self.cache.logs().len();
        let mut full = 0;
        for log in (0..logs).cycle() {
            if full == logs || !self.cache.has_entries(1) || self.filled() >= share {
                return;
            }
            let Some(at) = self.cache.room(log, WRITE_SECTORS) else {
                full += 1;
                continue;
            };
            full = 0;
            let place = Extent::new(rng.below(places) * WRITE_SECTORS, WRITE_SECTORS);
            self.cache.append(log, at, &[place]);
        }
    }

    /// Share of the persistent cache that is in use: of its sectors or of its table, whichever is
    /// greater.
    fn filled(&self) -> f64 {
        let of = |used: u64, all: u64| used as f64 / all.max(1) as f64;
        let entries = of(self.cache.extents() as u64, self.cache.extents_max() as u64);
        entries.max(of(self.cache.used_sectors(), self.figures.cache.0))
    }
}
