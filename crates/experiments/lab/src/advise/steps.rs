//! The commands that make a volume on a disk, and a file system on the volume.

use serde_json::{Map, Value};

use crate::replay::SHINGLED;

/// Options that `format` takes; the others are changed with `set`.
const OF_FORMAT: [&str; 3] = ["log", "group", "threshold"];
/// Where the file system is mounted in the examples.
const MOUNTED_ON: &str = "/mnt";

/// The shell commands for the disk at `device`, in order. `default` is the policy with the defaults
/// of `format` for the drive, `settings` are those that differ. `write_cache` says whether the
/// drive's cache was on when they were measured.
pub(super) fn commands(
    default: &str,
    settings: &Map<String, Value>,
    write_cache: Option<bool>,
    device: &str,
) -> Vec<String> {
    let mut format = format!("manylogs format {device}");
    if default == SHINGLED {
        format += " --shingled";
    }
    let mut set = String::new();
    // A drive's cache is on unless a user has turned it off.
    let mut cache = if write_cache == Some(false) { " --write-cache off" } else { "" };
    let mut commands = Vec::new();
    for (key, value) in settings {
        let value = value.as_str().unwrap_or_default();
        match key.as_str() {
            "cache" if value == "on" => cache = " --write-cache on",
            "cache" => {}
            key if OF_FORMAT.contains(&key) => format += &format!(" --{key} {value}"),
            key => set += &format!(" {key}={value}"),
        }
    }
    commands.push(format);
    if !set.is_empty() {
        commands.push(format!("manylogs set {device}{set}"));
    }
    let shown = format!("/run/manylogs-{}", device.rsplit('/').next().unwrap_or(device));
    commands.push(format!("manylogs serve {device} --loop --link {shown}{cache} &"));
    commands.push(format!("until [ -e {shown} ]; do sleep 1; done"));
    commands.push(format!("mkfs.ext4 {shown}"));
    commands.push(format!("mount -o {} {shown} {MOUNTED_ON}", super::MOUNT.ext4));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::settings;

    #[test]
    fn settings_go_to_the_command_that_takes_them() {
        let settings = settings("mlb:group=300M,threshold=32K,latency=10ms,cache=off");
        assert_eq!(settings["latency"], "10ms");
        let expected = [
            "manylogs format /dev/sdb --group 300M --threshold 32K",
            "manylogs set /dev/sdb latency=10ms",
            "manylogs serve /dev/sdb --loop --link /run/manylogs-sdb --write-cache off &",
            "until [ -e /run/manylogs-sdb ]; do sleep 1; done",
            "mkfs.ext4 /run/manylogs-sdb",
            "mount -o noatime,data=ordered /run/manylogs-sdb /mnt",
        ];
        assert_eq!(commands("mlb", &settings, Some(false), "/dev/sdb"), expected);
        let plain = commands("mlb", &Map::new(), Some(true), "/dev/sdb");
        assert_eq!(plain[0], "manylogs format /dev/sdb");
        let shingled = commands(SHINGLED, &Map::new(), Some(false), "/dev/sdb");
        assert_eq!(shingled[0], "manylogs format /dev/sdb --shingled");
        // The cache was off for all policies, and no setting says so.
        assert!(shingled[1].ends_with("--write-cache off &"), "{shingled:?}");
    }
}
