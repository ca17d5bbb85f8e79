//! Errors of a volume as a whole.

use manylogs_block::{Extent, IoError, Sectors};
use manylogs_logstore::{LogId, LogOffset, NvramError};
use thiserror::Error;

use crate::settings::config_error::ConfigError;

/// Why a volume cannot be created, opened or maintained.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum VolumeError {
    /// The device below failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The device cannot hold the volume's structures and one group.
    #[error("device of {} sectors is too small: at least {} are needed", have.0, need.0)]
    TooSmall {
        /// Size of the device.
        have: Sectors,
        /// Smallest size that is enough.
        need: Sectors,
    },
    /// On an array logs are whole stripes: so long that none fits, or that they leave no room for
    /// data.
    #[error(
        "on this array a log takes {} sectors, which are whole stripes of {}: no log fits with \
         data beside it; choose longer groups, or an array with shorter chunks", log.0, stripe.0
    )]
    StripesTooLong {
        /// Length of a log region.
        log: Sectors,
        /// Length of a stripe of the array.
        stripe: Sectors,
    },
    /// A volume's logs cannot lie on the array that its user says the device is.
    #[error("no volume fits the array: {0}")]
    Array(crate::lifecycle::geometry::Unfit),
    /// A layout that was made for a device of another size.
    #[error("the layout is for a device of {} sectors, this one has {}", planned.0, device.0)]
    OtherDevice {
        /// Size that the layout is for.
        planned: Sectors,
        /// Size of the device.
        device: Sectors,
    },
    /// A parameter, or a combination, that makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The volume has grown so often that its superblock has no room for another run of logs.
    #[error(
        "the superblock has no room for more runs of logs: the volume grew too often; copy its \
         content to a new one"
    )]
    GrewTooOften,
    /// No superblock was found in either place.
    #[error(
        "no Manylogs volume: neither copy of a superblock was found; if the device held a volume, \
         both are overwritten: restore it from a backup (`manylogs format` would make a new, \
         empty volume)"
    )]
    NotAVolume,
    /// The volume is the journal of a file system, which alone knows the places of its logs.
    #[error(
        "the logs of a file system that MLFS adopted are here, and no volume of their own: use the \
         manylogs fs commands"
    )]
    OfFileSystem,
    /// A superblock was found, but both copies are torn or damaged.
    #[error(
        "both copies of the superblock are damaged, so the layout of the volume is unknown: \
         restore the device from a backup"
    )]
    Superblock,
    /// A structure has a right checksum, but no program can have written its content.
    #[error("the superblock is whole but has an impossible {0}")]
    Impossible(&'static str),
    /// The volume was written by another version of the program.
    #[error(
        "volume has format version {found}, this program knows version {known} only: drain it with \
         the program that wrote it, then format it anew"
    )]
    Version {
        /// On the disk.
        found: u32,
        /// Newest version that this program understands.
        known: u32,
    },
    /// The volume uses features that this program does not know.
    #[error(
        "volume uses features that this program does not know (bits {bits:#x}): use a newer one"
    )]
    Features {
        /// The unknown ones.
        bits: u64,
    },
    /// The non-volatile RAM for the mapping table is missing or cannot be used.
    #[error(transparent)]
    Nvram(#[from] NvramError),
    /// Both root slots are damaged.
    #[error(
        "both root slots are damaged, so the state of the volume is unknown: restore the device \
         from a backup"
    )]
    NoRoot,
    /// The root is older than records in the logs: an update of it was lost.
    #[error(
        "the newest root is older than records in the logs, so the state of the volume is unknown: \
         restore the device from a backup"
    )]
    StaleRoot,
    /// The device became smaller than the volume.
    #[error(
        "device has {} sectors, the volume was formatted for {}: restore its size",
        now.0, formatted.0
    )]
    Shrunk {
        /// Size at format.
        formatted: Sectors,
        /// Size now.
        now: Sectors,
    },
    /// The device did not become larger than the volume.
    #[error(
        "device has {} sectors, the volume {}: there is nothing to grow into", now.0, formatted.0
    )]
    CannotGrow {
        /// Size of the volume.
        formatted: Sectors,
        /// Size of the device.
        now: Sectors,
    },
    /// The device writes larger sectors than the volume was formatted for.
    #[error(
        "device has physical sectors of {} bytes, the volume was formatted for {}: a torn \
         write could damage what is beside it; copy the content to a volume that was made with \
         `format --physical-sector {}`",
        device.bytes(), volume.bytes(), device.bytes()
    )]
    PhysicalSector {
        /// Size of the device.
        device: Sectors,
        /// Size that the volume needs.
        volume: Sectors,
    },
    /// The device writes larger sectors than the logs of a file system were made for.
    #[error(
        "the logs were made on a disk that writes sectors of {} bytes, and this one writes {}: a \
         record could damage the one before it. Nothing is damaged, and nothing is lost: \
         manylogs fs release brings home what the logs hold, and manylogs fs adopt makes logs for \
         this disk",
        logs.bytes(), device.bytes()
    )]
    LogsOfShorterSectors {
        /// Physical sector size of the device.
        device: Sectors,
        /// Physical sector size that the logs were made for.
        logs: Sectors,
    },
    /// A part of the device could not be read, and the device does not say that its medium is bad
    /// there. The content may be whole, so no older copy is used in its place.
    #[error(
        "{extent} cannot be read, and the device does not say that its medium is bad there: the \
         data may be whole, so the volume is not opened without it; look at cables, power and \
         the kernel's log, then try again (`check --repair` gives up what cannot be read: \
         `manylogs check`, or `manylogs fs check` for the logs of a file system)"
    )]
    NotRead {
        /// Place on the device.
        extent: Extent,
    },
    /// A log holds damaged records, and it is unknown which blocks they held.
    #[error(
        "log {}: {} sectors from sector {} of it are damaged or cannot be read, and may have held \
         acknowledged writes; `check` tells more, and `check --repair` gives them up (`manylogs \
         check`, or `manylogs fs check` for the logs of a file system)",
        log.0, sectors.0, offset.0
    )]
    Damaged {
        /// The log.
        log: LogId,
        /// First damaged sector within the log.
        offset: LogOffset,
        /// Length of the damaged range.
        sectors: Sectors,
    },
    /// The volume has no log with this number.
    #[error("there is no log {}: the volume has {logs}, numbered from 0", log.0)]
    NoSuchLog {
        /// Number of the log that was asked for.
        log: LogId,
        /// Number of logs.
        logs: usize,
    },
    /// Logged copies are lost, so that the volume cannot be emptied.
    #[error(
        "{extents} extents are lost (their logged copies are damaged): overwrite or discard them"
    )]
    Lost {
        /// Number of extents.
        extents: u64,
    },
    /// Homes cannot be written, so that the volume cannot be emptied.
    #[error(
        "{extents} extents cannot be written to their homes: nothing is lost, they stay logged; \
         copy the volume's content to another device"
    )]
    NotHome {
        /// Number of extents.
        extents: u64,
    },
    /// Logged copies could not be read, and the device does not say that they are gone.
    #[error(
        "{extents} logged extents cannot be read now, and the device does not say that they are \
         lost: nothing is lost, mend the device and try again"
    )]
    Unread {
        /// Number of extents.
        extents: u64,
    },
    /// The logs still hold live versions.
    #[error("the volume is not drained: drain it first")]
    NotDrained,
    /// The mapping table is in non-volatile RAM, by the places of the logs as they are.
    #[error(
        "the mapping table is in non-volatile RAM and knows the logs by their places, which \
         would change: drain the volume and format it anew for the array as it is now"
    )]
    TableApart,
    /// The volume was closed before the work was done.
    #[error("the volume was closed meanwhile")]
    Closed,
    /// The volume has used up its sequences, except for those that drain it.
    #[error(
        "the volume has no sequence numbers left for another opening: `drain --new-id` makes \
         everything readable at home and begins to count anew"
    )]
    Worn,
}

impl VolumeError {
    /// The error of an opening that failed to read.
    pub(crate) const fn of_opening(error: IoError) -> Self {
        match error {
            IoError::Transient { extent } => Self::NotRead { extent },
            error => Self::Io(error),
        }
    }
}
