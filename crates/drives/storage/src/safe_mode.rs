//! What md writes by itself between the writes of its user.
//!
//! md marks an array with copies or parity clean when nothing was written for a moment
//! (`md/safe_mode_delay`, 0.2 s unless somebody changed it), and dirty again before the next write.
//! Either is a write to the beginning of each member and a flush, and the next write waits for the
//! second. So small durable writes that come slower than that cost each member the seek that a log
//! near the head saves. While a device on such arrays is open to be written the delay is
//! [`DELAY_S`]. The price: if the machine fails in that time, md brings its members in step.
//!
//! An array with a bitmap writes there, too, before the first write into a part of each member that
//! was quiet for some seconds: see [`small_bitmap_chunks`].

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::arrays::is_redundant;
use crate::loops::Object;
use crate::sysfs::{Disk, System};

/// The delay while a device is open to be written, as sysfs prints it, in seconds. It is no round
/// number, so that it is known again if a server was killed.
const DELAY_S: &str = "10.100";
/// What the kernel sets when it puts an array together.
const DEFAULT_S: &str = "0.200";
/// The least bitmap chunk with which md's writes of its bitmap do not count: a stream needs some
/// seconds to pass it.
const CHUNK_LEAST: u64 = 1 << 30;

/// The longer delays of the arrays below a device. Dropping it puts the former ones back.
///
/// An array's file of the delay is locked meanwhile, shared with other servers on the same array.
/// The last of them puts the delay back. If a server was killed, the delay stays until the next one
/// ends, which sets the kernel's default.
#[derive(Debug)]
pub(crate) struct LongDelays {
    _held: Vec<LongDelay>,
}

#[derive(Debug)]
struct LongDelay {
    file: File,
    before: String,
}

impl LongDelays {
    /// Sets the delays of the arrays that `disk` is, or lies on, at any depth. An array whose delay
    /// may not be changed (the user is not root, or sysfs is read-only), is longer already or is
    /// off keeps it.
    pub(crate) fn of(system: &System, disk: &Disk) -> Self {
        let file = |array: &Disk| {
            let path = array.dir().join("md/safe_mode_delay");
            File::options().read(true).write(true).open(path).ok()
        };
        let files = system.arrays_of(disk).filter_map(|array| file(&array));
        Self { _held: files.filter_map(|file| LongDelay::set(file).ok().flatten()).collect() }
    }
}

impl LongDelay {
    fn set(mut file: File) -> io::Result<Option<Self>> {
        // Whoever sets the delay or puts it back is alone.
        let is_alone = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let now = read(&mut file)?;
        let before = if now == DELAY_S {
            DEFAULT_S.to_owned()
        } else if is_alone && is_shorter(&now) {
            write(&mut file, DELAY_S)?;
            now
        } else {
            return Ok(None);
        };
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Some(Self { file, before }))
    }

    fn put_back(&mut self) -> io::Result<()> {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive)?;
        if read(&mut self.file)? == DELAY_S {
            write(&mut self.file, &self.before)?;
        }
        Ok(())
    }
}

impl Drop for LongDelay {
    fn drop(&mut self) {
        // The array may be gone. If another server holds the lock, the delay stays for it.
        let _ = self.put_back();
    }
}

/// Whether the delay is on and shorter than ours.
fn is_shorter(delay_s: &str) -> bool {
    let ours = DELAY_S.parse::<f64>().unwrap_or_default();
    delay_s.parse::<f64>().is_ok_and(|delay_s| delay_s > 0.0 && delay_s < ours)
}

fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn write(file: &mut File, delay_s: &str) -> io::Result<()> {
    file.rewind()?;
    // An attribute of sysfs takes one write.
    file.write_all(format!("{delay_s}\n").as_bytes())
}

/// A bitmap of an array that is written often, because its chunks are small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallBitmapChunk {
    /// The kernel's name of the array, such as `md0`.
    pub array: String,
    /// Length of a chunk: bytes of each member that one bit stands for.
    pub chunk_bytes: u64,
}

impl SmallBitmapChunk {
    /// What it costs, and what to do.
    #[must_use]
    pub fn advice(&self) -> String {
        let (array, mib) = (&self.array, self.chunk_bytes >> 20);
        format!(
            "{array} has a bitmap with chunks of {mib} MiB: each one that was quiet costs a seek \
             of every member at the next write. Fewer by a chunk of 1 GiB: mdadm --grow \
             --bitmap=none /dev/{array}, then mdadm --grow --bitmap=internal --bitmap-chunk=1G \
             /dev/{array}; after a power cut md then brings whole gibibytes in step"
        )
    }
}

