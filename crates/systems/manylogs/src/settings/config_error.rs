//! Errors of parameters that make no sense, alone or together.

use manylogs_block::{Extent, Nanos, Sectors, bytes_text, span_text};
use manylogs_logstore::RECORD_PAYLOAD_MAX;
use thiserror::Error;

use super::config::{
    BAND_MAX, BAND_MIN, BUFFER_MAX, CheckpointPolicy, HOLD_MAX, LATENCY_MAX, LATENCY_MIN,
};

/// A parameter that makes no sense, with its bounds.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The logs would leave no room for data.
    #[error(
        "log={} is not smaller than group={}: nothing would be left for data",
        size(*log), size(*group)
    )]
    NoRoomForData {
        /// Length of a log.
        log: Sectors,
        /// Length of a log and of the data behind it.
        group: Sectors,
    },
    /// The single log would lie outside of the device.
    #[error("place={place} is not between 0 % and 100 % of the device")]
    Place {
        /// Start of the log as a share of the device.
        place: f64,
    },
    /// A log is too short for several of the largest writes.
    #[error(
        "log={} is too small for threshold={}: a log must hold at least four of the largest logged \
         writes",
        size(*log), size(*threshold)
    )]
    LogTooShort {
        /// Length of a log.
        log: Sectors,
        /// The largest logged write.
        threshold: Sectors,
    },
    /// A record would take most of a log, because the device has large sectors.
    #[error(
        "log={} is too small for records of up to {} on this device: a log must be at least 1.6 \
         times as long, so that there is room for the next one whatever a checkpoint leaves",
        size(*log), size(*record)
    )]
    LogTooShortForRecords {
        /// Length of a log.
        log: Sectors,
        /// Length of the largest record, header and padding included.
        record: Sectors,
    },
    /// The owner of the volume needs longer records.
    #[error(
        "record={} is too short for the file system on this disk, which changes up to {} at once",
        size(*record), size(*least)
    )]
    RecordTooShort {
        /// Longest payload of a record.
        record: Sectors,
        /// Longest payload that the owner needs.
        least: Sectors,
    },
    /// No drive has bands of this length.
    #[error(
        "band={} is not between {} and {}: shingled drives have bands of 15 MiB to 256 MiB",
        size(*band), size(BAND_MIN), size(BAND_MAX)
    )]
    Band {
        /// Length of a band.
        band: Sectors,
    },
    /// Another owner writes to the device as well.
    #[error(
        "band= is for volumes of their own: a file system writes between the logs of an adopted \
         disk by itself, so that nobody may write whole bands there"
    )]
    BandOfOthers,
    /// A range lies outside of the volume.
    #[error(
        "durable-only={}+{} ends beyond the volume, which has {}",
        size(Sectors(range.start.0)), size(range.len), size(*capacity)
    )]
    DurableBeyondEnd {
        /// The range.
        range: Extent,
        /// Length of the volume.
        capacity: Sectors,
    },
    /// The table is in non-volatile RAM, so no versions can be kept in the logs.
    #[error(
        "durable-only=, durable-budget= and metadata that stays in the logs are for volumes whose \
         table is in their logs: with a table in non-volatile RAM everything goes home"
    )]
    KeptApart,
    /// The superblock's head is full of runs.
    #[error(
        "the superblock of this volume has no room for durable-only= and durable-budget=: its logs \
         are in too many runs"
    )]
    NoRoomForDurable,
    /// The volume has no room for images of rows.
    #[error(
        "hole=closed needs a volume that `format --close-hole` has made, on an array with parity \
         with chunks of 16 KiB or more"
    )]
    NoImages,
    /// A log is too long for the table of its checksums.
    #[error("log={} exceeds 128 GiB", size(*log))]
    LogTooLong {
        /// Length of a log.
        log: Sectors,
    },
    /// A record is longer than recovery can handle.
    #[error(
        "record={} exceeds {}, the longest payload of a record",
        size(*record), size(RECORD_PAYLOAD_MAX)
    )]
    RecordTooLong {
        /// Longest payload of a record.
        record: Sectors,
    },
    /// A record is shorter than the largest logged write, or longer than half of a log.
    #[error(
        "record={} is not between threshold={} and half of log={}",
        size(*record), size(*threshold), size(*log)
    )]
    Record {
        /// Longest payload of a record.
        record: Sectors,
        /// The largest logged write.
        threshold: Sectors,
        /// Length of a log.
        log: Sectors,
    },
    /// No write would be logged.
    #[error("threshold=0 logs nothing: say logging=off")]
    LogsNothing,
    /// A share is out of its bounds.
    #[error("{setting}={value} is not above 0 and at most 1")]
    Share {
        /// The parameter.
        setting: &'static str,
        /// The value.
        value: f64,
    },
    /// Too many records in flight, or none.
    #[error("appends={appends} is not between 1 and 64")]
    Appends {
        /// Records in flight together.
        appends: usize,
    },
    /// The buffer is too large: a crash would lose all of it.
    #[error("buffer={} exceeds {}", size(*buffer), size(BUFFER_MAX))]
    Buffer {
        /// Most volatile bytes of writes.
        buffer: Sectors,
    },
    /// The latency target is out of its bounds.
    #[error(
        "latency={} is neither none nor between {} and {}: no drive does less, more is no bound",
        span_text(*latency), span_text(LATENCY_MIN), span_text(LATENCY_MAX)
    )]
    Latency {
        /// The target.
        latency: Nanos,
    },
    /// Records would be held back for too long.
    #[error(
        "hold={} exceeds {}: clients wait for it at each sync",
        span_text(*hold), span_text(HOLD_MAX)
    )]
    Hold {
        /// Time for which a record waits for other writes to share it.
        hold: Nanos,
    },
    /// The interval of checkpoints is zero.
    #[error("checkpoint=every:0s leaves no time between checkpoints: give a longer interval")]
    NoInterval,
    /// The window is not within a day.
    #[error("checkpoint={policy} is not within a day")]
    OffHours {
        /// The hours.
        policy: CheckpointPolicy,
    },
    /// A time is longer than any use.
    #[error("{setting}={} exceeds 30 years", span_text(*span))]
    Span {
        /// The parameter.
        setting: &'static str,
        /// The value.
        span: Nanos,
    },
    /// A layout cannot be made by rule, because its logs must be listed.
    #[error("no rule says where the logs are: the layout must list them")]
    LogsNotListed,
}

/// A length as text, such as `64K`.
pub(super) fn size(len: Sectors) -> String {
    bytes_text(len.bytes())
}
