//! Runs gates, each in its own simulated world.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use manylogs::{Volume, VolumeStats};
use manylogs_block::{Nanos, Rng, Sector};
use manylogs_ext4::Error;
use manylogs_mlfs::adopt::Spacing;
use manylogs_mlfs::{JournalMode, Mounted};

use super::super::case::{DiskCase, INODE_BYTES};
use super::super::disk::{MlfsError, Prepared, World};
use super::gate::{Amounts, Gate, LONG_PIECE, PIECE, SMALL_FILE};
use super::load::{KeepingFiles, MARK, Writer, fill};
use super::results::KeepingResult;
use crate::parallel::in_parallel;
use crate::replay::DriveSettings;

/// Interval of checkpoints for logs of 1 GiB; smaller logs fill sooner. The last gate orders its
/// checkpoints instead.
const CHECKPOINT_SECONDS: u64 = 60;
/// Bytes of one log.
pub(super) const LOG_BYTES: u64 = 10 << 20;
/// Size of ext4's own journal, which is not used.
const JOURNAL: manylogs_block::Sectors = manylogs_block::Sectors(32 << 11);
/// Bytes per inode of the file system.
const BYTES_PER_INODE: u64 = 4 << 20;
/// Number of equal parts of the appended bytes; a power cut follows each part except the last.
const PARTS: u64 = 3;

/// One gate on one drive.
#[derive(Clone, Debug)]
pub struct KeepingCase {
    /// The drive and how it is used.
    pub drive: DriveSettings,
    /// Bytes of all logs together; all other amounts are in proportion to it.
    pub logs: u64,
    /// What is measured.
    pub gate: Gate,
    /// Seed of all random choices.
    pub seed: u64,
}

impl KeepingCase {
    pub(super) fn disk(&self) -> DiskCase {
        let logs = (self.logs / LOG_BYTES).max(1);
        let every = self.drive.capacity().bytes() / logs / LOG_BYTES * LOG_BYTES;
        DiskCase {
            drive: self.drive.clone(),
            spacing: Spacing::Bytes(every),
            threshold: None,
            journal: JOURNAL,
            bytes_per_inode: BYTES_PER_INODE,
            inode_bytes: INODE_BYTES,
            mode: JournalMode::Manylogs,
            seed: self.seed,
        }
    }
}

/// Measures each case on up to `threads` threads. The results keep the order of `cases`; those that
/// have not begun when `stop` is set are left out.
///
/// # Errors
/// The first failure.
pub fn run_all(
    cases: &[KeepingCase],
    threads: usize,
    stop: &AtomicBool,
) -> Result<Vec<KeepingResult>, MlfsError> {
    let found = in_parallel(cases, threads, stop, measure)?;
    Ok(found.into_iter().flatten().collect())
}

/// A world with its mounted file system.
pub(super) struct Host {
    pub(super) world: World,
    mounted: Mounted,
    pub(super) case: DiskCase,
    pub(super) writer: Writer,
    rng: Rng,
}

/// Counters that are added up over power cuts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) home_bytes: u64,
    pub(super) moved_bytes: u64,
    pub(super) waits: u64,
    pub(super) checkpoints: u64,
    pub(super) swaps: u64,
}

impl Sums {
    pub(super) fn add(&mut self, stats: &VolumeStats) {
        self.home_bytes += stats.o_dur_home_bytes;
        self.moved_bytes += stats.o_dur_moved_bytes;
        self.waits += stats.starved_writes;
        self.checkpoints += stats.checkpoints;
        self.swaps += stats.log_swaps;
    }
}

fn measure(case: &KeepingCase) -> Result<KeepingResult, MlfsError> {
    Ok(measured(case)?.judged(case.gate))
}

fn measured(case: &KeepingCase) -> Result<KeepingResult, MlfsError> {
    let (disk, amounts) = (case.disk(), Amounts { logs: case.logs });
    let prepared = Prepared::of(&disk, move |fs| fill(fs, amounts))?;
    let host = Host::new(&prepared, disk, amounts)?;
    match case.gate {
        Gate::Appended => appended(case, host),
        Gate::Ring => host.overwritten(case, |writer| async move { writer.ring().await }),
        Gate::Segments => host.overwritten(case, |writer| async move { writer.segments().await }),
        Gate::Spread => spread(case, host),
        Gate::Owners => owners(case, host),
        Gate::Read => super::read::measured(case, &prepared, amounts),
        Gate::Pass => pass(case, host, &prepared, amounts),
    }
}

