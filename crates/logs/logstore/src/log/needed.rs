//! What of a log recovery may still need.

use super::Log;
use crate::content::Supersede;
use crate::{DataSequence, Floors};

impl Log {
    /// Sectors of home addresses whose newest durable version may be here.
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.live
    }

    /// Supersede entries that recovery may still need.
    #[must_use]
    pub fn supersedes(&self) -> &[Supersede] {
        &self.supersedes
    }

    /// Adds sectors whose newest version, found by a recovery, is here: the version of this number.
    pub fn add_found(&mut self, sectors: u64, sequence: DataSequence) {
        self.live += sectors;
        self.oldest = self.oldest.min(sequence);
    }

    /// A bound of what recovery may need of the log: no smaller data sequence. `None` if it needs
    /// no version at all.
    #[must_use]
    pub fn oldest_needed(&self) -> Option<DataSequence> {
        (self.live > 0).then_some(self.oldest)
    }

    /// Adds sectors whose newest version is here.
    pub const fn add_live(&mut self, sectors: u64) {
        self.live += sectors;
    }

    /// Takes sectors away: a newer version is durable elsewhere, or they are durable at home.
    pub const fn sub_live(&mut self, sectors: u64) {
        debug_assert!(self.live >= sectors);
        self.live = self.live.saturating_sub(sectors);
    }

    /// Whether it says of kept versions that they are dead.
    #[must_use]
    pub fn buries_kept(&self) -> bool {
        self.supersedes.iter().any(|supersede| supersede.kept)
    }

    /// Drops the supersedes below the floors, which nothing needs any more.
    pub fn raise_floor(&mut self, floors: Floors) {
        self.supersedes.retain(|found| found.data_sequence >= floors.of(found.kept));
    }

    /// Removes the supersedes, which the caller has made durable elsewhere.
    pub fn clear_supersedes(&mut self) {
        self.supersedes.clear();
    }
}
