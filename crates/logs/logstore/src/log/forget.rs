//! What logs forget: checksums and extents of versions that are dead.

use manylogs_block::Extent;
use manylogs_plant::{self as plant, Bug};

use super::Log;
use crate::{Entry, EntryKind, Inverse};

/// Dead versions are forgotten when they are one part in so many of what is listed. Forgetting
/// looks each listed entry up, so a block that dies costs about this many look-ups.
const PART_GONE: u64 = 8;
/// Sectors for which an entry counts at least, as it takes a look-up: a block of file systems.
const WEIGHT: u64 = 8;

/// What an entry adds to the work of forgetting, in sectors.
pub(super) fn weight_of(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::Data => entry.extent.len.0.max(WEIGHT),
        EntryKind::Zeroes | EntryKind::Lost => WEIGHT,
        EntryKind::Supersede => 0,
    }
}

impl Log {
    /// Whether [`Log::forget_all_but`] is worth its time now: enough died since, or the log takes
    /// no more records and its list is not packed. Never while a read is under way, because its
    /// content is compared with checksums when it ends, or while a record is, whose versions have
    /// no places yet.
    #[must_use]
    pub fn forgets(&self) -> bool {
        let Some(inverse) = &self.inverse else { return false };
        let is_read = self.pins > 0 && !plant::is(Bug::ForgottenUnderRead);
        let is_worth = self.gone > 0 && self.gone * PART_GONE >= self.listed
            || self.sealed && inverse.is_loose();
        is_worth && !is_read && self.in_flight.is_empty()
    }

    /// What an opening listed stays until enough of it died. Else each log would be looked through
    /// at its first read or death, and all logs soon after the opening.
    pub fn keep_found(&mut self) {
        self.inverse.iter_mut().for_each(Inverse::settle);
    }

    /// Forgets the checksums of all but `parts` of the log, which are in order, and all extents but
    /// `extents`, which are by address, each once.
    pub fn forget_all_but(&mut self, extents: &[Extent], parts: &[Extent]) {
        self.listed = self.units.keep(parts).0.max(WEIGHT * extents.len() as u64);
        self.gone = 0;
        self.inverse = Some(Inverse::packed(extents));
    }
}
