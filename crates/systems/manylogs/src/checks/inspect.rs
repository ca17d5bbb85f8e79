//! Inspects a volume without opening it, for `check`, `dump` and `status`. Nothing is written.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Capabilities, Extent, Nanos, Payload, Sectors};
use manylogs_logstore::ondisk::root::Left;
use manylogs_logstore::store::{Logs, Store};
use manylogs_logstore::{LogId, NvramError, Scanned, VolumeId, scan};

use crate::error::VolumeError;
use crate::lifecycle::columns::arranged_reads;
use crate::lifecycle::options::{LogDamage, OpenOptions, RecoveryReport};
use crate::lifecycle::recover;
use crate::lifecycle::structures::{Structures, read_structures};
use crate::ondisk::layout::{Anchors, Layout};
use crate::ondisk::superblock::Superblock;
use crate::records::largest::largest_record;
use crate::reports::home_pace::{HomePace, HomeWork};
use crate::settings::config::VolumeConfig;
use crate::volume::{MappedExtent, table_of};

/// State in which a volume was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftAs {
    /// In use, or left by a crash.
    Open,
    /// Closed in order.
    Closed,
    /// Drained: readable without this software.
    Drained,
}

/// A volume as its disk describes it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Id of the volume.
    pub volume: VolumeId,
    /// Label of the volume.
    pub label: String,
    /// Number of changes of the superblock.
    pub superblock_generation: u64,
    /// Physical sector size.
    pub physical: Sectors,
    /// Capabilities of the device.
    pub below: Capabilities,
    /// Settings of the volume, unless others are given at open.
    pub config: VolumeConfig,
    /// Layout of the volume.
    pub layout: Layout,
    /// State in which the volume was left.
    pub left: LeftAs,
    /// Number of changes of the root.
    pub root_generation: u64,
    /// Number of openings.
    pub incarnation: u32,
    /// Entries with smaller data sequences are dead.
    pub floor: u64,
    /// Size of the table snapshot; `None` if there is no snapshot.
    pub snapshot_bytes: Option<u64>,
    /// Logs that may have changed since the snapshot.
    pub opened_logs: u64,
    /// Logs out of use.
    pub retired: Vec<LogId>,
    /// What a recovery would report.
    pub recovery: RecoveryReport,
    /// The mapping table.
    pub table: Vec<MappedExtent>,
    /// The logs in use, and those out of use.
    pub logs: Vec<LogSummary>,
}

/// Content of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSummary {
    /// Number of the log.
    pub log: LogId,
    /// Region of the log.
    pub region: Extent,
    /// Epoch of the log.
    pub epoch: u64,
    /// Sectors appended in this epoch.
    pub used: Sectors,
    /// Sectors whose newest version is in this log.
    pub live: Sectors,
    /// Supersede entries that recovery still needs.
    pub supersedes: usize,
    /// Whether the log is out of use.
    pub retired: bool,
}

impl Inspection {
    /// Bytes of the volume whose newest version is in a log.
    #[must_use]
    pub fn at_risk_bytes(&self) -> u64 {
        self.table.iter().map(|mapped| mapped.extent.len.bytes()).sum()
    }

    /// The part of these bytes that was zeroed or discarded.
    #[must_use]
    pub fn zeroed_bytes(&self) -> u64 {
        let zeroed = self.table.iter().filter(|mapped| mapped.zeroes);
        zeroed.map(|mapped| mapped.extent.len.bytes()).sum()
    }

    /// Estimate of the time that a drain takes at `pace` ([`crate::measure_homes`]), or at the
    /// usual pace of such a device. It counts a seek for each run of neighbouring blocks and the
    /// transfer of data. Zeroes count as data unless the device zeroes fast.
    #[must_use]
    pub fn drain_estimate(&self, pace: Option<HomePace>) -> Nanos {
        let mapped = self.table.iter().map(|mapped| (mapped.extent, mapped.zeroes));
        let work = HomeWork::of(mapped, &self.below).of_drain();
        pace.unwrap_or_else(|| HomePace::assumed(&self.below)).time_of(work)
    }

    /// Homes of logged data, in order of address.
    #[must_use]
    pub fn homes_of_logged(&self) -> Vec<Extent> {
        let data = self.table.iter().filter(|mapped| !mapped.zeroes && !mapped.lost);
        data.flat_map(|mapped| self.layout.home(mapped.extent)).collect()
    }
}

/// The identity and settings of a volume, read without its logs.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Id of the volume.
    pub volume: VolumeId,
    /// Label of the volume.
    pub label: String,
    /// State in which the volume was left.
    pub left: LeftAs,
    /// Settings of the volume, unless others are given at open.
    pub config: VolumeConfig,
    /// Layout of the volume.
    pub layout: Layout,
    /// Length of the sectors that records are made of.
    pub physical: Sectors,
}

