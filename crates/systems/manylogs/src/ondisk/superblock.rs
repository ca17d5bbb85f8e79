//! The superblock: what a volume is, and the places of its parts. Written at format and when the
//! volume changes, in two copies; the one with the higher generation counts.

use bytes::Bytes;
use manylogs_array::ColumnMap;
use manylogs_block::{Extent, Geometry, Sectors, narrow, to_usize};
use manylogs_logstore::ondisk::protective;
use manylogs_logstore::{DataSequence, LogId, ScanOf, VolumeId};
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::VolumeError;
use crate::ondisk::layout::{Anchors, Layout, LogRun, Parts, SUPERBLOCK_LEAST};
use crate::ondisk::settings::{RawDurable, RawSettings};
use crate::settings::Settings;
use crate::settings::config::{LogPlacement, VolumeConfig};

mod columns;
mod kept;
mod runs;

pub(crate) use runs::runs_that_fit;
use runs::{anchor_run, checked_extent, raw_run, run_of, runs_in_head};

const MAGIC: [u8; 8] = *b"MANYLOGS";
/// The format that this program writes.
pub(crate) const VERSION: u32 = 3;
/// The mapping table is in non-volatile RAM, and so are the headers of records.
const TABLE_IN_NVRAM: u64 = 1;
/// The first two runs are the anchors, and blocks have their homes at their own addresses.
const PLACES_GIVEN: u64 = 2;
/// Headers of records are whole sectors of 512 bytes, not whole physical sectors.
const SHORT_HEADERS: u64 = 4;
/// Versions may be kept in the logs, below the floor of the others. The settings of kept versions
/// take the place of the last runs in the head.
const KEPT_VERSIONS: u64 = 8;
/// The first run, or the first behind the anchors, is the geometry of the array that the volume was
/// made for. Each region then holds a log for each column.
const COLUMNS: u64 = 16;
/// That array has parity: each region is one log of whole rows, and structures have rows of their
/// own.
const ROWS: u64 = 32;
/// Metadata may be kept in the logs, in a class of its own. Versions may be kept then.
const KEPT_METADATA: u64 = 64;
/// Behind the snapshots there is room for an image of rows on their way home.
const IMAGES: u64 = 128;
/// Features that this program knows, grouped by what is forbidden without that knowledge (see
/// `docs/format.md`).
const KNOWN_INCOMPATIBLE: u64 = TABLE_IN_NVRAM
    | PLACES_GIVEN
    | SHORT_HEADERS
    | KEPT_VERSIONS
    | COLUMNS
    | ROWS
    | KEPT_METADATA
    | IMAGES;
const KNOWN_READ_ONLY_COMPATIBLE: u64 = 0;
/// Runs that fit into the head; further ones follow behind it.
const RUNS_IN_HEAD: usize = 120;
/// The same if versions are kept.
const RUNS_BEFORE_DURABLE: usize = RUNS_IN_HEAD - size_of::<RawDurable>() / RUN_BYTES;
/// With more runs than this there is no room for the protective MBR.
const RUNS_BEFORE_MBR: usize = 5;
/// Length of the first read: all but the further runs.
pub(crate) const HEAD_BYTES: usize = 4096;
const RUN_BYTES: usize = 32;
/// Most logs of a volume, which bounds the memory for a list of them.
const LOGS_MAX: u64 = 1 << 24;
/// Largest plausible generation: no superblock is written more often.
const GENERATION_MAX: u64 = 1 << 56;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    version: U32,
    volume: VolumeId,
    features_compatible: U64,
    features_read_only_compatible: U64,
    features_incompatible: U64,
    generation: U64,
    device_sectors: U64,
    space_start: U64,
    space_sectors: U64,
    snapshot_sectors: U64,
    physical_sectors: U32,
    superblock_sectors: U32,
    run_count: U32,
    tail_checksum: U32,
    threshold_sectors: U64,
    record_sectors: U64,
    label: [u8; 32],
    settings: RawSettings,
    runs: [RawRun; RUNS_IN_HEAD],
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRun {
    first: U64,
    stride: U64,
    len: U64,
    count: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Raw>() == HEAD_BYTES);
