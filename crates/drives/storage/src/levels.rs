//! The levels below a disk, and other devices that show the same bytes.
//!
//! The kernel gives a disk, its partitions and the devices mapped over them one exclusive user. It
//! does not know that a loop device and the file behind it hold the same bytes.

use std::ops::Range;
use std::path::PathBuf;

use crate::loops::{Object, partition_start};
use crate::sysfs::{Disk, System};

/// How one level shows the bytes of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A partition of a disk.
    Partition,
    /// A loop device over a file or a disk.
    Loop,
    /// A mapped device or an array with a disk as a member. It is not known which bytes lie on
    /// which member.
    Member,
}

/// A level below a disk: the file or disk that holds its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// How the level above shows this one.
    pub(crate) step: Step,
    /// The file or disk; `None` if it is not known.
    pub(crate) object: Option<Object>,
    pub(crate) path: PathBuf,
    /// The bytes that the level above may show.
    pub(crate) bytes: Range<u64>,
    /// Whether these bytes belong to a mapped device, so that others may have their share of them.
    pub(crate) is_shared: bool,
}

impl System {
    /// The levels below `size` bytes of `disk`, from the top down.
    pub(crate) fn below(&self, disk: &Disk, size: u64) -> Vec<Level> {
        let mut found = Vec::new();
        self.descend(disk, 0..size, false, &mut found);
        found
    }

    /// The disk and the disks below it, at any depth.
    pub(crate) fn with_below(&self, disk: &Disk) -> impl Iterator<Item = Disk> {
        let on_disk = |level: Level| match level.object {
            Some(Object::Disk(number)) => Some(self.disk(number)),
            _ => None,
        };
        let below = self.below(disk, disk.bytes()).into_iter().filter_map(on_disk);
        std::iter::once(disk.clone()).chain(below)
    }

    fn descend(&self, disk: &Disk, bytes: Range<u64>, is_shared: bool, found: &mut Vec<Level>) {
        if let Some(start) = partition_start(disk) {
            let Some(whole) = disk.whole_disk() else { return };
            let bytes = moved(&bytes, start);
            found.push(self.level(Step::Partition, &whole, bytes.clone(), is_shared));
            self.descend(&whole, bytes, is_shared, found);
        } else if let Some(looped) = self.loop_of(disk) {
            let bytes = moved(&bytes, looped.offset);
            let (step, object, path) = (Step::Loop, looped.backing, looped.path);
            found.push(Level { step, object, path, bytes: bytes.clone(), is_shared });
            if let Some(Object::Disk(number)) = object {
                self.descend(&self.disk(number), bytes, is_shared, found);
            }
        } else {
            for member in disk.members() {
                let bytes = 0..member.bytes();
                found.push(self.level(Step::Member, &member, bytes.clone(), true));
                self.descend(&member, bytes, true, found);
            }
        }
    }

    fn level(&self, step: Step, disk: &Disk, bytes: Range<u64>, is_shared: bool) -> Level {
        let object = Some(Object::Disk(disk.number));
        Level { step, object, path: self.dev.join(disk.name()), bytes, is_shared }
    }

    /// The name of a loop device that shows some bytes of `top` or of the levels `below` it, and is
    /// not itself one of these levels.
    pub(crate) fn shown_beside(&self, top: Object, below: &[Level]) -> Option<String> {
        let levels = below.iter().filter_map(|level| Some((level.object?, level.bytes.clone())));
        let levels: Vec<_> = std::iter::once((top, 0..u64::MAX)).chain(levels).collect();
        let mut others = self.loops().into_iter().filter(|looped| {
            let own = Object::Disk(looped.disk.number);
            levels.iter().all(|(object, _)| *object != own)
        });
        let beside = others.find(|looped| {
            let shows = looped.shows();
            levels
                .iter()
                .any(|(object, bytes)| Some(*object) == looped.backing && overlap(bytes, &shows))
        });
        beside.map(|looped| looped.disk.name())
    }
}

