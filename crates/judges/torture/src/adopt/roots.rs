//! A small engine: keeps in the log file itself whether the logs are drained.

use manylogs_block::{Extent, Hint, IoError, Payload, Request};
use manylogs_ext4::{BLOCK_BYTES, BlockNo};

use manylogs_mlfs::adopt::{AdoptError, LogEngine, Logs, Site};

const MAGIC: &[u8; 8] = b"MLFSROOT";
/// Places of the checksum and the fields behind it.
const SUM: std::ops::Range<usize> = 8..12;
const FLAGS: std::ops::Range<usize> = 12..16;
const UUID: std::ops::Range<usize> = 16..32;
const GENERATION: std::ops::Range<usize> = 32..40;
/// Flag: everything in the logs is at home.
const DRAINED: u32 = 1;
/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// Two roots, in the first block of the first log and in the last block of the last. Of the whole
/// ones the one with the higher generation counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roots;

/// The content of a root.
struct Root {
    generation: u64,
    drained: bool,
}

impl Root {
    fn decode(bytes: &[u8], uuid: [u8; 16]) -> Option<Self> {
        let whole =
            bytes[..8] == *MAGIC && bytes[SUM] == sum(bytes).to_le_bytes() && bytes[UUID] == uuid;
        let mut generation = [0; 8];
        generation.copy_from_slice(&bytes[GENERATION]);
        let drained = bytes[FLAGS] == DRAINED.to_le_bytes();
        whole.then(|| Self { generation: u64::from_le_bytes(generation), drained })
    }

    fn encode(&self, uuid: [u8; 16]) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[FLAGS].copy_from_slice(&(if self.drained { DRAINED } else { 0 }).to_le_bytes());
        bytes[UUID].copy_from_slice(&uuid);
        bytes[GENERATION].copy_from_slice(&self.generation.to_le_bytes());
        let sum = sum(&bytes);
        bytes[SUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// FNV-1a of a root without the sum itself. There is no attacker to guard against.
fn sum(bytes: &[u8]) -> u32 {
    let all = bytes[..SUM.start].iter().chain(&bytes[SUM.end..]);
    all.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The blocks of both roots; the engine uses the blocks between them.
fn places(logs: &Logs) -> Result<[BlockNo; 2], AdoptError> {
    match (logs.runs.first(), logs.runs.last()) {
        (Some(first), Some(last)) => Ok([first.start, BlockNo(last.range().end - 1)]),
        _ => Err(AdoptError::NoEngine),
    }
}

fn sectors(block: BlockNo) -> Extent {
    Extent::new(block.0 * BLOCK_SECTORS, BLOCK_SECTORS)
}

impl Roots {
    async fn newest(site: &Site, logs: &Logs) -> Result<Root, AdoptError> {
        let mut newest: Option<Root> = None;
        for place in places(logs)? {
            let read = site.device.submit(Request::Read { extent: sectors(place) }).await?;
            let bytes = read.to_bytes().ok_or(IoError::Unsupported)?;
            let root = Root::decode(&bytes, logs.uuid);
            let beaten =
                |best: &Root| root.as_ref().is_some_and(|r| r.generation > best.generation);
            if newest.as_ref().is_none_or(beaten) {
                newest = root.or(newest);
            }
        }
        newest.ok_or(AdoptError::NoEngine)
    }

    /// Records durably whether the logs are drained.
    ///
    /// # Errors
    /// [`AdoptError::NoEngine`] if there is no root, and those of the device.
    pub async fn note(&self, site: &Site, logs: &Logs, drained: bool) -> Result<(), AdoptError> {
        let generation = Self::newest(site, logs).await?.generation + 1;
        Self::write(site, logs, &Root { generation, drained }).await
    }

    async fn write(site: &Site, logs: &Logs, root: &Root) -> Result<(), AdoptError> {
        for place in places(logs)? {
            let (extent, payload) = (sectors(place), Payload::bytes(root.encode(logs.uuid)));
            let write = Request::Write { extent, payload, fua: false, hint: Hint::None };
            site.device.submit(write).await?;
            site.device.submit(Request::Flush).await?;
        }
        Ok(())
    }
}

impl LogEngine for Roots {
    fn blocks_least(&self) -> u64 {
        2
    }

    async fn format(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        Self::write(site, logs, &Root { generation: 1, drained: true }).await
    }

    async fn is_drained(&self, site: &Site, logs: &Logs) -> Result<bool, AdoptError> {
        Ok(Self::newest(site, logs).await?.drained)
    }

    async fn drain(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        if self.is_drained(site, logs).await? {
            return Ok(());
        }
        self.note(site, logs, true).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_of_another_file_system_or_a_damaged_one_counts_for_nothing() {
        let bytes = Root { generation: 9, drained: true }.encode([7; 16]);
        let root = Root::decode(&bytes, [7; 16]).unwrap();
        assert!(root.drained && root.generation == 9);
        assert!(Root::decode(&bytes, [8; 16]).is_none());
        for at in [0, 9, 12, 20, 33, 4000] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Root::decode(&damaged, [7; 16]).is_none(), "byte {at}");
        }
    }
}
