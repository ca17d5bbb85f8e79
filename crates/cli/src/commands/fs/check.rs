//! `manylogs fs check`.

use std::fmt::Write as _;
use std::fs::File;

use manylogs_ext4check::{FileSource, Report, Unreadable, check};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor};
use serde_json::json;

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
    let source = FileSource::new(file).map_err(|error| Failure::input(named(&error)))?;
    let report = check(&source).map_err(|error| match error {
        Unreadable::Io(_) => Failure::failed(named(&error)),
        Unreadable::Superblock(_) => Failure::Damage(named(&error)),
        error => Failure::input(named(&error)),
    })?;
    print(&if args.json { as_json(&report) } else { text(&report) })?;
    match (report.is_clean(), report.needs_recovery) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::Damage(format!(
            "{path}: the journal needs a replay, which may be the reason: mount it once, or run \
             e2fsck -p, and check again"
        ))),
        (false, false) => {
            Err(Failure::Damage(format!("{path}: damaged: e2fsck -f repairs file systems")))
        }
    }
}

fn text(report: &Report) -> String {
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
    if report.is_clean() {
        out += "nothing is wrong\n";
    }
    out
}

fn as_json(report: &Report) -> String {
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
    });
    format!("{value:#}\n")
}
