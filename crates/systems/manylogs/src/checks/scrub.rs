//! Reading all logged copies before they are needed.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::LogId;
use manylogs_logstore::store::Place;

use crate::error::VolumeError;
use crate::volume::Volume;

/// Result of scrubbing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Logged extents that were read.
    pub extents: u64,
    /// Length of the checked content.
    pub sectors: Sectors,
    /// Addresses of the volume whose logged copy is damaged or cannot be read. The next checkpoint
    /// marks them as lost, unless they are overwritten before.
    pub damaged: Vec<Extent>,
    /// Addresses of the volume that are marked as lost already.
    pub lost: Vec<Extent>,
}

impl Volume {
    /// Reads and checks the logged copy of every mapped extent, in the order of the logs. Calls
    /// `progress` with the number of extents done and the number of all.
    ///
    /// # Errors
    /// If the device fails as a whole.
    pub async fn scrub(
        &self,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<ScrubReport, VolumeError> {
        let inner = self.shared();
        let mut report = ScrubReport::default();
        let mut copies: Vec<(LogId, u32, Extent, Place)> = Vec::new();
        for (extent, mapped) in inner.engine.state.borrow().store.map().iter() {
            match mapped.value {
                Place::Log { log, offset, .. } => {
                    copies.push((log, offset.0, extent, mapped.value));
                }
                Place::Lost { .. } => report.lost.push(extent),
                Place::Zeroes { .. } | Place::Buffered { .. } => {}
            }
        }
        copies.sort_unstable_by_key(|(log, offset, extent, _)| (*log, *offset, *extent));
        let total = copies.len() as u64;
        for (log, offset, extent, place) in copies {
            progress(report.extents, total);
            let mapped =
                inner.engine.state.borrow().store.map().lookup(extent).next().and_then(|(_, m)| m);
            if !mapped.is_some_and(|mapped| mapped.value == place) {
                continue;
            }
            let part = Extent::new(offset.into(), extent.len.0);
            match inner.read_one(log, part, extent).await {
                Ok(_) => {}
                Err(error) if error.is_damage() => report.damaged.push(extent),
                Err(error) => return Err(error.into()),
            }
            report.extents += 1;
            report.sectors += extent.len;
        }
        progress(total, total);
        Ok(report)
    }
}
