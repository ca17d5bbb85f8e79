//! Judging a chain that is not open, without writing anything.

use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Request, Sectors};
use manylogs_engine::read_copy;
use manylogs_logstore::store::{Live, Place, Store, chunk_len, span_of};
use manylogs_logstore::{Damage, LogId, Scanned, VolumeId};

use super::found::Found;
use crate::chain::Chain;
use crate::error::ChainError;
use crate::keeper::Drive;
use crate::ondisk::Superblock;

/// What an examination reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Labels, roots, and all records, content that a scan verifies included.
    Records,
    /// Besides, all content that clients can read.
    Content,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChainFinding {
    /// A copy of a drive's label is damaged; the next opening writes it anew.
    Label {
        /// The drive, in the order given.
        drive: usize,
    },
    /// As many of the two places hold no whole root.
    Roots(u32),
    /// A half is missing.
    Missing {
        /// The link, from 0.
        link: usize,
        /// The half, 0 or 1.
        half: usize,
    },
    /// Records that had been durable are damaged. If the header is not whole, it is unknown what
    /// they held.
    Records {
        /// The segment.
        segment: LogId,
        /// Where.
        damage: Damage,
    },
    /// A range was lost with a link whose drive failed, and was not written since.
    Lost {
        /// As clients address it.
        extent: Extent,
    },
    /// Content that clients can read differs from its checksums on a drive, or cannot be read.
    Content {
        /// The drive, in the order given.
        drive: usize,
        /// The segment.
        segment: LogId,
        /// As clients address it.
        extent: Extent,
    },
}

impl ChainFinding {
    /// Whether data is lost if no other half has it. Else only a copy of a structure is.
    #[must_use]
    pub const fn is_of_data(&self) -> bool {
        matches!(self, Self::Records { .. } | Self::Lost { .. } | Self::Content { .. })
    }
}

/// A segment that is not blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFound {
    /// The segment.
    pub segment: LogId,
    /// The link that it is on, from 0.
    pub link: usize,
    /// Its place on the drive.
    pub region: Extent,
    /// Its epoch: the sequence of its first record.
    pub epoch: u64,
    /// Sectors in use.
    pub used: Sectors,
    /// Sectors that clients can read, zeroes counted.
    pub live: Sectors,
    /// Records.
    pub records: u64,
}

/// A chain as one drive of each link has it.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// Id of the chain.
    pub chain: VolumeId,
    /// The drives that were read, one of each link: the link, and the number in the order given.
    pub drives: BTreeMap<usize, usize>,
    /// The greatest opening that a label names, and that of the root.
    pub opening: u32,
    /// Incarnation of the newest root.
    pub incarnation: u32,
    /// The segments that are not blank.
    pub segments: Vec<SegmentFound>,
    /// Blocks that clients can read, zeroes counted.
    pub mapped: Sectors,
    /// Content that was read and compared with its checksums.
    pub read: Sectors,
    /// What is wrong.
    pub findings: Vec<ChainFinding>,
}

impl Chain {
    /// Judges the chain whose members are `drives`, given in any order, as the half `half` of each
    /// mirrored link has it; where that is missing, as the other one has it. What clients can read
    /// is read from the other halves, too, except for segments of which halves may differ after a
    /// crash. Nothing is written, so that what an opening would settle or mend is left as it is.
    /// The chain must not be open.
    ///
    /// Damage of the last records of a segment is not found by this half alone: they count as torn,
    /// as for an opening.
    ///
    /// # Errors
    /// If these drives make no chain, or a drive cannot be read and the medium is not at fault.
    pub async fn examine(
        runtime: Handle,
        drives: Vec<Rc<dyn BlockDevice>>,
        half: usize,
        depth: Depth,
    ) -> Result<Examined, ChainError> {
        let found = Found::on(&runtime, drives, true).await?.alone(&runtime, half);
        let first = found.label;
        let given = |drive: &Drive| (usize::from(drive.label.drive), drive.given);
        let drives = found.drives_used(half).iter().map(given).collect();
        let mut examined = Examined { chain: first.chain, drives, ..Examined::default() };
        examined.findings = found.wrong_in_labels().await?;
        let roots = found.roots().await?;
        let damaged = roots.damaged;
        examined.findings.extend((damaged > 0).then_some(ChainFinding::Roots(damaged)));
        let (root, slot) = found.newest_of(roots)?;
        (examined.opening, examined.incarnation) = (found.keeper.opening(), root.incarnation.0);
        let mut store = Store::new(first.chain, found.logs(), root, slot);
        let (mut findings, mut records) = (Vec::new(), Vec::new());
        let note = |segment, scanned: &Scanned| {
            let damage = scanned.damage.iter().copied();
            findings.extend(damage.map(|damage| ChainFinding::Records { segment, damage }));
            records.push((segment, scanned.records.len() as u64));
            Ok(())
        };
        found.recover_with(&mut store, None, note).await?;
        records.sort_unstable_by_key(|(segment, _)| *segment);
        examined.findings.extend(findings);
        for (segment, records) in records {
            examined.segments.extend(segment_found(&store, segment, records));
            if depth == Depth::Content {
                for drive in found.readable(&store, segment, half) {
                    examine_content(&drive, &mut store, segment, &mut examined).await?;
                }
            }
        }
        examined.findings.extend(lost_in(&store));
        examined.mapped = Sectors(store.map().iter().map(|(extent, _)| extent.len.0).sum());
        Ok(examined)
    }
}

