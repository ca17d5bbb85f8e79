//! Home writes on a drive-managed shingled drive: from the first changed place of a band to the
//! band's end.
//!
//! Such a drive writes the tracks of a band one over the edge of the other. So it must rewrite
//! everything behind a changed place anyway. It keeps random writes in its persistent cache;
//! cleaning a band later costs one read and two writes of it. A stream goes straight to the band
//! ("Evolving ext4 for shingled disks", section 4.3). So the checkpoint reads the unchanged parts
//! in between and writes everything as one stream.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Lba, Payload, Sectors};
use manylogs_logstore::EntryKind;
use manylogs_logstore::store::Place;

use super::copy::{Batch, Group, Part, Renewed, Run};
use super::{HOME_WRITE_MAX, Progress};
use crate::state::Inner;

/// Length from which such a drive takes writes, one behind the other, for a stream: 8 MiB.
pub(super) const STREAM_LEAST: Sectors = Sectors(16_384);

/// This much of the bands is read, and then written, together: 128 MiB, in memory meanwhile.
/// Records between two such writes are a stream to the drive, too, except for their first 8 MiB.
const TOGETHER: Sectors = Sectors(262_144);
/// Most bands in a batch; it matters if little of each is written.
const PARTS: usize = 32;

impl Inner {
    /// Length of the bands in which this volume writes home; zero if it does not write by bands. It
    /// does not if the places of the logs were given: then another owner writes between them and
    /// does not use the locks on homes.
    pub(crate) fn band(&self) -> Sectors {
        if self.layout.anchors().is_some() { Sectors(0) } else { self.config().band }
    }

    /// The next bands with versions below the floor, in order of address.
    pub(super) fn next_bands(
        &self,
        cursor: &mut Lba,
        progress: &Progress,
        band: Sectors,
    ) -> Option<Batch> {
        let (mut batch, mut sectors) = (Batch::default(), Sectors(0));
        while sectors.0 < TOGETHER.0 && batch.parts.len() < PARTS {
            let Some((part, versions)) = self.next_band(cursor, progress, band) else { break };
            sectors += part.whole.map_or(Sectors(0), |whole| whole.len);
            batch.parts.push(part);
            batch.versions += versions;
        }
        (!batch.parts.is_empty()).then_some(batch)
    }

    /// The next band, and the number of versions in it.
    fn next_band(
        &self,
        cursor: &mut Lba,
        progress: &Progress,
        band: Sectors,
    ) -> Option<(Part, u64)> {
        let state = self.engine.state.borrow();
        let map = state.store.map();
        let here = map.lookup(Extent { start: *cursor, len: Sectors(1) });
        let here = here.filter_map(|(part, mapped)| mapped.map(|mapped| (part, mapped)));
        let (found, _) =
            here.chain(map.iter_from(*cursor)).find(|(_, mapped)| progress.takes(mapped))?;
        let band = self.around(found.start, band);
        let extent = Extent::between(found.start, band.end());
        *cursor = extent.end();
        let goes_home = |part: Extent, place: &Place| match place {
            Place::Log { .. } => true,
            Place::Zeroes { .. } => part.len <= HOME_WRITE_MAX,
            Place::Lost { .. } | Place::Buffered { .. } => false,
        };
        let mapped = map.lookup(extent).filter_map(|(part, mapped)| Some((part, mapped?)));
        let below: Vec<_> = mapped.filter(|(_, mapped)| progress.takes(mapped)).collect();
        let first = below.iter().find(|(part, mapped)| goes_home(*part, &mapped.value));
        let least = Lba(band.end().0.saturating_sub(STREAM_LEAST.0)).max(band.start);
        let whole = first.map(|(first, _)| {
            self.widen_to_physical(Extent::between(first.start.min(least), band.end()))
        });
        Some((Part { extent, whole }, below.len() as u64))
    }

    /// The part of the volume around `at` that has its home in one band. The first band begins at
    /// the device's address 0.
    fn around(&self, at: Lba, band: Sectors) -> Extent {
        let homes = self.layout.homes();
        let index = homes.partition_point(|(exported, _)| *exported <= at).saturating_sub(1);
        let (exported, home) = homes[index];
        let there = home.start.0 + (at.0 - exported.0);
        let whole = Extent { start: Lba(there / band.0 * band.0), len: band };
        let part = whole.intersection(home);
        Extent { start: Lba(exported.0 + (part.start.0 - home.start.0)), len: part.len }
    }

    /// The home writes that cover `whole`, each with its part of the runs.
    pub(super) fn pieces_of(&self, whole: Extent, runs: &[Run]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut at = whole.start;
        while at < whole.end() {
            let end = Lba(at.0 + HOME_WRITE_MAX.0).min(whole.end());
            let extent = Extent::between(at, end);
            let within = runs.iter().filter(|run| run.extent.overlaps(extent));
            let runs = within.map(|run| {
                let part = run.extent.intersection(extent);
                run.part(Sectors(part.start.0 - run.extent.start.0), part.len)
            });
            groups.push(Group { extent, runs: runs.collect() });
            at = end;
        }
        groups
    }

    /// Leaves out the groups in which nothing changes and that take no space on the device. Writing
    /// them would fill up a sparse image.
    pub(super) async fn without_holes(&self, groups: Vec<Group>) -> Vec<Group> {
        let mut kept = Vec::with_capacity(groups.len());
        for group in groups {
            let mut parts = Vec::new();
            if group.runs.is_empty() {
                for home in self.layout.home(group.extent) {
                    self.add_what_is_not_zero(home, &mut parts).await;
                }
            }
            if !group.runs.is_empty() || !parts.is_empty() {
                kept.push(group);
            }
        }
        kept
    }

    /// Logs the unchanged content that was read at the home of `extent`, because a failed write
    /// home may have damaged it.
    ///
    /// # Errors
    /// As [`Inner::renew`].
    pub(super) async fn keep_unchanged(
        self: &Rc<Self>,
        extent: Extent,
        content: &Payload,
    ) -> Result<(), IoError> {
        let mut done = Sectors(0);
        while done < extent.len {
            // No entry may be longer than the largest write that is logged.
            let len = self.config().threshold.min(extent.len - done);
            let part = Extent { start: extent.start + done, len };
            let content = content.slice(done, len);
            self.renew(EntryKind::Data, part, Some(&content), Renewed::NotLogged).await?;
            done += len;
        }
        Ok(())
    }
}
