//! Profile of a drive: a TOML file in which every number names its source.
//!
//! ```toml
//! [spindle]
//! revolution_us = 8333.333
//! source.revolution_us = "manual: 7200 rpm"
//! ```
//!
//! A numeric key without an entry in its table's `source` is an error, so that every figure in a
//! profile keeps its origin.

mod bars;
mod builtin;
mod catalogue;
mod check;
mod fit;
mod library;
mod link;
mod power;
pub mod sheet;
mod shingled;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manylogs_block::Sectors;
use serde::{Deserialize, Serialize};

pub use bars::Bars;
pub use builtin::{drives, find};
pub use catalogue::{catalogue, catalogued, catalogued_model};
pub use library::{Library, Own, is_name};
pub use link::LinkTable;
pub use power::PowerTable;
pub use sheet::Sheet;
pub use shingled::{BandCleaning, BandMapping, ShingledTable};

/// Sources of the numbers of one table, by key.
pub type Sources = BTreeMap<String, String>;

/// A drive, as its profile describes it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name by which commands choose the drive.
    pub name: String,
    /// Vendor, model, size.
    pub model: String,
    /// Rotation.
    pub spindle: SpindleTable,
    /// Layout of the sectors.
    pub geometry: GeometryTable,
    /// Head movement.
    pub seek: SeekTable,
    /// Rare retries.
    pub retry: RetryTable,
    /// Background work of the idle drive.
    pub idle: IdleTable,
    /// Electronics and interface.
    pub controller: ControllerTable,
    /// Command queue.
    pub queue: QueueTable,
    /// Buffer.
    pub cache: CacheTable,
    /// The link to the host: see [`Profile::link`].
    #[serde(default)]
    pub link: Option<LinkTable>,
    /// Shingled recording; none on a conventional drive.
    #[serde(default)]
    pub shingled: Option<ShingledTable>,
    /// Power and starts of the spindle: see [`Profile::power`].
    #[serde(default)]
    pub power: Option<PowerTable>,
    /// Model numbers as the drive reports them, or their beginnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Serial numbers of the drives that this profile describes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serials: Vec<String>,
    /// Traits of the drive that the model lacks, and their consequences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_modelled: Vec<String>,
    /// Figures that the modelled drive is compared with.
    #[serde(default, skip_serializing_if = "Bars::is_empty")]
    pub bars: Bars,
    /// The version of the file's form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The complete sheet, if the profile was made from one.
    #[serde(skip)]
    pub sheet: Option<Box<Sheet>>,
}

