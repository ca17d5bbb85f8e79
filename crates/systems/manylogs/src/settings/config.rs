//! The parameters of a volume: those of the Manylogs paper, section VI, and others.

use manylogs_block::{Nanos, Sectors};
use manylogs_logstore::RECORD_PAYLOAD_MAX;

use super::config_error::ConfigError;
use super::durable::DurableOnly;

/// Sectors in a mebibyte and a kibibyte.
const MIB: u64 = 2048;
const KIB: u64 = 2;
/// Seconds of a day.
const DAY_S: u64 = 24 * 3600;
/// Longest time that a parameter may have: some 30 years.
const SPAN_MAX: Nanos = Nanos::from_secs(1_000_000_000);
/// Bounds of the latency target: the least that a fast device reaches, and the most that still
/// helps.
pub(super) const LATENCY_MIN: Nanos = Nanos::from_micros(100);
pub(super) const LATENCY_MAX: Nanos = Nanos::from_secs(10);
/// Longest time that records may wait for one another.
pub(super) const HOLD_MAX: Nanos = Nanos::from_secs(1);
/// Bounds of a band: no drive has bands shorter than a track, and a band must fit memory while it
/// is written.
pub(super) const BAND_MIN: Sectors = Sectors(64 * KIB);
pub(super) const BAND_MAX: Sectors = Sectors(256 * MIB);
/// Largest buffer of writes without FUA.
pub(super) const BUFFER_MAX: Sectors = Sectors(16 * 1024 * MIB);

/// Time at which logged data moves home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// In a daily window of local time, given in seconds since midnight; the window may wrap around
    /// midnight. The paper's default (section III-F).
    OffHours {
        /// Start of the window.
        from_s: u64,
        /// End of the window.
        until_s: u64,
    },
    /// Whenever the volume has been idle for a while.
    Idle,
    /// At a fixed interval.
    Every(Nanos),
    /// Only when the logs are full.
    OnFull,
}

/// Placement of the logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LogPlacement {
    /// Each group of this size ends in a log.
    EveryGroup(Sectors),
    /// One log for the whole volume, at this fraction of the device: the baseline that isolates
    /// the gain of *many* logs.
    Single(f64),
    /// At the places in a layout from [`crate::Layout::with_logs`]; no rule gives them.
    Listed,
}

/// Place of the mapping table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablePlace {
    /// In the logs: records describe themselves.
    Logs,
    /// In non-volatile RAM of this many bytes, as in the paper (section III-E).
    Nvram(usize),
}

