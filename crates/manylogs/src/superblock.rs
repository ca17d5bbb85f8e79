//! The superblock: what a volume is, written once at format.

use bytes::Bytes;
use manylogs_block::{Sectors, to_usize};
use manylogs_logstore::VolumeId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::config::{EngineConfig, LogPlacement};
use crate::error::VolumeError;
use crate::layout::SUPERBLOCK_SECTORS;

const MAGIC: [u8; 8] = *b"MANYLOGS";
const VERSION: u32 = 1;
const KIND_GROUPS: u32 = 0;
const KIND_SINGLE: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    version: U32,
    volume: VolumeId,
    device_sectors: U64,
    physical_sectors: U32,
    placement: U32,
    log_sectors: U64,
    /// Group size in sectors, or the place of the single log in millionths of the device.
    placement_value: U64,
    threshold_sectors: U64,
    record_sectors: U64,
    reserved: [u8; 48],
}

const _: () = assert!(size_of::<Raw>() == 128);

/// What a volume is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Superblock {
    pub(crate) volume: VolumeId,
    pub(crate) device: Sectors,
    pub(crate) physical: Sectors,
    /// As given at format; the parameters that may change are defaults.
    pub(crate) config: EngineConfig,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Bytes {
        let (placement, placement_value) = match self.config.placement {
            LogPlacement::EveryGroup(group) => (KIND_GROUPS, group.0),
            LogPlacement::Single(place) => (KIND_SINGLE, to_millionths(place)),
        };
        let mut raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U32::new(VERSION),
            volume: self.volume,
            device_sectors: U64::new(self.device.0),
            physical_sectors: U32::new(u32::try_from(self.physical.0).unwrap_or(u32::MAX)),
            placement: U32::new(placement),
            log_sectors: U64::new(self.config.log.0),
            placement_value: U64::new(placement_value),
            threshold_sectors: U64::new(self.config.threshold.0),
            record_sectors: U64::new(self.config.record.0),
            reserved: [0; 48],
        };
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(to_usize(SUPERBLOCK_SECTORS.bytes()), 0);
        bytes.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, VolumeError> {
        let (mut raw, _) = Raw::read_from_prefix(bytes).map_err(|_| VolumeError::NotAVolume)?;
        let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
        if raw.magic != MAGIC || crc32c::crc32c(raw.as_bytes()) != checksum {
            return Err(VolumeError::NotAVolume);
        }
        if raw.version.get() != VERSION {
            return Err(VolumeError::Version { found: raw.version.get(), known: VERSION });
        }
        let placement = match raw.placement.get() {
            KIND_GROUPS => LogPlacement::EveryGroup(Sectors(raw.placement_value.get())),
            KIND_SINGLE => LogPlacement::Single(raw.placement_value.get() as f64 / 1e6),
            _ => return Err(VolumeError::NotAVolume),
        };
        let config = EngineConfig {
            threshold: Sectors(raw.threshold_sectors.get()),
            record: Sectors(raw.record_sectors.get()),
            log: Sectors(raw.log_sectors.get()),
            placement,
            ..EngineConfig::default()
        };
        Ok(Self {
            volume: raw.volume,
            device: Sectors(raw.device_sectors.get()),
            physical: Sectors(raw.physical_sectors.get().into()),
            config,
        })
    }
}

/// Places are kept in millionths so that the layout is computed from whole numbers.
pub(crate) fn to_millionths(place: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a validated fraction"
    )]
    let millionths = (place * 1e6).round() as u64;
    millionths
}
