//! Finds the users of a served block device.

use std::fs;
use std::path::{Path, PathBuf};

/// Who uses the block device at `path`, or a partition of it: mounted file systems, swap, other
/// layers. Empty if nobody does, as far as this process can see.
pub(crate) fn users_of(path: &Path) -> Vec<String> {
    let mut users = Vec::new();
    let devices = with_partitions(path);
    // Some programs mount by the name that they are given, which may be a link's.
    let is_it = |source: &str| {
        let followed = fs::read_link(source);
        let is = |device: &PathBuf| {
            Path::new(source) == device || followed.as_ref().ok() == Some(device)
        };
        devices.iter().any(is)
    };
    for (table, what) in [("/proc/self/mounts", "mounted on"), ("/proc/swaps", "swap")] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let lines = text.lines().filter(|line| line.split_whitespace().next().is_some_and(is_it));
        users.extend(lines.map(|line| match what {
            "swap" => what.to_owned(),
            _ => format!("{what} {}", line.split_whitespace().nth(1).unwrap_or("?")),
        }));
    }
    for device in &devices {
        let name = device.file_name().unwrap_or_default();
        let holders = fs::read_dir(Path::new("/sys/class/block").join(name).join("holders"));
        let holders = holders.into_iter().flatten().flatten();
        users.extend(holders.map(|entry| format!("held by {}", entry.file_name().display())));
    }
    users
}

/// The device itself and its partitions.
fn with_partitions(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default();
    let below = fs::read_dir(Path::new("/sys/block").join(name)).into_iter().flatten().flatten();
    let partitions = below.filter(|entry| entry.path().join("partition").exists());
    let mut devices = vec![path.to_owned()];
    devices.extend(partitions.map(|entry| path.with_file_name(entry.file_name())));
    devices
}
