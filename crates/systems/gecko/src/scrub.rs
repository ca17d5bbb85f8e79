//! Reading all live content from each half, so that damage is found, and mended, in time.

use manylogs_block::{Extent, IoError, Sectors};
use manylogs_engine::{check_copies, live_in};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{Live, Place, chunk_len};

use crate::chain::Chain;

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Length of the log that was read, of each half.
    pub read: Sectors,
    /// How often one half was damaged, and was written anew from the other.
    pub mended: u64,
    /// Damage for which no half is whole, as clients address it and in this order: reads there
    /// fail.
    pub damaged: Vec<Extent>,
}

impl Chain {
    /// Reads the content that clients can read from every half, compares it with its checksums, and
    /// mends a half from the other. The chain may be used meanwhile; what is written then is left
    /// out. `progress` is told segments that are done, and their number. Headers of records are not
    /// looked at: an opening does that.
    ///
    /// # Errors
    /// If a drive fails as a whole, and its link cannot do without it.
    pub async fn scrub(&self, progress: impl Fn(u64, u64)) -> Result<Scrubbed, IoError> {
        // Nothing is read in places of links that left.
        let links = self.0.keeper.roster().in_use();
        let segments: Vec<LogId> = links.flat_map(|link| self.0.segments_of(link)).collect();
        let mut scrubbed = Scrubbed::default();
        for (done, segment) in (0..).zip(&segments) {
            self.scrub_segment(*segment, &mut scrubbed).await?;
            progress(done + 1, segments.len() as u64);
        }
        // Cleaning may have moved a range meanwhile, so that it was found twice.
        scrubbed.damaged.sort_unstable_by_key(|extent| (extent.start, extent.len));
        scrubbed.damaged.dedup();
        Ok(scrubbed)
    }

    async fn scrub_segment(&self, segment: LogId, found: &mut Scrubbed) -> Result<(), IoError> {
        let live = live_in(&*self.0, segment).await?;
        let is_lost = |live: &&Live| matches!(live.mapped.value, Place::Lost { .. });
        found.damaged.extend(live.iter().filter(is_lost).map(|live| live.extent));
        let mut rest = live.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(chunk_len(rest));
            rest = later;
            if self.scrub_one(segment, chunk, found).await.is_ok() {
                continue;
            }
            // One half may be damaged here and the other there: each version by itself.
            for one in chunk.chunks(1) {
                match self.scrub_one(segment, one, found).await {
                    Err(IoError::Checksum { extent } | IoError::Medium { extent }) => {
                        found.damaged.push(Extent { len: one[0].extent.len, ..extent });
                    }
                    done => done?,
                }
            }
        }
        Ok(())
    }

    async fn scrub_one(
        &self,
        segment: LogId,
        live: &[Live],
        found: &mut Scrubbed,
    ) -> Result<(), IoError> {
        let (read, mended) = check_copies(&*self.0, segment, live).await?;
        found.read += read;
        found.mended += mended;
        Ok(())
    }
}