impl Host {
    pub(super) fn new(
        prepared: &Prepared<KeepingFiles>,
        case: DiskCase,
        amounts: Amounts,
    ) -> Result<Self, MlfsError> {
        let world = prepared.world(&case)?;
        let mounted = world.mounted(&case)?;
        let writer = Writer {
            fs: mounted.fs().clone(),
            clock: world.runtime(),
            files: prepared.files().clone(),
            amounts,
            written: Rc::new(RefCell::default()),
            next: Rc::new(Cell::new(1)),
            bytes: Rc::new(Cell::new(0)),
        };
        let rng = Rng::new(case.seed);
        Ok(Self { world, mounted, case, writer, rng })
    }

    pub(super) fn volume(&self) -> Result<Volume, MlfsError> {
        let none = || MlfsError::Setting("the disk has no logs".to_owned());
        self.mounted.volume().cloned().ok_or_else(none)
    }

    pub(super) fn stats(&self) -> Result<VolumeStats, MlfsError> {
        Ok(self.volume()?.stats())
    }

    fn checkpoint_now_and_then(&self) -> Result<(), MlfsError> {
        let seconds = ((CHECKPOINT_SECONDS * self.writer.amounts.logs) >> 30).max(1);
        self.assign(&format!("checkpoint=every:{seconds}s"))
    }

    fn assign(&self, pair: &str) -> Result<(), MlfsError> {
        let volume = self.volume()?;
        let mut settings = volume.settings();
        let assigned = settings.assign(pair);
        assigned.map_err(|error| MlfsError::Setting(error.to_string()))?;
        Ok(self.world.run(async move { volume.set(&settings).await })?)
    }

    /// Does `work`, with small writes to ordinary files beside it.
    fn beside_others<W: Future<Output = Result<(), Error>> + 'static>(
        &mut self,
        work: impl FnOnce(Writer) -> W,
    ) -> Result<(), MlfsError> {
        let (done, clock) = (Rc::new(Cell::new(false)), self.world.runtime());
        let (others, counted) = (self.writer.clone(), Rc::clone(&done));
        let ended = Rc::new(RefCell::new(None));
        let (told, mut rng) = (Rc::clone(&ended), self.rng.split());
        clock.spawn(async move {
            let written = others.others(&mut rng, &counted, u64::MAX, true).await;
            *told.borrow_mut() = Some(written);
        });
        let work = work(self.writer.clone());
        let clock = self.world.runtime();
        self.world.run(async move {
            let worked = work.await;
            done.set(true);
            while ended.borrow().is_none() {
                clock.sleep(Nanos::from_millis(1)).await;
            }
            let others = ended.borrow_mut().take().unwrap_or(Ok(()));
            worked.and(others)
        })?;
        Ok(())
    }

    /// The host after a power cut: mounted again, without the work under way.
    fn after_power_cut(self) -> Result<Self, MlfsError> {
        let Self { world, mounted, case, writer, rng } = self;
        drop(mounted);
        let world = world.after_crash(&case)?;
        let mounted = world.mounted(&case)?;
        let writer = Writer { fs: mounted.fs().clone(), clock: world.runtime(), ..writer };
        Ok(Self { world, mounted, case, writer, rng })
    }

    /// Runs a load without power cuts.
    fn overwritten<W: Future<Output = Result<(), Error>> + 'static>(
        mut self,
        case: &KeepingCase,
        work: impl FnOnce(Writer) -> W,
    ) -> Result<KeepingResult, MlfsError> {
        self.checkpoint_now_and_then()?;
        self.beside_others(work)?;
        let mut sums = Sums::default();
        sums.add(&self.stats()?);
        self.result(case, LONG_PIECE, sums)
    }

    /// Counts the sectors of pieces that the drive has outside the logs. `told` hears the number of
    /// the piece of each.
    fn sectors_at_home(&self, told: impl Fn(u64)) -> Result<u64, MlfsError> {
        let volume = self.volume()?;
        let logs: Vec<_> = volume.log_occupancy().into_iter().map(|log| log.region).collect();
        let is_home = |at: manylogs_block::Lba, sector: &Sector| {
            let Sector::Bytes(bytes) = sector else { return false };
            let number = bytes.strip_prefix(&MARK[..]).and_then(|rest| rest.first_chunk());
            let in_logs = || logs.iter().any(|log| log.start <= at && at < log.end());
            let Some(number) = number.filter(|_| !in_logs()) else { return false };
            told(u64::from_le_bytes(*number));
            true
        };
        Ok(self.world.count_sectors(is_home))
    }

    pub(super) fn result(
        &self,
        case: &KeepingCase,
        piece: u64,
        sums: Sums,
    ) -> Result<KeepingResult, MlfsError> {
        let writer = self.writer.clone();
        let intact = self.world.run(async move { writer.is_intact(piece).await })?;
        let stats = self.stats()?;
        let at_home = self.sectors_at_home(|_| ())? * manylogs_block::SECTOR_BYTES;
        let written = self.writer.bytes.get();
        Ok(KeepingResult::of(case, written, at_home, intact, &stats, sums))
    }
}

