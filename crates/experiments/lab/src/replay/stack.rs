//! The stack of devices on which a policy is replayed, in a simulated world.

mod emptied;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use manylogs::{
    CreateOptions, LogOccupancy, Policy, TablePlace, Volume, VolumeConfig, VolumeError, VolumeStats,
};
use manylogs_block::{
    BlockDevice, Handle, Lba, MemoryNvram, Nanos, Nvram, SECTOR_BYTES, Sectors, Time, to_usize,
};
use manylogs_disk::device::Carried;
use manylogs_disk::{CachePlacement, Counters, LinkSettings, Options, Profile};
use manylogs_sim::{NodeId, Sim, TaskOrder};

use emptied::checkpoint;

use super::drives::{ArraySettings, Drives};
use super::policies::{NamedPolicy, OURS, SHINGLED};
use super::run::ReplayError;
use super::served::Watch;
use crate::results::{Checkpoint, Occupancy};
use crate::smr::{Metered, SmrFigures};
use crate::stats::{Thinned, round3};

/// The replay begins at 9:00 of the simulated day. So the default checkpoint policy sees no quiet
/// hours.
const BEGIN: Time = Time(9 * 3600 * 1_000_000_000);
/// A shingled drive is given a week to clean its bands.
const CLEANING_MAX: Nanos = Nanos::from_secs(7 * 24 * 3600);
/// Number of samples of the head's position.
const HEAD_POINTS: usize = 4096;
/// The occupancy of logs is given for this number of equal parts of the used disk.
const OCCUPANCY_BINS: u64 = 200;

/// The drive of a replay and how it is used.
#[derive(Clone, Debug)]
pub struct DriveSettings {
    /// Profile of the drive.
    pub profile: Arc<Profile>,
    /// Whether the drive's write cache is on.
    pub write_cache: bool,
    /// The link to the host, where it differs from the profile's.
    pub link: LinkSettings,
    /// Settings of the drive's queue that differ from the profile.
    pub queue: QueueSettings,
    /// Which writes of a shingled drive go where.
    pub placement: CachePlacement,
    /// Share of a shingled drive's persistent cache that is in use from the start, 0 to 1.
    pub smr_cache: f64,
    /// Several such drives as one device.
    pub array: Option<ArraySettings>,
}

/// Settings of a drive's queue. `None` means: as in the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Age limit: an older command is served first.
    pub age_limit: Option<Nanos>,
    /// Scheduling policy.
    pub policy: Option<manylogs_disk::QueuePolicy>,
    /// Whether commands of high priority go first.
    pub priority: bool,
}

impl DriveSettings {
    /// The drive with the queue of its profile.
    #[must_use]
    pub fn new(profile: Arc<Profile>, write_cache: bool) -> Self {
        let placement = CachePlacement::default();
        let (link, queue) = (LinkSettings::default(), QueueSettings::default());
        Self { profile, write_cache, link, queue, placement, smr_cache: 0.0, array: None }
    }

    /// The size of the drive, or of the array.
    #[must_use]
    pub fn capacity(&self) -> Sectors {
        let each = self.profile.capacity();
        self.array.map_or(each, |array| array.shape.capacity(each))
    }

    /// The drive's name, and the array if there is one.
    #[must_use]
    pub fn name(&self) -> String {
        let drive = &self.profile.name;
        self.array.map_or_else(|| drive.clone(), |array| format!("{} of {drive}", array.shape))
    }

    /// Name of the policy whose volume `format` makes on the drive.
    #[must_use]
    pub fn default_policy(&self) -> &'static str {
        if self.profile.shingled.is_some() { SHINGLED } else { OURS }
    }

    /// The drive as it is under `policy`.
    #[must_use]
    pub fn under(&self, policy: &NamedPolicy) -> Self {
        Self {
            write_cache: policy.cache.unwrap_or(self.write_cache),
            placement: policy.placement,
            ..self.clone()
        }
    }

    /// The options of the modelled drive.
    #[must_use]
    pub fn options(&self, seed: u64) -> Options {
        let profile = Options::of(&self.profile);
        Options {
            write_cache: self.write_cache,
            link: self.link.over(profile.link),
            seed,
            age_limit: self.queue.age_limit.unwrap_or(profile.age_limit),
            policy: self.queue.policy.unwrap_or(profile.policy),
            priority: self.queue.priority,
            placement: self.placement,
            ..profile
        }
    }
}

/// A sampled command of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadPoint {
    /// Time since the start of the replay.
    pub at: Time,
    /// First sector.
    pub lba: Lba,
    /// Whether the command was a write.
    pub write: bool,
    /// Whether the sectors lie in a log.
    pub log: bool,
}

/// A volume (or nothing) over a modelled drive, in its own simulated world.
pub(crate) struct Stack {
    host: NodeId,
    runtime: Handle,
    drives: Drives,
    volume: Option<Volume>,
    head: Rc<RefCell<Thinned<HeadPoint>>>,
    metered: Option<Metered>,
}