const _: () = assert!(size_of::<RawRun>() == RUN_BYTES);
const _: () = assert!(size_of::<RawDurable>().is_multiple_of(RUN_BYTES));
const _: () = assert!(std::mem::offset_of!(Raw, settings) == 160);
const _: () = assert!(std::mem::offset_of!(Raw, runs) == 256);
const _: () = assert!(256 + RUNS_BEFORE_MBR * RUN_BYTES <= protective::AT);

/// Content of a superblock; its bytes are in `docs/format.md`. Volumes write and read their own
/// superblocks. The type is public for callers with bytes of unknown origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Superblock {
    pub(crate) volume: VolumeId,
    /// The copy with the higher generation counts.
    pub(crate) generation: u64,
    pub(crate) physical: Sectors,
    /// A name that the owner gave, up to 32 bytes.
    pub(crate) label: String,
    /// The volume's settings, unless an opening gives others.
    pub(crate) settings: Settings,
    /// Feature bits that this program does not know and must keep, but may ignore.
    pub(crate) features_compatible: u64,
    /// Whether the mapping table is in non-volatile RAM.
    pub(crate) nvram: bool,
    /// Whether headers of records share physical sectors with the payload.
    pub(crate) short_headers: bool,
    /// Whether versions may be kept in the logs.
    pub(crate) keeps: bool,
    /// Whether metadata may be kept in the logs. Versions may be kept then.
    pub(crate) keeps_metadata: bool,
    pub(crate) layout: Layout,
}

impl Superblock {
    /// What a scan of `log` needs; entries below `floor` are dead.
    pub(crate) fn scan_of(&self, log: LogId, floor: DataSequence) -> ScanOf {
        ScanOf {
            volume: self.volume,
            log,
            region: self.layout.regions()[log.0 as usize],
            physical: self.record_unit(),
            floor,
            capacity: self.layout.capacity(),
        }
    }

    /// The parameters of the volume: those of the layout, and its settings.
    pub(crate) fn config(&self) -> VolumeConfig {
        let regions = self.layout.regions();
        // The shortest log must take the largest record.
        let log = regions.iter().map(|region| region.len).min().unwrap_or_default();
        let placement = match self.layout.parts().runs.as_slice() {
            _ if self.layout.anchors().is_some() => LogPlacement::Listed,
            [] => LogPlacement::Listed,
            [run] if run.count == 1 => LogPlacement::Single(0.5),
            [run, rest @ ..] => {
                let regular = rest.iter().all(|r| (r.stride, r.len) == (run.stride, run.len));
                if regular && run.stride > run.len {
                    LogPlacement::EveryGroup(run.stride)
                } else {
                    LogPlacement::Listed
                }
            }
        };
        self.settings.applied_to(&VolumeConfig { log, placement, ..VolumeConfig::default() })
    }

