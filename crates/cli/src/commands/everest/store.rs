//! A lent store that nobody lends, judged and dumped.

use std::fmt::Write as _;
use std::path::Path;

use manylogs_everest::{CircularStore, ExaminedStore, StoreFinding, store_name};
use manylogs_storage::OpenMode;
use serde_json::{Value, json};

use super::pretty;
use crate::args::volume::VolumeArgs;
use crate::commands::serve::store_failure;
use crate::commands::volume::{Session, human};
use crate::failure::Failure;
use crate::output::{counted, print};

fn examined(args: &VolumeArgs) -> Result<ExaminedStore, Failure> {
    let session = Session::open(args, OpenMode::ReadOnly)?;
    let (runtime, device) = (session.runtime(), session.reads());
    let examined = session.run(async move { CircularStore::examine(runtime, vec![device]).await });
    examined.map_err(|error| store_failure(session.path(), &error))
}

pub(super) fn check(args: &VolumeArgs, json: bool) -> Result<(), Failure> {
    let examined = examined(args)?;
    print(&if json { pretty(&as_json(&examined)) } else { told(&examined) })?;
    verdict(&args.device, &examined)
}

pub(super) fn dump(args: &VolumeArgs, json: bool) -> Result<(), Failure> {
    let examined = examined(args)?;
    print(&if json { pretty(&as_json(&examined)) } else { dumped(&examined) })
}

fn head(examined: &ExaminedStore) -> String {
    let records = examined.logs.iter().map(|log| log.records).sum();
    let mut out = format!(
        "lent store {}: {}, {} of {} in use, {}, {}\n",
        store_name(&examined.store),
        human(examined.sectors.bytes()),
        examined.logs.len(),
        counted(examined.log_count, "log"),
        counted(records, "record"),
        if examined.is_closed { "closed" } else { "not closed in order" },
    );
    for held in &examined.held {
        let (base, incarnation) = (store_name(&held.base), held.opening.incarnation);
        let _ = match held.ranges.len() {
            0 => writeln!(out, "base volume {base}: nothing, opening {incarnation} came last"),
            ranges => writeln!(
                out,
                "base volume {base}: {} in {}, of opening {incarnation}; its newest data may be \
                 here alone",
                human(held.sectors().bytes()),
                counted(ranges as u64, "range"),
            ),
        };
    }
    out
}

fn told(examined: &ExaminedStore) -> String {
    let mut out = head(examined);
    for finding in &examined.findings {
        let kind = if finding.is_of_data() { "LOSS" } else { "damage" };
        let _ = writeln!(out, "{kind}: {}", words(finding));
    }
    if examined.findings.is_empty() {
        out += "nothing is wrong\n";
    }
    out
}

fn words(finding: &StoreFinding) -> String {
    match finding {
        StoreFinding::Label { .. } => "a copy of its label".to_owned(),
        StoreFinding::Roots(count) => format!("{count} of 2 roots hold none that is whole"),
        StoreFinding::Records { log, damage } => format!(
            "log {}, sectors {}+{}: {}",
            log.0,
            damage.offset.0,
            damage.sectors.0,
            match damage.known {
                true => "a record's content",
                false => "a record, of which it is unknown what it held",
            }
        ),
        StoreFinding::Content { base, extent } => format!(
            "sectors {}+{} of the base volume {} differ from their checksums",
            extent.start.0,
            extent.len.0,
            store_name(base)
        ),
        StoreFinding::Owners => "the list of base volumes: it is unknown whose data is here".into(),
        other => format!("{other:?}"),
    }
}

/// Loss if content is damaged, damage if a copy of a structure is.
fn verdict(path: &Path, examined: &ExaminedStore) -> Result<(), Failure> {
    let path = path.display();
    if examined.findings.iter().any(StoreFinding::is_of_data) {
        return Err(Failure::Loss(format!(
            "{path}: data of base volumes is damaged, and lost unless another store has it: \
             manylogs stores BASE tells of each"
        )));
    }
    match examined.findings.is_empty() {
        true => Ok(()),
        false => Err(Failure::Damage(format!(
            "{path}: damaged, nothing is lost; let what it holds go home (manylogs stores BASE \
             remove {}), and lend it anew",
            store_name(&examined.store)
        ))),
    }
}

fn dumped(examined: &ExaminedStore) -> String {
    let mut out = head(examined);
    for found in &examined.logs {
        let _ = writeln!(
            out,
            "log {:>6}  at {}, epoch {}, {}, {} used, {} live",
            found.log.0,
            found.region.start.0,
            found.epoch,
            counted(found.records, "record"),
            human(found.used.bytes()),
            human(found.live.bytes()),
        );
    }
    for held in examined.held.iter().filter(|held| !held.ranges.is_empty()) {
        let _ = writeln!(out, "base volume {}", store_name(&held.base));
        for range in &held.ranges {
            let (extent, version) = (range.extent, range.version);
            let (start, len) = (extent.start.0, extent.len.0);
            let (of, count) = (version.incarnation(), version.count());
            let _ = writeln!(out, "{start:>12}+{len:<6} version {of}.{count}");
        }
    }
    out
}

fn as_json(examined: &ExaminedStore) -> Value {
    json!({
        "store": store_name(&examined.store),
        "size_bytes": examined.sectors.bytes(),
        "closed": examined.is_closed,
        "log_count": examined.log_count,
        "logs": examined.logs.iter().map(|found| json!({
            "log": found.log.0,
            "sector": found.region.start.0,
            "epoch": found.epoch,
            "records": found.records,
            "used_sectors": found.used.0,
            "live_sectors": found.live.0,
        })).collect::<Vec<_>>(),
        "held": examined.held.iter().map(|held| json!({
            "base": store_name(&held.base),
            "incarnation": held.opening.incarnation,
            "session": held.session,
            "held_bytes": held.sectors().bytes(),
            "ranges": held.ranges.iter().map(|range| json!({
                "sector": range.extent.start.0,
                "sectors": range.extent.len.0,
                "version": range.version.0,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "findings": examined.findings.iter().map(|finding| json!({
            "of_data": finding.is_of_data(),
            "problem": words(finding),
        })).collect::<Vec<_>>(),
    })
}
