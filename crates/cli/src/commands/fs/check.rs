//! `manylogs fs check`, and the repair of logs.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use manylogs::{Finding, Severity};
use manylogs_ext4::Summary;
use manylogs_ext4check::{FileSource, Report, Unreadable, check};
use manylogs_mlfs::adopt::{LogState, Logs, Looked, Repaired, check_logs, repair};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor};
use serde_json::json;

use super::status::first_block;
use super::{adopt, contents, marks};
use crate::args::fs::FsCheckArgs;
use crate::commands::volume::check::{findings_json, findings_text, repaired_text};
use crate::commands::volume::open_failure;
use crate::failure::Failure;
use crate::output::print;

/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// Checks a file system that nobody uses, and changes nothing. Fails with the exit code for damage
/// if something is wrong.
pub(super) fn run(args: &FsCheckArgs) -> Result<(), Failure> {
    if args.repair {
        return repair_logs(&args.source);
    }
    let path = args.source.display();
    let named = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    // Held for as long as the check runs: a mount would change what is read.
    let reactor = Reactor::new().map_err(Failure::failed)?;
    let options = OpenOptions::new(OpenMode::ReadOnly);
    let _held =
        FileDevice::open(&reactor, &args.source, &options).map_err(|error| open_failure(&error))?;
    let file = File::open(&args.source).map_err(|error| Failure::input(named(&error)))?;
    let summary = Summary::of(&first_block(&args.source)?);
    if let Err(error) = &summary
        && contents::is_other(error)
    {
        return Err(contents::no_ext4(&args.source));
    }
    let is_marked = summary.is_ok_and(|summary| marks::is_marked(&summary));
    let looked = if is_marked { marks::looked(&args.source)? } else { None };
    let logs = looked.as_ref().map(|looked| &looked.logs);
    let in_logs = match logs {
        Some(LogState::InUse(logs) | LogState::Drained(logs)) => found_in(&args.source, logs)?,
        _ => Vec::new(),
    };
    let source = FileSource::new(file).map_err(|error| Failure::input(named(&error)))?;
    let report = check(&source).map_err(|error| match error {
        Unreadable::Io(_) => Failure::failed(named(&error)),
        Unreadable::Superblock(_) => Failure::Damage(named(&error)),
        error => Failure::input(named(&error)),
    })?;
    let looked = looked.as_ref();
    print(&if args.json {
        as_json(&report, looked, &in_logs)
    } else {
        text(&report, looked, &in_logs)
    })?;
    if let Some(worst) = in_logs.iter().map(|finding| finding.severity).max()
        && worst > Severity::Note
    {
        let message =
            format!("{path}: the logs are damaged: manylogs fs check --repair goes on without");
        return Err(match worst {
            Severity::Loss => Failure::Loss(message + " what is lost"),
            _ => Failure::Damage(message + " loss"),
        });
    }
    if let Some(LogState::Unusable(why)) = logs {
        return Err(Failure::Damage(named(why)));
    }
    match (report.is_clean(), report.needs_recovery) {
        (true, _) => Ok(()),
        (false, _) if matches!(logs, Some(LogState::InUse(_))) => Err(Failure::Damage(format!(
            "{path}: the logs hold changes that are not at home, which may be the reason: release \
             it, or mount and unmount it, and check again"
        ))),
        (false, true) => Err(Failure::Damage(format!(
            "{path}: the journal needs a replay, which may be the reason: mount it once, or run \
             e2fsck -p, and check again"
        ))),
        (false, false) => {
            Err(Failure::Damage(format!("{path}: damaged: e2fsck -f repairs file systems")))
        }
    }
}

/// What is wrong with the logs of a file system.
fn found_in(source: &Path, logs: &Logs) -> Result<Vec<Finding>, Failure> {
    let (reactor, site) = adopt::open(source, OpenMode::ReadOnly)?;
    let logs = logs.clone();
    let found = reactor.block_on(async move { check_logs(&site, &logs).await });
    found.map_err(|error| adopt::failure(source, &error))
}

/// Repairs the logs, and tells what to do next.
fn repair_logs(source: &Path) -> Result<(), Failure> {
    let (reactor, site) = adopt::open(source, OpenMode::Exclusive)?;
    let repaired = reactor.block_on(async move { repair(&site).await });
    let Repaired { findings, logs, lost, has_errors } =
        repaired.map_err(|error| adopt::failure(source, &error))?;
    let mut out = findings_text(&findings) + &repaired_text(&logs);
    for extent in &lost {
        let (first, end) = (extent.start.0 / BLOCK_SECTORS, extent.end().0.div_ceil(BLOCK_SECTORS));
        let blocks = if end - first == 1 {
            format!("block {first}")
        } else {
            format!("blocks {first} to {}", end - 1)
        };
        let _ = writeln!(out, "{blocks}: the newest content is lost, an older one is there");
    }
    print(&out)?;
    let path = source.display();
    if has_errors {
        return Err(Failure::Loss(format!(
            "{path}: acknowledged changes are lost, and mounts are refused: run manylogs fs \
             release, then e2fsck -f, which mends what no longer fits together; debugfs -R \
             'icheck BLOCK' tells whose a block is"
        )));
    }
    Ok(())
}

fn text(report: &Report, looked: Option<&Looked>, in_logs: &[Finding]) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        let _ = writeln!(out, "{finding}");
    }
    if report.more > 0 {
        let _ = writeln!(out, "and {} more", report.more);
    }
    let _ = writeln!(
        out,
        "{} inodes in use, {} of them directories, {} blocks in use{}",
        report.inodes,
        report.directories,
        report.blocks,
        if report.needs_recovery { "; the journal needs a replay" } else { "" }
    );
    if let Some(looked) = looked {
        let _ = writeln!(out, "logs: {}; marked: {}", marks::logs(looked), marks::bits(looked));
    }
    out += &findings_text(in_logs);
    if report.is_clean() && in_logs.is_empty() {
        out += "nothing is wrong\n";
    }
    out
}

fn as_json(report: &Report, looked: Option<&Looked>, in_logs: &[Finding]) -> String {
    let value = json!({
        "format": 1,
        "clean": report.is_clean(),
        "needs_recovery": report.needs_recovery,
        "inodes": report.inodes,
        "directories": report.directories,
        "blocks": report.blocks,
        "findings": report.findings.iter().map(|finding| json!({
            "place": finding.place.to_string(),
            "problem": finding.problem.to_string(),
        })).collect::<Vec<_>>(),
        "findings_left_out": report.more,
        "mlfs": looked.map(marks::as_json),
        "log_findings": findings_json(in_logs),
    });
    format!("{value:#}\n")
}