/// The bitmaps with small chunks of the arrays that the disk at `path` is, or lies on.
#[must_use]
pub fn small_bitmap_chunks(path: &Path) -> Vec<SmallBitmapChunk> {
    let Some(Object::Disk(number)) = Object::at(path) else { return Vec::new() };
    let system = System::this();
    system.small_bitmap_chunks(&system.disk(number))
}

impl System {
    fn small_bitmap_chunks(&self, disk: &Disk) -> Vec<SmallBitmapChunk> {
        let small = |array: &Disk| {
            let place = array.attribute("md/bitmap/location")?;
            let chunk_bytes: u64 = array.attribute("md/bitmap/chunksize")?.parse().ok()?;
            let is_small = place != "none" && chunk_bytes < CHUNK_LEAST;
            is_small.then(|| SmallBitmapChunk { array: array.name(), chunk_bytes })
        };
        self.arrays_of(disk).filter_map(|array| small(&array)).collect()
    }

    /// The arrays of md's with copies or parity that `disk` is, or lies on, at any depth.
    fn arrays_of(&self, disk: &Disk) -> impl Iterator<Item = Disk> {
        self.with_below(disk).filter(is_redundant)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;
    use crate::levels::tests::Machine;

    /// An array whose delay has this value, and a partition of it.
    fn array(machine: &Machine, level: &str, delay: &str) -> (Disk, Disk) {
        let array = machine.md("md0", "9:0", (level, "2"), &[1 << 20; 4]);
        fs::write(array.dir().join("md/safe_mode_delay"), delay).unwrap();
        let partition = machine.partition("md0/md0p1", "259:1", 1 << 20, 1 << 26);
        (array, partition)
    }

    fn delay(array: &Disk) -> String {
        array.attribute("md/safe_mode_delay").unwrap()
    }

    #[test]
    fn the_delay_is_longer_while_a_device_is_open_and_as_before_afterwards() {
        let machine = Machine::new();
        let (array, partition) = array(&machine, "raid5", "0.304\n");
        let held = LongDelays::of(&machine.system, &partition);
        assert_eq!(delay(&array), DELAY_S);
        // A second server on the same array; the first ends before it.
        let second = LongDelays::of(&machine.system, &array);
        drop(held);
        assert_eq!(delay(&array), DELAY_S, "the second one needs it");
        drop(second);
        assert_eq!(delay(&array), DEFAULT_S, "only the first one knew what it was");
        fs::write(array.dir().join("md/safe_mode_delay"), "0.304\n").unwrap();
        drop(LongDelays::of(&machine.system, &array));
        assert_eq!(delay(&array), "0.304");
    }

    #[test]
    fn what_a_killed_server_left_is_put_back_by_the_next_one() {
        let machine = Machine::new();
        let (array, _) = array(&machine, "raid1", &format!("{DELAY_S}\n"));
        let held = LongDelays::of(&machine.system, &array);
        assert_eq!(delay(&array), DELAY_S);
        drop(held);
        assert_eq!(delay(&array), DEFAULT_S);
    }

    #[test]
    fn other_delays_stay() {
        for (level, found) in [("raid10", "0"), ("raid6", "30.000"), ("raid0", "0.200")] {
            let machine = Machine::new();
            let (array, _) = array(&machine, level, found);
            let held = LongDelays::of(&machine.system, &array);
            assert_eq!(delay(&array), found, "{level}");
            drop(held);
            assert_eq!(delay(&array), found, "{level}");
        }
        let machine = Machine::new();
        let (array, _) = array(&machine, "raid10", "0.204\n");
        let held = LongDelays::of(&machine.system, &array);
        fs::write(array.dir().join("md/safe_mode_delay"), "3.000\n").unwrap();
        drop(held);
        assert_eq!(delay(&array), "3.000", "somebody changed it meanwhile");
    }

    #[test]
    fn bitmaps_with_small_chunks_are_named() {
        let machine = Machine::new();
        let (array, partition) = array(&machine, "raid10", "0.204\n");
        assert_eq!(machine.system.small_bitmap_chunks(&partition), []);
        let bitmap = array.dir().join("md/bitmap");
        fs::create_dir(&bitmap).unwrap();
        for (place, chunk, is_small) in
            [("+8", 1u64 << 26, true), ("none", 1 << 26, false), ("+8", 1 << 30, false)]
        {
            fs::write(bitmap.join("location"), place).unwrap();
            fs::write(bitmap.join("chunksize"), chunk.to_string()).unwrap();
            let found = machine.system.small_bitmap_chunks(&partition);
            assert_eq!(found.len(), usize::from(is_small), "{place} {chunk}");
        }
        let found = SmallBitmapChunk { array: "md0".to_owned(), chunk_bytes: 1 << 26 };
        assert!(found.advice().contains("chunks of 64 MiB") && found.advice().contains("/dev/md0"));
    }
}
