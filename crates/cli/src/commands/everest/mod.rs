//! Base volumes, lent stores and the SSDs of tail caches that no server has open: what lies there,
//! and which command works.

pub(crate) mod check;
pub(crate) mod listed;
mod store;

use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;

use manylogs::Opening;
use manylogs_block::{BlockDevice, Extent, Sectors};
use manylogs_everest::{BaseLabel, Offloaded, StoreId, StoreLabel, store_name};
use manylogs_gecko::CacheLabel;
use manylogs_serve::{Occupant, OccupantError};
use serde_json::{Value, json};

use super::serve::{offload_failure, store_failure};
use super::volume::{Session, human, id_text};
use crate::failure::Failure;
use crate::output::{counted, print};

/// What lies at `path`, if it is none of what the other commands know.
fn occupant(path: &Path) -> Result<Option<Occupant>, Failure> {
    Occupant::at(path).map_err(|error| failure(path, &error))
}

fn failure(path: &Path, error: &OccupantError) -> Failure {
    match error {
        OccupantError::Io(error) => Failure::at(path, error),
        OccupantError::Base(error) => offload_failure(path, error),
        OccupantError::Store(error) => store_failure(path, error),
        error => Failure::failed(format!("{}: {error}", path.display())),
    }
}

/// The failure of commands on volumes if something else of ours lies at `path`.
pub(crate) fn not_a_volume(path: &Path) -> Option<Failure> {
    let at = path.display();
    let found = match Occupant::at(path) {
        Ok(found) => found?,
        Err(OccupantError::Io(_)) => return None,
        Err(error) => return Some(failure(path, &error)),
    };
    Some(Failure::input(match found {
        Occupant::Base(label) => format!(
            "{at} is the base volume {} of Everest, and no volume: manylogs stores {at} tells of \
             it, and {} serves it",
            store_name(&label.id),
            serving(path, &label)
        ),
        Occupant::Store(label) => format!(
            "{at} is the lent store {}, and no volume; it may have the newest data of base \
             volumes: manylogs check {at} tells whose, and manylogs lend {at} lends it",
            store_name(&label.store)
        ),
        Occupant::Cache(label) => format!(
            "{at} is the SSD of the tail cache of the chain {}, and no volume: give it to \
             manylogs serve MEMBER --cache {at}",
            id_text(&label.chain)
        ),
    }))
}

/// `manylogs status` of what is not served; false if something else lies at `path`.
pub(crate) fn status(path: &Path, json: bool) -> Result<bool, Failure> {
    // A device that cannot be read is refused by the code for volumes.
    if std::fs::File::open(path).is_err() {
        return Ok(false);
    }
    let Some(found) = occupant(path)? else { return Ok(false) };
    let (value, text) = match &found {
        Occupant::Base(label) => (
            base_json(label),
            format!(
                "{}state           not served: {}\n",
                base_rows(label, true),
                serving(path, label)
            ),
        ),
        Occupant::Store(label) => (store_json(label), store_rows(path, label)),
        Occupant::Cache(label) => (cache_json(label), cache_rows(path, label)),
    };
    print(&if json { pretty(&value) } else { text })?;
    Ok(true)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// The command that serves a base volume: with the stores that it needs, where they are not kept.
fn serving(path: &Path, label: &BaseLabel) -> String {
    let mut out = format!("manylogs serve {}", path.display());
    for store in label.stores.iter().filter(|store| address(label, store).is_none()) {
        let _ = write!(out, " --store ADDRESS#{}", store_name(store));
    }
    out
}

/// Where a store is, if the base volume keeps that.
fn address<'a>(label: &'a BaseLabel, store: &StoreId) -> Option<&'a str> {
    let kept = label.kept.iter().find(|kept| kept.id == *store);
    kept.map(|kept| kept.address.as_str())
}

/// The rows about a base volume: `alone` if it is no part of a volume, which has rows of its own.
pub(crate) fn base_rows(label: &BaseLabel, alone: bool) -> String {
    let mut out = format!("base volume     {}", store_name(&label.id));
    let _ = match alone {
        true => writeln!(out, ", {}", human(client_bytes(label))),
        false => writeln!(out, " of Everest, on this volume"),
    };
    let _ = writeln!(out, "opened          {}", counted(label.openings.into(), "time"));
    if label.whole_copies < 2 {
        out += "damage          one of the two copies of its header: the next opening writes it\n";
    }
    let _ = match label.stores.len() {
        0 => writeln!(out, "stores          none has anything of it"),
        count => writeln!(
            out,
            "stores          {} may have newer data: it is served only with {}",
            counted(count as u64, "store"),
            if count == 1 { "it" } else { "them" }
        ),
    };
    for store in &label.stores {
        let at = address(label, store).unwrap_or("an address that is not kept");
        let noted = match bytes_alone(label, store) {
            Some(bytes) => format!("it alone has {}", human(bytes)),
            None => "nobody knows what it alone has".to_owned(),
        };
        let left = if label.leaving.contains(store) { "; it is being evacuated" } else { "" };
        let _ = writeln!(out, "  {} at {at}: {noted}{left}", store_name(store));
    }
    for store in with_nothing(label) {
        let at = address(label, &store).map(|at| format!(", at {at}")).unwrap_or_default();
        let what = match label.leaving.contains(&store) {
            true => "was evacuated and has nothing: it takes no writes until it is added again",
            false => "has nothing, and is borrowed at every start",
        };
        let _ = writeln!(out, "  {} {what}{at}", store_name(&store));
    }
    if !label.voids.is_empty() {
        let ranges = counted(label.voids.len() as u64, "range");
        let _ = writeln!(out, "void            {ranges} that stores have yet to forget");
    }
    if !label.lost.is_empty() {
        let ranges = counted(label.lost.len() as u64, "range");
        let lost = human(bytes_of(&label.lost));
        let _ = writeln!(out, "lost            {lost} in {ranges}: read errors until written");
    }
    out
}

