//! `manylogs fs check`, and the repair of logs.

use std::fmt::Write as _;
use std::path::Path;

use manylogs::{Finding, Severity};
use manylogs_ext4::{JournalRepaired, Summary};
use manylogs_ext4check::{Report, Unreadable, check};
use manylogs_mlfs::adopt::{AdoptError, LogState, Repaired, Site, check_logs, repair};
use manylogs_storage::{OpenMode, Reactor};
use serde_json::json;

use super::known::Known;
use super::shown::Shown;
use super::status::first_block;
use super::{adopt, contents, marks};
use crate::args::fs::FsCheckArgs;
use crate::commands::volume::check::{findings_json, findings_text, repaired_text};
use crate::failure::Failure;
use crate::output::print;

/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// The results of a check.
struct Checked {
    known: Known,
    /// The report on the file system as a mount would show it; `None` if its logs are damaged.
    report: Option<Report>,
    in_logs: Vec<Finding>,
    /// Why a mount would fail.
    problem: Option<String>,
    /// Whether that is as the journal lost something.
    journal_lost: bool,
}

/// Checks a file system that is not in use, as a mount would show it, and changes nothing. Fails
/// with the exit code for damage if it finds any.
pub(super) fn run(args: &FsCheckArgs) -> Result<(), Failure> {
    let source = &args.source;
    if args.repair {
        return repair_logs(source);
    }
    // Held for as long as the check runs: a mount would change what is read.
    let (reactor, site) = adopt::open(source, OpenMode::ReadOnly)?;
    let first = match Summary::of(&first_block(source)?) {
        Ok(first) => first,
        Err(error) if contents::is_other(&error) => return Err(contents::no_ext4(source)),
        // The check reports the damage of the superblock.
        Err(_) => return judged(source, &Shown::as_it_is(&reactor, source)?).map(drop),
    };
    let known = Known::at_rest(source, (&reactor, &site), first)?;
    let checked = checked(source, (&reactor, &site), known)?;
    print(&if args.json { as_json(&checked) } else { text(&checked) })?;
    verdict(source, &checked)
}

fn checked(
    source: &Path,
    (reactor, site): (&Reactor, &Site),
    known: Known,
) -> Result<Checked, Failure> {
    let logs = known.looked.as_ref().map(|looked| &looked.logs);
    let in_logs = match logs {
        Some(LogState::InUse(logs) | LogState::Drained(logs)) => {
            let (site, logs) = (site.clone(), logs.clone());
            let found = reactor.block_on(async move { check_logs(&site, &logs).await });
            found.map_err(|error| adopt::failure(source, &error))?
        }
        _ => Vec::new(),
    };
    let is_lost = in_logs.iter().any(|finding| finding.severity == Severity::Loss);
    if is_lost || matches!(logs, Some(LogState::Unusable(_))) {
        return Ok(Checked { known, report: None, in_logs, problem: None, journal_lost: false });
    }
    let has_logs = matches!(logs, Some(LogState::InUse(_) | LogState::Drained(_)));
    let summary = &known.summary;
    let (shown, problem) = if has_logs || summary.needs_recovery || summary.has_orphans {
        Shown::recovered(reactor, source, site)?
    } else {
        (Shown::as_it_is(reactor, source)?, None)
    };
    let journal_lost =
        matches!(problem, Some(AdoptError::FileSystem(manylogs_ext4::Error::JournalLost(_))));
    // What is home alone may be weeks old, and does not fit together.
    let report = if journal_lost { None } else { Some(judged(source, &shown)?) };
    let problem = problem.map(|error| error.to_string());
    Ok(Checked { known, report, in_logs, problem, journal_lost })
}

fn judged(source: &Path, shown: &Shown<'_>) -> Result<Report, Failure> {
    let named = |error: &Unreadable| format!("{}: {error}", source.display());
    check(shown).map_err(|error| match error {
        Unreadable::Io(_) => Failure::failed(named(&error)),
        Unreadable::Superblock(_) => Failure::Damage(named(&error)),
        error => Failure::input(named(&error)),
    })
}

/// The result of the command: its exit code, and advice.
fn verdict(source: &Path, checked: &Checked) -> Result<(), Failure> {
    let path = source.display();
    if let Some(worst) = checked.in_logs.iter().map(|finding| finding.severity).max()
        && worst > Severity::Note
    {
        let message =
            format!("{path}: the logs are damaged: manylogs fs check --repair goes on without");
        return Err(match worst {
            Severity::Loss => Failure::Loss(message + " what is lost"),
            _ => Failure::Damage(message + " loss"),
        });
    }
    if let Some(problem) = checked.problem.as_ref().filter(|_| checked.journal_lost) {
        return Err(Failure::Loss(format!("{path}: {problem}")));
    }
    let state = &checked.known.state;
    let is_adopted = checked.known.looked.is_some();
    let is_sound = checked.report.as_ref().is_none_or(Report::is_clean);
    match (&checked.problem, state.is_damage()) {
        _ if !is_sound && is_adopted => Err(Failure::Damage(format!(
            "{path}: damaged: run manylogs fs release, and then e2fsck -f, which repairs file \
             systems"
        ))),
        _ if !is_sound => {
            Err(Failure::Damage(format!("{path}: damaged: e2fsck -f repairs file systems")))
        }
        (_, true) => Err(Failure::Damage(format!("{path}: {state}"))),
        (Some(problem), _) => Err(Failure::Damage(format!("{path}: a mount fails: {problem}"))),
        (None, false) => Ok(()),
    }
}