/// Reads superblock and root.
///
/// # Errors
/// As [`inspect`].
pub async fn identify(device: &Rc<dyn BlockDevice>) -> Result<Identity, VolumeError> {
    identify_at(device, None).await
}

/// As [`identify`], for a volume whose structures are at `anchors`.
///
/// # Errors
/// As [`inspect`].
pub async fn identify_at(
    device: &Rc<dyn BlockDevice>,
    anchors: Option<Anchors>,
) -> Result<Identity, VolumeError> {
    let Structures { superblock, root, .. } =
        read_structures(device, anchors, &mut RecoveryReport::default()).await?;
    let config = superblock.config();
    let Superblock { volume, label, layout, physical, .. } = superblock;
    Ok(Identity { volume, label, left: root.left.into(), config, layout, physical })
}

impl From<Left> for LeftAs {
    fn from(left: Left) -> Self {
        match left {
            Left::Open => Self::Open,
            Left::Closed => Self::Closed,
            Left::Drained => Self::Drained,
        }
    }
}

/// Reads the structures of the volume on `device`, and what recovery would find in the logs. Damage
/// is reported and does not end the inspection.
///
/// # Errors
/// If there is no volume, its superblock or root cannot be read, or the device fails.
pub async fn inspect(
    device: &Rc<dyn BlockDevice>,
    ignore_snapshot: bool,
) -> Result<Inspection, VolumeError> {
    inspect_with(device, &OpenOptions { ignore_snapshot, ..OpenOptions::default() }).await
}

/// As [`inspect`], for a volume that needs options to be opened.
///
/// # Errors
/// As [`inspect`], or if the non-volatile RAM with the table cannot be used.
pub async fn inspect_with(
    device: &Rc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Inspection, VolumeError> {
    let mut report = RecoveryReport::default();
    let Structures { superblock, root, root_slot, .. } =
        read_structures(device, options.anchors, &mut report).await?;
    let config = superblock.config();
    let layout = superblock.layout.clone();
    let largest = largest_record(&config, &layout, superblock.shape());
    let logs = Logs::new(layout.regions(), largest.log, superblock.shape());
    let options = OpenOptions { accept_damage: true, ..options.clone() };
    let store = Store::new(superblock.volume, logs, root.clone(), root_slot);
    let (store, _) = recover::rebuild(device, &superblock, &options, store, &mut report).await?;
    report.mapped_extents = store.map().len() as u64;
    Ok(Inspection {
        volume: superblock.volume,
        label: superblock.label.clone(),
        superblock_generation: superblock.generation,
        physical: superblock.physical,
        below: device.capabilities(),
        config,
        left: root.left.into(),
        root_generation: root.generation,
        incarnation: root.incarnation.0,
        floor: store.floor().0,
        snapshot_bytes: root.snapshot.map(|snapshot| snapshot.bytes),
        opened_logs: store.logs().ids().filter(|id| root.opened.contains(*id)).count() as u64,
        retired: root.retired.clone(),
        table: table_of(&store),
        logs: store
            .logs()
            .iter()
            .filter(|log| log.used().0 > 0 || log.is_retired())
            .map(|log| LogSummary {
                log: log.id(),
                region: log.region(),
                epoch: log.epoch().0,
                used: log.used(),
                live: Sectors(log.live()),
                supersedes: log.supersedes().len(),
                retired: log.is_retired(),
            })
            .collect(),
        recovery: report,
        layout,
    })
}

/// The records of one log, as a recovery would find them.
///
/// # Errors
/// If the volume has no such log ([`VolumeError::NoSuchLog`]), or as [`inspect`].
pub async fn inspect_log(device: &Rc<dyn BlockDevice>, log: LogId) -> Result<Scanned, VolumeError> {
    let Structures { superblock, root, .. } =
        read_structures(device, None, &mut RecoveryReport::default()).await?;
    if superblock.nvram {
        return Err(NvramError::Apart.into());
    }
    let logs = superblock.layout.regions().len();
    if log.0 as usize >= logs {
        return Err(VolumeError::NoSuchLog { log, logs });
    }
    let device = arranged_reads(device, &superblock.layout);
    let scanned = scan(&device, superblock.scan_of(log, root.kept_floor), Payload::default()).await;
    scanned.map_err(VolumeError::of_opening)
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal after a crash; the next opening takes care of it.
    Note,
    /// A copy is damaged and its twin is whole. Nothing is lost yet.
    Redundancy,
    /// Acknowledged data is lost.
    Loss,
}

/// One finding of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Place on the device.
    pub at: Extent,
    /// Description of the damage.
    pub problem: String,
    /// Action that a repair would take.
    pub repair: &'static str,
}

