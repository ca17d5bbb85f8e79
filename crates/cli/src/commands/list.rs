//! `manylogs list`: the volumes and file systems of this machine and their servers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use manylogs::{HEAD_BYTES, LeftAs, Probed, identify, probe};
use manylogs_operate::status::DiskStatus;
use manylogs_serve::Orphan;
use manylogs_serve::machine::{orphans, servers, unserved};
use manylogs_storage::OpenMode;
use serde_json::json;

use super::everest::listed::{self as everest_listed, Everest};
use super::fs::listed::{Listed, file_systems};
use super::gecko::listed::{self, Chains};
use super::volume::{Session, human, id_text};
use super::write_cache;
use crate::args::volume::{BackendArg, ListArgs, VolumeArgs};
use crate::failure::Failure;
use crate::output::print;

/// A volume, found on a disk or opened by a server.
struct Found {
    id: String,
    label: String,
    /// The server's process; `None` if no server of this user has the volume open.
    pid: Option<u32>,
    /// Whether it was not closed: its server was killed, or the machine lost power.
    is_left: bool,
    /// Home bytes whose newest version is in a log, without zeroed ones.
    at_risk_bytes: Option<u64>,
}

/// Lists volumes on disks that the user may read, and all volumes that servers of the user have
/// open, images included.
pub(crate) fn run(args: &ListArgs) -> Result<(), Failure> {
    let (mut found, mut chains, mut everest) = on_disks();
    // Images are known only from their servers, and from the notes of killed servers.
    for device in unserved().map_err(|error| Failure::of_io(&error, &error))? {
        if let Some(volume) = probed(&device) {
            found.entry(device).or_insert_with(|| Found::of_disk(volume));
        } else if let Some(member) = listed::found(&device) {
            chains.entry(device).or_insert(member);
        } else if let Some(other) = everest_listed::found(&device) {
            everest.entry(device).or_insert(other);
        }
    }
    for mut server in servers().map_err(|error| Failure::of_io(&error, &error))? {
        let Ok(status) = server.status() else { continue };
        if let Some(chain) = &status.chain {
            listed::served(&mut chains, chain, status.pid);
        }
        everest_listed::served(&mut everest, &status);
        // The volume of a file system's logs is not listed as a served volume.
        let Some(volume) = status.volume.filter(|_| status.file_system.is_none()) else { continue };
        let device = fs::canonicalize(&status.device).unwrap_or_else(|_| status.device.into());
        let served = Found {
            at_risk_bytes: Some(volume.data_at_risk_bytes()),
            id: volume.id,
            label: volume.label,
            pid: Some(status.pid),
            is_left: false,
        };
        found.insert(device, served);
    }
    for (device, volume) in found.iter_mut().filter(|(_, volume)| volume.pid.is_none()) {
        volume.is_left = is_left(device);
    }
    let orphans = orphans().map_err(|error| Failure::of_io(&error, &error))?;
    let file_systems = file_systems();
    let disks = disks(found.keys().chain(file_systems.keys()));
    if args.json {
        let mut value = as_json(&found, &orphans);
        value["file_systems"] = systems_json(&file_systems);
        value["disks"] = json!(disks);
        value["chains"] = listed::as_json(&chains);
        value["everest"] = everest_listed::as_json(&everest);
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        return print(&(text + "\n"));
    }
    let notes: String = disks.iter().map(write_cache::told).collect();
    let chains = match chains.is_empty() {
        true => String::new(),
        false => format!("\n{}", table(&listed::rows(&chains))),
    };
    let everest = match everest.is_empty() {
        true => String::new(),
        false => format!("\n{}", table(&everest_listed::rows(&everest))),
    };
    print(&(text(&found, &orphans) + &chains + &everest + &systems_text(&file_systems) + &notes))
}

/// The disks of these devices, each once.
fn disks<'a>(devices: impl Iterator<Item = &'a PathBuf>) -> Vec<DiskStatus> {
    let found = devices.filter_map(|device| DiskStatus::at(device));
    let by_name: BTreeMap<String, DiskStatus> =
        found.map(|disk| (disk.disk.clone(), disk)).collect();
    by_name.into_values().collect()
}

/// Volumes, drives of chains, and what Everest keeps on the disks and partitions of this machine.
/// Disks that cannot be read are left out.
fn on_disks() -> (BTreeMap<PathBuf, Found>, Chains, Everest) {
    let names = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let (mut volumes, mut chains) = (BTreeMap::new(), Chains::new());
    let mut everest = Everest::new();
    for device in names.map(|entry| Path::new("/dev").join(entry.file_name())) {
        if let Some(volume) = probed(&device) {
            volumes.insert(device, Found::of_disk(volume));
        } else if let Some(member) = listed::found(&device) {
            chains.insert(device, member);
        } else if let Some(other) = everest_listed::found(&device) {
            everest.insert(device, other);
        }
    }
    (volumes, chains, everest)
}

