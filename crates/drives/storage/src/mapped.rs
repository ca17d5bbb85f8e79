//! How mapped devices (device-mapper, LVM) deal addresses out, as their tables say.
//!
//! Source: Linux, `Documentation/admin-guide/device-mapper/{linear,striped,dm-raid}.rst`.

use std::fs::File;

use manylogs_block::{Geometry, Sectors};

use crate::arrays::{behind, of_drives};
use crate::ioctl::mapped_table;
use crate::sysfs::{DeviceNumber, Disk, SECTOR, System};

/// A row of a mapped device's table: how some of its sectors are mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The first of these sectors.
    pub(crate) start: u64,
    /// What maps them, such as `linear`.
    pub(crate) kind: String,
    /// What that was told, such as the devices below.
    pub(crate) parameters: String,
}

/// What of the array below decides whether two rows of a table go on in the same way.
type Shape = (Geometry, Vec<DeviceNumber>);

/// Tells the rows of a mapped device's table; `None` if it cannot.
pub(crate) type Tables = fn(&System, &Disk) -> Option<Vec<Target>>;

/// What device-mapper says, which only root may ask.
pub(crate) fn table_of_kernel(system: &System, disk: &Disk) -> Option<Vec<Target>> {
    let control = system.dev.join("mapper/control");
    let control = File::options().read(true).write(true).open(control).ok()?;
    mapped_table(&control, disk.number).ok()
}

impl System {
    /// Rows of the table of `disk`. `None` if it is no mapped device, or the kernel does not tell.
    fn table(&self, disk: &Disk) -> Option<Vec<Target>> {
        disk.dir().join("dm").exists().then(|| (self.tables)(self, disk))?
    }

    /// The geometry of a mapped device: of stripes, or of an array below that all rows of its table
    /// show alike. The outer `None`: it is no mapped device.
    pub(crate) fn of_mapped(&self, disk: &Disk) -> Option<Option<Geometry>> {
        let table = self.table(disk)?;
        let mut shapes = table.iter().map(|target| self.shape(target));
        let first = shapes.next().flatten();
        let alike = shapes.all(|shape| shape == first);
        Some(first.filter(|_| alike).map(|(geometry, _)| geometry))
    }

    /// Whether a mapped device holds its bytes on more than one drive, or could compute them.
    pub(crate) fn is_mapped_to_copies(&self, disk: &Disk) -> bool {
        let table = self.table(disk).unwrap_or_default();
        table.iter().any(|target| match target.kind.as_str() {
            "mirror" => true,
            "raid" => !target.parameters.starts_with("raid0"),
            _ => false,
        })
    }

    fn shape(&self, target: &Target) -> Option<Shape> {
        let words: Vec<&str> = target.parameters.split_ascii_whitespace().collect();
        match target.kind.as_str() {
            "linear" => self.below_linear(target.start, &words),
            "striped" => self.of_stripes(target.start, &words),
            "raid" => of_raid(target.start, &words),
            _ => None,
        }
    }

    /// `linear DEVICE OFFSET`.
    fn below_linear(&self, start: u64, words: &[&str]) -> Option<Shape> {
        let [device, offset] = words else { return None };
        let number = DeviceNumber::parse(device)?;
        let array = self.geometry(&self.disk(number))?;
        Some((begun(array, offset.parse().ok()?, start)?, vec![number]))
    }

    /// `striped COLUMNS CHUNK (DEVICE OFFSET)...`.
    fn of_stripes(&self, start: u64, words: &[&str]) -> Option<Shape> {
        let [columns, chunk, devices @ ..] = words else { return None };
        let array = of_drives(Sectors(chunk.parse().ok()?), columns.parse().ok()?, (1, 0))?;
        let numbers = devices.chunks(2).map(|pair| DeviceNumber::parse(pair[0]));
        let numbers: Vec<DeviceNumber> = numbers.collect::<Option<_>>()?;
        if numbers.len() != usize::from(array.columns) || !self.are_drives(&numbers) {
            return None;
        }
        Some((begun(array, 0, start)?, numbers))
    }

    /// Whether each of these lies on a drive of its own, and none of them on an array.
    fn are_drives(&self, numbers: &[DeviceNumber]) -> bool {
        let drives = numbers.iter().map(|number| {
            let disk = self.disk(*number);
            let alone = self.geometry(&disk).is_none();
            alone.then(|| disk.whole_disk()).flatten().map(|whole| whole.number)
        });
        let Some(drives) = drives.collect::<Option<Vec<_>>>() else { return false };
        drives.iter().enumerate().all(|(index, drive)| !drives[..index].contains(drive))
    }
}