/// Parameters of a volume. `log`, `placement` and `table` are fixed at format. The others are
/// [`crate::Settings`], which can change at any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VolumeConfig {
    /// Writes up to this long are logged (`LoggedWriteSize`).
    pub threshold: Sectors,
    /// Size of a log (`LogSize`).
    pub log: Sectors,
    /// Placement of the logs (`GroupSize`).
    pub placement: LogPlacement,
    /// Occupancy above which an idle volume moves a log to an empty one.
    pub swap: f64,
    /// Time at which logged data moves home.
    pub checkpoint: CheckpointPolicy,
    /// Time without requests after which the volume counts as idle.
    pub idle: Nanos,
    /// Fraction of all log space in use from which a checkpoint starts under any policy, so that
    /// writes do not stop suddenly when the logs are full.
    pub watermark: f64,
    /// Limit of the checkpoint's speed in bytes a second; zero for none.
    pub checkpoint_rate: u64,
    /// Most records in flight together.
    pub appends: usize,
    /// Longest payload of a record.
    pub record: Sectors,
    /// Most volatile bytes of writes without FUA, and longest time that they stay so.
    pub buffer: Sectors,
    /// See `buffer`.
    pub buffer_age: Nanos,
    /// Length from which writes that follow one another are a run. Small writes without FUA that
    /// continue a run go home together, at least this much at a time. Zero if all are logged.
    pub run: Sectors,
    /// Interval of table snapshots; zero takes one only at an orderly close.
    pub snapshot: Nanos,
    /// Latency target of records: the volume holds other requests back so that a record finds at
    /// most this much work ahead of it in the device. Zero holds nothing back.
    pub latency: Nanos,
    /// Time for which clients must keep the device busy without a pause before requests are held
    /// back. Not a setting of a volume: tests use zero to hold requests back from the beginning.
    pub contended_after: Nanos,
    /// Longest time for which a record waits for other writes to share it, to save revolutions.
    /// Zero for no wait.
    pub hold: Nanos,
    /// Whether the threshold falls, down to 32 KiB, while more is logged than a checkpoint could
    /// write home (section VI).
    pub adaptive: bool,
    /// Whether small writes are logged; if not they go home like large ones.
    pub logging: bool,
    /// Length of a band of a drive-managed shingled drive. The volume then writes as suits such a
    /// drive: to one log until it is full, and home from the first changed place of a band to its
    /// end. Zero for drives that can overwrite single sectors.
    pub band: Sectors,
    /// Share of the log space for versions that are kept there, because they need durability but no
    /// place. Versions beyond it go home, oldest first.
    pub durable_budget: f64,
    /// Addresses of the volume for which every write is kept in the logs.
    pub durable_only: DurableOnly,
    /// Whether the write hole of homes on an array with parity is closed: what else lies in the
    /// rows of a home write is durable elsewhere before they are written. It needs room that is
    /// set aside when the volume is made: [`crate::Layout::images`].
    pub close_hole: bool,
    /// Place of the table. The memory itself is given in [`crate::CreateOptions`].
    pub table: TablePlace,
}

impl Default for VolumeConfig {
    /// The paper's parameters: 10 MB of log in every 100 MB, 256 KiB, swap above 80 %, off-hours.
    fn default() -> Self {
        Self {
            threshold: Sectors(256 * KIB),
            log: Sectors(10 * MIB),
            placement: LogPlacement::EveryGroup(Sectors(100 * MIB)),
            swap: 0.8,
            checkpoint: CheckpointPolicy::OffHours { from_s: 22 * 3600, until_s: 6 * 3600 },
            // About as long as it takes to move a log: see docs/results/speed.md.
            idle: Nanos::from_millis(300),
            watermark: 0.9,
            checkpoint_rate: 0,
            // The drive chooses their order. For the gain of more see docs/results/replays.md.
            appends: 4,
            record: Sectors(MIB),
            buffer: Sectors(4 * MIB),
            buffer_age: Nanos::from_secs(1),
            run: Self::RUN,
            snapshot: Nanos::from_secs(3600),
            latency: Nanos::from_millis(10),
            contended_after: Nanos::from_millis(300),
            hold: Nanos(0),
            // It loses on most traces: docs/results/replays.md.
            adaptive: false,
            logging: true,
            band: Sectors(0),
            durable_budget: 0.5,
            durable_only: DurableOnly::NONE,
            close_hole: false,
            table: TablePlace::Logs,
        }
    }
}

impl VolumeConfig {
    /// Length of a band if it is unknown: 30 MiB, the average in the drive that "Evolving ext4 for
    /// shingled disks" describes (section 2.1).
    pub const BAND: Sectors = Sectors(30 * MIB);

    /// The parameters in `wanted`, except those fixed at format.
    pub(crate) const fn changed_to(&self, wanted: &Self) -> Self {
        Self { log: self.log, placement: self.placement, table: self.table, ..*wanted }
    }

    /// Least length of a run of writes: 1 MiB, the longest request that most hosts send.
    pub const RUN: Sectors = Sectors(MIB);

    /// The default parameters of a volume on a device of this size. Each log is 10 MB, as in the
    /// paper, or a hundredth of a small device. `docs/results/replays.md` gives the reasons.
    #[must_use]
    pub fn for_device(device: Sectors) -> Self {
        let log = Sectors((device.0 / 100 / 128 * 128).clamp(MIB / 2, 10 * MIB));
        Self { placement: spread(log, device), ..Self::default() }.with_log(log)
    }

