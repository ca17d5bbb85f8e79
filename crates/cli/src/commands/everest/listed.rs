//! The base volumes and lent stores of this machine, for `manylogs list`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use manylogs_everest::store_name;
use manylogs_operate::status::Status;
use manylogs_serve::Occupant;
use serde_json::{Value, json};

use crate::commands::volume::{human, id_text};
use crate::output::counted;

/// A base volume, a lent store or the SSD of a tail cache.
pub(crate) struct Listed {
    kind: &'static str,
    id: String,
    /// The server's process; `None` if no server of this user has it open.
    pid: Option<u32>,
    /// What else is known of it, in words.
    about: String,
}

/// What there is, by path and kind: a volume that is a base volume is listed as both.
pub(crate) type Everest = BTreeMap<PathBuf, Listed>;

const BASE: &str = "base volume";
const STORE: &str = "lent store";

/// What lies on a disk or file; `None` if it is something else, or cannot be read.
pub(crate) fn found(path: &Path) -> Option<Listed> {
    let (kind, id, about) = match Occupant::at(path).ok()?? {
        Occupant::Base(label) => {
            let about = match label.stores.len() {
                0 => "no store has anything of it".to_owned(),
                count => format!("{} may have newer data", counted(count as u64, "store")),
            };
            (BASE, store_name(&label.id), about)
        }
        Occupant::Store(label) => {
            let about = "may have the newest data of base volumes".to_owned();
            (STORE, store_name(&label.store), about)
        }
        Occupant::Cache(label) => {
            ("tail cache", id_text(&label.chain), "of the chain with this ID".to_owned())
        }
    };
    Some(Listed { kind, id, pid: None, about })
}

/// Adds what a server has open.
pub(crate) fn served(everest: &mut Everest, status: &Status) {
    let device = PathBuf::from(&status.device);
    let device = fs::canonicalize(&device).unwrap_or(device);
    let pid = Some(status.pid);
    if let Some(lent) = &status.lent {
        let of = counted(lent.clients, "base volume");
        let about = format!("holds {} of {of}", human(lent.used_bytes));
        let id = lent.store.clone();
        everest.insert(device, Listed { kind: STORE, id, pid, about });
    } else if let Some(offload) = &status.offload {
        let stores = counted(offload.stores.len() as u64, "store");
        let about = format!("{}, {} in {stores}", offload.state, human(offload.held_bytes));
        let id = offload.base.clone();
        everest.insert(device, Listed { kind: BASE, id, pid, about });
    }
}

/// Header and rows of a table.
pub(crate) fn rows(everest: &Everest) -> Vec<[String; 5]> {
    let mut rows = vec![["DEVICE", "IS A", "ID", "SERVER", "ABOUT IT"].map(str::to_owned)];
    rows.extend(everest.iter().map(|(device, listed)| {
        [
            device.display().to_string(),
            listed.kind.to_owned(),
            listed.id.clone(),
            listed.pid.map_or_else(|| "none".to_owned(), |pid| format!("process {pid}")),
            listed.about.clone(),
        ]
    }));
    rows
}

/// The list as JSON.
pub(crate) fn as_json(everest: &Everest) -> Value {
    let one = |(device, listed): (&PathBuf, &Listed)| {
        json!({
            "device": device,
            "kind": listed.kind,
            "id": listed.id,
            "server_pid": listed.pid,
            "about": listed.about,
        })
    };
    everest.iter().map(one).collect()
}
