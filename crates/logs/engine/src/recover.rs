//! Recovery: finds the versions in the logs again. It only reads.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, IoError, Payload, Request, Sectors};
use manylogs_logstore::store::{Device, Logs, Store};
use manylogs_logstore::{BLANK, DataSequence, LogId, ScanOf, Scanned, VolumeId, scan};
use manylogs_plant::{self as plant, Bug};

use crate::doubt::InDoubt;

/// Number of logs whose starts are read together.
const LOOKS: usize = 32;

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
        Self { devices, of, places, wanted, asked: VecDeque::new(), in_doubt }
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
        let scanned = scan(&self.devices[usize::from(device.0)], of, start).await?;
        self.in_doubt.add((device, region), of.physical, &scanned);
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
                    self.in_doubt.add_blank(place, self.of.physical);
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

impl std::fmt::Debug for Scanner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left: Vec<LogId> = self.wanted.as_slice().to_vec();
        f.debug_struct("Scanner").field("of", &self.of).field("left", &left).finish_non_exhaustive()
    }
}