impl Stack {
    /// Builds the stack for `policy` and waits until the volume is open.
    ///
    /// # Errors
    /// If the volume does not fit the drive.
    pub(crate) fn build(
        sim: &Sim,
        settings: &DriveSettings,
        policy: &Policy,
        seed: u64,
    ) -> Result<Self, VolumeError> {
        let (node, host) = (sim.node(), sim.node());
        let drives = Drives::new(&sim.handle(node), settings, seed);
        let runtime = sim.handle(host);
        let volume = match policy {
            Policy::NoLogging => None,
            Policy::SingleLog(config) | Policy::Mlb(config) => {
                Some(create(sim, host, drives.top(), config)?)
            }
        };
        let clock = runtime.clone();
        sim.block_on(host, async move { clock.sleep_until(BEGIN).await });
        // Filled only now, because a drive at rest cleans its bands.
        drives.first().fill_persistent_cache(settings.smr_cache, seed);
        let head = Rc::new(RefCell::new(Thinned::new(HEAD_POINTS)));
        observe(&drives, volume.as_ref(), &head);
        Ok(Self { host, runtime, drives, volume, head, metered: None })
    }

    /// Builds the stack as [`Stack::build`] does, for a policy whose layout is already that of this
    /// drive.
    ///
    /// # Errors
    /// As [`Stack::build`], or if the policy does not go with the drive.
    pub(crate) fn named(
        sim: &Sim,
        settings: &DriveSettings,
        policy: &NamedPolicy,
        seed: u64,
    ) -> Result<Self, ReplayError> {
        let name = || policy.name.clone();
        if policy.placement != CachePlacement::Streams && settings.profile.shingled.is_none() {
            let drive = settings.name();
            return Err(ReplayError::NotShingled { policy: name(), drive });
        }
        let meant = policy
            .on(settings.capacity())
            .map_err(|source| ReplayError::Policy { policy: name(), source })?;
        Self::build(sim, &settings.under(policy), &meant, seed)
            .map_err(|source| ReplayError::Volume { policy: name(), source })
    }

    /// From now on a user's own policy, if `policy` has one, decides.
    pub(crate) fn begin(&self, policy: &NamedPolicy, seed: u64) {
        policy.begin(self.volume.as_ref(), seed);
    }

    /// The clock and tasks of the machine that uses the drive.
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// The device that receives the trace's requests.
    pub(crate) fn top(&self) -> Rc<dyn BlockDevice> {
        match (&self.metered, &self.volume) {
            (Some(metered), _) => Rc::new(metered.clone()),
            (None, Some(volume)) => Rc::new(volume.clone()),
            (None, None) => self.drives.top(),
        }
    }

    /// Says where requests to [`Stack::top`] are served.
    pub(super) fn watch(&self) -> Watch {
        self.volume.clone().map_or(Watch::Plain, Watch::Volume)
    }

    /// From now on the requests to [`Stack::top`] are measured second by second, for about `span`.
    pub(crate) fn measure(&mut self, span: Nanos) {
        let metered = Metered::new(self.runtime(), self.top(), self.drives.first().clone(), span);
        self.metered = Some(metered);
    }

    /// Figures since [`Stack::measure`].
    pub(crate) fn smr_figures(&self) -> Option<SmrFigures> {
        self.metered.as_ref().map(Metered::figures)
    }

    /// The simulated node of that machine.
    pub(crate) fn host(&self) -> NodeId {
        self.host
    }

    /// The drive's counters, or those of an array's members together.
    pub(crate) fn drive_counters(&self) -> Counters {
        self.drives.counters()
    }

    /// Number of drives.
    pub(crate) fn drives(&self) -> usize {
        self.drives.count()
    }

    /// Whether the drive is a shingled one.
    pub(crate) fn is_shingled(&self) -> bool {
        self.drives.first().shingled().is_some()
    }

    /// Time during which the drive has worked so far; of an array's members the mean.
    pub(crate) fn drive_busy(&self) -> Nanos {
        Nanos(self.drives.counters().busy.0 / self.drives.count() as u64)
    }

    /// The volume's counters, if there is a volume.
    pub(crate) fn volume_stats(&self) -> Option<VolumeStats> {
        self.volume.as_ref().map(Volume::stats)
    }

    /// Sampled positions of the head.
    pub(crate) fn take_head_points(&self) -> Thinned<HeadPoint> {
        self.head.replace(Thinned::new(HEAD_POINTS))
    }

    /// Occupancy of the logs over the disk.
    pub(crate) fn occupancy(&self) -> Occupancy {
        self.volume.as_ref().map(occupancy).unwrap_or_default()
    }

    /// Empties the logs by a checkpoint and reports its cost. Lets a shingled drive without a
    /// volume clean its bands. `None` for a conventional drive without a volume.
    ///
    /// # Errors
    /// If the volume fails.
    pub(crate) fn checkpoint(&self, sim: &Sim) -> Result<Option<Checkpoint>, VolumeError> {
        let Some(volume) = self.volume.clone() else { return Ok(self.clean_bands(sim)) };
        let began = sim.now();
        let report = sim.block_on(self.host, async move { volume.checkpoint().await })?;
        Ok(Some(checkpoint(&report, sim.now().since(began))))
    }

