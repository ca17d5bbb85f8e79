//! Our file systems for `manylogs list`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use manylogs_ext4::Summary;
use manylogs_operate::control::status;

use super::known::Known;
use super::marks;
use super::mounted::{KILLED, Mounted, all};
use super::status::first_block;

/// A file system that is adopted, or that our server has mounted.
pub(crate) struct Listed {
    pub(crate) uuid: String,
    pub(crate) label: String,
    /// The state in words.
    pub(crate) state: String,
    pub(crate) mounted_on: Option<PathBuf>,
    /// The server's answer; `None` if there is no server, or this user may not ask it.
    pub(crate) mode: Option<String>,
    pub(crate) pid: Option<u32>,
    /// Bytes whose newest version is in its logs or its journal, by its server.
    pub(crate) at_risk_bytes: Option<u64>,
}

impl Listed {
    /// An entry from the disk's content, without a server.
    fn unserved(found: Option<Summary>, state: String, mounted_on: Option<PathBuf>) -> Self {
        let (uuid, label) = found.map(|found| (found.uuid, found.label)).unwrap_or_default();
        Self { uuid, label, state, mounted_on, mode: None, pid: None, at_risk_bytes: None }
    }
}

/// Adopted file systems on disks that the user may read, and all that are mounted, images included.
pub(crate) fn file_systems() -> BTreeMap<PathBuf, Listed> {
    let mut found = BTreeMap::new();
    for mounted in all().unwrap_or_default() {
        let listed = of_mount(&mounted);
        found.insert(mounted.source, listed);
    }
    let names = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    for device in names.map(|entry| Path::new("/dev").join(entry.file_name())) {
        if found.contains_key(&device) {
            continue;
        }
        let Some(summary) = summary(&device).filter(marks::is_marked) else { continue };
        let state = Known::of(&device).map_or("unknown".to_owned(), |it| it.state.to_string());
        found.insert(device, Listed::unserved(Some(summary), state, None));
    }
    found
}

fn summary(device: &Path) -> Option<Summary> {
    Summary::of(&first_block(device).ok()?).ok()
}

fn of_mount(mounted: &Mounted) -> Listed {
    let on_disk = |state: &str| {
        let found = summary(&mounted.source);
        Listed::unserved(found, state.to_owned(), Some(mounted.on.clone()))
    };
    if mounted.is_dead() {
        return on_disk(KILLED);
    }
    // Who has it read-only takes no orders.
    let Ok(server) = status(&mounted.source) else { return on_disk("mounted") };
    let (pid, told) = (Some(server.pid), server.file_system);
    let at_risk_bytes = told.as_ref().map(|told| told.bytes_at_risk);
    let mode = told.map(|told| told.mode);
    Listed { mode, pid, at_risk_bytes, ..on_disk("mounted") }
}