    /// Places of the volume's logs and structures.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The bytes of one copy, as many sectors as the layout says.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let parts = self.layout.parts();
        let config = self.settings.applied_to(&VolumeConfig::default());
        let anchors = parts.anchors.iter().flat_map(|anchors| anchors.both()).map(anchor_run);
        let columns = self.kept_columns().map(|array| columns::raw(array, parts.images));
        let anchors = anchors.map(raw_run).chain(columns);
        let runs: Vec<RawRun> = anchors.chain(parts.runs.iter().copied().map(raw_run)).collect();
        let (head_runs, tail_runs) = runs.split_at(runs.len().min(runs_in_head(self.keeps)));
        let tail = tail_runs.as_bytes();
        let field = |n: u64| U32::new(narrow(n));
        let mut raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            version: U32::new(VERSION),
            volume: self.volume,
            features_compatible: U64::new(self.features_compatible()),
            features_read_only_compatible: U64::new(KNOWN_READ_ONLY_COMPATIBLE),
            features_incompatible: U64::new(self.features_incompatible()),
            generation: U64::new(self.generation),
            device_sectors: U64::new(parts.device.0),
            space_start: U64::new(parts.space.start.0),
            space_sectors: U64::new(parts.space.len.0),
            snapshot_sectors: U64::new(parts.snapshot.0),
            physical_sectors: field(self.physical.0),
            superblock_sectors: field(parts.superblock.0),
            run_count: field(runs.len() as u64),
            tail_checksum: U32::new(crc32c::crc32c(tail)),
            threshold_sectors: U64::new(config.threshold.0),
            record_sectors: U64::new(config.record.0),
            label: [0; 32],
            settings: RawSettings::of(&self.settings),
            runs: [RawRun::default(); RUNS_IN_HEAD],
        };
        raw.runs[..head_runs.len()].copy_from_slice(head_runs);
        if self.keeps {
            let durable = RawDurable::of(&config);
            let at = HEAD_BYTES - size_of::<RawDurable>();
            raw.as_mut_bytes()[at..].copy_from_slice(durable.as_bytes());
        }
        let label = self.label.as_bytes();
        let len = label.len().min(raw.label.len());
        raw.label[..len].copy_from_slice(&label[..len]);
        // If the places were given, the first sector belongs to their owner.
        if parts.anchors.is_none() && runs.len() <= RUNS_BEFORE_MBR {
            let mbr = protective::mbr(parts.device);
            raw.as_mut_bytes()[protective::AT..][..mbr.len()].copy_from_slice(&mbr);
        }
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend_from_slice(tail);
        bytes.resize(to_usize(parts.superblock.bytes()), 0);
        bytes.into()
    }

    fn features_incompatible(&self) -> u64 {
        let nvram = if self.nvram { TABLE_IN_NVRAM } else { 0 };
        let places = if self.layout.anchors().is_some() { PLACES_GIVEN } else { 0 };
        let columns = match self.kept_columns() {
            None => 0,
            Some(columns) if columns.parity > 0 => COLUMNS | ROWS,
            Some(_) => COLUMNS,
        };
        let images = if self.layout.images().is_empty() { 0 } else { IMAGES };
        nvram
            | places
            | images
            | self.kept_features()
            | columns
            | if self.short_headers { SHORT_HEADERS } else { 0 }
    }

    fn kept_columns(&self) -> Option<Geometry> {
        self.layout.columns().filter(|_| !plant::is(Bug::GeometryNotKept))
    }

    /// Length of the copy that begins with `head`.
    pub(crate) fn announced(head: &[u8]) -> Result<Sectors, VolumeError> {
        raw_of(head).map(|raw| Sectors(raw.superblock_sectors.get().into()))
    }

    /// The volume's id and label, from the head of a copy.
    pub(crate) fn named(head: &[u8]) -> Result<(VolumeId, String), VolumeError> {
        raw_of(head).map(|raw| (raw.volume, label_of(&raw)))
    }

    /// Decodes one copy on a device of `capacity` sectors. A copy that claims more is refused
    /// before it costs memory.
    ///
    /// # Errors
    /// If the bytes are no superblock, or damaged, of another version, or impossible.
    pub fn decode(bytes: &[u8], capacity: Sectors) -> Result<Self, VolumeError> {
        let raw = raw_of(bytes)?;
        let unknown = raw.features_incompatible.get() & !KNOWN_INCOMPATIBLE;
        let unknown_to_writers =
            raw.features_read_only_compatible.get() & !KNOWN_READ_ONLY_COMPATIBLE;
        if unknown | unknown_to_writers != 0 {
            return Err(VolumeError::Features { bits: unknown | unknown_to_writers });
        }
        let (keeps, keeps_metadata) = kept::take(&raw)?;
        let physical = Sectors(raw.physical_sectors.get().into());
        if !matches!(physical.0, 1 | 8) {
            return Err(VolumeError::Impossible("physical sector"));
        }
        let mut runs = raw_runs(&raw, bytes)?;
        let (columns, images) = columns::take(&raw, &mut runs)?;
        let runs = runs.iter().map(run_of).collect::<Result<_, _>>()?;
        let (anchors, runs) = places_of(&raw, runs)?;
        let parts = Parts {
            device: Sectors(raw.device_sectors.get()),
            superblock: Sectors(raw.superblock_sectors.get().into()),
            snapshot: Sectors(raw.snapshot_sectors.get()),
            images,
            space: checked_extent(raw.space_start.get(), raw.space_sectors.get())?,
            runs,
            anchors,
            columns,
            said: columns::is_said(&raw) && columns.is_some(),
        };
        let regions: u64 = parts.runs.iter().map(|run| u64::from(run.count)).sum();
        let logs = regions * columns.map_or(1, |it| u64::from(ColumnMap::logs_in_region(&it)));
        if logs > LOGS_MAX || raw.generation.get() > GENERATION_MAX {
            return Err(VolumeError::Impossible("number of logs or generation"));
        }
        parts.check(physical).map_err(VolumeError::Impossible)?;
        if parts.device > capacity {
            return Err(VolumeError::Shrunk { formatted: parts.device, now: capacity });
        }
        let settings = settings_of(&raw, parts.space.len)?;
        let superblock = Self {
            volume: raw.volume,
            generation: raw.generation.get(),
            physical,
            label: label_of(&raw),
            settings,
            features_compatible: raw.features_compatible.get(),
            nvram: raw.features_incompatible.get() & TABLE_IN_NVRAM != 0,
            short_headers: raw.features_incompatible.get() & SHORT_HEADERS != 0,
            keeps,
            keeps_metadata,
            layout: Layout::from_parts(parts),
        };
        superblock.config().validate()?;
        Ok(superblock)
    }
}

