//! Void ranges in the header of a base volume: what stores have of them counts no more.

use manylogs_block::IoError;

use crate::call::StoreId;
use crate::header::{Content, Header};
use crate::versions::Range;

impl Content {
    /// The void ranges of a store.
    pub(crate) fn voids_of(&self, store: StoreId) -> impl Iterator<Item = Range> {
        self.voids.iter().filter(move |(of, _)| *of == store).map(|(_, range)| *range)
    }
}

impl Header {
    /// Notes durably that versions in a store are void. False if there is no room for that.
    pub(crate) async fn void(&self, store: StoreId, range: Range) -> Result<bool, IoError> {
        let change = |content: &mut Content| {
            let covered = |(of, old): &(StoreId, Range)| {
                *of == store && range.extent.contains(old.extent) && old.version <= range.version
            };
            content.voids.retain(|old| !covered(old));
            content.voids.push((store, range));
            content.make_room()
        };
        self.update(change).await
    }

    /// The void ranges of a store.
    pub(crate) fn voids_of(&self, store: StoreId) -> Vec<Range> {
        self.content().voids_of(store).collect()
    }

    /// Drops the void ranges `gone` from the header: the store has durably forgotten their
    /// versions.
    pub(crate) async fn forgotten(&self, store: StoreId, gone: &[Range]) -> Result<(), IoError> {
        let change = |content: &mut Content| {
            let before = content.voids.len();
            content.voids.retain(|(of, range)| *of != store || !gone.contains(range));
            content.voids.len() < before
        };
        self.update(change).await.map(drop)
    }
}
