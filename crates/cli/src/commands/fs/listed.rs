//! The file systems of ours that `manylogs list` shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use manylogs_ext4::Summary;
use manylogs_mlfs::adopt::LogState;
use manylogs_operate::control::status;

use super::marks;
use super::mounted::{KILLED, Mounted, all};
use super::status::first_block;

/// A file system that is adopted, or that a server of ours has mounted.
pub(crate) struct Listed {
    pub(crate) uuid: String,
    pub(crate) label: String,
    /// In words.
    pub(crate) state: String,
    pub(crate) mounted_on: Option<PathBuf>,
    /// `None` if this user may not ask its server, or it has none.
    pub(crate) mode: Option<String>,
    pub(crate) pid: Option<u32>,
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
        let state = state(&device, &summary);
        let (uuid, label) = (summary.uuid, summary.label);
        let listed = Listed { uuid, label, state, mounted_on: None, mode: None, pid: None };
        found.insert(device, listed);
    }
    found
}

fn summary(device: &Path) -> Option<Summary> {
    Summary::of(&first_block(device).ok()?).ok()
}

fn of_mount(mounted: &Mounted) -> Listed {
    let (uuid, label) =
        summary(&mounted.source).map(|found| (found.uuid, found.label)).unwrap_or_default();
    let mounted_on = Some(mounted.on.clone());
    if mounted.is_dead() {
        let state = KILLED.to_owned();
        return Listed { uuid, label, state, mounted_on, mode: None, pid: None };
    }
    // Who has it read-only takes no orders.
    let server = status(&mounted.source).ok();
    let pid = server.as_ref().map(|server| server.pid);
    let mode = server.and_then(|server| server.file_system).map(|found| found.mode);
    Listed { uuid, label, state: "mounted".to_owned(), mounted_on, mode, pid }
}

/// How a file system that is not mounted was left.
fn state(device: &Path, summary: &Summary) -> String {
    if summary.has_errors {
        return "has errors".to_owned();
    }
    match marks::looked(device) {
        Ok(Some(looked)) => match looked.logs {
            LogState::Drained(_) => "drained".to_owned(),
            LogState::InUse(_) => "with changes that are not at home".to_owned(),
            LogState::None => marks::stage(summary.pointer.map(|pointer| pointer.stage)).to_owned(),
            LogState::Unusable(_) => "needs repair".to_owned(),
        },
        Ok(None) => "in use".to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}
