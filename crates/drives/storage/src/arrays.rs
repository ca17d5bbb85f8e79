//! How Linux' arrays deal addresses out to drives, as sysfs describes it.

use std::fs;

use manylogs_block::{Geometry, Sectors};

use crate::levels::Step;
use crate::loops::Object;
use crate::sysfs::{Disk, SECTOR, System};

/// Levels of md that survive the loss of a drive.
const REDUNDANT: [&str; 5] = ["raid1", "raid10", "raid4", "raid5", "raid6"];
/// Sectors of a KiB: sysfs gives the lengths of members in KiB.
const SECTORS_OF_KIB: u64 = 1024 / SECTOR;

impl System {
    /// The array that the bytes of `disk` lie on, if it is RAID-0, RAID-10 (layout `near`), RAID-4,
    /// 5 or 6 of md or of device-mapper (LVM), or stripes of the latter. Partitions, loop devices
    /// and linear mappings may lie above it, at any depth.
    ///
    /// `None` for everything else. A volume treats that as one drive.
    pub(crate) fn geometry(&self, disk: &Disk) -> Option<Geometry> {
        if let Some(array) = of_md(disk) {
            return Some(array);
        }
        if let Some(mapped) = self.of_mapped(disk) {
            return mapped;
        }
        let below = self.below(disk, disk.bytes()).into_iter().next()?;
        let Some(Object::Disk(number)) = below.object.filter(|_| below.step != Step::Member) else {
            return None;
        };
        behind(self.geometry(&self.disk(number))?, below.bytes.start)
    }
}

impl System {
    /// Whether the bytes of `disk` lie on an array of md's or of device-mapper's that holds each of
    /// them on more than one drive, or could compute it from others, at any depth.
    ///
    /// Arrays with parity count: after a crash the parity of a row may not fit its content, so that
    /// the content changes when a drive is lost. As md recomputes the parity of such a row from all
    /// of its content when a part of the row is written, writing the same content again mends it.
    pub(crate) fn has_copies(&self, disk: &Disk) -> bool {
        self.with_below(disk).any(|disk| is_redundant(&disk) || self.is_mapped_to_copies(&disk))
    }
}

/// Whether the disk is an array of md's that survives the loss of a drive.
pub(crate) fn is_redundant(disk: &Disk) -> bool {
    disk.attribute("md/level").is_some_and(|level| REDUNDANT.contains(&level.as_str()))
}

/// The geometry of a device that begins `bytes` behind the array's beginning. `None` if the 4 KiB
/// blocks of the two do not coincide: the device's would not lie in one piece on a drive.
pub(crate) fn behind(array: Geometry, bytes: u64) -> Option<Geometry> {
    let first = Sectors((array.first.0 + bytes / SECTOR) % array.stripe().0);
    let array = Geometry { first, ..array };
    let whole = bytes.is_multiple_of(SECTOR) && array.check().is_ok();
    whole.then_some(array)
}

/// Reads the geometry of an md array from sysfs.
fn of_md(disk: &Disk) -> Option<Geometry> {
    let word = |name: &str| disk.attribute(&format!("md/{name}"));
    let number = |name: &str| word(name)?.parse::<u64>().ok();
    let (level, drives) = (word("level")?, number("raid_disks")?);
    // Where a stripe's parity lies is of no importance: rows are the same in all layouts.
    let (copies, parity) = match level.as_str() {
        "raid0" => (1, 0),
        "raid10" => (near_copies(number("layout")?)?, 0),
        "raid4" | "raid5" => (1, 1),
        "raid6" => (1, 2),
        _ => return None,
    };
    let chunk = Sectors(number("chunk_size")? / SECTOR);
    if level == "raid0" && !has_equal_members(disk, chunk) {
        return None;
    }
    of_drives(chunk, drives, (copies, parity))
}

/// The geometry of an array of so many `drives`, of which each stripe has `copies` of its content
/// and `parity` drives of parity. `None` if copies cross columns, or the values make no sense.
pub(crate) fn of_drives(
    chunk: Sectors,
    drives: u64,
    (copies, parity): (u64, u64),
) -> Option<Geometry> {
    let drives = drives.checked_sub(parity)?;
    let columns = drives.checked_div(copies).filter(|columns| columns * copies == drives)?;
    let (columns, copies) = (u16::try_from(columns).ok()?, u16::try_from(copies).ok()?);
    let parity = u16::try_from(parity).ok()?;
    let array = Geometry { chunk, columns, copies, parity, first: Sectors(0) };
    array.check().is_ok().then_some(array)
}

/// Number of drives with the same content in a RAID-10 of this layout. `near` copies lie at the
/// same place of neighbouring drives, so that these form columns. Other copies lie at other places.
const fn near_copies(layout: u64) -> Option<u64> {
    let (near, far, offset) = (layout & 0xff, layout >> 8 & 0xff, layout >> 16 & 1);
    if near > 0 && far == 1 && offset == 0 { Some(near) } else { None }
}