impl Found {
    /// The drives whose content of `segment` the records of the half `half` describe.
    fn readable(&self, store: &Store, segment: LogId, half: usize) -> Vec<Drive> {
        let link = usize::from(store.logs().device(segment).0);
        let root = store.root();
        let may_differ = !root.notes_copies || root.opened.contains(segment);
        match may_differ {
            true => self.drive_used(link, half).into_iter().collect(),
            false => self.keeper.current(link),
        }
    }

    /// What is wrong with the labels of current drives, and which are missing.
    async fn wrong_in_labels(&self) -> Result<Vec<ChainFinding>, ChainError> {
        let roster = self.keeper.roster();
        let missing = self.missing.iter().filter_map(|id| roster.place(*id));
        let mut wrong: Vec<ChainFinding> =
            missing.map(|(link, half)| ChainFinding::Missing { link, half }).collect();
        for drive in self.current() {
            for place in Superblock::places(drive.label.sectors) {
                let read = read_copy(&drive.device, place).await?;
                let bytes = read.ok().and_then(|read| read.to_bytes()).unwrap_or_default();
                if !matches!(Superblock::decode(&bytes), Some(Ok(_))) {
                    wrong.push(ChainFinding::Label { drive: drive.given });
                }
            }
        }
        Ok(wrong)
    }
}

/// The ranges of which records say that they are lost.
fn lost_in(store: &Store) -> Vec<ChainFinding> {
    let is_lost = |mapped: Place| matches!(mapped, Place::Lost { .. });
    let mut lost: Vec<Extent> = Vec::new();
    for (extent, _) in store.map().iter().filter(|(_, mapped)| is_lost(mapped.value)) {
        match lost.last_mut() {
            Some(last) if last.end() == extent.start => last.len += extent.len,
            _ => lost.push(extent),
        }
    }
    lost.into_iter().map(|extent| ChainFinding::Lost { extent }).collect()
}

fn segment_found(store: &Store, segment: LogId, records: u64) -> Option<SegmentFound> {
    let logs = store.logs();
    let log = logs.get(segment)?;
    Some(SegmentFound {
        segment,
        link: logs.device(segment).0.into(),
        region: logs.region(segment),
        epoch: log.epoch().0,
        used: log.used(),
        live: Sectors(log.live()),
        records,
    })
}

/// Reads the live content of a segment from a drive, and compares it with its checksums.
async fn examine_content(
    drive: &Drive,
    store: &mut Store,
    segment: LogId,
    examined: &mut Examined,
) -> Result<(), ChainError> {
    let live = store.live_by_inverse(segment).unwrap_or_default();
    let mut rest = live.as_slice();
    while !rest.is_empty() {
        let (chunk, later) = rest.split_at(chunk_len(rest));
        rest = later;
        if is_whole(drive, store, segment, chunk, &mut examined.read).await? {
            continue;
        }
        for one in chunk.chunks(1) {
            if !is_whole(drive, store, segment, one, &mut Sectors(0)).await? {
                let (drive, extent) = (drive.given, one[0].extent);
                examined.findings.push(ChainFinding::Content { drive, segment, extent });
            }
        }
    }
    Ok(())
}

async fn is_whole(
    drive: &Drive,
    store: &mut Store,
    segment: LogId,
    live: &[Live],
    read: &mut Sectors,
) -> Result<bool, ChainError> {
    let Some(span) = span_of(live) else { return Ok(true) };
    // Nobody resets the segment, so that the read need not be ended.
    let begun = store.begin_read(segment, span);
    let found = drive.device.submit(Request::Read { extent: begun.extent }).await;
    *read += begun.extent.len;
    match store.check_read(&begun, found, live[0].extent) {
        Ok(_) => Ok(true),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
