//! Which entries of a log recovery, or a read, may still need.

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

    /// Adds sectors whose newest version, of sequence `sequence`, recovery found here.
    pub fn add_found(&mut self, sectors: u64, sequence: DataSequence) {
        self.live += sectors;
        self.oldest = self.oldest.min(sequence);
    }

    /// Lower bound of the data sequences that recovery may need from the log. `None` if it needs no
    /// version at all.
    #[must_use]
    pub fn oldest_needed(&self) -> Option<DataSequence> {
        (self.live > 0).then_some(self.oldest)
    }

    /// Adds sectors whose newest version is here.
    pub const fn add_live(&mut self, sectors: u64) {
        self.live += sectors;
    }

    /// Subtracts sectors: a newer version is durable elsewhere, or they are durable at home.
    pub const fn sub_live(&mut self, sectors: u64) {
        debug_assert!(self.live >= sectors);
        self.live = self.live.saturating_sub(sectors);
        self.gone = self.gone.saturating_add(sectors);
    }

    /// Whether some of its entries say that older kept versions are dead.
    #[must_use]
    pub fn buries_kept(&self) -> bool {
        self.supersedes.iter().any(|supersede| supersede.kept)
    }

    /// Drops the supersedes below the floors, because recovery needs them no more.
    pub fn raise_floor(&mut self, floors: Floors) {
        self.supersedes.retain(|found| found.data_sequence >= floors.of(found.kept));
    }

    /// Removes the supersedes, which the caller has made durable elsewhere.
    pub fn clear_supersedes(&mut self) {
        self.supersedes.clear();
    }

    /// Keeps the log from being reset while a read points into it.
    pub const fn pin(&mut self) {
        self.pins += 1;
    }

    /// Ends a [`Log::pin`].
    pub const fn unpin(&mut self) {
        self.pins -= 1;
    }
}
