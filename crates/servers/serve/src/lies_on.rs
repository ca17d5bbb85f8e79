//! What a file or a device lies on, down to its disks.
//!
//! A server that copied to a drive on its own chain would wait for itself, and a base volume that
//! borrowed a store on its own disk would gain nothing. Opening such a device can hang a server,
//! too, so this looks only at what the kernel knows without asking the device.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use manylogs_everest::net::LiesOn;

/// Depth of devices above one another that is looked at.
const DEPTH: usize = 16;

/// Where a walk down ends.
struct Bottom {
    /// The kernel's number of the device, or of a file system whose device it does not tell.
    number: u64,
    /// The device or file system, if a server in user space serves it: what it lies on is unknown.
    served: Option<String>,
}

/// The device or the file system below `path` that a server in user space serves; `None` if there
/// is none. Follows partitions, device-mapper, md and loop devices, and file systems on them. May
/// wait for the device: not for the thread of a server.
pub(crate) fn served_below(path: &Path) -> Option<String> {
    bottoms(path).into_iter().find_map(|bottom| bottom.served)
}

/// The disks below `path`, as this machine numbers them until it is started anew: partitions,
/// device-mapper, md and loop devices, and file systems on them are followed. Of a network's block
/// device or file system, and of what a server in user space serves, only that itself is known.
/// Nothing is known without /proc and /sys. May wait for the device: not while clients are served.
pub(crate) fn lies_on(path: &Path) -> LiesOn {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let machine = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap_or(0);
    LiesOn::new(machine.to_be_bytes(), disks_below(path))
}

/// The kernel's numbers of the disks below `path`. May wait for the device, like [`lies_on`].
pub(crate) fn disks_below(path: &Path) -> Vec<u64> {
    bottoms(path).into_iter().map(|bottom| bottom.number).collect()
}

fn bottoms(path: &Path) -> Vec<Bottom> {
    let mut found = Vec::new();
    of_path(path, DEPTH, &mut found);
    found
}

fn of_path(path: &Path, depth: usize, found: &mut Vec<Bottom>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(metadata) = fs::metadata(path) else { return };
    match metadata.file_type().is_block_device() {
        true => of_device(metadata.rdev(), depth, found),
        false => of_file_system(path, metadata.dev(), depth, found),
    }
}

fn of_device(number: u64, depth: usize, found: &mut Vec<Bottom>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let bottom = |served| Bottom { number, served };
    let Ok(whole) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        found.push(bottom(None));
        return;
    };
    let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with("ublkb") || name.starts_with("nbd") {
        found.push(bottom(Some(format!("/dev/{name}"))));
        return;
    }
    if let Ok(file) = fs::read_to_string(whole.join("loop/backing_file")) {
        return of_path(Path::new(file.trim_end()), depth, found);
    }
    let below = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
    // A partition's directory lies in that of its disk.
    let disk = whole.join("partition").exists().then(|| whole.parent().map(Path::to_owned));
    let below = below.map(|entry| entry.path()).chain(disk.flatten());
    let below: Vec<u64> = below.filter_map(|device| device_number(&device)).collect();
    if below.is_empty() {
        found.push(bottom(None));
    }
    below.into_iter().for_each(|device| of_device(device, depth, found));
}

fn device_number(sys: &Path) -> Option<u64> {
    let text = fs::read_to_string(sys.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The file system of a file, and what it lies on.
fn of_file_system(path: &Path, number: u64, depth: usize, found: &mut Vec<Bottom>) {
    let bottom = |served| Bottom { number, served };
    let Some(mount) = mount_of(path) else {
        found.push(bottom(None));
        return;
    };
    if mount.kind.starts_with("fuse") {
        found.push(bottom(Some(format!("{} ({})", mount.at.display(), mount.kind))));
        return;
    }
    let before = found.len();
    // The number of a btrfs is of no device, but it names one.
    match mount.upper.or(mount.source) {
        Some(below) => of_path(&below, depth, found),
        None if Path::new("/sys/dev/block").join(device_name(number)).exists() => {
            of_device(number, depth, found);
        }
        None => {}
    }
    if found.len() == before {
        found.push(bottom(None));
    }
}

pub(crate) fn device_name(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// The mount that a file is on.
fn mount_of(path: &Path) -> Option<Mount> {
    let whole = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = mounts.lines().filter_map(Mount::of).filter(|mount| whole.starts_with(&mount.at));
    mounts.max_by_key(|mount| mount.at.as_os_str().len())
}

/// A line of the kernel's list of mounts.
struct Mount {
    at: PathBuf,
    kind: String,
    /// The device.
    source: Option<PathBuf>,
    /// Where the content of an overlay is.
    upper: Option<PathBuf>,
}

impl Mount {
    fn of(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let at = unescaped(mount.split(' ').nth(4)?);
        let mut words = file_system.split(' ');
        let (kind, source, options) = (words.next()?, words.next()?, words.next().unwrap_or(""));
        let upper = options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        Some(Self {
            at,
            kind: kind.to_owned(),
            source: source.starts_with("/dev/").then(|| unescaped(source)),
            upper: upper.map(unescaped),
        })
    }
}

/// The kernel writes spaces, tabs, newlines and backslashes as octal numbers.
fn unescaped(text: &str) -> PathBuf {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let plain = codes.iter().fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign));
    PathBuf::from(plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_mount_says_where_it_is_and_what_it_lies_on() {
        let line = "36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/loop0 rw,errors=continue";
        let mount = Mount::of(line).unwrap();
        assert_eq!(mount.at, Path::new("/mnt/a b"));
        assert_eq!(mount.source.as_deref(), Some(Path::new("/dev/loop0")));
        let line = "21 1 0:19 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w";
        let mount = Mount::of(line).unwrap();
        assert_eq!((mount.source, mount.upper), (None, Some(PathBuf::from("/u"))));
        assert!(Mount::of("no mount").is_none());
    }

    #[test]
    fn a_file_of_a_plain_file_system_is_served_by_nobody() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(served_below(dir.path()), None);
    }

    #[test]
    fn two_files_of_a_file_system_lie_on_the_same_disk() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        for path in [&one, &two] {
            fs::write(path, b"x").unwrap();
        }
        let one = lies_on(&one);
        assert!(one.shares_a_disk_with(&lies_on(&two)), "{one:?}");
        let processes = lies_on(Path::new("/proc/self/mountinfo"));
        assert!(!one.shares_a_disk_with(&processes), "{one:?} {processes:?}");
    }
}
