//! A chain of pairs whose halves sleep, for a day in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, PowerTimes, Request, Rng, Sectors,
};
use manylogs_disk::device::ModelledDrive;
use manylogs_gecko::{Chain, ChainOptions, ChainSettings, Cleaning, SleepSettings};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use serde::Serialize;

use super::bandwidth::sequential_bytes_s;
use super::clients::BLOCK;
use super::measure::ChainFailure;
use crate::parallel::in_parallel;
use crate::replay::DriveSettings;
use crate::stats::round3;

/// Pairs of the chain.
const PAIRS: usize = 3;
/// Share of the raw capacity that is exported.
const EXPORTED: f64 = 0.48;
/// Share of a drive's sequential bandwidth that is written.
const WRITTEN: f64 = 0.1;
/// Random reads of 4 KiB a second, of all that was written.
const READS_S: u64 = 10;
/// Length of a write; its place is random. Blocks of 4 KiB would be 256 times as many requests.
const WRITE: Sectors = Sectors(2048);
const SECOND: Nanos = Nanos::from_secs(1);
/// What the gate allows: the least share of the time asleep, and how far the energy may be off.
const ASLEEP_LEAST: f64 = 0.95;
const ENERGY_OFF: f64 = 0.1;

/// A day of a chain that sleeps.
#[derive(Clone, Debug)]
pub struct SleepCase {
    /// Each of the drives.
    pub drive: DriveSettings,
    /// Length of a segment.
    pub segment: Sectors,
    /// How room is made.
    pub cleaning: Cleaning,
    /// Simulated time.
    pub span: Nanos,
    /// Decides everything random.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct SleepMeasured {
    /// The drive profile's name.
    pub drive: String,
    /// How room was made.
    pub cleaning: String,
    /// Decides everything random.
    pub seed: u64,
    /// Simulated hours.
    pub hours: f64,
    /// What clients wrote, MB/s.
    pub write_mb_s: f64,
    /// What should have been written: a share of the drive's sequential bandwidth.
    pub wanted_mb_s: f64,
    /// The longest read, write and flush of a client.
    pub longest_ms: [f64; 3],
    /// Reads that waited for a start.
    pub reads_waited: u64,
    /// Requests of cleaning that waited for a start.
    pub cleaning_waited: u64,
    /// Time asleep, of the time in which one half of each pair but the tail's could sleep.
    pub asleep: f64,
    /// How often the tail went to another pair.
    pub hops: u64,
    /// Starts of all drives, and the most of one drive.
    pub starts: [u64; 2],
    /// Energy of all drives.
    pub watt_hours: f64,
    /// The energy by the profile's figures alone.
    pub arithmetic_wh: f64,
    /// Energy if no half slept, by the same figures.
    pub awake_wh: f64,
    /// Whether the gate holds.
    pub holds: bool,
}

