//! Whether a drive lies on a device that a server in user space serves.
//!
//! A server that copied to a drive on its own chain would wait for itself. Opening such a drive can
//! hang it, too, so this looks only at what the kernel knows without asking the device.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Depth of devices above one another that is looked at.
const DEPTH: usize = 16;

/// The device or the file system below `path` that a server in user space serves; `None` if there
/// is none. Follows partitions, device-mapper, md and loop devices, and file systems on them. May
/// wait for the device: not for the thread of a server.
pub(super) fn served_below(path: &Path) -> Option<String> {
    of_path(path, DEPTH)
}

fn of_path(path: &Path, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let metadata = fs::metadata(path).ok()?;
    if metadata.file_type().is_block_device() {
        return of_device(number(metadata.rdev()), depth);
    }
    of_file_system(path, number(metadata.dev()), depth)
}

fn number(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn of_device((major, minor): (u32, u32), depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let whole = fs::canonicalize(&sys).ok()?;
    let name = whole.file_name()?.to_str()?.to_owned();
    if name.starts_with("ublkb") || name.starts_with("nbd") {
        return Some(format!("/dev/{name}"));
    }
    if let Ok(file) = fs::read_to_string(whole.join("loop/backing_file")) {
        return of_path(Path::new(file.trim_end()), depth);
    }
    let below = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
    // A partition's directory lies in that of its disk.
    let disk = whole.join("partition").exists().then(|| whole.parent().map(Path::to_owned));
    let below = below.map(|entry| entry.path()).chain(disk.flatten());
    below.filter_map(|device| device_number(&device)).find_map(|device| of_device(device, depth))
}

fn device_number(sys: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(sys.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The file system of a file, and what it lies on.
fn of_file_system(path: &Path, device: (u32, u32), depth: usize) -> Option<String> {
    let whole = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().filter_map(Mount::of).filter(|mount| whole.starts_with(&mount.at));
    let mount = mount.max_by_key(|mount| mount.at.as_os_str().len())?;
    if mount.kind.starts_with("fuse") {
        return Some(format!("{} ({})", mount.at.display(), mount.kind));
    }
    if let Some(upper) = mount.upper {
        return of_path(&upper, depth);
    }
    match mount.source {
        // The number of a btrfs is of no device, but it names one.
        Some(source) => of_path(&source, depth),
        None => of_device(device, depth),
    }
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
}
