//! How long it takes to bring home what is logged: by what passes over the table were seen to take,
//! or by a few reads, and else by what devices of the kind take.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, IoError, Lba, Nanos, Request, Sectors,
    all_done,
};

/// Home writes closer than this count as one: the drive passes over the gap.
const NEAR: Sectors = Sectors(256);
/// What a read from a log and a write home cost in any case: commands, and work of the processor.
const WRITE: Nanos = Nanos::from_micros(150);
/// A pass ends with a flush and some writes of roots, which take as long as so many runs ...
const RUNS_OF_A_PASS: u64 = 8;
/// ... and a drain ends with so many more.
const RUNS_OF_A_DRAIN: u64 = 12;
/// Weight of what was seen before a pass, beside the pass.
const BEFORE: f64 = 0.5;
/// Reads that tell the pace of a device, and how much each reads.
const READS: usize = 64;
const READ: Sectors = Sectors(8);
/// Fewer reads than these tell little: the others are assumed to take what is usual.
const READS_LEAST: u64 = 8;
/// A copy home takes so much of a read more: it is read in a log before, and writes settle.
const MORE_FOR_A_COPY: u64 = 4;
/// A long read that tells how fast the device transfers.
const LONG_READS: u64 = 4;
const LONG_READ: Sectors = Sectors(2048);

/// What is to go home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HomeWork {
    /// Runs of neighbours.
    runs: u64,
    /// Writes: extents that do not follow each other without a gap.
    writes: u64,
    /// Bytes that are read from the logs, and written home.
    bytes: u64,
}

impl HomeWork {
    /// The work that is to be done for `mapped`, the extents by address and whether each is zeroes.
    /// Zeroes cost no transfer on a device that zeroes fast, and nothing where the device turns out
    /// to read zeroes.
    pub(crate) fn of(mapped: impl Iterator<Item = (Extent, bool)>, below: &Capabilities) -> Self {
        let (mut work, mut end) = (Self::default(), Lba(0));
        for (extent, zeroes) in mapped {
            work.runs += u64::from(work.runs == 0 || extent.start.0 > end.0 + NEAR.0);
            work.writes += u64::from(work.writes == 0 || extent.start != end);
            end = extent.end();
            work.bytes += match zeroes {
                true if below.fast_zero || below.discard => 0,
                true => extent.len.bytes(),
                // Read from the logs, written home.
                false => 2 * extent.len.bytes(),
            };
        }
        work
    }

    /// The work for `all` extents, of which `some` are this.
    pub(crate) fn scaled(self, all: u64, some: u64) -> Self {
        let of = |part: u64| {
            let scaled = u128::from(part) * u128::from(all) / u128::from(some.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self { runs: of(self.runs), writes: of(self.writes), bytes: of(self.bytes) }
    }

    /// The work of a drain, whose passes do this.
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

/// How fast a device takes what goes home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HomePace {
    /// For a run of neighbours.
    run: Nanos,
    bytes_per_s: f64,
}

impl HomePace {
    /// A disk with heads: what it takes for a write at a random place, and bytes a second of long
    /// ones.
    const DISK: Self = Self { run: Nanos::from_millis(8), bytes_per_s: 100e6 };
    /// Any other device.
    const SOLID: Self = Self { run: Nanos::from_micros(100), bytes_per_s: 1e9 };

    /// That of a disk that takes so long from one access to the next in a sweep over all of it, and
    /// transfers so fast.
    #[must_use]
    pub fn of_disk(step: Nanos, bytes_per_s: f64) -> Self {
        Self { run: Nanos(step.0 + step.0 / MORE_FOR_A_COPY), bytes_per_s }
    }

    /// The pace of devices of this kind.
    pub(crate) const fn assumed(below: &Capabilities) -> Self {
        if below.rotational { Self::DISK } else { Self::SOLID }
    }

    /// The time for `work`; none if there is nothing to do.
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

/// What passes were seen to take, beside what was assumed for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassesSeen {
    assumed_s: f64,
    took_s: f64,
}

impl PassesSeen {
    /// A pass took so long for `work`, what it waited for others not counted.
    pub(crate) fn note(&mut self, pace: HomePace, work: HomeWork, took: Nanos) {
        if work == HomeWork::default() {
            return;
        }
        self.assumed_s = BEFORE * self.assumed_s + pace.time_of(work).as_secs_f64();
        self.took_s = BEFORE * self.took_s + took.as_secs_f64();
    }

    /// How many times as long as assumed passes took; `None` if there was none.
    pub(crate) fn factor(&self) -> Option<f64> {
        (self.assumed_s > 0.0 && self.took_s > 0.0).then(|| self.took_s / self.assumed_s)
    }
}

/// The pace of `device` for what goes home to `homes`, in order of address, by reads at some that
/// follow each other: the drive orders reads as it does writes. Takes half a second at most on a
/// disk. `None` if there are none.
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

/// Reads these and returns the time that it took.
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