/// Stores that have nothing of the base volume, and that its header names: those that are borrowed
/// at every start, and those that were evacuated.
fn with_nothing(label: &BaseLabel) -> impl Iterator<Item = StoreId> {
    let kept = label.kept.iter().map(|kept| kept.id);
    let left = label.leaving.iter().copied().filter(|store| address(label, store).is_none());
    kept.chain(left).filter(|store| !label.stores.contains(store))
}

/// The bytes that a store alone has, if that is noted.
fn bytes_alone(label: &BaseLabel, store: &StoreId) -> Option<u64> {
    let noted = label.alone.iter().find(|(of, _)| of == store);
    noted.map(|(_, extents)| bytes_of(extents))
}

fn client_bytes(label: &BaseLabel) -> u64 {
    let head = manylogs_everest::BASE_HEADER_BYTES as u64;
    label.sectors.bytes().saturating_sub(head)
}

fn bytes_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.len.bytes()).sum()
}

/// The lost ranges, a line each, in bytes of the base volume.
pub(crate) fn lost_lines(label: &BaseLabel) -> String {
    let of = |lost: &Extent| (Sectors(lost.start.0).bytes(), lost.len.bytes());
    crate::commands::forget::listed(&label.lost.iter().map(of).collect::<Vec<_>>())
}

/// A base volume that is not served.
pub(crate) fn base_json(label: &BaseLabel) -> Value {
    let range = |extent: &Extent| {
        json!({
            "start_bytes": Sectors(extent.start.0).bytes(),
            "bytes": extent.len.bytes(),
        })
    };
    let store = |store: &StoreId| {
        json!({
            "name": store_name(store),
            "listed": label.stores.contains(store),
            "address": address(label, store),
            "alone_bytes": bytes_alone(label, store),
            "evacuated": label.leaving.contains(store),
        })
    };
    let stores: Vec<StoreId> = label.stores.iter().copied().chain(with_nothing(label)).collect();
    let void = |(store, extent): &(StoreId, Extent)| {
        let mut void = range(extent);
        void["store"] = json!(store_name(store));
        void
    };
    json!({
        "base": store_name(&label.id),
        "capacity_bytes": client_bytes(label),
        "openings": label.openings,
        "whole_copies": label.whole_copies,
        "stores": stores.iter().map(store).collect::<Vec<_>>(),
        "void": label.voids.iter().map(void).collect::<Vec<_>>(),
        "lost": label.lost.iter().map(range).collect::<Vec<_>>(),
    })
}

fn store_json(label: &StoreLabel) -> Value {
    json!({
        "store": store_name(&label.store),
        "device": label.device,
        "devices": label.devices,
        "size_bytes": label.sectors.bytes(),
        "log_bytes": label.log.bytes(),
        "logs": label.logs,
    })
}

fn store_rows(path: &Path, label: &StoreLabel) -> String {
    let at = path.display();
    format!(
        "lent store      {}\n\
         size            {}, {} of {}\n\
         state           not lent: manylogs lend {at}; it may have the newest data of base \
         volumes, and manylogs check {at} tells whose\n",
        store_name(&label.store),
        human(label.sectors.bytes()),
        counted(label.logs, "log"),
        human(label.log.bytes()),
    )
}

fn cache_json(label: &CacheLabel) -> Value {
    json!({ "cache_of": id_text(&label.chain), "size_bytes": label.sectors.bytes() })
}

fn cache_rows(path: &Path, label: &CacheLabel) -> String {
    format!(
        "tail cache      of the chain {}\n\
         size            {}\n\
         state           not used: manylogs serve MEMBER --cache {}; the chain's drives have \
         everything that it has\n",
        id_text(&label.chain),
        human(label.sectors.bytes()),
        path.display()
    )
}

/// The base volume on `device`, which is that of `session` or lies on it; `None` if there is none.
pub(crate) fn label_of(
    session: &Session,
    device: Rc<dyn BlockDevice>,
) -> Result<Option<BaseLabel>, Failure> {
    let runtime = session.runtime();
    let label = session.run(async move { Offloaded::identify(&runtime, device).await });
    label.map_err(|error| offload_failure(session.path(), &error))
}

/// The base volume on the volume of `session`, if there is one. Writes nothing.
pub(crate) fn on_volume(session: &Session) -> Result<Option<BaseLabel>, Failure> {
    let (runtime, device, options) = (session.runtime(), session.reads(), session.options());
    let opening = session.run(async move { Opening::read(runtime, device, &options).await });
    match opening {
        Ok(opening) => label_of(session, opening.content()),
        // A volume that cannot be read is told by whoever asks for the volume.
        Err(_) => Ok(None),
    }
}