/// Whether all members of a RAID-0 end together. Behind the end of a shorter member there are fewer
/// columns.
fn has_equal_members(disk: &Disk, chunk: Sectors) -> bool {
    let entries = fs::read_dir(disk.dir().join("md")).into_iter().flatten().flatten();
    let members = entries.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("rd"));
        number.is_some_and(|number| number.parse::<u16>().is_ok())
    });
    let chunks = |text: String| {
        let kib: u64 = text.trim().parse().ok()?;
        (kib * SECTORS_OF_KIB).checked_div(chunk.0)
    };
    let lengths: Vec<Option<u64>> = members
        .map(|member| fs::read_to_string(member.path().join("size")).ok().and_then(chunks))
        .collect();
    !lengths.is_empty() && lengths.iter().all(|len| len.is_some() && *len == lengths[0])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::levels::tests::Machine;

    const MIB: u64 = 1 << 20;

    fn found(level: &str, layout: &str, members: &[u64]) -> Option<(u64, u16, u16)> {
        let machine = Machine::new();
        let disk = machine.md("md0", "9:0", (level, layout), members);
        let found = machine.system.geometry(&disk)?;
        assert_eq!(found.first, Sectors(0));
        Some((found.chunk.bytes(), found.columns, found.copies))
    }

    #[test]
    fn md_says_how_it_stripes() {
        // Lengths that differ by less than a chunk make no difference to the stripes.
        assert_eq!(found("raid0", "0", &[102_400, 102_401, 102_400]), Some((65_536, 3, 1)));
        assert_eq!(found("raid10", "258", &[102_400; 4]), Some((65_536, 2, 2)));
        assert_eq!(found("raid10", "259", &[102_400; 6]), Some((65_536, 2, 3)));
    }

    #[test]
    fn what_has_no_plain_columns_is_one_drive() {
        assert_eq!(found("raid0", "0", &[102_400, 204_800]), None, "unequal members");
        assert_eq!(found("raid0", "0", &[]), None, "no members");
        assert_eq!(found("raid10", "258", &[102_400; 5]), None, "copies cross columns");
        assert_eq!(found("raid10", "513", &[102_400; 4]), None, "far copies");
        assert_eq!(found("raid10", "66049", &[102_400; 4]), None, "offset copies");
        assert_eq!(found("raid10", "258", &[102_400; 2]), None, "one pair");
        for (level, layout) in [("raid1", "0"), ("linear", "0")] {
            assert_eq!(found(level, layout, &[102_400; 4]), None, "{level}");
        }
    }

    #[test]
    fn an_array_with_parity_has_fewer_columns_than_drives() {
        for (level, layout, columns, parity) in
            [("raid4", "0", 4, 1), ("raid5", "2", 4, 1), ("raid5", "0", 4, 1), ("raid6", "2", 3, 2)]
        {
            let machine = Machine::new();
            let disk = machine.md("md0", "9:0", (level, layout), &[102_400; 5]);
            let found = machine.system.geometry(&disk).unwrap();
            assert_eq!(
                (found.columns, found.parity, found.copies),
                (columns, parity, 1),
                "{level}"
            );
        }
    }

    #[test]
    fn levels_with_copies_say_so_through_partitions_and_mapped_devices() {
        for (level, expected) in [("raid0", false), ("raid1", true), ("raid6", true)] {
            let machine = Machine::new();
            let disk = machine.md("md0", "9:0", (level, "2"), &[102_400; 4]);
            assert_eq!(machine.system.has_copies(&disk), expected, "{level}");
            let part = machine.partition("md0/md0p1", "259:0", MIB, 100 * MIB);
            assert_eq!(machine.system.has_copies(&part), expected, "{level}");
            let mapped = machine.disk("dm-0", "253:0", 20 * MIB);
            symlink(disk.dir(), mapped.dir().join("slaves/md0")).unwrap();
            assert_eq!(machine.system.has_copies(&mapped), expected, "{level}");
            assert!(!machine.system.has_copies(&machine.disk("sda", "8:0", MIB)));
        }
    }

    #[test]
    fn a_partition_begins_within_a_stripe() {
        let machine = Machine::new();
        machine.md("md0", "9:0", ("raid0", "0"), &[102_400; 4]);
        let first = |name: &str, number: &str, start: u64| {
            let part = machine.partition(name, number, start, 100 * MIB);
            machine.system.geometry(&part).map(|found| found.first.bytes())
        };
        assert_eq!(first("md0/md0p1", "259:0", MIB), Some(0));
        assert_eq!(first("md0/md0p2", "259:1", 3 * MIB + 4096 * 17), Some(4096 * 17));
        assert_eq!(first("md0/md0p3", "259:2", 5 * MIB + 512), None, "no 4 KiB begin there");
    }

    #[test]
    fn a_mapped_device_whose_table_is_not_known_is_one_drive() {
        let machine = Machine::new();
        let disk = machine.md("md0", "9:0", ("raid0", "0"), &[102_400; 4]);
        let mapped = machine.disk("dm-0", "253:0", 20 * MIB);
        symlink(disk.dir(), mapped.dir().join("slaves/md0")).unwrap();
        assert_eq!(machine.system.geometry(&mapped), None);
        assert_eq!(machine.system.geometry(&machine.disk("sda", "8:0", MIB)), None);
    }
}
