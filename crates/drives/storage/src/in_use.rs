//! Finds the users of a disk.

use std::fs;
use std::path::Path;

use crate::levels::{Level, Step};
use crate::loops::Object;
use crate::sysfs::{DeviceNumber, Disk, System};

/// How a disk or one of its partitions is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Mounted { device: String, at: String },
    Held { device: String, by: String },
}

/// The first use of the disk or one of its partitions that the system reports.
pub(crate) fn use_of(disk: &Disk) -> Option<Use> {
    disk.with_partitions().iter().find_map(use_of_one)
}

/// As [`use_of`], for the disks and files below a device. A mapped device uses its members anyway.
pub(crate) fn use_below(system: &System, below: &[Level]) -> Option<Use> {
    below.iter().find_map(|level| match (level.step, level.object?) {
        (Step::Partition, Object::Disk(number)) => use_of_one(&system.disk(number)),
        (Step::Loop, Object::Disk(number)) => use_of(&system.disk(number)),
        (Step::Loop, file @ Object::File(_)) => swap(file, &level.path.display().to_string()),
        _ => None,
    })
}

fn use_of_one(part: &Disk) -> Option<Use> {
    let device = format!("/dev/{}", part.name());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(at) = mount_point(&mounts, part.number) {
        return Some(Use::Mounted { device, at });
    }
    if let Some(by) = part.holders().into_iter().next() {
        return Some(Use::Held { device, by: format!("/dev/{by}") });
    }
    swap(Object::Disk(part.number), &device)
}

/// Whether the disk or file is swap space.
pub(crate) fn swap(object: Object, name: &str) -> Option<Use> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let is_swap = paths.any(|path| Object::at(Path::new(&unescape(path))) == Some(object));
    is_swap
        .then(|| Use::Held { device: name.to_owned(), by: "the system as swap space".to_owned() })
}

fn mount_point(mounts: &str, number: DeviceNumber) -> Option<String> {
    let entries = mounts.lines().filter_map(Mount::parse);
    let mut mine = entries.filter(|mount| {
        // A file system over several disks has a number of its own, and names one of the disks.
        mount.number == Some(number) || number_of(mount.source) == Some(number)
    });
    mine.next().map(|mount| unescape(mount.point))
}

struct Mount<'a> {
    number: Option<DeviceNumber>,
    point: &'a str,
    source: &'a str,
}

impl<'a> Mount<'a> {
    /// `36 35 98:0 /root /point options [tags] - type source options`.
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let number = DeviceNumber::parse(left.next()?);
        let point = left.nth(1)?;
        Some(Self { number, point, source: right.split(' ').nth(1)? })
    }
}

fn number_of(path: &str) -> Option<DeviceNumber> {
    match Object::at(Path::new(path)).filter(|_| path.starts_with('/')) {
        Some(Object::Disk(number)) => Some(number),
        _ => None,
    }
}

/// Decodes blanks and similar characters, written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| first == b'\\') {
            Some(code) => {
                bytes.push(code);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_names_are_unescaped() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n\
            36 27 8:1 / /mnt/my\\040disk\\134x rw,relatime shared:1 master:2 - ext4 /dev/sdx1 rw\n";
        let number = DeviceNumber::parse("8:1").unwrap();
        assert_eq!(mount_point(mounts, number).as_deref(), Some("/mnt/my disk\\x"));
        assert_eq!(mount_point(mounts, DeviceNumber::parse("8:17").unwrap()), None);
    }
}