impl Found {
    fn of_disk(volume: Probed) -> Self {
        let (id, label) = (id_text(&volume.id), volume.label);
        Self { id, label, pid: None, is_left: false, at_risk_bytes: None }
    }

    fn server(&self) -> String {
        match self.pid {
            Some(pid) => format!("process {pid}"),
            None if self.is_left => "was killed".to_owned(),
            None => "none".to_owned(),
        }
    }
}

/// Whether a volume that no server of this user has open was not closed in order. False if it
/// cannot be read; true also if another user's server has it open.
fn is_left(device: &Path) -> bool {
    let args = VolumeArgs {
        device: device.to_owned(),
        backend: BackendArg::Auto,
        table: None,
        give_up_table: false,
    };
    let Ok(session) = Session::open(&args, OpenMode::ReadOnly) else { return false };
    let device = session.reads();
    let found = session.run(async move { identify(&device).await });
    found.is_ok_and(|found| found.left == LeftAs::Open)
}

fn probed(device: &Path) -> Option<Probed> {
    let mut head = [0; HEAD_BYTES];
    File::open(device).ok()?.read_exact(&mut head).ok()?;
    probe(&head).ok()
}

fn text(found: &BTreeMap<PathBuf, Found>, orphans: &[Orphan]) -> String {
    let mut rows = vec![["DEVICE", "VOLUME", "LABEL", "SERVER", "AT RISK"].map(str::to_owned)];
    rows.extend(found.iter().map(|(device, volume)| {
        [
            device.display().to_string(),
            volume.id.clone(),
            if volume.label.is_empty() { "-".to_owned() } else { volume.label.clone() },
            volume.server(),
            volume.at_risk_bytes.map_or_else(|| "-".to_owned(), human),
        ]
    }));
    let mut out = String::new();
    if found.is_empty() {
        out += "no volume on any disk that can be read, and none is served\n";
    } else {
        out += &table(&rows);
    }
    for (device, _) in found.iter().filter(|(_, volume)| volume.is_left) {
        out += &format!(
            "{}: not closed in order: the next manylogs serve recovers it\n",
            device.display()
        );
    }
    for Orphan { device, users } in orphans {
        let users = if users.is_empty() { "not in use".to_owned() } else { users.join(", ") };
        out += &format!("{}: left of a server that was killed; {users}\n", device.display());
    }
    out
}

/// Columns as wide as their widest cell.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
    }
    out
}

fn systems_text(found: &BTreeMap<PathBuf, Listed>) -> String {
    if found.is_empty() {
        return String::new();
    }
    let names =
        ["DEVICE", "FILE SYSTEM", "LABEL", "SERVER", "AT RISK", "MODE", "MOUNTED ON", "STATE"];
    let mut rows = vec![names.map(str::to_owned)];
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    rows.extend(found.iter().map(|(device, listed)| {
        [
            device.display().to_string(),
            or_none(&listed.uuid),
            or_none(&listed.label),
            listed.pid.map_or_else(|| "-".to_owned(), |pid| format!("process {pid}")),
            listed.at_risk_bytes.map_or_else(|| "-".to_owned(), human),
            or_none(listed.mode.as_deref().unwrap_or_default()),
            listed
                .mounted_on
                .as_ref()
                .map_or_else(|| "-".to_owned(), |on| on.display().to_string()),
            listed.state.clone(),
        ]
    }));
    format!("\n{}", table(&rows))
}

fn systems_json(found: &BTreeMap<PathBuf, Listed>) -> serde_json::Value {
    let system = |(device, listed): (&PathBuf, &Listed)| {
        json!({
            "device": device,
            "uuid": listed.uuid,
            "label": listed.label,
            "state": listed.state,
            "mounted_on": listed.mounted_on,
            "mode": listed.mode,
            "server_pid": listed.pid,
            "at_risk_bytes": listed.at_risk_bytes,
        })
    };
    found.iter().map(system).collect()
}

fn as_json(found: &BTreeMap<PathBuf, Found>, orphans: &[Orphan]) -> serde_json::Value {
    json!({
        "volumes": found.iter().map(|(device, volume)| json!({
            "device": device,
            "id": volume.id,
            "label": volume.label,
            "server_pid": volume.pid,
            "left_in_use": volume.is_left,
            "at_risk_bytes": volume.at_risk_bytes,
        })).collect::<Vec<_>>(),
        "orphans": orphans.iter().map(|orphan| json!({
            "device": orphan.device,
            "users": orphan.users,
        })).collect::<Vec<_>>(),
    })
}
