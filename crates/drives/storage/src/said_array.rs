//! Arrays that a user says a device is: a controller's array looks like one disk to Linux.

use std::path::Path;

use manylogs_block::{Geometry, Sectors};

use crate::arrays::behind;
use crate::levels::Step;
use crate::loops::Object;
use crate::sysfs::{Disk, SECTOR, System};

/// Controllers have no shorter chunks: 16 KiB. Single drives show shorter lengths, too.
const CHUNK_LEAST: Sectors = Sectors(32);

/// What the kernel says of a device that is an array by its user's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaidArray {
    /// It knows of no array. The device deals its addresses out so: a partition may begin within a
    /// stripe.
    Possible(Geometry),
    /// The device is on an array of this shape.
    Known(Geometry),
    /// The device is on drives that are joined in another way.
    Joined(String),
    /// The device does not begin at 4 KiB of the array, so that its blocks lie on two drives.
    Askew,
}

/// Compares the kernel's word with that of a user who says that the whole disk below `path` is
/// `array`. A file counts as such a disk.
#[must_use]
pub fn said_array(path: &Path, array: Geometry) -> SaidArray {
    match Object::at(path) {
        Some(Object::Disk(number)) => {
            let system = System::this();
            system.said_array(&system.disk(number), array)
        }
        Some(Object::File(_)) | None => SaidArray::Possible(array),
    }
}

/// The length of requests that the disk at `path` says is best (`optimal_io_size`), and the least
/// that is good (`minimum_io_size`). A controller's array shows its stripe and its chunk there.
/// `None` if the disk says none, or is no disk.
#[must_use]
pub fn optimal_io(path: &Path) -> Option<(Sectors, Sectors)> {
    let Some(Object::Disk(number)) = Object::at(path) else { return None };
    optimal_of(&System::this().disk(number))
}

/// The array that the disk at `path` may be by the lengths that it shows ([`optimal_io`]): RAID-5
/// whose stripe and chunk these are. The level is a guess, because a disk does not show it. `None`
/// if the lengths are no array's, or if [`said_array`] says that it is impossible.
#[must_use]
pub fn guessed_array(path: &Path) -> Option<Geometry> {
    let Some(Object::Disk(number)) = Object::at(path) else { return None };
    let system = System::this();
    system.guessed_array(&system.disk(number))
}

fn optimal_of(disk: &Disk) -> Option<(Sectors, Sectors)> {
    let limit = |name: &str| Sectors(disk.limit(name) / SECTOR);
    let (optimal, least) = (limit("optimal_io_size"), limit("minimum_io_size"));
    (optimal > Sectors(0)).then_some((optimal, least))
}

impl System {
    fn guessed_array(&self, disk: &Disk) -> Option<Geometry> {
        let (optimal, chunk) = optimal_of(disk).filter(|(_, least)| *least >= CHUNK_LEAST)?;
        let columns = u16::try_from(optimal.0 / chunk.0).ok().filter(|columns| *columns > 1)?;
        let guess = Geometry { chunk, columns, copies: 1, parity: 1, first: Sectors(0) };
        if guess.stripe() != optimal || guess.check().is_err() {
            return None;
        }
        matches!(self.said_array(disk, guess), SaidArray::Possible(_)).then_some(guess)
    }

    fn said_array(&self, disk: &Disk, array: Geometry) -> SaidArray {
        if let Some(known) = self.geometry(disk) {
            return SaidArray::Known(known);
        }
        if let Some(level) = disk.attribute("md/level") {
            return SaidArray::Joined(format!("{level} of md"));
        }
        let Some(below) = self.below(disk, disk.bytes()).into_iter().next() else {
            return SaidArray::Possible(array);
        };
        let on_array = match below.object {
            _ if below.step == Step::Member => {
                return SaidArray::Joined("a mapped device".to_owned());
            }
            Some(Object::Disk(number)) => self.said_array(&self.disk(number), array),
            Some(Object::File(_)) | None => SaidArray::Possible(array),
        };
        match on_array {
            SaidArray::Possible(array) => {
                behind(array, below.bytes.start).map_or(SaidArray::Askew, SaidArray::Possible)
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::levels::tests::Machine;

    const MIB: u64 = 1 << 20;
    const SAID: Geometry =
        Geometry { chunk: Sectors(128), columns: 3, copies: 1, parity: 1, first: Sectors(0) };

    #[test]
    fn a_disk_may_be_an_array_and_a_partition_of_it_begins_within_a_stripe() {
        let machine = Machine::new();
        let disk = machine.disk("sda", "8:0", 1000 * MIB);
        assert_eq!(machine.system.said_array(&disk, SAID), SaidArray::Possible(SAID));
        let part = machine.partition("sda/sda1", "8:1", MIB, 100 * MIB);
        let first = Sectors(2048 % (3 * 128));
        let found = machine.system.said_array(&part, SAID);
        assert_eq!(found, SaidArray::Possible(Geometry { first, ..SAID }));
        let part = machine.partition("sda/sda2", "8:2", 200 * MIB + 512, 100 * MIB);
        assert_eq!(machine.system.said_array(&part, SAID), SaidArray::Askew);
    }

    #[test]
    fn what_the_kernel_knows_counts() {
        let machine = Machine::new();
        let disk = machine.md("md0", "9:0", ("raid0", "0"), &[102_400; 4]);
        let known = machine.system.geometry(&disk).unwrap();
        assert_eq!(machine.system.said_array(&disk, SAID), SaidArray::Known(known));
        let disk = machine.md("md1", "9:1", ("raid1", "0"), &[102_400; 2]);
        let joined = machine.system.said_array(&disk, SAID);
        assert_eq!(joined, SaidArray::Joined("raid1 of md".to_owned()));
    }

    #[test]
    fn a_controller_shows_its_stripe_as_the_best_length() {
        let machine = Machine::new();
        let disk = machine.disk("sda", "8:0", 1000 * MIB);
        assert_eq!(optimal_of(&disk), None);
        assert_eq!(machine.system.guessed_array(&disk), None);
        shows(&disk, 196_608, 65_536);
        assert_eq!(optimal_of(&disk), Some((Sectors(384), Sectors(128))));
        assert_eq!(machine.system.guessed_array(&disk), Some(SAID));
        for (optimal, least) in [(65_536, 65_536), (196_608, 4096), (200_704, 65_536), (65_536, 0)]
        {
            shows(&disk, optimal, least);
            assert_eq!(machine.system.guessed_array(&disk), None, "{optimal} {least}");
        }
    }

    #[test]
    fn no_array_is_guessed_where_the_kernel_knows_better() {
        let machine = Machine::new();
        for (name, number, level) in [("md0", "9:0", "raid0"), ("md1", "9:1", "raid1")] {
            let disk = machine.md(name, number, (level, "0"), &[102_400; 4]);
            shows(&disk, 196_608, 65_536);
            assert!(optimal_of(&disk).is_some());
            assert_eq!(machine.system.guessed_array(&disk), None, "{level}");
        }
    }

    fn shows(disk: &Disk, optimal: u64, least: u64) {
        let queue = disk.dir().join("queue");
        fs::create_dir_all(&queue).unwrap();
        fs::write(queue.join("optimal_io_size"), format!("{optimal}\n")).unwrap();
        fs::write(queue.join("minimum_io_size"), format!("{least}\n")).unwrap();
    }
}
