//! Recovery: finds the versions in the logs again. It only reads, unless it mends what one of
//! several copies has lost.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Copies, Extent, IoError, Payload, Request, Sectors};
use manylogs_logstore::ondisk::log_bitmap::LogBitmap;
use manylogs_logstore::store::{Device, Logs, Store};
use manylogs_logstore::{BLANK, Damage, DataSequence, LogId, ScanOf, Scanned, VolumeId, scan};
use manylogs_plant::{self as plant, Bug};

use crate::doubt::InDoubt;

/// Number of logs whose starts are read together.
const LOOKS: usize = 32;
/// Longest piece that is mended at a time.
const MENDED_AT_ONCE: Sectors = Sectors(2048);

/// Takes the logs out of use that the root names as failed.
pub fn retire_failed(store: &mut Store) {
    for id in store.root().retired.clone() {
        if (id.0 as usize) < store.logs().count() && !plant::is(Bug::RetiredForgotten) {
            store.retire(id);
        }
    }
}

/// Reads logs one after the other and finds their records. Most logs of a large volume are blank,
/// so the starts of many are read at once, and blank ones are passed over.
pub struct Scanner<'a> {
    devices: &'a [Rc<dyn BlockDevice>],
    of: ScanOf,
    /// Where the logs are.
    places: Vec<(Device, Extent)>,
    wanted: std::vec::IntoIter<LogId>,
    asked: VecDeque<(LogId, Completion)>,
    in_doubt: InDoubt,
    /// The logs of which copies may differ; `None` for all.
    differ: Option<LogBitmap>,
}

impl<'a> Scanner<'a> {
    /// A scanner of the logs `wanted` among `logs`. The logs lie on `devices` and hold records of
    /// `volume` for addresses below `capacity`, written in physical sectors of length `physical`.
    #[must_use]
    pub fn new(
        devices: &'a [Rc<dyn BlockDevice>],
        logs: &Logs,
        wanted: Vec<LogId>,
        (volume, physical, capacity): (VolumeId, Sectors, Sectors),
        floor: DataSequence,
    ) -> Self {
        let places = logs.ids().map(|log| (logs.device(log), logs.region(log))).collect();
        let of =
            ScanOf { volume, log: LogId(0), region: Extent::default(), physical, floor, capacity };
        let (wanted, in_doubt) = (wanted.into_iter(), InDoubt::default());
        Self { devices, of, places, wanted, asked: VecDeque::new(), in_doubt, differ: None }
    }

    /// Only logs in this set are in doubt: copies of the others are known to be the same. `None`
    /// stands for all logs.
    #[must_use]
    pub fn in_doubt_only(mut self, differ: Option<LogBitmap>) -> Self {
        self.differ = differ;
        self
    }

    /// Whether copies of the log may differ.
    fn may_differ(&self, log: LogId) -> bool {
        let is_skipped = plant::is(Bug::SettleSkipsSegment) && log.0 % 2 == 1;
        self.differ.as_ref().is_none_or(|differ| differ.contains(log)) && !is_skipped
    }

    /// The records of the next log that is not blank; none after the last.
    ///
    /// # Errors
    /// If a log cannot be read and the medium is not at fault: the log may hold the newest
    /// versions.
    pub async fn next(&mut self) -> Result<Option<(LogId, Scanned)>, IoError> {
        let Some((log, start)) = self.next_used().await? else { return Ok(None) };
        let (device, region) = self.places[log.0 as usize];
        let of = ScanOf { log, region, ..self.of };
        let device_of = &self.devices[usize::from(device.0)];
        let mut scanned = scan(device_of, of, start).await?;
        if !scanned.damage.is_empty() && mend(device_of, of, &scanned).await {
            scanned = scan(device_of, of, Payload::default()).await?;
        }
        if self.may_differ(log) {
            self.in_doubt.add((device, region), of.physical, &scanned);
        }
        Ok(Some((log, scanned)))
    }

    /// What the logs that were read leave in doubt after a crash.
    #[must_use]
    pub fn in_doubt(self) -> InDoubt {
        self.in_doubt
    }

    /// The next log that is not blank, and the content of its start.
    async fn next_used(&mut self) -> Result<Option<(LogId, Payload)>, IoError> {
        loop {
            while self.asked.len() < LOOKS
                && let Some(log) = self.wanted.next()
            {
                let (device, region) = self.places[log.0 as usize];
                let extent = Extent { len: BLANK.min(region.len), ..region };
                let device = &self.devices[usize::from(device.0)];
                self.asked.push_back((log, device.submit(Request::Read { extent })));
            }
            let Some((log, start)) = self.asked.pop_front() else { return Ok(None) };
            match start.await {
                Ok(start) if start.is_zero() => {
                    let place = self.places[log.0 as usize];
                    if self.may_differ(log) {
                        self.in_doubt.add_blank(place, self.of.physical);
                    }
                }
                Ok(start) => return Ok(Some((log, start))),
                // The scan finds out what can be read.
                Err(IoError::Medium { .. }) => return Ok(Some((log, Payload::default()))),
                Err(error) if plant::is(Bug::AnyErrorIsTheMedium) && error.is_local() => {
                    return Ok(Some((log, Payload::default())));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Mends what is damaged in the first copy of a log, from other copies in which it is whole; true
/// if something was written. What a scan calls damage had been durable, so it was the same on all
/// copies. A write that fails leaves the damage, and a crash while this runs leaves less of it.
async fn mend(device: &Rc<dyn BlockDevice>, of: ScanOf, scanned: &Scanned) -> bool {
    let copies = if plant::is(Bug::OpeningMendsNothing) { Copies::new() } else { device.copies() };
    let (mut any, Some((first, others))) = (false, copies.split_first()) else { return false };
    for other in others {
        let Ok(there) = scan(other, of, Payload::default()).await else { continue };
        let place = |damage: &Damage| {
            let start = of.region.start + Sectors(u64::from(damage.offset.0));
            Extent { start, len: damage.sectors }
        };
        let is_whole =
            |extent: &Extent| !there.damage.iter().any(|bad| place(bad).overlaps(*extent));
        for extent in scanned.damage.iter().map(place).filter(is_whole) {
            any |= copy(other, first, extent).await.is_ok();
        }
    }
    any && first.submit(Request::Flush).await.is_ok()
}

async fn copy(
    from: &Rc<dyn BlockDevice>,
    to: &Rc<dyn BlockDevice>,
    extent: Extent,
) -> Result<(), IoError> {
    let mut rest = extent;
    while !rest.is_empty() {
        let piece = Extent { len: rest.len.min(MENDED_AT_ONCE), ..rest };
        let content = from.submit(Request::Read { extent: piece }).await?;
        to.submit(Request::write_fua(piece, content)).await?;
        rest = Extent::between(piece.end(), rest.end());
    }
    Ok(())
}

impl std::fmt::Debug for Scanner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left: Vec<LogId> = self.wanted.as_slice().to_vec();
        f.debug_struct("Scanner").field("of", &self.of).field("left", &left).finish_non_exhaustive()
    }
}