fn moved(bytes: &Range<u64>, by: u64) -> Range<u64> {
    bytes.start.saturating_add(by)..bytes.end.saturating_add(by)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::loops::{FileId, LoopDevice};
    use crate::mapped::Target;
    use crate::sysfs::DeviceNumber;

    /// A machine made up for a test.
    pub(crate) struct Machine {
        pub(crate) dir: tempfile::TempDir,
        pub(crate) system: System,
    }

    /// A table that [`Machine::mapped`] has recorded.
    fn recorded(_: &System, disk: &Disk) -> Option<Vec<Target>> {
        let target = |line: &str| {
            let mut words = line.splitn(4, ' ');
            let start = words.next()?.parse().ok()?;
            let (kind, parameters) = (words.nth(1)?.to_owned(), words.next()?.to_owned());
            Some(Target { start, kind, parameters })
        };
        disk.attribute("dm/table")?.lines().map(target).collect()
    }

    impl Machine {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| {
                fs::create_dir_all(dir.path().join(name)).unwrap();
                dir.path().join(name)
            };
            let (sys, dev, proc) = (at("sys"), at("dev"), at("proc"));
            let system = System { sys, dev, proc, tables: recorded };
            fs::create_dir_all(system.sys.join("dev/block")).unwrap();
            Self { dir, system }
        }

        /// A disk of `bytes` bytes; a name below another disk's makes a partition of it.
        pub(crate) fn disk(&self, name: &str, number: &str, bytes: u64) -> Disk {
            let dir = self.system.sys.join("block").join(name);
            for below in ["slaves", "holders"] {
                fs::create_dir_all(dir.join(below)).unwrap();
            }
            fs::write(dir.join("dev"), format!("{number}\n")).unwrap();
            fs::write(dir.join("size"), format!("{}\n", bytes / 512)).unwrap();
            symlink(&dir, self.system.sys.join("dev/block").join(number)).unwrap();
            self.system.disk(DeviceNumber::parse(number).unwrap())
        }

        pub(crate) fn partition(&self, name: &str, number: &str, start: u64, bytes: u64) -> Disk {
            let disk = self.disk(name, number, bytes);
            fs::write(disk.dir().join("partition"), "1\n").unwrap();
            fs::write(disk.dir().join("start"), format!("{}\n", start / 512)).unwrap();
            disk
        }

        /// A mapped device with a table in the form of `dmsetup table`.
        pub(crate) fn mapped(&self, name: &str, number: &str, bytes: u64, table: &str) -> Disk {
            let disk = self.disk(name, number, bytes);
            fs::create_dir(disk.dir().join("dm")).unwrap();
            fs::write(disk.dir().join("dm/table"), table).unwrap();
            disk
        }

        /// An array of md's of 400 MiB whose members have these lengths in KiB.
        pub(crate) fn md(
            &self,
            name: &str,
            number: &str,
            (level, layout): (&str, &str),
            members: &[u64],
        ) -> Disk {
            let disk = self.disk(name, number, 400 * MIB);
            let md = disk.dir().join("md");
            fs::create_dir(&md).unwrap();
            let count = members.len().to_string();
            for (name, value) in [
                ("level", level),
                ("layout", layout),
                ("raid_disks", &count),
                ("chunk_size", "65536"),
            ] {
                fs::write(md.join(name), format!("{value}\n")).unwrap();
            }
            for (index, kib) in members.iter().enumerate() {
                let member = md.join(format!("dev-vd{index}"));
                fs::create_dir(&member).unwrap();
                fs::write(member.join("size"), format!("{kib}\n")).unwrap();
                symlink(&member, md.join(format!("rd{index}"))).unwrap();
            }
            disk
        }

        pub(crate) fn looped(
            &self,
            (name, number): (&str, &str),
            file: &Path,
            offset: u64,
            bytes: u64,
        ) -> Disk {
            let disk = self.disk(name, number, bytes);
            fs::create_dir(disk.dir().join("loop")).unwrap();
            fs::write(disk.dir().join("loop/backing_file"), format!("{}\n", file.display()))
                .unwrap();
            fs::write(disk.dir().join("loop/offset"), format!("{offset}\n")).unwrap();
            disk
        }

        pub(crate) fn file(&self, name: &str) -> (PathBuf, Object) {
            let path = self.dir.path().join(name);
            fs::write(&path, "").unwrap();
            let object = Object::File(FileId::of(&fs::metadata(&path).unwrap()));
            (path, object)
        }

        /// The name of a loop device beside `disk`.
        fn beside(&self, disk: &Disk) -> Option<String> {
            let below = self.system.below(disk, disk.bytes());
            self.system.shown_beside(Object::Disk(disk.number), &below)
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_partition_of_a_loop_device_lies_in_the_file_behind_it() {
        let machine = Machine::new();
        let (path, file) = machine.file("image");
        machine.looped(("loop3", "7:3"), &path, 4 * MIB, 100 * MIB);
        let part = machine.partition("loop3/loop3p1", "259:0", MIB, 10 * MIB);
        let below = machine.system.below(&part, part.bytes());
        let found: Vec<_> = below.iter().map(|l| (l.step, l.object, l.bytes.clone())).collect();
        let whole = Object::Disk(DeviceNumber::parse("7:3").unwrap());
        let expected = [
            (Step::Partition, Some(whole), MIB..11 * MIB),
            (Step::Loop, Some(file), 5 * MIB..15 * MIB),
        ];
        assert_eq!(found, expected);
        assert!(below.iter().all(|level| !level.is_shared));
    }

    #[test]
    fn a_mapped_device_shares_its_members_and_what_they_lie_on() {
        let machine = Machine::new();
        let (path, file) = machine.file("image");
        let looped = machine.looped(("loop3", "7:3"), &path, 0, 100 * MIB);
        let mapped = machine.disk("dm-0", "253:0", 20 * MIB);
        symlink(looped.dir(), mapped.dir().join("slaves/loop3")).unwrap();
        let below = machine.system.below(&mapped, mapped.bytes());
        let last = below.last().unwrap();
        assert_eq!((last.object, last.is_shared), (Some(file), true));
        assert_eq!(last.bytes, 0..100 * MIB, "which bytes are mapped nobody tells");
        // A level on the way down is no other user; a second loop device over the file is.
        assert_eq!(machine.beside(&mapped), None);
        machine.looped(("loop4", "7:4"), &path, 50 * MIB, 10 * MIB);
        assert_eq!(machine.beside(&mapped).as_deref(), Some("loop4"));
    }

    #[test]
    fn a_loop_device_beside_is_one_that_shows_the_same_bytes() {
        let machine = Machine::new();
        let (path, file) = machine.file("image");
        let other_name = machine.dir.path().join("other-name");
        fs::hard_link(&path, &other_name).unwrap();
        let first = machine.looped(("loop3", "7:3"), &path, 0, 10 * MIB);
        assert_eq!(machine.beside(&first), None);
        assert_eq!(machine.system.shown_beside(file, &[]).as_deref(), Some("loop3"));
        let (_, other) = machine.file("other");
        assert_eq!(machine.system.shown_beside(other, &[]), None);
        // Two loop devices over the file by another name: one behind the first, one across both.
        let behind = machine.looped(("loop4", "7:4"), &other_name, 10 * MIB, 5 * MIB);
        assert_eq!((machine.beside(&first), machine.beside(&behind)), (None, None));
        machine.looped(("loop5", "7:5"), &other_name, 9 * MIB, 2 * MIB);
        assert_eq!(machine.beside(&first).as_deref(), Some("loop5"));
        assert_eq!(machine.beside(&behind).as_deref(), Some("loop5"));
    }

    #[test]
    fn a_loop_device_over_a_disk_shows_its_partition() {
        let machine = Machine::new();
        let disk = machine.disk("sda", "8:0", 100 * MIB);
        let first = machine.partition("sda/sda1", "8:1", MIB, 10 * MIB);
        let second = machine.partition("sda/sda2", "8:2", 20 * MIB, 10 * MIB);
        // The kernel would report the disk behind the loop device.
        let looped = LoopDevice {
            disk: machine.disk("loop3", "7:3", 10 * MIB),
            backing: Some(Object::Disk(disk.number)),
            path: "/dev/sda".into(),
            offset: 20 * MIB,
        };
        let levels = machine.system.below(&second, second.bytes());
        assert!(
            levels.iter().any(|l| l.object == looped.backing && overlap(&l.bytes, &looped.shows()))
        );
        let levels = machine.system.below(&first, first.bytes());
        assert!(
            levels
                .iter()
                .all(|l| l.object == looped.backing && !overlap(&l.bytes, &looped.shows()))
        );
    }
}