/// Repairs the logs or the journal, and prints what to do next.
fn repair_logs(source: &Path) -> Result<(), Failure> {
    let (reactor, site) = adopt::open(source, OpenMode::Exclusive)?;
    let first = Summary::of(&first_block(source)?).ok();
    if first.is_some_and(|first| first.needs_recovery && !marks::is_marked(&first)) {
        return repair_journal(source, &reactor, site);
    }
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

/// Replays what is whole in ext4's own journal, and tells what is lost.
fn repair_journal(source: &Path, reactor: &Reactor, site: Site) -> Result<(), Failure> {
    let path = source.display();
    let repaired = reactor.block_on(async move { site.repair_journal().await });
    match repaired.map_err(|error| adopt::failure(source, &error))? {
        JournalRepaired::Lossy(loss) => {
            print(&format!("the journal was replayed: {}\n", loss.lost()))?;
            Err(Failure::Loss(format!(
                "{path}: acknowledged changes are lost, and mounts are refused: run e2fsck -f, \
                 which mends what no longer fits together; debugfs -R 'icheck BLOCK' tells whose a \
                 block is"
            )))
        }
        JournalRepaired::ErrorsNoted => Err(Failure::Loss(format!(
            "{path}: the journal is empty, and errors are noted: what an earlier repair said is \
             lost is lost, and mounts are refused: run e2fsck -f, which mends what no longer fits \
             together"
        ))),
        JournalRepaired::Whole | JournalRepaired::Empty => {
            print("the journal was replayed: nothing is lost\n")
        }
    }
}

fn text(checked: &Checked) -> String {
    let Checked { known, report, in_logs, problem, journal_lost } = checked;
    let mut out = String::new();
    match report {
        Some(report) => report_text(&mut out, report),
        None if *journal_lost => {
            out += "the file system cannot be judged before its journal is repaired\n";
        }
        None => out += "the file system cannot be judged before its logs are whole\n",
    }
    if let Some(looked) = &known.looked {
        let _ = writeln!(out, "logs: {}; marked: {}", marks::logs(looked), marks::bits(looked));
    }
    out += &findings_text(in_logs);
    let _ = writeln!(out, "state: {}", known.state);
    let is_clean = report.as_ref().is_some_and(Report::is_clean) && in_logs.iter().all(is_note);
    if is_clean && problem.is_none() && !known.state.is_damage() {
        out += "nothing is wrong\n";
    }
    out
}

fn is_note(finding: &Finding) -> bool {
    finding.severity == Severity::Note
}

fn report_text(out: &mut String, report: &Report) {
    for finding in &report.findings {
        let _ = match finding.is_note() {
            true => writeln!(out, "note: {finding}; a mount puts it right"),
            false => writeln!(out, "{finding}"),
        };
    }
    if report.more > 0 {
        let _ = writeln!(out, "and {} more", report.more);
    }
    let _ = writeln!(
        out,
        "{} inodes in use, {} of them directories, {} blocks in use",
        report.inodes, report.directories, report.blocks,
    );
}

fn as_json(checked: &Checked) -> String {
    let Checked { known, report, in_logs, problem, .. } = checked;
    let found = report.as_ref();
    let is_clean = found.is_some_and(Report::is_clean) && problem.is_none();
    let findings = found.map(|report| &report.findings).into_iter().flatten();
    let value = json!({
        "format": 1,
        "clean": is_clean && !known.state.is_damage(),
        "state": known.state.word(),
        "state_text": known.state.to_string(),
        "problem": problem,
        "inodes": found.map(|report| report.inodes),
        "directories": found.map(|report| report.directories),
        "blocks": found.map(|report| report.blocks),
        "findings": findings.map(|finding| json!({
            "place": finding.place.to_string(),
            "problem": finding.problem.to_string(),
            "note": finding.is_note(),
        })).collect::<Vec<_>>(),
        "findings_left_out": found.map(|report| report.more),
        "mlfs": known.looked.as_ref().map(marks::as_json),
        "log_findings": findings_json(in_logs),
    });
    format!("{value:#}\n")
}