    /// The default parameters of a volume on a drive-managed shingled drive of this size, with
    /// bands of length `band`. Records must be streams to the drive, which bypass its persistent
    /// cache. So a log is many times the 8 MiB that make a stream: 256 MiB, or an eighth of the
    /// logs of a small device. Writes up to 1 MiB are logged, because at home they would be random.
    /// A checkpoint takes long on such a drive, so the second half of the logs is left for clients
    /// meanwhile. Measured in `docs/results/syncs.md`.
    #[must_use]
    pub fn for_shingled(device: Sectors, band: Sectors) -> Self {
        let log = Sectors((log_space(device) / 8 / 128 * 128).clamp(MIB / 2, 256 * MIB));
        let config = Self::default().with_log(log);
        let threshold = Sectors(MIB.min(log.0 / 16));
        Self {
            placement: spread(log, device),
            threshold,
            record: config.record.max(threshold),
            watermark: 0.5,
            // Twice the length of a stream of records: one arrives while another is written.
            buffer: Sectors(2 * threshold.0.max(8 * MIB)),
            band,
            ..config
        }
    }

    /// These parameters with logs of another size, and with the default threshold and record for
    /// it: 256 KiB and 1 MiB, but at most a fraction of a log.
    #[must_use]
    pub fn with_log(self, log: Sectors) -> Self {
        Self {
            log,
            threshold: Sectors((256 * KIB).min(log.0 / 16)),
            record: Sectors(MIB.min(log.0 / 4)),
            ..self
        }
    }

    /// The paper's parameters: 10 MB of log in every 100 MB, writes up to 256 KiB, and no requests
    /// held back for records. Runs are logged: only the paper's slides leave them alone.
    #[must_use]
    pub fn as_published() -> Self {
        Self { latency: Nanos(0), hold: Nanos(0), appends: 2, run: Sectors(0), ..Self::default() }
    }

    /// The paper's default with another threshold.
    #[must_use]
    pub fn with_threshold(threshold: Sectors) -> Self {
        Self { threshold, ..Self::default() }
    }

    /// One log of 5 GB in the middle of the device: as large as the journal that the paper gave
    /// ext3 (section V-A).
    #[must_use]
    pub fn single_log() -> Self {
        Self {
            log: Sectors(5 * 1024 * MIB),
            placement: LogPlacement::Single(0.5),
            // The baseline is a log without further features.
            latency: Nanos(0),
            appends: 2,
            run: Sectors(0),
            ..Self::default()
        }
    }

    /// Whether the settings require a volume that keeps versions in its logs.
    pub(crate) fn needs_kept_versions(&self) -> bool {
        let default = Self::default();
        self.durable_only != default.durable_only || self.durable_budget != default.durable_budget
    }

    /// The longest payload that `record` may be set to.
    pub(crate) fn longest_record(&self) -> Sectors {
        RECORD_PAYLOAD_MAX.min(Sectors(self.log.0 / 2))
    }

