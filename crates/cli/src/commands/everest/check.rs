//! `manylogs check` and `manylogs dump` of base volumes and lent stores that nobody serves.

use std::path::Path;

use manylogs_everest::BaseLabel;
use manylogs_serve::Occupant;
use manylogs_storage::OpenMode;

use super::{base_json, base_rows, cache_json, cache_rows, lost_lines, occupant, pretty, store};
use crate::args::volume::VolumeArgs;
use crate::commands::volume::{Session, human};
use crate::failure::Failure;
use crate::output::{counted, print};

/// Judges what lies on the device without writing anything; false if it is something else.
pub(crate) fn run(args: &VolumeArgs, repair: bool, json: bool) -> Result<bool, Failure> {
    let path = args.device.as_path();
    let Some(found) = found(path)? else { return Ok(false) };
    if repair {
        return Err(Failure::input(format!(
            "{}: --repair is for volumes and chains: {}",
            path.display(),
            match found {
                Occupant::Base(_) => "manylogs serve writes a damaged copy of its header anew",
                Occupant::Store(_) => "manylogs lend writes a damaged root anew",
                Occupant::Cache(_) => "nothing of a tail cache need be repaired",
            }
        )));
    }
    match found {
        Occupant::Base(_) => {
            let label = base(args)?;
            print(&if json { pretty(&base_json(&label)) } else { told(&label) })?;
            verdict(path, &label)?;
        }
        Occupant::Store(_) => store::check(args, json)?,
        Occupant::Cache(label) => {
            print(&if json { pretty(&cache_json(&label)) } else { cache_rows(path, &label) })?;
        }
    }
    Ok(true)
}

/// Prints what is written there; false if it is something else.
pub(crate) fn dump(args: &VolumeArgs, json: bool) -> Result<bool, Failure> {
    let path = args.device.as_path();
    let Some(found) = found(path)? else { return Ok(false) };
    match found {
        Occupant::Base(_) => {
            let label = base(args)?;
            print(&if json { pretty(&base_json(&label)) } else { dumped(&label) })?;
        }
        Occupant::Store(_) => store::dump(args, json)?,
        Occupant::Cache(label) => {
            print(&if json { pretty(&cache_json(&label)) } else { cache_rows(path, &label) })?;
        }
    }
    Ok(true)
}

/// What lies there; `None` also if it cannot be read, which the code for volumes reports.
fn found(path: &Path) -> Result<Option<Occupant>, Failure> {
    if std::fs::File::open(path).is_err() {
        return Ok(None);
    }
    occupant(path)
}

/// Reads the header of a base volume that no server has open.
fn base(args: &VolumeArgs) -> Result<BaseLabel, Failure> {
    let session = Session::open(args, OpenMode::ReadOnly)?;
    let label = super::label_of(&session, session.reads())?;
    let gone =
        || Failure::failed(format!("{}: it has changed meanwhile", session.path().display()));
    label.ok_or_else(gone)
}

/// The judgement of a base volume in words.
pub(crate) fn told(label: &BaseLabel) -> String {
    let mut out = base_rows(label, true) + &lost_lines(label);
    if label.whole_copies == 2 && label.lost.is_empty() {
        out += "nothing is wrong\n";
    }
    out
}

/// Loss if ranges are lost with a store that was forgotten, damage if a copy of the header is.
pub(crate) fn verdict(path: &Path, label: &BaseLabel) -> Result<(), Failure> {
    let serving = super::serving(path, label);
    let path = path.display();
    if !label.lost.is_empty() {
        let lost = human(super::bytes_of(&label.lost));
        return Err(Failure::Loss(format!(
            "{path}: {lost} ({}) were lost with a store that was forgotten: overwrite or restore \
             them",
            counted(label.lost.len() as u64, "range")
        )));
    }
    match label.whole_copies {
        2 => Ok(()),
        _ => Err(Failure::Damage(format!(
            "{path}: a copy of its header is damaged, nothing is lost; {serving} writes it anew"
        ))),
    }
}

fn dumped(label: &BaseLabel) -> String {
    let mut out = base_rows(label, true);
    for (store, extent) in &label.voids {
        let (store, start) = (manylogs_everest::store_name(store), extent.start.0);
        out += &format!("{start:>12}+{:<6} void in {store}\n", extent.len.0);
    }
    for extent in &label.lost {
        out += &format!("{:>12}+{:<6} lost\n", extent.start.0, extent.len.0);
    }
    out
}
