//! `manylogs fs check`.

use std::fmt::Write as _;
use std::fs::File;

use manylogs_ext4::Summary;
use manylogs_ext4check::{FileSource, Report, Unreadable, check};
use manylogs_mlfs::adopt::{LogState, Looked};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor};
use serde_json::json;

use super::marks;
use super::status::first_block;
use crate::args::fs::FsCheckArgs;
use crate::commands::volume::open_failure;
use crate::failure::Failure;
use crate::output::print;

/// Checks a file system that nobody uses, and changes nothing. Fails with the exit code for damage
/// if something is wrong.
pub(super) fn run(args: &FsCheckArgs) -> Result<(), Failure> {
    let path = args.source.display();
    let named = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    // Held for as long as the check runs: a mount would change what is read.
    let reactor = Reactor::new().map_err(Failure::failed)?;
    let options = OpenOptions::new(OpenMode::ReadOnly);
    let _held =
        FileDevice::open(&reactor, &args.source, &options).map_err(|error| open_failure(&error))?;
    let file = File::open(&args.source).map_err(|error| Failure::input(named(&error)))?;
    let summary = Summary::of(&first_block(&args.source)?);
    let is_marked = summary.is_ok_and(|summary| marks::is_marked(&summary));
    let looked = if is_marked { marks::looked(&args.source)? } else { None };
    let logs = looked.as_ref().map(|looked| &looked.logs);
    let source = FileSource::new(file).map_err(|error| Failure::input(named(&error)))?;
    let report = check(&source).map_err(|error| match error {
        Unreadable::Io(_) => Failure::failed(named(&error)),
        Unreadable::Superblock(_) => Failure::Damage(named(&error)),
        error => Failure::input(named(&error)),
    })?;
    let looked = looked.as_ref();
    print(&if args.json { as_json(&report, looked) } else { text(&report, looked) })?;
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

fn text(report: &Report, looked: Option<&Looked>) -> String {
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
    if report.is_clean() {
        out += "nothing is wrong\n";
    }
    out
}

fn as_json(report: &Report, looked: Option<&Looked>) -> String {
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
    });
    format!("{value:#}\n")
}
