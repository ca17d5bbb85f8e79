//! Mounting a file system whose journal is near the head.

use std::rc::Rc;

use manylogs::{
    Anchors, CreateOptions, DrainOptions, DrainReport, Layout, LayoutError, OpenOptions, Opening,
    PhaseProbe, RecoveryReport, Volume, VolumeConfig, VolumeError,
};
use manylogs_block::{BlockDevice, Extent, Geometry, Handle, Sectors};
use manylogs_ext4::{Ext4, LARGEST_LEAST, Mode, Options};
use thiserror::Error;

use crate::sink::{Granularity, Logging, NearSink, largest_transaction};
use crate::spare::Spare;

/// Why a file system cannot be mounted, or left, with its journal near the head.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NearError {
    /// An error of the volume below.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// An error of the file system.
    #[error(transparent)]
    FileSystem(#[from] manylogs_ext4::Error),
    /// The places for logs and anchors make no volume.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A log is too short for the largest transaction.
    #[error(
        "the shortest log has {} sectors, too few for a transaction of {LARGEST_LEAST} blocks: \
         give logs of at least {} sectors",
        log.0, LOG_LEAST.0
    )]
    LogsTooShort {
        /// The shortest.
        log: Sectors,
    },
}

/// Least record length: a record must take the largest transaction, whatever `record=` a disk has
/// in its superblock.
pub const RECORD_LEAST: Sectors = Sectors(8 * LARGEST_LEAST as u64);
/// Shortest log. Records of at most half its length always find room, see
/// [`manylogs_logstore::store::Logs::longest_record`].
pub const LOG_LEAST: Sectors = Sectors(2 * RECORD_LEAST.0);
/// Longest run of data that goes into a record (the Manylogs paper, section IV): 32 KiB.
const THRESHOLD: Sectors = Sectors(64);

/// The places of logs and anchors on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The logs.
    pub logs: Vec<Extent>,
    /// The places of the volume's structures.
    pub anchors: Anchors,
    /// The array, if each extent of `logs` is split into a log on every column.
    pub columns: Option<Geometry>,
}

impl Placed {
    /// These places on an array: each log is cut to its whole stripes, and dropped if a column's
    /// share is too short for the largest transaction. If more than half of the log space would be
    /// lost, e.g. because stripes are long, the places stay as they are: then a record may lie on
    /// several columns.
    ///
    /// On an array with parity an extent is one log, whose records fill rows. The structures share
    /// rows with others, because they are where the file system has room for them.
    #[must_use]
    pub fn on_array(self, array: Option<Geometry>) -> Self {
        let Some(columns) = array.filter(Layout::may_have_logs) else { return self };
        let least = LOG_LEAST.0 * Layout::logs_in(columns);
        let whole = self.logs.iter().map(|log| columns.whole_within(*log));
        let logs: Vec<Extent> = whole.filter(|log| log.len.0 >= least).collect();
        let all = |logs: &[Extent]| logs.iter().map(|log| log.len.0).sum::<u64>();
        if all(&logs) * 2 < all(&self.logs) {
            return self;
        }
        Self { logs, columns: Some(columns), ..self }
    }

    /// Length of the shortest log.
    fn shortest(&self) -> Sectors {
        let logs = self.columns.map_or(1, Layout::logs_in);
        let shortest = self.logs.iter().map(|log| log.len.0).min().unwrap_or_default();
        Sectors(shortest / logs)
    }
}

/// How a file system is mounted.
#[derive(Clone, Debug, Default)]
pub struct NearOptions {
    /// How the volume is opened. [`OpenOptions::anchors`] must be given. [`OpenOptions::logs_near`]
    /// makes the mode `adaptive`: all records go to the logs near that place.
    pub open: OpenOptions,
    /// How much of changed blocks is logged.
    pub granularity: Granularity,
    /// Whether metadata stays in the logs, and is read from there
    /// ([`manylogs::Volume::keep_metadata`]). Whole blocks are logged then, whatever `granularity`
    /// says, so that a block is read in one piece.
    pub keeps_metadata: bool,
}

/// A mounted file system whose journal is near the head.
#[derive(Debug)]
pub struct Near {
    fs: Ext4,
    volume: Volume,
}

/// The parameters of a volume with logs at these places.
///
/// # Errors
/// [`NearError::LogsTooShort`].
pub fn format_config(placed: &Placed) -> Result<VolumeConfig, NearError> {
    let log = placed.shortest();
    let longest = manylogs_logstore::RECORD_PAYLOAD_MAX.0;
    let record = Sectors((log.0 / 2).min(longest) / 8 * 8);
    if log < LOG_LEAST {
        return Err(NearError::LogsTooShort { log });
    }
    Ok(VolumeConfig { log, record, threshold: THRESHOLD, ..VolumeConfig::default() })
}