fn appended(case: &KeepingCase, mut host: Host) -> Result<KeepingResult, MlfsError> {
    let mut sums = Sums::default();
    for part in 0..PARTS {
        if part > 0 {
            host = host.after_power_cut()?;
        }
        host.checkpoint_now_and_then()?;
        host.beside_others(|writer| async move { writer.append(PARTS).await })?;
        sums.add(&host.stats()?);
    }
    host.result(case, PIECE, sums)
}

fn spread(case: &KeepingCase, mut host: Host) -> Result<KeepingResult, MlfsError> {
    host.checkpoint_now_and_then()?;
    let (writer, mut rng) = (host.writer.clone(), host.rng.split());
    host.world.run(async move { writer.spread(&mut rng).await })?;
    // From here on checkpoints run only when the logs are full.
    host.assign("checkpoint=full")?;
    let (writer, mut rng) = (host.writer.clone(), host.rng.split());
    let most = host.writer.amounts.flood();
    let never = Cell::new(false);
    host.world.run(async move { writer.others(&mut rng, &never, most, false).await })?;
    let mut sums = Sums::default();
    sums.add(&host.stats()?);
    host.result(case, SMALL_FILE, sums)
}

/// Measures whose content goes home beyond the budget: numbers of pieces say whose they are.
fn owners(case: &KeepingCase, mut host: Host) -> Result<KeepingResult, MlfsError> {
    host.checkpoint_now_and_then()?;
    let last_of_first = Rc::new(Cell::new(0));
    let told = Rc::clone(&last_of_first);
    host.beside_others(|writer| async move {
        told.set(writer.of_two_users().await?);
        Ok(())
    })?;
    let mut sums = Sums::default();
    sums.add(&host.stats()?);
    let numbers = RefCell::new(BTreeSet::new());
    host.sectors_at_home(|number| _ = numbers.borrow_mut().insert(number))?;
    let numbers = numbers.into_inner();
    let last = last_of_first.get();
    let of_first = numbers.range(..=last).count() as u64;
    let of_second: Vec<u64> = numbers.range(last + 1..).copied().collect();
    let span = of_second.first().zip(of_second.last()).map_or(0, |(first, last)| last - first + 1);
    let result = host.result(case, LONG_PIECE, sums)?;
    let others_home_bytes = Some(of_first * LONG_PIECE);
    let out_of_order_bytes = Some((span - of_second.len() as u64) * LONG_PIECE);
    Ok(KeepingResult { others_home_bytes, out_of_order_bytes, ..result })
}

/// Measures a pass that brings the same small writes home, first with durable-only files in the
/// logs, then after their removal. The records lie in the same places.
fn pass(
    case: &KeepingCase,
    host: Host,
    prepared: &Prepared<KeepingFiles>,
    amounts: Amounts,
) -> Result<KeepingResult, MlfsError> {
    let without = Host::new(prepared, host.case.clone(), amounts)?.pass_seconds(true)?;
    let with = host.pass_seconds(false)?;
    let mut sums = Sums::default();
    sums.add(&host.stats()?);
    let result = host.result(case, LONG_PIECE, sums)?;
    Ok(KeepingResult { pass_ratio: Some(crate::stats::round3(with / without)), ..result })
}

impl Host {
    fn pass_seconds(&self, removed: bool) -> Result<f64, MlfsError> {
        let (writer, mut rng) = (self.writer.clone(), Rng::new(self.case.seed));
        let never = Cell::new(false);
        let most = self.writer.amounts.waiting();
        self.world.run(async move {
            writer.live().await?;
            writer.others(&mut rng, &never, most, true).await?;
            if removed { writer.remove_live().await } else { Ok(()) }
        })?;
        let (volume, from) = (self.volume()?, self.world.now());
        self.world.run(async move { volume.checkpoint().await })?;
        Ok(self.world.now().since(from).as_secs_f64())
    }
}