    /// Checks that the parameters make sense together.
    ///
    /// # Errors
    /// The parameter that makes no sense, with its bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_together().and_then(|()| self.validate_apart())
    }

    /// Validates parameters that depend on one another.
    fn validate_together(&self) -> Result<(), ConfigError> {
        let Self { log, threshold, record, .. } = *self;
        match self.placement {
            LogPlacement::EveryGroup(group) if group <= log => {
                return Err(ConfigError::NoRoomForData { log, group });
            }
            LogPlacement::Single(place) if !(0.0..=1.0).contains(&place) => {
                return Err(ConfigError::Place { place });
            }
            _ => {}
        }
        if log.0 < 4 * (threshold.0 + 8) {
            return Err(ConfigError::LogTooShort { log, threshold });
        }
        if !manylogs_logstore::UnitTable::fits(log) {
            return Err(ConfigError::LogTooLong { log });
        }
        if record > RECORD_PAYLOAD_MAX {
            return Err(ConfigError::RecordTooLong { record });
        }
        if record < threshold || record > self.longest_record() {
            return Err(ConfigError::Record { record, threshold, log });
        }
        Ok(())
    }

    /// Validates parameters that are independent of others.
    fn validate_apart(&self) -> Result<(), ConfigError> {
        let Self { appends, buffer, latency, hold, band, .. } = *self;
        if self.threshold.0 == 0 {
            return Err(ConfigError::LogsNothing);
        }
        let shares = [
            ("swap", self.swap),
            ("watermark", self.watermark),
            ("durable-budget", self.durable_budget),
        ];
        for (setting, value) in shares {
            if !(value > 0.0 && value <= 1.0) {
                return Err(ConfigError::Share { setting, value });
            }
        }
        if appends == 0 || appends > 64 {
            return Err(ConfigError::Appends { appends });
        }
        if buffer > BUFFER_MAX {
            return Err(ConfigError::Buffer { buffer });
        }
        if latency > Nanos(0) && !(LATENCY_MIN..=LATENCY_MAX).contains(&latency) {
            return Err(ConfigError::Latency { latency });
        }
        if band > Sectors(0) && !(BAND_MIN..=BAND_MAX).contains(&band) {
            return Err(ConfigError::Band { band });
        }
        if hold > HOLD_MAX {
            return Err(ConfigError::Hold { hold });
        }
        let every = match self.checkpoint {
            CheckpointPolicy::Every(Nanos(0)) => return Err(ConfigError::NoInterval),
            policy @ CheckpointPolicy::OffHours { from_s, until_s }
                if from_s.max(until_s) > DAY_S =>
            {
                return Err(ConfigError::OffHours { policy });
            }
            CheckpointPolicy::Every(span) => span,
            _ => Nanos(0),
        };
        let spans = [
            ("idle", self.idle),
            ("buffer-age", self.buffer_age),
            ("snapshot", self.snapshot),
            ("checkpoint=every", every),
        ];
        match spans.into_iter().find(|(_, span)| *span > SPAN_MAX) {
            Some((setting, span)) => Err(ConfigError::Span { setting, span }),
            None => Ok(()),
        }
    }
}

/// Total length of the logs of a device of this size: a hundredth of it, but at least 4 GiB or a
/// tenth of it. More logs would spread the data further, which costs reads.
fn log_space(device: Sectors) -> u64 {
    (device.0 / 100).max((device.0 / 10).min(4 * 1024 * MIB)).max(1)
}

/// Groups on a device of this size; each ends in a log of this length.
fn spread(log: Sectors, device: Sectors) -> LogPlacement {
    let group = (u128::from(device.0) * u128::from(log.0) / u128::from(log_space(device))).max(1);
    let group = u64::try_from(group).unwrap_or(u64::MAX).next_multiple_of(128);
    LogPlacement::EveryGroup(Sectors(group.max(2 * log.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn defaults_scale_with_the_device() {
        let share = |bytes: u64| {
            let device = Sectors(bytes / 512);
            let config = VolumeConfig::for_device(device);
            config.validate().unwrap();
            let layout = Layout::of(&config, device, Sectors(8)).unwrap();
            let share = layout.log_sectors().0 as f64 / device.0 as f64;
            assert!((0.009..0.13).contains(&share), "{bytes} bytes: {share}");
            share
        };
        for power in 24..50 {
            share(1 << power);
            share((1 << power) / 3 * 5);
        }
        for power in 24..50 {
            let device = Sectors(1 << (power - 9));
            let config = VolumeConfig::for_shingled(device, VolumeConfig::BAND);
            config.validate().unwrap();
            let layout = Layout::of(&config, device, Sectors(8)).unwrap();
            let share = layout.log_sectors().0 as f64 / device.0 as f64;
            assert!((0.009..0.26).contains(&share), "2^{power} bytes: {share}");
        }
        assert!(share(40_000_000_000) > 0.09, "the paper's tenth on a small disk");
        assert!((0.025..0.035).contains(&share(146_000_000_000)), "4 GiB on a larger one");
        assert!(share(1_000_000_000_000) < 0.011, "a hundredth of a large one");
        assert!(share(20_000_000_000_000) < 0.011, "and of the largest");
    }
}