/// Makes an empty volume in these places. The file system on `device` does not use them, and has
/// all other blocks at their addresses, as before.
///
/// # Errors
/// If the places do not fit, or the device fails. The file system is unchanged then.
pub async fn format(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    placed: &Placed,
    config: &VolumeConfig,
) -> Result<(), NearError> {
    let told = device.capabilities();
    let Placed { logs, anchors, columns } = placed;
    let (capacity, physical) = (told.capacity, told.physical_sector);
    let layout = Layout::given(logs, *anchors, capacity, physical, *columns)?;
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let volume = Volume::create_with(runtime, device, config, &options).await?;
    Ok(volume.close().await?)
}

/// A file system to be mounted: all that a mount needs was read, and nothing is written yet.
#[derive(Debug)]
pub struct NearOpening {
    opening: Opening,
    runtime: Handle,
    probe: PhaseProbe,
    granularity: Granularity,
    keeps_metadata: bool,
}

impl NearOpening {
    /// Mounts the file system.
    ///
    /// # Errors
    /// Those of the device and of [`Ext4::mount_through`].
    pub async fn begin(self, options: Options) -> Result<(Near, RecoveryReport), NearError> {
        let Self { opening, runtime, probe, granularity, keeps_metadata } = self;
        let (volume, report) = opening.begin().await?;
        let config = volume.config();
        if largest_transaction(config.record) < LARGEST_LEAST {
            let log = config.log;
            volume.close().await?;
            return Err(NearError::LogsTooShort { log });
        }
        volume.read_ahead_in(Rc::new(Spare(options.memory.clone())));
        let what = Logging { granularity, keeps_metadata };
        let sink = NearSink::new(volume.clone(), probe, what, &options.memory);
        if let Err(error) = sink.learn().await {
            volume.close().await?;
            return Err(error.into());
        }
        let through: Rc<dyn BlockDevice> = Rc::new(volume.clone());
        let journal = Rc::new(sink);
        match Ext4::mount_through(journal, Mode::Runs, through, runtime, options).await {
            Ok(fs) => Ok((Near { fs, volume }, report)),
            Err(error) => {
                volume.close().await?;
                Err(error.into())
            }
        }
    }
}

impl Near {
    /// Opens the volume, which recovers it, and mounts the file system through it.
    ///
    /// # Errors
    /// Those of [`Volume::open`] and of [`Ext4::mount_through`].
    pub async fn mount(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        near: &NearOptions,
        options: Options,
    ) -> Result<(Self, RecoveryReport), NearError> {
        Self::read(runtime, device, near).await?.begin(options).await
    }

    /// Reads what a mount needs, and fails where a mount would. Nothing is written.
    ///
    /// # Errors
    /// As [`Near::mount`].
    pub async fn read(
        runtime: Handle,
        device: Rc<dyn BlockDevice>,
        near: &NearOptions,
    ) -> Result<NearOpening, NearError> {
        let keep_metadata = near.keeps_metadata;
        let open = OpenOptions { record_least: RECORD_LEAST, keep_metadata, ..near.open.clone() };
        let opening = Opening::read(runtime.clone(), device, &open).await?;
        Ext4::check_mount_through(&opening.content()).await?;
        let (probe, keeps_metadata) = (open.probe, near.keeps_metadata);
        let granularity = if keeps_metadata { Granularity::Blocks } else { near.granularity };
        Ok(NearOpening { opening, runtime, probe, granularity, keeps_metadata })
    }

    /// The file system.
    #[must_use]
    pub const fn fs(&self) -> &Ext4 {
        &self.fs
    }

    /// The volume, for its settings and counters.
    #[must_use]
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Makes everything durable and closes the volume. Logged versions stay in the logs.
    ///
    /// # Errors
    /// Those of [`Ext4::unmount`] and [`Volume::close`]: the next mount recovers then.
    pub async fn unmount(self) -> Result<(), NearError> {
        let unmounted = self.fs.unmount().await;
        let closed = self.volume.close().await;
        unmounted?;
        Ok(closed?)
    }

    /// Makes everything durable and brings it home: the device is a plain ext4 then, and its file
    /// of logs holds no live version.
    ///
    /// # Errors
    /// Those of [`Ext4::unmount`] and [`Volume::drain`]: the volume is closed then, and blocks that
    /// could not be brought home are still logged.
    pub async fn drain(self) -> Result<DrainReport, NearError> {
        if let Err(error) = self.fs.unmount().await {
            self.volume.close().await?;
            return Err(error.into());
        }
        Ok(self.volume.drain(&DrainOptions::default()).await?)
    }
}
