//! The time to bring home what is logged. It is estimated by the measured time of checkpoints, or
//! by a few reads, or else by values that are usual for such devices.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, IoError, Lba, Nanos, Request, Sectors,
    all_done,
};

/// A smaller gap between home writes does not end a run, because the drive passes over it.
const NEAR: Sectors = Sectors(256);
/// Least cost of a read from a log and a write home: commands, and work of the processor.
const WRITE: Nanos = Nanos::from_micros(150);
/// A pass ends with a flush and some writes of roots, which take as long as this many runs ...
const RUNS_OF_A_PASS: u64 = 8;
/// ... and a drain ends with this many more.
const RUNS_OF_A_DRAIN: u64 = 12;
/// Weight of all earlier passes, compared with the last pass.
const BEFORE: f64 = 0.5;
/// Number of reads that measure the pace of a device, and length of each.
const READS: usize = 64;
const READ: Sectors = Sectors(8);
/// If there are fewer reads, the missing ones are assumed to take the usual time.
const READS_LEAST: u64 = 8;
/// A copy home takes longer than a read by this fraction (a divisor): the log is read first, and
/// writes need settling.
const MORE_FOR_A_COPY: u64 = 4;
/// Long reads that measure the transfer rate of the device.
const LONG_READS: u64 = 4;
const LONG_READ: Sectors = Sectors(2048);

/// Work to bring versions home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HomeWork {
    /// Number of runs of neighbours.
    runs: u64,
    /// Number of writes: extents that follow each other without a gap count as one.
    writes: u64,
    /// Bytes to read from the logs and to write home.
    bytes: u64,
}

impl HomeWork {
    /// The work for `mapped`: extents by address, and whether each is zeroes. Zeroes cost no
    /// transfer on a device that zeroes fast.
    pub(crate) fn of(mapped: impl Iterator<Item = (Extent, bool)>, below: &Capabilities) -> Self {
        let (mut work, mut end) = (Self::default(), Lba(0));
        for (extent, zeroes) in mapped {
            work.runs += u64::from(work.runs == 0 || extent.start.0 > end.0 + NEAR.0);
            work.writes += u64::from(work.writes == 0 || extent.start != end);
            end = extent.end();
            work.bytes += match zeroes {
                true if below.fast_zero || below.discard => 0,
                true => extent.len.bytes(),
                // Read from the logs and written home.
                false => 2 * extent.len.bytes(),
            };
        }
        work
    }