fn label_of(raw: &Raw) -> String {
    let label = raw.label.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(label).into_owned()
}

fn settings_of(raw: &Raw, space: Sectors) -> Result<Settings, VolumeError> {
    let threshold = Sectors(raw.threshold_sectors.get());
    let record = Sectors(raw.record_sectors.get());
    if threshold.max(record) > space || record.0 == 0 {
        return Err(VolumeError::Impossible("length of a record"));
    }
    let mut config = raw.settings.config().map_err(VolumeError::Impossible)?;
    if kept::keeps_of(raw) {
        let at = HEAD_BYTES - size_of::<RawDurable>();
        let durable = RawDurable::read_from_bytes(&raw.as_bytes()[at..]);
        let durable = durable.map_err(|_| VolumeError::Impossible("durable-only"))?;
        durable.apply_to(&mut config).map_err(VolumeError::Impossible)?;
    }
    Ok(Settings::of(&VolumeConfig { threshold, record, ..config }))
}

/// The head, if its checksum is right and its version is known.
fn raw_of(bytes: &[u8]) -> Result<Raw, VolumeError> {
    let (mut raw, _) = Raw::read_from_prefix(bytes).map_err(|_| VolumeError::NotAVolume)?;
    if raw.magic != MAGIC {
        return Err(VolumeError::NotAVolume);
    }
    // Checked before the checksum, because another version may keep its checksum elsewhere.
    if raw.version.get() != VERSION {
        return Err(VolumeError::Version { found: raw.version.get(), known: VERSION });
    }
    let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
    if crc32c::crc32c(raw.as_bytes()) != checksum {
        return Err(VolumeError::Superblock);
    }
    Ok(raw)
}