/// `raid LEVEL COUNT (PARAMETER)... DEVICES (METADATA DATA)...`; the first parameter is the chunk.
fn of_raid(start: u64, words: &[&str]) -> Option<Shape> {
    let [level, count, rest @ ..] = words else { return None };
    let (parameters, devices) = rest.split_at_checked(count.parse().ok()?)?;
    // Its shape is about to change.
    if parameters.contains(&"delta_disks") {
        return None;
    }
    let (drives, devices) = devices.split_first()?;
    let drives: u64 = drives.parse().ok()?;
    // A drive that is missing has no number.
    let numbers = devices.chunks(2).filter_map(|pair| DeviceNumber::parse(pair.get(1)?)).collect();
    let (copies, parity) = match level.get(..5)? {
        "raid1" if *level == "raid10" => (near_of(parameters)?, 0),
        "raid0" => (1, 0),
        "raid4" | "raid5" => (1, 1),
        "raid6" => (1, 2),
        _ => return None,
    };
    let chunk = Sectors(parameters.first()?.parse().ok()?);
    let array = of_drives(chunk, drives, (copies, parity))?;
    Some((begun(array, 0, start)?, numbers))
}

/// Number of drives with the same content in a RAID-10, if copies lie at the same place of
/// neighbouring drives.
fn near_of(parameters: &[&str]) -> Option<u64> {
    let named = |name: &str| {
        let at = parameters.iter().position(|word| *word == name)?;
        parameters.get(at + 1).copied()
    };
    let copies = named("raid10_copies").map_or(Some(2), |copies| copies.parse().ok())?;
    (named("raid10_format").unwrap_or("near") == "near").then_some(copies)
}

/// The geometry of a device whose sector `start` is the sector `offset` of the array.
fn begun(array: Geometry, offset: u64, start: u64) -> Option<Geometry> {
    let stripe = array.stripe().0;
    let back = stripe - start % stripe;
    behind(array, (offset % stripe + back).checked_mul(SECTOR)?)
}

#[cfg(test)]
mod tests {
    use crate::levels::tests::Machine;

    const MIB: u64 = 1 << 20;

    /// A machine with four disks, `8:0` to `8:48`, each with a partition.
    fn machine() -> Machine {
        let machine = Machine::new();
        for (index, name) in ["sda", "sdb", "sdc", "sdd"].iter().enumerate() {
            machine.disk(name, &format!("8:{}", 16 * index), 100 * MIB);
            let part = format!("{name}/{name}1");
            machine.partition(&part, &format!("8:{}", 16 * index + 1), MIB, 90 * MIB);
        }
        machine
    }

    /// Chunk in bytes, columns, copies, parity and first byte of a device with this table.
    fn found(machine: &Machine, table: &str) -> Option<(u64, u16, u16, u16, u64)> {
        let mapped = machine.mapped("dm-7", "253:7", 50 * MIB, table);
        let found = machine.system.geometry(&mapped)?;
        let (chunk, first) = (found.chunk.bytes(), found.first.bytes());
        Some((chunk, found.columns, found.copies, found.parity, first))
    }

    #[test]
    fn stripes_of_lvm_are_columns() {
        let table = "0 102400 striped 4 128 8:1 2048 8:17 2048 8:33 2048 8:49 2048";
        assert_eq!(found(&machine(), table), Some((65_536, 4, 1, 0, 0)));
    }

    #[test]
    fn stripes_that_go_on_elsewhere_go_on() {
        let more = |start: u64, devices: &str| {
            format!(
                "0 51200 striped 2 128 8:1 2048 8:17 2048\n{start} 51200 striped 2 128 {devices}"
            )
        };
        let after = [
            (51_200, "8:1 90000 8:17 90000", true),
            (51_200, "8:17 90000 8:1 90000", false),
            (51_200, "8:33 2048 8:49 2048", false),
            (51_208, "8:1 90000 8:17 90000", false),
        ];
        for (start, devices, goes_on) in after {
            let found = found(&machine(), &more(start, devices));
            assert_eq!(found.is_some(), goes_on, "{start} {devices}");
        }
    }

