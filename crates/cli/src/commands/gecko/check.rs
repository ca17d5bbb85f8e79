//! `manylogs check` and `manylogs dump` of a chain of drives that nobody serves.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use manylogs_block::Extent;
use manylogs_gecko::{Chain, ChainFinding, ChainSettings, Depth, Examined};
use manylogs_logstore::LogId;
use manylogs_serve::{ChainRefused, ServedChain};
use manylogs_storage::OpenMode;
use serde_json::{Value, json};

use super::{human, id_text, members, members_failure, refused, scrub};
use crate::failure::Failure;
use crate::output::print;

/// What the chain looks like, as each half of its links has it, and the paths of its drives.
struct Judged {
    paths: Vec<PathBuf>,
    halves: Vec<Examined>,
}

/// Judges the chain of `device` without writing anything, and mends halves from the others if
/// `repair` says so; false if the device is no member of a chain.
pub(crate) fn run(device: &Path, repair: bool, json: bool) -> Result<bool, Failure> {
    let Some(judged) = judged(device, Depth::Content)? else { return Ok(false) };
    print(&if json { pretty(&judged.as_json()) } else { judged.told() })?;
    let is_whole = judged.halves.iter().all(|half| half.findings.is_empty());
    if repair && !is_whole {
        // An opening mends labels and records, and a scrub mends content.
        return scrub::run(device, &ProgressBar::hidden());
    }
    judged.verdict(device).map(|()| true)
}