fn raw_runs(raw: &Raw, bytes: &[u8]) -> Result<Vec<RawRun>, VolumeError> {
    let count = raw.run_count.get() as usize;
    let in_head = runs_in_head(kept::keeps_of(raw));
    let tail_bytes = count.saturating_sub(in_head) * RUN_BYTES;
    let most = raw.superblock_sectors.get() as usize * 512;
    if HEAD_BYTES + tail_bytes > most.max(to_usize(SUPERBLOCK_LEAST.bytes())) {
        return Err(VolumeError::Impossible("number of log runs"));
    }
    let tail = bytes.get(HEAD_BYTES..HEAD_BYTES + tail_bytes).ok_or(VolumeError::Superblock)?;
    if crc32c::crc32c(tail) != raw.tail_checksum.get() {
        return Err(VolumeError::Superblock);
    }
    let (tail, _) = <[RawRun]>::ref_from_prefix_with_elems(tail, tail_bytes / RUN_BYTES)
        .map_err(|_| VolumeError::Superblock)?;
    let head = raw.runs[..count.min(in_head)].iter();
    Ok(head.chain(tail).copied().collect())
}

/// The anchors, if the places were given, and the runs of logs.
fn places_of(
    raw: &Raw,
    mut runs: Vec<LogRun>,
) -> Result<(Option<Anchors>, Vec<LogRun>), VolumeError> {
    if raw.features_incompatible.get() & PLACES_GIVEN == 0 {
        return Ok((None, runs));
    }
    if runs.len() < 2 || runs[..2].iter().any(|run| run.count != 1) {
        return Err(VolumeError::Impossible("list of anchors"));
    }
    let logs = runs.split_off(2);
    let [first, last] = [runs[0], runs[1]].map(|run| Extent { start: run.first, len: run.len });
    Ok((Some(Anchors { first, last }), logs))
}

#[cfg(test)]
mod tests {
    use manylogs_block::Lba;

    use super::*;

    const DEVICE: Sectors = Sectors(1_000_000);

    fn sample(runs: usize) -> Superblock {
        let config = VolumeConfig {
            threshold: Sectors(8),
            record: Sectors(32),
            log: Sectors(64),
            placement: LogPlacement::EveryGroup(Sectors(256)),
            logging: runs.is_multiple_of(3),
            appends: 3,
            ..VolumeConfig::default()
        };
        let layout = Layout::of(&config, DEVICE, Sectors(8)).unwrap();
        let mut parts = layout.parts().clone();
        let tail = (runs.saturating_sub(RUNS_IN_HEAD) * RUN_BYTES).div_ceil(4096) as u64;
        parts.superblock = Sectors(8 + tail * 8);
        let structures = parts.superblock.0 + manylogs_logstore::ondisk::root::ROOT_SECTORS.0;
        parts.space.start = Lba(structures + 2 * parts.snapshot.0);
        parts.space.len = Sectors(900_000);
        let start = parts.space.start.0;
        parts.runs = (0..runs as u64)
            .map(|i| LogRun {
                first: Lba(start + 800 * i),
                stride: Sectors(64),
                len: Sectors(64),
                count: 1,
            })
            .collect();
        Superblock {
            volume: [7; 16],
            generation: 3,
            physical: Sectors(8),
            label: "backup-3".to_owned(),
            settings: Settings::of(&config),
            features_compatible: 0,
            nvram: runs.is_multiple_of(2),
            short_headers: runs.is_multiple_of(3),
            keeps: false,
            keeps_metadata: false,
            layout: Layout::from_parts(parts),
        }
    }

    #[test]
    fn few_and_many_runs_survive_encoding() {
        for runs in [1, 2, RUNS_IN_HEAD, RUNS_IN_HEAD + 1, 500] {
            let superblock = sample(runs);
            let bytes = superblock.encode();
            assert_eq!(Superblock::announced(&bytes).unwrap().bytes(), bytes.len() as u64);
            assert_eq!(Superblock::decode(&bytes, DEVICE), Ok(superblock));
        }
    }

    #[test]
    fn a_protective_mbr_is_there_unless_runs_are() {
        for runs in [1, RUNS_BEFORE_MBR, RUNS_BEFORE_MBR + 1, 500] {
            let bytes = sample(runs).encode();
            let is_there = bytes[510..512] == [0x55, 0xaa] && bytes[450] == 0xee;
            assert_eq!(is_there, runs <= RUNS_BEFORE_MBR, "{runs} runs");
        }
    }