    fn clean_bands(&self, sim: &Sim) -> Option<Checkpoint> {
        let (began, before) = (sim.now(), self.drives.first().shingled()?);
        let mut after = before.clone();
        while after.dirty_bands > 0 && sim.now().since(began) < CLEANING_MAX {
            let clock = self.runtime();
            sim.block_on(self.host, async move { clock.sleep(Nanos::from_secs(1)).await });
            after = self.drives.first().shingled()?;
        }
        Some(Checkpoint {
            simulated_seconds: round3(sim.now().since(began).as_secs_f64()),
            logged_writes: before.cached_extents,
            home_writes: (after.band_clean.len() - before.band_clean.len()) as u64,
            logged_sectors: before.cache_used.0,
            home_write_seconds: round3(
                after.cleaning.as_secs_f64() - before.cleaning.as_secs_f64(),
            ),
            ..Checkpoint::default()
        })
    }
}

impl Drop for Stack {
    /// Breaks a cycle of references: the drive's observer has the volume, and the volume has the
    /// drive.
    fn drop(&mut self) {
        self.drives.observe(|_| {});
    }
}

fn create(
    sim: &Sim,
    host: NodeId,
    device: Rc<dyn BlockDevice>,
    config: &VolumeConfig,
) -> Result<Volume, VolumeError> {
    let (runtime, config) = (sim.handle(host), *config);
    let nvram = match config.table {
        TablePlace::Logs => None,
        TablePlace::Nvram(bytes) => Some(Rc::new(MemoryNvram::new(bytes)) as Rc<dyn Nvram>),
    };
    let options = CreateOptions { nvram, ..CreateOptions::default() };
    sim.block_on(host, async move { Volume::create_with(runtime, device, &config, &options).await })
}

fn observe(drives: &Drives, volume: Option<&Volume>, head: &Rc<RefCell<Thinned<HeadPoint>>>) {
    let (volume, head) = (volume.cloned(), Rc::clone(head));
    let array = drives.top().geometry();
    let address = move |at| array.and_then(|array| array.address(0, at)).unwrap_or(at);
    drives.observe(move |done: &Carried| {
        head.borrow_mut().push_with(|| HeadPoint {
            at: Time(done.at.since(BEGIN).0),
            lba: address(done.extent.start),
            write: done.write,
            log: volume.as_ref().is_some_and(|v| v.layout().is_log(address(done.extent.start))),
        });
    });
}

/// Capacity that the device offers to the trace under `policy`.
///
/// # Errors
/// If the volume does not fit the drive.
pub fn exported_capacity(
    settings: &DriveSettings,
    policy: &NamedPolicy,
) -> Result<Sectors, ReplayError> {
    let sim = Sim::new(0, TaskOrder::Fifo);
    let stack = Stack::named(&sim, settings, policy, 0)?;
    Ok(stack.top().capabilities().capacity)
}

/// Occupancy of the logs, over that part of the disk in which a log is in use.
fn occupancy(volume: &Volume) -> Occupancy {
    let used: Vec<_> = volume.log_occupancy().into_iter().filter(|log| log.used.0 > 0).collect();
    let first = used.iter().map(|log| log.region.start).min().unwrap_or_default();
    let end = used.iter().map(|log| log.region.end()).max().unwrap_or_default();
    let bin_len = end.distance(first).0.div_ceil(OCCUPANCY_BINS).max(1);
    let bin_of = |lba: Lba| to_usize((lba.0 - first.0) / bin_len);
    let bins = to_usize(OCCUPANCY_BINS);
    let (mut space, mut full, mut live) = (vec![0; bins], vec![0; bins], vec![0; bins]);
    for region in volume.layout().regions().iter().filter(|r| (first..end).contains(&r.start)) {
        space[bin_of(region.start)] += region.len.0;
    }
    for log in &used {
        full[bin_of(log.region.start)] += log.used.0;
        live[bin_of(log.region.start)] += log.live.0;
    }
    let shown: Vec<usize> = (0..bins).filter(|&bin| space[bin] > 0).collect();
    let percent = |part: &[u64]| -> Vec<f64> {
        shown.iter().map(|&b| round3(part[b] as f64 / space[b] as f64 * 100.0)).collect()
    };
    let middle = |bin: usize| {
        (first.0 * SECTOR_BYTES) as f64 / 1e9
            + (bin as f64 + 0.5) * (bin_len * SECTOR_BYTES) as f64 / 1e9
    };
    Occupancy {
        gigabytes: shown.iter().map(|&bin| round3(middle(bin))).collect(),
        used_percent: percent(&full),
        live_percent: percent(&live),
        fullest_percent: fullest_percent(volume, &used),
    }
}

/// How full the fullest log is.
fn fullest_percent(volume: &Volume, used: &[LogOccupancy]) -> f64 {
    let regions = volume.layout().regions();
    let share = |log: &LogOccupancy| {
        let region = regions.iter().find(|region| region.start == log.region.start);
        region.map_or(0.0, |region| log.used.0 as f64 / region.len.0 as f64)
    };
    round3(used.iter().map(share).fold(0.0, f64::max) * 100.0)
}

#[cfg(test)]
mod tests;