/// Prints what the labels, the root and the segments of the chain of `device` say; false if the
/// device is no member of a chain.
pub(crate) fn dump(device: &Path, json: bool) -> Result<bool, Failure> {
    let Some(judged) = judged(device, Depth::Records)? else { return Ok(false) };
    print(&if json { pretty(&judged.as_json()) } else { judged.dumped() })?;
    Ok(true)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn judged(device: &Path, depth: Depth) -> Result<Option<Judged>, Failure> {
    let settings = ChainSettings { degraded: true, ..ChainSettings::default() };
    let found = ServedChain::of(device, &[], settings).map_err(members_failure)?;
    let Some(chain) = found else { return Ok(None) };
    let (stack, drives) = members::drives(&chain, OpenMode::ReadOnly)?;
    let mut halves = Vec::new();
    for half in 0..chain.halves {
        let examined = Chain::examine(stack.runtime(), drives.clone(), half, depth);
        let examined = stack.run(examined);
        let examined =
            examined.map_err(|error| refused(&ChainRefused::new(&chain.members, error)))?;
        halves.push(examined);
    }
    Ok(Some(Judged { paths: chain.members, halves }))
}

impl Judged {
    fn path(&self, drive: usize) -> String {
        self.paths.get(drive).map_or_else(String::new, |path| path.display().to_string())
    }

    fn told(&self) -> String {
        let mut out = String::new();
        for (half, examined) in self.halves.iter().enumerate() {
            out += &self.head(half, examined);
            for finding in &examined.findings {
                let kind = if finding.is_of_data() { "LOSS" } else { "damage" };
                let _ = writeln!(out, "{kind}: {}", self.words(examined, finding));
            }
            if examined.findings.is_empty() {
                out += "nothing is wrong\n";
            }
        }
        out
    }

    /// What was read of the halves with this number.
    fn head(&self, half: usize, examined: &Examined) -> String {
        let name = match self.halves.len() {
            1 => String::new(),
            _ => format!(", half {} of each pair", half + 1),
        };
        let records: u64 = examined.segments.iter().map(|segment| segment.records).sum();
        format!(
            "chain {}{name}: opened {} times, {} segments in use, {records} records, {} mapped, {} \
             compared with checksums\n",
            id_text(&examined.chain),
            examined.incarnation,
            examined.segments.len(),
            human(examined.mapped.bytes()),
            human(examined.read.bytes()),
        )
    }

    fn words(&self, examined: &Examined, finding: &ChainFinding) -> String {
        let drive_of = |segment| {
            let mut segments = examined.segments.iter();
            let link = segments.find(|found| found.segment == segment).map(|found| found.link);
            let drive = link.and_then(|link| examined.drives.get(&link).copied());
            drive.map_or_else(String::new, |drive| self.path(drive))
        };
        match finding {
            ChainFinding::Label { drive } => {
                format!("{}: a copy of the label; an opening writes it anew", self.path(*drive))
            }
            ChainFinding::Roots(count) => format!("{count} of 2 roots hold none that is whole"),
            ChainFinding::Missing { link, half } => {
                format!("half {}.{} is missing", link + 1, half + 1)
            }
            ChainFinding::Records { segment, damage } => format!(
                "{}: segment {}, sectors {}+{}: {}",
                drive_of(*segment),
                segment.0,
                damage.offset.0,
                damage.sectors.0,
                match damage.known {
                    true => "a record's content",
                    false => "a record, of which it is unknown what it held",
                }
            ),
            ChainFinding::Content { drive, segment, extent } => format!(
                "{}: segment {}: exported sectors {}+{} differ from their checksums",
                self.path(*drive),
                segment.0,
                extent.start.0,
                extent.len.0
            ),
            ChainFinding::Lost { extent } => format!(
                "exported sectors {}+{} were lost with a link: reads fail until they are written",
                extent.start.0, extent.len.0
            ),
            other => format!("{other:?}"),
        }
    }

    /// Loss if content is damaged on all halves, damage if something is whole elsewhere.
    fn verdict(&self, device: &Path) -> Result<(), Failure> {
        let device = device.display();
        if self.halves.iter().all(|half| half.findings.is_empty()) {
            return Ok(());
        }
        match self.is_lost() {
            true => Err(Failure::Loss(format!(
                "{device}: content is lost, and no other half has it: overwrite or discard it"
            ))),
            false => Err(Failure::Damage(format!(
                "{device}: damaged, nothing is lost; --repair mends it"
            ))),
        }
    }

    /// Whether no half has content or records that are whole: both are damaged there, or the twin
    /// is missing, so that all examinations read the same drive.
    fn is_lost(&self) -> bool {
        let findings = || self.halves.iter().flat_map(|half| &half.findings);
        findings().any(|one| match one {
            ChainFinding::Content { drive, extent, .. } => {
                let is_alone =
                    self.halves.iter().all(|half| half.drives.values().any(|other| other == drive));
                is_alone || findings().any(|other| is_of_twin(other, *drive, *extent))
            }
            ChainFinding::Records { segment, .. } => {
                self.halves.iter().all(|half| has_records_of(half, *segment))
            }
            ChainFinding::Lost { .. } => true,
            _ => false,
        })
    }

    fn dumped(&self) -> String {
        let mut out = String::new();
        for (half, examined) in self.halves.iter().enumerate() {
            out += &self.head(half, examined);
            for (link, drive) in &examined.drives {
                let _ = writeln!(out, "drive {:>4}  {}", link + 1, self.path(*drive));
            }
            for found in &examined.segments {
                let _ = writeln!(
                    out,
                    "segment {:>6}  drive {}, at {}, epoch {}, {} records, {} used, {} live",
                    found.segment.0,
                    found.link + 1,
                    found.region.start.0,
                    found.epoch,
                    found.records,
                    human(found.used.bytes()),
                    human(found.live.bytes()),
                );
            }
        }
        out
    }

    fn as_json(&self) -> Value {
        let drives = |examined: &Examined| -> Vec<String> {
            examined.drives.values().map(|drive| self.path(*drive)).collect()
        };
        let half = |examined: &Examined| {
            json!({
                "chain": id_text(&examined.chain),
                "drives": drives(examined),
                "opening": examined.opening,
                "incarnation": examined.incarnation,
                "mapped_bytes": examined.mapped.bytes(),
                "compared_bytes": examined.read.bytes(),
                "segments": examined.segments.iter().map(|found| json!({
                    "segment": found.segment.0,
                    "link": found.link,
                    "sector": found.region.start.0,
                    "epoch": found.epoch,
                    "records": found.records,
                    "used_sectors": found.used.0,
                    "live_sectors": found.live.0,
                })).collect::<Vec<_>>(),
                "findings": examined.findings.iter().map(|finding| json!({
                    "of_data": finding.is_of_data(),
                    "problem": self.words(examined, finding),
                })).collect::<Vec<_>>(),
            })
        };
        json!({ "halves": self.halves.iter().map(half).collect::<Vec<_>>() })
    }
}

/// Whether a finding is content of `extent` on another drive than `drive`.
fn is_of_twin(finding: &ChainFinding, drive: usize, extent: Extent) -> bool {
    match finding {
        ChainFinding::Content { drive: at, extent: there, .. } => {
            *at != drive && there.overlaps(extent)
        }
        _ => false,
    }
}

/// Whether records of `segment` are damaged.
fn has_records_of(half: &Examined, segment: LogId) -> bool {
    let mut findings = half.findings.iter();
    findings.any(|it| matches!(it, ChainFinding::Records { segment: at, .. } if *at == segment))
}