/// Reads all structures and records of the volume and reports what is wrong with them.
///
/// # Errors
/// As [`inspect`].
pub async fn check(
    device: &Rc<dyn BlockDevice>,
) -> Result<(Inspection, Vec<Finding>), VolumeError> {
    check_with(device, &OpenOptions::default()).await
}

/// As [`check`], for a volume that needs options to be opened. If the table is in non-volatile RAM,
/// the logs do not describe their content: use [`crate::Volume::scrub`] to read it.
///
/// # Errors
/// As [`inspect_with`].
pub async fn check_with(
    device: &Rc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<(Inspection, Vec<Finding>), VolumeError> {
    let fast = inspect_with(device, options).await?;
    let alone = if options.nvram.is_some() {
        fast.clone()
    } else {
        inspect_with(device, &OpenOptions { ignore_snapshot: true, ..options.clone() }).await?
    };
    let mut findings = structure_findings(&fast);
    findings.extend(alone.recovery.damage.iter().map(|found| log_finding(&alone.layout, found)));
    findings.extend(lost_findings(&alone));
    if alone.table != fast.table && alone.recovery.damage.is_empty() {
        findings.push(Finding {
            severity: Severity::Loss,
            at: fast.layout.snapshots()[0],
            problem: format!(
                "the table of the snapshot has {} extents, that of the logs {}",
                fast.table.len(),
                alone.table.len()
            ),
            repair: "the logs decide",
        });
    }
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.at));
    Ok((alone, findings))
}

fn structure_findings(found: &Inspection) -> Vec<Finding> {
    let mut findings = Vec::new();
    let recovery = &found.recovery;
    let mut add = |severity, at, problem: &str, repair| {
        findings.push(Finding { severity, at, problem: problem.to_owned(), repair });
    };
    let [first, last] = found.layout.superblocks();
    if recovery.from_backup_superblock {
        let problem = "the first superblock is damaged; the copy at the end is used";
        add(Severity::Redundancy, first, problem, "write it anew from the copy");
    }
    if recovery.backup_superblock_damaged {
        let problem = "the copy of the superblock at the end is damaged";
        add(Severity::Redundancy, last, problem, "write it anew from the first");
    }
    if recovery.roots_damaged > 0 {
        let (severity, problem) = match found.left {
            LeftAs::Open => {
                (Severity::Note, "one of the two roots is not whole (a crash does that)")
            }
            LeftAs::Closed | LeftAs::Drained => {
                (Severity::Redundancy, "one of the two roots is damaged")
            }
        };
        add(severity, found.layout.roots()[0], problem, "write it anew from the other");
    }
    if recovery.snapshot_damaged {
        let problem = "the table snapshot is damaged; the logs have the same";
        add(Severity::Redundancy, found.layout.snapshots()[0], problem, "write a new one");
    }
    if recovery.superblock_change_unfinished {
        let problem = "a crash interrupted a change of the superblock";
        add(Severity::Note, first, problem, "finish it, as the next opening does");
    }
    if found.left == LeftAs::Open {
        let problem = "the volume was not closed in order; the next opening recovers it";
        add(Severity::Note, Extent::default(), problem, "recover and close it");
    }
    findings
}

/// Extents that an earlier checkpoint or repair marked as lost.
fn lost_findings(found: &Inspection) -> impl Iterator<Item = Finding> {
    let lost = found.table.iter().filter(|mapped| mapped.lost);
    lost.map(|MappedExtent { extent, .. }| Finding {
        severity: Severity::Loss,
        at: found.layout.home(*extent).next().unwrap_or_default(),
        problem: format!(
            "exported sectors {}+{} are marked as lost: reads of them fail",
            extent.start.0, extent.len.0
        ),
        repair: "none; overwrite or discard them",
    })
}

fn log_finding(layout: &Layout, found: &LogDamage) -> Finding {
    let region = layout.regions()[found.log.0 as usize];
    let start = region.start + Sectors(found.damage.offset.0.into());
    let (what, repair) = if found.damage.known {
        (
            "payload is damaged; what it held is known",
            "mark those blocks as lost: reads of them fail",
        )
    } else {
        (
            "where a record begins is damaged or cannot be read",
            "give up what it held; older versions appear",
        )
    };
    Finding {
        severity: Severity::Loss,
        at: Extent { start, len: found.damage.sectors },
        problem: format!("log {}: {what}", found.log.0),
        repair,
    }
}
