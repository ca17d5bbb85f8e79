//! The engine that keeps records in the logs: a volume, as in use, or a small engine. The small
//! engine writes each block into the first log, behind a header that names its home. When the logs
//! are drained, the blocks go home.

use manylogs_block::{Extent, Hint, IoError, Payload, Request};
use manylogs_ext4::BLOCK_BYTES;
use manylogs_mlfs::adopt::{AdoptError, LogEngine, Logs, Site, Volumes};

use super::roots::Roots;

const MAGIC: &[u8; 8] = b"TESTLOGS";
/// Sectors of a block.
const BLOCK: u64 = 8;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Engine {
    /// See the module.
    Small(Small),
    /// That of MLFS.
    Volume,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Small(Roots);

/// The logs of an opening, and the number of records in them.
pub(super) struct Open {
    logs: Logs,
    /// Distinguishes this use of the logs from earlier ones.
    epoch: u64,
    records: u64,
}

fn extent(block: u64, blocks: u64) -> Extent {
    Extent::new(block * BLOCK, blocks * BLOCK)
}

/// The header of record `number` of an epoch: the block's home, and a sum of the block.
fn header(logs: &Logs, (epoch, number): (u64, u64), home: u64, block: &[u8]) -> Vec<u8> {
    let mut header = vec![0; BLOCK_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..24].copy_from_slice(&logs.uuid);
    for (at, field) in [(24, number), (32, home), (40, sum(block)), (48, epoch)] {
        header[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let whole = sum(&header[..56]);
    header[56..64].copy_from_slice(&whole.to_le_bytes());
    header
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// FNV-1a: detects torn and lost blocks. There is no attacker to guard against.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Small {
    /// Begins a new use of drained logs.
    pub(super) async fn begin(&self, site: &Site, logs: Logs) -> Result<Open, AdoptError> {
        // Records of an earlier use must not be taken for new ones.
        let Some(first) = logs.runs.first() else { return Err(AdoptError::NoEngine) };
        let zeroes = Request::write_zeroes(extent(first.start.0 + 1, 2), false);
        site.device.submit(zeroes).await?;
        site.device.submit(Request::Flush).await?;
        self.0.note(site, &logs, false).await?;
        Ok(Open { logs, epoch: site.runtime.random(), records: 0 })
    }

    /// Continues to use logs that hold records.
    pub(super) async fn go_on(&self, site: &Site, logs: Logs) -> Result<Open, AdoptError> {
        let (epoch, records) = Self::records(site, &logs).await?;
        let epoch = epoch.unwrap_or_else(|| site.runtime.random());
        Ok(Open { logs, epoch, records: records.len() as u64 })
    }

    /// Whether there is room for one more record.
    pub(super) fn has_room(open: &Open) -> bool {
        let room = open.logs.runs.first().map_or(0, |run| u64::from(run.blocks));
        // The last block may be a root.
        2 * open.records + 4 < room
    }

    /// Makes a block durable in the log.
    pub(super) async fn append(
        &self,
        site: &Site,
        open: &mut Open,
        home: u64,
        block: &[u8],
    ) -> Result<(), AdoptError> {
        let place = open.logs.runs[0].start.0 + 1 + 2 * open.records;
        let record = [&header(&open.logs, (open.epoch, open.records), home, block), block].concat();
        let payload = Payload::bytes(record);
        let write =
            Request::Write { extent: extent(place, 2), payload, fua: false, hint: Hint::None };
        site.device.submit(write).await?;
        site.device.submit(Request::Flush).await?;
        open.records += 1;
        Ok(())
    }

    /// The epoch and its whole records: the home and the content of each.
    async fn records(
        site: &Site,
        logs: &Logs,
    ) -> Result<(Option<u64>, Vec<(u64, Vec<u8>)>), AdoptError> {
        let Some(first) = logs.runs.first() else { return Err(AdoptError::NoEngine) };
        let (mut epoch, mut found) = (None, Vec::new());
        while 2 * found.len() as u64 + 4 < u64::from(first.blocks) {
            let number = found.len() as u64;
            let place = extent(first.start.0 + 1 + 2 * number, 2);
            let read = site.device.submit(Request::Read { extent: place }).await?;
            let bytes = read.to_bytes().ok_or(IoError::Unsupported)?;
            let (head, block) = bytes.split_at(BLOCK_BYTES);
            let (home, own) = (number_at(head, 32), number_at(head, 48));
            let is_whole = head == header(logs, (own, number), home, block);
            if !is_whole || *epoch.get_or_insert(own) != own {
                break;
            }
            found.push((home, block.to_vec()));
        }
        Ok((epoch.filter(|_| !found.is_empty()), found))
    }
}

impl LogEngine for Small {
    fn blocks_least(&self) -> u64 {
        8
    }

    async fn format(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        self.0.format(site, logs).await
    }

    async fn is_drained(&self, site: &Site, logs: &Logs) -> Result<bool, AdoptError> {
        self.0.is_drained(site, logs).await
    }

    async fn drain(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        if self.is_drained(site, logs).await? {
            return Ok(());
        }
        for (home, block) in Self::records(site, logs).await?.1 {
            let payload = Payload::bytes(block);
            let write =
                Request::Write { extent: extent(home, 1), payload, fua: false, hint: Hint::None };
            site.device.submit(write).await?;
        }
        site.device.submit(Request::Flush).await?;
        self.0.note(site, logs, true).await
    }
}

impl LogEngine for Engine {
    fn blocks_least(&self) -> u64 {
        match self {
            Self::Small(small) => small.blocks_least(),
            Self::Volume => Volumes.blocks_least(),
        }
    }

    async fn format(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        match self {
            Self::Small(small) => small.format(site, logs).await,
            Self::Volume => Volumes.format(site, logs).await,
        }
    }

    async fn is_drained(&self, site: &Site, logs: &Logs) -> Result<bool, AdoptError> {
        match self {
            Self::Small(small) => small.is_drained(site, logs).await,
            Self::Volume => Volumes.is_drained(site, logs).await,
        }
    }

    async fn drain(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        match self {
            Self::Small(small) => small.drain(site, logs).await,
            Self::Volume => Volumes.drain(site, logs).await,
        }
    }
}
