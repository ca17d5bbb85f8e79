//! `manylogs check`.

use std::fmt::Write;
use std::rc::Rc;

use manylogs::{Finding, Inspection, RepairReport, Severity, Volume, check_with};
use manylogs_storage::OpenMode;
use serde_json::{Value, json};

use super::{Session, human, id_text};
use crate::args::volume::CheckArgs;
use crate::commands::{everest, gecko};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    if gecko::check::run(&args.volume.device, args.repair, args.json)? {
        return Ok(());
    }
    if everest::check::run(&args.volume, args.repair, args.json)? {
        return Ok(());
    }
    let mode = if args.repair { OpenMode::Exclusive } else { OpenMode::ReadOnly };
    let mut session = Session::open(&args.volume, mode)?;
    if args.repair {
        session.give_up_unreadable();
    }
    let (device, options) = (session.reads(), session.options());
    let checked = session.run(async move { check_with(&device, &options).await });
    let (found, findings) = checked.map_err(|error| session.failure(&error))?;
    let base = everest::on_volume(&session)?;
    if args.json {
        let mut value = as_json(&found, &findings);
        value["base"] = json!(base.as_ref().map(everest::base_json));
        print(&(serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"))?;
    } else {
        let of_base = base.as_ref().map(|label| everest::base_rows(label, false));
        print(&(told(&session, &found, &findings) + &of_base.unwrap_or_default()))?;
    }
    if args.repair && findings.iter().any(|finding| finding.severity > Severity::Note) {
        return repair(&mut session);
    }
    verdict(&session, &findings)?;
    base.map_or(Ok(()), |label| everest::check::verdict(session.path(), &label))
}

fn verdict(session: &Session, findings: &[Finding]) -> Result<(), Failure> {
    let path = session.path().display();
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Loss) => Err(Failure::Loss(format!(
            "{path}: acknowledged data is lost; --repair marks it, so that reads of it fail"
        ))),
        Some(Severity::Redundancy) => Err(Failure::Damage(format!(
            "{path}: damaged, nothing is lost; --repair writes the damaged copies anew"
        ))),
        Some(Severity::Note) | None => Ok(()),
    }
}

fn repair(session: &mut Session) -> Result<(), Failure> {
    session.lock()?;
    let (runtime, device) = (session.runtime(), Rc::clone(&session.device));
    let options = session.options();
    let repaired = session.run(async move { Volume::repair_with(runtime, device, &options).await });
    let report = repaired.map_err(|error| session.failure(&error))?;
    print(&repaired_text(&report))?;
    if report.checkpoint.lost_extents > 0 || given_up(&report) > 0 {
        let path = session.path().display();
        return Err(Failure::Loss(format!("{path}: repaired, but acknowledged data is lost")));
    }
    Ok(())
}

/// Number of damaged records whose content is unknown.
fn given_up(report: &RepairReport) -> usize {
    report.recovery.damage.iter().filter(|found| !found.damage.known).count()
}

/// What a repair did.
pub(crate) fn repaired_text(report: &RepairReport) -> String {
    let mut out = String::from("repaired:");
    if report.superblock_rewritten {
        out += " superblock copies written anew;";
    }
    let _ = write!(
        out,
        " {} records recovered, {} written home, {} extents lost",
        report.recovery.records,
        human(report.checkpoint.home_write_sectors.bytes()),
        report.checkpoint.lost_extents
    );
    if given_up(report) > 0 {
        let _ = write!(out, ", {} damaged records given up", given_up(report));
    }
    if report.overwritten.0 > 0 {
        let sectors = report.overwritten.0;
        let _ = write!(out, ", {sectors} sectors of logs overwritten that could not be read");
    }
    out + "\n"
}

fn told(session: &Session, found: &Inspection, findings: &[Finding]) -> String {
    let mut out = format!(
        "{}: volume {}, {} logs, {} of them in use, {} records, {} extents logged ({})\n",
        session.path().display(),
        id_text(&found.volume),
        found.layout.regions().len(),
        found.logs.len(),
        found.recovery.records,
        found.table.len(),
        human(found.at_risk_bytes()),
    );
    out += &findings_text(findings);
    if findings.is_empty() {
        out += "nothing is wrong\n";
    }
    out
}

/// A line for each finding.
pub(crate) fn findings_text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Note => "note",
            Severity::Redundancy => "damage",
            Severity::Loss => "LOSS",
        };
        let _ = write!(out, "{severity}: {}", finding.problem);
        if !finding.at.is_empty() {
            let _ = write!(out, " (sectors {}+{})", finding.at.start.0, finding.at.len.0);
        }
        let _ = writeln!(out, "; repair: {}", finding.repair);
    }
    out
}

fn as_json(found: &Inspection, findings: &[Finding]) -> Value {
    json!({
        "volume": id_text(&found.volume),
        "logs": found.layout.regions().len(),
        "logs_in_use": found.logs.len(),
        "records": found.recovery.records,
        "mapped_extents": found.table.len(),
        "at_risk_bytes": found.at_risk_bytes(),
        "findings": findings_json(findings),
    })
}

pub(crate) fn findings_json(findings: &[Finding]) -> Vec<Value> {
    let as_json = |finding: &Finding| {
        json!({
            "severity": match finding.severity {
                Severity::Note => "note",
                Severity::Redundancy => "redundancy",
                Severity::Loss => "loss",
            },
            "sector": finding.at.start.0,
            "sectors": finding.at.len.0,
            "problem": finding.problem,
            "repair": finding.repair,
        })
    };
    findings.iter().map(as_json).collect()
}
