//! Runs of logs in the superblock.

use manylogs_block::{Extent, Lba, Sectors};
use zerocopy::little_endian::{U32, U64};

use super::{HEAD_BYTES, RUN_BYTES, RUNS_BEFORE_DURABLE, RUNS_IN_HEAD, RawRun};
use crate::error::VolumeError;
use crate::ondisk::layout::{LogRun, SUPERBLOCK_LEAST};

/// Number of runs that the head of a superblock holds.
pub(super) const fn runs_in_head(keeps: bool) -> usize {
    if keeps { RUNS_BEFORE_DURABLE } else { RUNS_IN_HEAD }
}

/// Number of runs that a superblock of `len` sectors holds.
pub(crate) const fn runs_that_fit(len: Sectors) -> u64 {
    RUNS_IN_HEAD as u64 + len.bytes().saturating_sub(HEAD_BYTES as u64) / RUN_BYTES as u64
}

/// An anchor as an entry of the list of runs.
pub(super) const fn anchor_run(anchor: Extent) -> LogRun {
    LogRun { first: anchor.start, stride: anchor.len, len: anchor.len, count: 1 }
}

pub(super) fn raw_run(run: LogRun) -> RawRun {
    RawRun {
        first: U64::new(run.first.0),
        stride: U64::new(run.stride.0),
        len: U64::new(run.len.0),
        count: U32::new(run.count),
        reserved: U32::ZERO,
    }
}

pub(super) fn run_of(raw: &RawRun) -> Result<LogRun, VolumeError> {
    let run = LogRun {
        first: Lba(raw.first.get()),
        stride: Sectors(raw.stride.get()),
        len: Sectors(raw.len.get()),
        count: raw.count.get(),
    };
    if run.len < SUPERBLOCK_LEAST || !manylogs_logstore::UnitTable::fits(run.len) {
        return Err(VolumeError::Impossible("log size"));
    }
    Ok(run)
}

/// The extent, if it lies where a device can have sectors.
pub(super) fn checked_extent(start: u64, len: u64) -> Result<Extent, VolumeError> {
    match start.checked_add(len) {
        Some(end) if end < 1 << 48 => Ok(Extent::new(start, len)),
        _ => Err(VolumeError::Impossible("extent of the log space")),
    }
}