    /// The work for `all` extents, estimated from this, the work for `some` of them.
    pub(crate) fn scaled(self, all: u64, some: u64) -> Self {
        let of = |part: u64| {
            let scaled = u128::from(part) * u128::from(all) / u128::from(some.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self { runs: of(self.runs), writes: of(self.writes), bytes: of(self.bytes) }
    }

    /// The work of a drain whose passes do this work.
    pub(crate) const fn of_drain(self) -> Self {
        let runs = if self.runs == 0 { 0 } else { self.runs + RUNS_OF_A_DRAIN };
        Self { runs, ..self }
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            writes: self.writes + other.writes,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Pace at which a device takes home writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HomePace {
    /// Time for a run of neighbours.
    run: Nanos,
    bytes_per_s: f64,
}

impl HomePace {
    /// A disk with heads: time of a write at a random place, and bytes a second of long ones.
    const DISK: Self = Self { run: Nanos::from_millis(8), bytes_per_s: 100e6 };
    /// Any other device.
    const SOLID: Self = Self { run: Nanos::from_micros(100), bytes_per_s: 1e9 };

    /// The pace of a disk that takes `step` from one access to the next in a sweep over all of it.
    #[must_use]
    pub fn of_disk(step: Nanos, bytes_per_s: f64) -> Self {
        Self { run: Nanos(step.0 + step.0 / MORE_FOR_A_COPY), bytes_per_s }
    }

    /// The usual pace of devices of this kind.
    pub(crate) const fn assumed(below: &Capabilities) -> Self {
        if below.rotational { Self::DISK } else { Self::SOLID }
    }

    /// The time for `work`; zero if there is none.
    pub(crate) fn time_of(&self, work: HomeWork) -> Nanos {
        if work == HomeWork::default() {
            return Nanos(0);
        }
        let transfer = Nanos::from_secs_f64(work.bytes as f64 / self.bytes_per_s);
        let runs = (work.runs + RUNS_OF_A_PASS).saturating_mul(self.run.0);
        let writes = work.writes.saturating_mul(WRITE.0);
        Nanos(transfer.0.saturating_add(runs).saturating_add(writes))
    }
}

/// Measured times of passes, beside the times assumed for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassesSeen {
    assumed_s: f64,
    took_s: f64,
}

impl PassesSeen {
    /// Notes that a pass took `took` for `work`, without the time that it waited for others.
    pub(crate) fn note(&mut self, pace: HomePace, work: HomeWork, took: Nanos) {
        if work == HomeWork::default() {
            return;
        }
        self.assumed_s = BEFORE * self.assumed_s + pace.time_of(work).as_secs_f64();
        self.took_s = BEFORE * self.took_s + took.as_secs_f64();
    }

    /// Ratio of measured and assumed times; `None` if no pass was measured.
    pub(crate) fn factor(&self) -> Option<f64> {
        (self.assumed_s > 0.0 && self.took_s > 0.0).then(|| self.took_s / self.assumed_s)
    }
}

/// Measures the pace of `device` for home writes to `homes`, which are in order of address. It
/// reads some of them that follow each other, because the drive orders reads as it does writes.
/// Takes half a second at most on a disk. `None` if there are no homes.
///
/// # Errors
/// If the device fails.
pub async fn measure_homes(
    runtime: &Handle,
    device: &Rc<dyn BlockDevice>,
    homes: &[Extent],
) -> Result<Option<HomePace>, IoError> {
    let first = homes.len().saturating_sub(READS) / 2;
    let mut runs: Vec<Extent> = Vec::new();
    for home in &homes[first..] {
        let is_run = runs.last().is_none_or(|last| home.start.0 > last.end().0 + NEAR.0);
        if is_run && runs.len() < READS {
            runs.push(Extent { start: home.start, len: home.len.min(READ) });
        }
    }
    if runs.is_empty() {
        return Ok(None);
    }
    let count = runs.len() as u64;
    let all = read_together(runtime, device, runs).await?;
    let below = device.capabilities();
    let assumed = HomePace::assumed(&below);
    let missing = READS_LEAST.saturating_sub(count);
    let read = (all.0 + missing * assumed.run.0) / (count + missing);
    let run = Nanos(read + read / MORE_FOR_A_COPY);
    let middle = below.capacity.0 / 2 / LONG_READ.0 * LONG_READ.0;
    let pieces = (0..LONG_READS).map(|i| Extent::new(middle + i * LONG_READ.0, LONG_READ.0));
    let pieces: Vec<Extent> = pieces.filter(|it| it.end().0 <= below.capacity.0).collect();
    let bytes: u64 = pieces.iter().map(|piece| piece.len.bytes()).sum();
    let took = read_together(runtime, device, pieces).await?;
    let is_known = bytes > 0 && took > Nanos(0);
    let bytes_per_s =
        if is_known { bytes as f64 / took.as_secs_f64() } else { assumed.bytes_per_s };
    Ok(Some(HomePace { run, bytes_per_s }))
}

/// Reads the extents together and returns the time that it took.
async fn read_together(
    runtime: &Handle,
    device: &Rc<dyn BlockDevice>,
    extents: Vec<Extent>,
) -> Result<Nanos, IoError> {
    let began = runtime.now();
    let reads: Vec<Completion> =
        extents.into_iter().map(|extent| device.submit(Request::Read { extent })).collect();
    all_done(reads).await?;
    Ok(runtime.now().since(began))
}