    #[test]
    fn given_places_survive_encoding() {
        let anchors = Anchors { first: Extent::new(8000, 200), last: Extent::new(80, 120) };
        let logs = [Extent::new(4000, 2000), Extent::new(400, 2000), Extent::new(9000, 2001)];
        let layout = Layout::given(&logs, anchors, DEVICE, Sectors(1), None).unwrap();
        let given = Superblock { physical: Sectors(1), layout, ..sample(1) };
        assert_ne!(given.encode()[510..512], [0x55, 0xaa], "the owner has the first sector");
        assert_eq!(Superblock::decode(&given.encode(), DEVICE), Ok(given.clone()));
        let columns =
            Geometry { chunk: Sectors(40), columns: 5, copies: 1, parity: 0, first: Sectors(16) };
        let logs = [Extent::new(384, 2000), Extent::new(3984, 2000), Extent::new(9184, 1200)];
        let columns = Some(columns);
        let layout = Layout::given(&logs, anchors, DEVICE, Sectors(1), columns).unwrap();
        let on_array = Superblock { layout, ..given };
        assert_eq!(Superblock::decode(&on_array.encode(), DEVICE), Ok(on_array));
        // The list of runs of this volume does not begin with anchors.
        let few = altered(48, &[2]);
        assert_eq!(few, Err(VolumeError::Impossible("list of anchors")));
    }

    #[test]
    fn no_bit_flip_passes() {
        let bytes = sample(RUNS_IN_HEAD + 5).encode();
        let used = HEAD_BYTES + 5 * RUN_BYTES;
        for bit in (0..used * 8).step_by(7) {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bad, DEVICE).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_volume_larger_than_its_device_is_refused_whatever_it_claims() {
        let superblock = sample(3);
        let now = Sectors(DEVICE.0 - 1);
        let found = Superblock::decode(&superblock.encode(), now);
        assert_eq!(found, Err(VolumeError::Shrunk { formatted: DEVICE, now }));
    }

    /// Decodes a superblock with other bytes in one place, and the right checksum for them.
    fn altered(at: usize, with: &[u8]) -> Result<Superblock, VolumeError> {
        let mut bytes = sample(1).encode().to_vec();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes[8..12].fill(0);
        let checksum = crc32c::crc32c(&bytes[..HEAD_BYTES]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        Superblock::decode(&bytes, DEVICE)
    }

    #[test]
    fn unknown_features_are_refused() {
        assert_eq!(altered(55, &[128]), Err(VolumeError::Features { bits: 1 << 63 }));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let given = |bit: u16, at: usize, value: u64| {
            let mut settings = [0; 96];
            settings[..2].copy_from_slice(&bit.to_le_bytes());
            settings[at..at + 8].copy_from_slice(&value.to_le_bytes());
            altered(160, &settings)
        };
        assert!(given(0, 88, 7).is_ok(), "bytes of a later program");
        for (bit, at) in [(0, 4), (1, 8), (2, 12)] {
            assert!(matches!(given(1 << bit, at, 0), Err(VolumeError::Config(_))), "bit {bit}");
        }
        for (bit, at) in [(5, 48), (7, 64), (8, 72)] {
            assert!(given(1 << bit, at, 0).is_ok(), "bit {bit}");
            let endless = given(1 << bit, at, u64::MAX);
            assert!(matches!(endless, Err(VolumeError::Config(_))), "bit {bit}");
        }
        assert!(matches!(given(1 << 6, 56, u64::MAX), Err(VolumeError::Impossible("buffer"))));
        let impossible = Err(VolumeError::Impossible("checkpoint policy"));
        assert_eq!(given(1 << 3, 16, 4), impossible);
        for (kind, rest) in [(0, 86_401), (2, 0)] {
            let found = given(1 << 3, 16, kind | rest << 32);
            assert!(matches!(found, Err(VolumeError::Config(_))), "policy {kind}: {found:?}");
        }
    }
}