/// Measures all cases, on up to `threads` threads.
///
/// # Errors
/// The first failure.
pub fn run_sleep(
    cases: &[SleepCase],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<SleepMeasured>, ChainFailure> {
    let found = in_parallel(cases, threads, stop, measure_sleep)?;
    Ok(found.into_iter().flatten().collect())
}

/// Measures a case on this thread.
///
/// # Errors
/// If the chain cannot be made, or fails.
pub fn measure_sleep(case: &SleepCase) -> Result<SleepMeasured, ChainFailure> {
    let sim = Sim::new(case.seed, TaskOrder::Fifo);
    let (host, node) = (sim.node(), sim.node());
    let drives: Vec<ModelledDrive> = (0..2 * PAIRS as u64)
        .map(|number| {
            let options = case.drive.options(case.seed ^ number << 32);
            ModelledDrive::new(sim.handle(node), &case.drive.profile, &options)
        })
        .collect();
    let chain = made(&sim, host, case, &drives)?;
    let b = sequential_bytes_s(&case.drive, case.drive.profile.capacity(), case.seed);
    let rate = WRITTEN * b;
    let day = Rc::new(Day::new(chain.clone(), sim.handle(host), case.seed));
    let every = Nanos::from_secs_f64(WRITE.bytes() as f64 / rate);
    let until = case.span;
    let runtime = sim.handle(host);
    runtime.spawn(Day::writes(Rc::clone(&day), every, until));
    runtime.spawn(Day::reads(Rc::clone(&day), Nanos(SECOND.0 / READS_S), until));
    runtime.spawn(Day::flushes(Rc::clone(&day), until));
    let (alarm, rang) = (sim.handle(host), Rc::new(Cell::new(false)));
    let rings = Rc::clone(&rang);
    sim.handle(host).spawn(async move {
        alarm.sleep(until).await;
        rings.set(true);
    });
    sim.run_until(|| rang.get() || day.failed.borrow().is_some());
    if let Some(error) = day.failed.borrow_mut().take() {
        return Err(error.into());
    }
    if !rang.get() {
        return Err(ChainFailure::Stalled(format!("{chain:?}")));
    }
    Ok(told(case, &chain, &drives, &day, rate))
}

fn made(
    sim: &Sim,
    host: NodeId,
    case: &SleepCase,
    drives: &[ModelledDrive],
) -> Result<Chain, ChainFailure> {
    let raw = case.drive.profile.capacity().0 * PAIRS as u64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of capacity")]
    let export = Some(Sectors((raw as f64 * EXPORTED) as u64 / WRITE.0 * WRITE.0));
    let options = ChainOptions { segment: case.segment, export, mirror: true, summaries: false };
    let spin_up = case.drive.profile.power().spin_up();
    let sleep = Some(SleepSettings { spin_up, ..SleepSettings::default() });
    let settings = ChainSettings { cleaning: case.cleaning, sleep, ..ChainSettings::default() };
    let devices = drives.iter().map(|drive| Rc::new(drive.clone()) as Rc<dyn BlockDevice>);
    let created = Chain::create(sim.handle(host), devices.collect(), options, settings);
    sim.block_on(host, created).map_err(|source| {
        let drive = case.drive.profile.name.clone();
        ChainFailure::Chain { drive, source }
    })
}

/// The clients of a day: each request begins when it is due.
struct Day {
    chain: Chain,
    runtime: Handle,
    rng: RefCell<Rng>,
    /// Places that were written, in lengths of a write.
    written: RefCell<Vec<u64>>,
    is_written: RefCell<Vec<bool>>,
    tag: Cell<u64>,
    bytes: Cell<u64>,
    longest: [Cell<Nanos>; 3],
    failed: RefCell<Option<IoError>>,
}

impl Day {
    fn new(chain: Chain, runtime: Handle, seed: u64) -> Self {
        let places = chain.capabilities().capacity.0 / WRITE.0;
        Self {
            chain,
            runtime,
            rng: RefCell::new(Rng::new(seed ^ 0x51ee)),
            written: RefCell::default(),
            is_written: RefCell::new(vec![false; manylogs_block::to_usize(places)]),
            tag: Cell::new(1),
            bytes: Cell::default(),
            longest: Default::default(),
            failed: RefCell::default(),
        }
    }

    /// Sends a request, and notes how long it took. `of` is the kind: read, write or flush.
    fn send(self: &Rc<Self>, of: usize, request: Request) {
        let (day, began) = (Rc::clone(self), self.runtime.now());
        let answer = self.chain.submit(request);
        self.runtime.spawn(async move {
            if let Err(error) = answer.await {
                day.failed.borrow_mut().get_or_insert(error);
            }
            let took = day.runtime.now().since(began);
            day.longest[of].set(day.longest[of].get().max(took));
        });
    }

    async fn writes(day: Rc<Self>, every: Nanos, until: Nanos) {
        let places = day.is_written.borrow().len() as u64;
        while day.runtime.now().0 < until.0 {
            day.runtime.sleep(every).await;
            let place = day.rng.borrow_mut().below(places);
            let was = std::mem::replace(
                &mut day.is_written.borrow_mut()[manylogs_block::to_usize(place)],
                true,
            );
            if !was {
                day.written.borrow_mut().push(place);
            }
            let extent = Extent::new(place * WRITE.0, WRITE.0);
            let payload = Payload::tags(day.tag.get(), WRITE);
            day.tag.set(day.tag.get() + WRITE.0);
            day.bytes.set(day.bytes.get() + WRITE.bytes());
            day.send(1, Request::Write { extent, payload, fua: false, hint: Hint::None });
        }
    }

    async fn reads(day: Rc<Self>, every: Nanos, until: Nanos) {
        while day.runtime.now().0 < until.0 {
            day.runtime.sleep(every).await;
            let written = day.written.borrow();
            let chosen = day.rng.borrow_mut().below((written.len() as u64).max(1));
            let place = written.get(manylogs_block::to_usize(chosen)).copied();
            drop(written);
            let Some(place) = place else { continue };
            let block = day.rng.borrow_mut().below(WRITE.0 / BLOCK.0);
            let extent = Extent::new(place * WRITE.0 + block * BLOCK.0, BLOCK.0);
            day.send(0, Request::Read { extent });
        }
    }

    async fn flushes(day: Rc<Self>, until: Nanos) {
        while day.runtime.now().0 < until.0 {
            day.runtime.sleep(SECOND).await;
            day.send(2, Request::Flush);
        }
    }
}

fn told(
    case: &SleepCase,
    chain: &Chain,
    drives: &[ModelledDrive],
    day: &Day,
    rate: f64,
) -> SleepMeasured {
    let profile = &case.drive.profile;
    let power = profile.power();
    let times: Vec<PowerTimes> = drives.iter().map(ModelledDrive::power_times).collect();
    let seconds = case.span.as_secs_f64();
    let standby: f64 = times.iter().map(|times| times.standby.as_secs_f64()).sum();
    let asleep = standby / (seconds * (PAIRS - 1) as f64);
    let watt_hours: f64 = times.iter().map(|times| power.watt_hours(times)).sum();
    // One read takes a seek and half a revolution; each write is written on two halves.
    let seek_ms = profile.seek.average_ms.unwrap_or_else(|| mean_ms(&profile.seek.knots_ms));
    let read_s = READS_S as f64 * (seek_ms / 1e3 + profile.spindle.revolution_us / 2e6);
    let extra_w = (power.active_w - power.idle_w) * (2.0 * WRITTEN + read_s);
    let sleepers = (PAIRS - 1) as f64;
    let all = (2 * PAIRS) as f64;
    let hours = seconds / 3600.0;
    let arithmetic =
        hours * ((all - sleepers) * power.idle_w + sleepers * power.standby_w + extra_w);
    let reads_waited: u64 = chain.power().iter().map(|half| half.reads_waited).sum();
    let waited: u64 = chain.power().iter().map(|half| half.waited).sum();
    let longest = day.longest.each_ref().map(Cell::get);
    let fast = longest.iter().all(|longest| *longest < power.spin_up());
    let off = (watt_hours / arithmetic - 1.0).abs();
    SleepMeasured {
        drive: profile.name.clone(),
        cleaning: case.cleaning.name().to_owned(),
        seed: case.seed,
        hours: round3(hours),
        write_mb_s: round3(day.bytes.get() as f64 / seconds / 1e6),
        wanted_mb_s: round3(rate / 1e6),
        longest_ms: longest.map(|longest| round3(longest.as_secs_f64() * 1e3)),
        reads_waited,
        cleaning_waited: waited.saturating_sub(reads_waited),
        asleep: round3(asleep),
        hops: chain.figures().hops,
        starts: [
            times.iter().map(|times| times.starts).sum(),
            times.iter().map(|times| times.starts).max().unwrap_or(0),
        ],
        watt_hours: round3(watt_hours),
        arithmetic_wh: round3(arithmetic),
        awake_wh: round3(hours * (all * power.idle_w + extra_w)),
        holds: fast && reads_waited == 0 && asleep >= ASLEEP_LEAST && off <= ENERGY_OFF,
    }
}

/// The mean of a measured curve: that of a third of the longest distance.
fn mean_ms(knots: &[(u32, f64)]) -> f64 {
    let longest = knots.last().map_or(0, |knot| knot.0);
    knots.iter().find(|knot| knot.0 >= longest / 3).map_or(0.0, |knot| knot.1)
}

/// One line for each case.
#[must_use]
pub fn sleep_text(results: &[SleepMeasured]) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for it in results {
        let [read, write, flush] = it.longest_ms;
        let _ = writeln!(
            out,
            "{}, {}, seed {}: {} h, {:.1} of {:.1} MB/s written; longest read {read:.0} ms, write \
             {write:.0}, flush {flush:.0}; {} reads waited for a start, and {} requests of \
             cleaning; asleep for {:.1} % (gate: {:.0}); {} hops, {} starts, at most {} of a \
             drive; {:.1} Wh, by the profile {:.1} (gate: {:.0} % off), {:.1} if none slept  {}",
            it.drive,
            it.cleaning,
            it.seed,
            it.hours,
            it.write_mb_s,
            it.wanted_mb_s,
            it.reads_waited,
            it.cleaning_waited,
            100.0 * it.asleep,
            100.0 * ASLEEP_LEAST,
            it.hops,
            it.starts[0],
            it.starts[1],
            it.watt_hours,
            it.arithmetic_wh,
            100.0 * ENERGY_OFF,
            it.awake_wh,
            if it.holds { "holds" } else { "falls short" }
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sweep::drive;

    /// Half an hour on drives so small that the tail is on each for five minutes.
    #[test]
    fn halves_sleep_and_nobody_waits_for_them() {
        let profile = drive("cheetah-15k5").unwrap().fitted(Sectors(4 << 21)).unwrap();
        let case = SleepCase {
            drive: DriveSettings::new(Arc::new(profile), false),
            segment: Sectors(64 << 11),
            cleaning: Cleaning::MoveToTail,
            span: Nanos::from_secs(1800),
            seed: 1,
        };
        let found = measure_sleep(&case).unwrap();
        assert!(found.hops >= 3 && found.starts[0] >= 3, "{found:?}");
        assert_eq!((found.reads_waited, found.cleaning_waited), (0, 0), "{found:?}");
        assert!(found.longest_ms.iter().all(|longest| *longest < 5_000.0), "{found:?}");
        assert!(found.asleep > 0.6, "{found:?}");
        assert!(found.watt_hours < 0.95 * found.awake_wh, "{found:?}");
        assert!(found.write_mb_s > 0.99 * found.wanted_mb_s, "{found:?}");
    }
}