    #[test]
    fn stripes_on_one_drive_are_no_columns() {
        let machine = machine();
        machine.partition("sda/sda2", "8:2", 95 * MIB, 5 * MIB);
        assert_eq!(found(&machine, "0 1024 striped 2 128 8:1 0 8:2 0"), None);
        for table in [
            "0 1024 striped 2 128 8:1 0",
            "0 1024 striped 2 127 8:1 0 8:17 0",
            "0 1024 striped 2 0 8:1 0 8:17 0",
            "0 1024 striped 0 128",
            "0 1024 striped",
            "0 1024 zero ",
            "0 1024 crypt aes-xts-plain64 - 0 8:1 0",
        ] {
            let machine = super::tests::machine();
            assert_eq!(found(&machine, table), None, "{table}");
        }
    }

    #[test]
    fn a_mapped_device_shows_the_array_below() {
        let with_md = |table: &str| {
            let machine = machine();
            machine.md("md0", "9:0", ("raid5", "2"), &[102_400; 5]);
            found(&machine, table)
        };
        // Whole stripes have 512 sectors.
        assert_eq!(with_md("0 1024 linear 9:0 2048"), Some((65_536, 4, 1, 1, 0)));
        assert_eq!(with_md("0 1024 linear 9:0 2056"), Some((65_536, 4, 1, 1, 4096)));
        assert_eq!(with_md("0 1024 linear 9:0 2049"), None, "no 4 KiB begin there");
        let two = |offset: u64| format!("0 1024 linear 9:0 2048\n1024 512 linear 9:0 {offset}");
        assert_eq!(with_md(&two(9216)), Some((65_536, 4, 1, 1, 0)));
        assert_eq!(with_md(&two(9224)), None, "stripes would break there");
        assert_eq!(with_md("0 1024 linear 9:0 2048\n1024 512 linear 8:1 2048"), None);
        assert_eq!(with_md("0 1024 linear 8:1 2048"), None, "a drive");
    }

    #[test]
    fn raids_of_lvm_have_the_shape_of_those_of_md() {
        let with = |level: &str, parameters: &str| {
            let count = parameters.split(' ').count();
            let devices = "4 8:0 8:1 8:16 8:17 8:32 8:33 8:48 8:49";
            found(&machine(), &format!("0 1024 raid {level} {count} {parameters} {devices}"))
        };
        assert_eq!(with("raid0", "128"), Some((65_536, 4, 1, 0, 0)));
        assert_eq!(with("raid0_meta", "128"), Some((65_536, 4, 1, 0, 0)));
        assert_eq!(with("raid5_ls", "128 region_size 1024"), Some((65_536, 3, 1, 1, 0)));
        let degraded = "0 1024 raid raid5_ls 1 128 4 8:0 8:1 8:16 8:17 - - 8:48 8:49";
        assert_eq!(found(&machine(), degraded), Some((65_536, 3, 1, 1, 0)));
        assert_eq!(with("raid6_zr", "1024"), Some((524_288, 2, 1, 2, 0)));
        assert_eq!(with("raid10", "128"), Some((65_536, 2, 2, 0, 0)));
        let far = "128 raid10_format far raid10_copies 2";
        assert_eq!(with("raid10", far), None);
        assert_eq!(with("raid10", "128 raid10_copies 4"), None, "one column");
        assert_eq!(with("raid1", "128"), None);
        assert_eq!(with("raid5_ls", "128 delta_disks 1"), None);
    }

    #[test]
    fn mapped_devices_with_copies_say_so() {
        let has_copies = |table: &str| {
            let machine = machine();
            let below = machine.mapped("dm-6", "253:6", 50 * MIB, table);
            let above = machine.mapped("dm-7", "253:7", 50 * MIB, "0 1024 linear 253:6 0");
            std::os::unix::fs::symlink(below.dir(), above.dir().join("slaves/dm-6")).unwrap();
            assert_eq!(machine.system.has_copies(&below), machine.system.has_copies(&above));
            machine.system.has_copies(&below)
        };
        assert!(has_copies("0 1024 raid raid5_ls 1 128 3 - 8:1 - 8:17 - 8:33"));
        assert!(has_copies("0 1024 raid raid1 1 128 2 - 8:1 - 8:17"));
        assert!(has_copies("0 1024 mirror core 1 1024 2 8:1 0 8:17 0"));
        assert!(!has_copies("0 1024 raid raid0 1 128 2 - 8:1 - 8:17"));
        assert!(!has_copies("0 1024 striped 2 128 8:1 0 8:17 0"));
    }
}