/// Rotation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SpindleTable {
    /// Time of one revolution in microseconds.
    pub revolution_us: f64,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Layout: zones, bands of a serpentine, skews, slipped defects.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GeometryTable {
    /// Sectors of 512 bytes on the medium. A conventional drive exports them all.
    pub capacity_sectors: u64,
    /// Bytes that the medium writes as one: 512, or 4096 behind 512-byte addresses (512e).
    pub physical_sector_bytes: u32,
    /// Recording surfaces.
    pub heads: u32,
    /// Cylinders that carry data.
    pub cylinders: u32,
    /// Cylinders that one head passes before the next head takes over.
    pub band_cylinders: u32,
    /// A remainder of a zone up to this many cylinders joins the last band.
    pub band_remainder_max: u32,
    /// Skew to the next track on the same head, in revolutions.
    pub track_skew_rev: f64,
    /// Skew to the next head within a band, in revolutions.
    pub head_skew_rev: f64,
    /// Skew to the first track of the next band, in revolutions.
    pub band_skew_rev: f64,
    /// Zones: first cylinder, sectors per track, first sector (LBA), from the outside in.
    pub zones: Vec<(u32, u32, u64)>,
    /// Defect slips: zone, sector offset in the zone, sectors slipped up to there. Linear between
    /// the entries of a zone, from zero at its start. Zones that are not listed have no slips.
    #[serde(default)]
    pub slips: Vec<(u32, u64, f64)>,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Head movement: either a measured curve or the three published figures.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SeekTable {
    /// Measured seek time: cylinders, milliseconds.
    #[serde(default)]
    pub knots_ms: Vec<(u32, f64)>,
    /// Correction of the measured curve: cylinders and milliseconds, which may be negative.
    #[serde(default)]
    pub correction_ms: Vec<(u32, f64)>,
    /// Time to the next cylinder, when there is no measured curve.
    pub track_to_track_ms: Option<f64>,
    /// Mean time over random pairs of cylinders, when there is no measured curve.
    pub average_ms: Option<f64>,
    /// Time from the first to the last cylinder, when there is no measured curve.
    pub full_stroke_ms: Option<f64>,
    /// Time to change heads on a cylinder.
    pub head_switch_ms: f64,
    /// Extra settling before a write after any movement.
    pub write_settle_ms: f64,
    /// Standard deviation of the time of a movement.
    pub jitter_ms: f64,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Rare retries that cost whole revolutions.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetryTable {
    /// Chance that a read needs one extra revolution.
    pub read_probability: f64,
    /// Chance that a write needs one extra revolution.
    pub write_probability: f64,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Background work of the idle drive: it reads recent writes back to verify them (idle read after
/// write).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IdleTable {
    /// Idle time after which verifying begins.
    pub verify_after_ms: f64,
    /// Number of writes to remember for verifying, the oldest forgotten first; zero if the drive
    /// does not verify.
    pub verify_writes_max: u32,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Electronics and interface.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerTable {
    /// Time from the arrival of a read on an idle drive to the start of the seek.
    pub read_start_us: f64,
    /// Time from the arrival of a write on an idle drive to the start of the seek.
    pub write_start_us: f64,
    /// Time from the last sector of a read under the head to its completion at the host, for
    /// each sector of the read.
    pub read_end_us_per_sector: f64,
    /// The most sectors that this time grows with. Of a longer read the drive has sent all but
    /// these when the last sector passes. Without a value the time grows with all sectors.
    pub read_end_sectors_max: Option<u32>,
    /// Time from the last sector of a write on the medium to its completion at the host.
    pub write_end_us: f64,
    /// Service time of a request that the buffer answers, without the transfer.
    pub buffer_hit_us: f64,
    /// Rate of the interface in MB/s (10^6 bytes).
    pub interface_mb_s: f64,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Command queue.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTable {
    /// Commands the drive accepts at a time, 1 to 32.
    pub depth: u32,
    /// `"fcfs"`, `"elevator"` or `"sptf"`.
    pub policy: String,
    /// A command that waited this long goes first.
    pub age_limit_ms: f64,
    /// Margin that the scheduler adds to a predicted arrival, because the prediction is not exact:
    /// a sector that is reached with less to spare counts as missed.
    pub prediction_margin_ms: f64,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Buffer: read-ahead segments and write cache.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CacheTable {
    /// Read-ahead segments.
    pub segments: u32,
    /// Sectors of a segment; also the farthest the drive reads ahead.
    pub segment_sectors: u64,
    /// Whether writes are acknowledged from the buffer when the drive starts.
    pub write_cache: bool,
    /// Sectors of the buffer that may hold unwritten data.
    pub write_buffer_sectors: u64,
    /// Sources of the numbers above.
    pub source: Sources,
}

/// Why a profile was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file could not be read.
    #[error("cannot read drive profile {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is no TOML, or a key is missing, unknown or of the wrong type.
    #[error("drive profile {origin}: {source}")]
    Syntax {
        /// File or name of the profile.
        origin: String,
        /// Line, column and what was expected.
        source: Box<toml::de::Error>,
    },
    /// A value is outside what the model can represent.
    #[error("drive profile {origin}: `{key}`: {expected}")]
    Value {
        /// File or name of the profile.
        origin: String,
        /// Key with its table.
        key: String,
        /// The expected value.
        expected: String,
    },
    /// An error that was reported before, as text.
    #[error("{0}")]
    Again(String),
    /// The file was written by a newer version of the program.
    #[error(
        "drive profile {origin}: `version`: expected at most {}, found {version}: a newer version \
         of the program wrote it",
        sheet::VERSION
    )]
    TooNew {
        /// File or name of the profile.
        origin: String,
        /// The version found.
        version: i64,
    },
    /// Two profiles claim one drive.
    #[error(
        "two profiles name the serial number {serial}: {} and {}; take it out of one of them",
        first.display(),
        second.display()
    )]
    Twice {
        /// The serial number.
        serial: String,
        /// One of the files.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A number does not name its source.
    #[error("drive profile {origin}: `{key}` names no source (add `source.{leaf} = \"...\"`)")]
    NoSource {
        /// File or name of the profile.
        origin: String,
        /// Key with its table.
        key: String,
        /// Key without its table.
        leaf: String,
    },
}

impl Profile {
    /// Reads a profile from `text`, which is a whole profile or the [`Sheet`] of a drive. `origin`
    /// names it in errors.
    ///
    /// # Errors
    /// When the text is no profile, a number has no source, or a value is out of range.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ProfileError> {
        let syntax =
            |source| ProfileError::Syntax { origin: origin.to_owned(), source: Box::new(source) };
        let raw: toml::Table = toml::from_str(text).map_err(syntax)?;
        Sheet::check_version(origin, &raw)?;
        if !is_whole(&raw) {
            return Sheet::parse(origin, text)?.profile(origin);
        }
        let profile: Self = toml::from_str(text).map_err(syntax)?;
        check::sources(origin, &raw)?;
        check::values(origin, &profile)?;
        Ok(profile)
    }

    /// Reads a profile from the file `path`.
    ///
    /// # Errors
    /// As [`Profile::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Number of sectors that the host can address, without those that a shingled drive keeps for
    /// itself.
    #[must_use]
    pub fn capacity(&self) -> Sectors {
        let shingled = self.shingled.as_ref().map(|table| table.capacity_sectors);
        Sectors(shingled.unwrap_or(self.geometry.capacity_sectors))
    }

    /// The profile as TOML. [`Profile::parse`] reads it back with the same figures. A whole profile
    /// is written as it is, and one made from a sheet as the sheet, including every default.
    #[must_use]
    pub fn toml(&self) -> String {
        match &self.sheet {
            Some(sheet) => sheet.toml(),
            // Tables of numbers and texts can always be written.
            None => toml::to_string(self).unwrap_or_default(),
        }
    }

    /// Revolutions a minute.
    #[must_use]
    pub fn rpm(&self) -> f64 {
        60e6 / self.spindle.revolution_us
    }
}

/// Whether the TOML has a table of a whole profile, which no sheet has.
fn is_whole(table: &toml::Table) -> bool {
    let tables = ["spindle", "geometry", "seek", "retry", "idle", "controller", "queue"];
    tables.iter().any(|name| table.contains_key(*name))
}

impl ProfileError {
    /// The same error, as text.
    fn again(&self) -> Self {
        Self::Again(self.to_string())
    }
}

#[cfg(test)]
mod tests;
