//! How busy a disk is, whoever sends it requests: the kernel counts them.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use manylogs_block::{Handle, Nanos, Time};
use manylogs_everest::{DiskLoad, Load, Meter};

use crate::lies_on::{device_name, disks_below};

/// The counters are read so often at most.
const EVERY: Nanos = Nanos::from_millis(5);
/// Answers of a disk after which its mean time between two is taken anew. The kernel counts busy
/// time in milliseconds, some of them at a time.
const ANSWERS: u64 = 32;
/// Longest line of counters, in bytes.
const LINE_MAX: usize = 512;

/// The load of the disks below a lent part, by the kernel's counters (`/sys/dev/block/*/stat`,
/// Documentation/block/stat.rst): that of the busiest. Where there are none, as below a network's
/// file system, only what passes the store's meter is known.
pub(super) struct KernelLoad {
    runtime: Handle,
    meter: Meter,
    disks: RefCell<Vec<Disk>>,
    read_at: Cell<Option<Time>>,
    /// Requests in flight at the busiest disk, and its mean time between two answers.
    seen: Cell<(u64, Nanos)>,
}

/// A disk's counters.
struct Disk {
    file: File,
    /// When the mean was taken.
    from: Counters,
    in_flight: u64,
    each: Nanos,
}

/// What the kernel has counted of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    answered: u64,
    in_flight: u64,
    busy_ms: u64,
}

impl KernelLoad {
    /// The load of the disks below `path`.
    pub(super) fn of(runtime: Handle, path: &Path, meter: Meter) -> Self {
        let disks = disks_below(path).into_iter().filter_map(Disk::open).collect();
        let (read_at, seen) = (Cell::default(), Cell::default());
        Self { runtime, meter, disks: RefCell::new(disks), read_at, seen }
    }

    /// Reads the counters, if that was not done just now.
    fn look(&self) -> (u64, Nanos) {
        let now = self.runtime.now();
        if self.read_at.get().is_none_or(|last| now.since(last) >= EVERY) {
            self.read_at.set(Some(now));
            let mut disks = self.disks.borrow_mut();
            disks.iter_mut().for_each(Disk::read);
            let busiest = disks.iter().map(|disk| (disk.in_flight, disk.each));
            self.seen.set(busiest.max_by_key(|(count, each)| count * each.0).unwrap_or_default());
        }
        self.seen.get()
    }
}

impl DiskLoad for KernelLoad {
    fn load(&self) -> Load {
        let ((in_flight, each), own) = (self.look(), self.meter.load());
        let wait = Nanos(in_flight.saturating_mul(each.0)).max(own.wait);
        Load { in_flight: in_flight.max(own.in_flight), wait }
    }
}

impl Disk {
    /// The disk with this number, if the kernel counts its requests.
    fn open(number: u64) -> Option<Self> {
        let file = File::open(format!("/sys/dev/block/{}/stat", device_name(number))).ok()?;
        let from = counters(&file)?;
        Some(Self { file, from, in_flight: from.in_flight, each: Nanos(0) })
    }

    fn read(&mut self) {
        // A disk that was taken away is not busy.
        let now = counters(&self.file).unwrap_or_default();
        self.in_flight = now.in_flight;
        let answered = now.answered.saturating_sub(self.from.answered);
        if answered >= ANSWERS {
            let busy = Nanos::from_millis(now.busy_ms.saturating_sub(self.from.busy_ms));
            self.each = Nanos(busy.0 / answered);
            self.from = now;
        }
    }
}

fn counters(file: &File) -> Option<Counters> {
    let mut line = [0; LINE_MAX];
    let len = file.read_at(&mut line, 0).ok()?;
    Counters::of(std::str::from_utf8(line.get(..len)?).ok()?)
}

impl Counters {
    /// Reads, writes, discards and flushes that were answered, from the fields of a line.
    fn of(line: &str) -> Option<Self> {
        let fields: Option<Vec<u64>> =
            line.split_ascii_whitespace().map(|field| field.parse().ok()).collect();
        let fields = fields?;
        let of = |field: usize| fields.get(field).copied();
        // Kernels before 4.18 count no discards, and those before 5.5 no flushes.
        let answered = of(0)? + of(4)? + of(11).unwrap_or(0) + of(15).unwrap_or(0);
        Some(Self { answered, in_flight: of(8)?, busy_ms: of(9)? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_kernels_line_of_counters_is_understood() {
        let new = "  100 5 2000 300 50 9 800 70 3 250 400 7 0 56 2 4 11\n";
        let found = Counters::of(new).unwrap();
        assert_eq!(found, Counters { answered: 161, in_flight: 3, busy_ms: 250 });
        let old = "100 5 2000 300 50 9 800 70 3 250 400";
        assert_eq!(Counters::of(old).unwrap().answered, 150);
        assert_eq!(Counters::of("100 5 2000"), None);
        assert_eq!(Counters::of("100 5 x"), None);
    }

    #[test]
    fn the_mean_is_taken_from_enough_answers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stat");
        let write = |answered: u64, in_flight: u64, busy_ms: u64| {
            let line = format!("{answered} 0 0 0 0 0 0 0 {in_flight} {busy_ms} 0\n");
            std::fs::write(&path, line).unwrap();
        };
        write(1000, 0, 500);
        let file = File::open(&path).unwrap();
        let from = counters(&file).unwrap();
        let mut disk = Disk { file, from, in_flight: 0, each: Nanos(0) };
        write(1000 + ANSWERS / 2, 7, 9000);
        disk.read();
        assert_eq!((disk.in_flight, disk.each), (7, Nanos(0)), "too few for a mean");
        write(1000 + ANSWERS, 8, 500 + 4 * ANSWERS);
        disk.read();
        assert_eq!((disk.in_flight, disk.each), (8, Nanos::from_millis(4)));
    }
}
