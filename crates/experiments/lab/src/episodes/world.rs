//! Runs an episode in a simulated world of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use manylogs::{Volume, VolumeConfig, VolumeError};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Sectors, Time,
};
use manylogs_disk::device::ModelledDrive;
use manylogs_everest::{
    CircularStore, Lender, Lending, Meter, OffloadError, OffloadFigures, OffloadOptions, Offloaded,
    Policy, StoreError, StoreOptions,
};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use serde::Serialize;
use thiserror::Error;

use super::devices::{Beginning, Part};
use super::generate::{Arrival, DRIVES, Episode, VOLUMES};
use crate::replay::DriveSettings;
use crate::stats::{Latencies, Percentile, round3};

/// What a header of a base volume takes.
const HEADER: Sectors = Sectors(256);
/// A store takes this share of its drive, at its end: 3 per cent.
const STORE: u64 = 33;
/// Length of a store's logs.
const LOG: Sectors = Sectors(16 << 11);
/// How often it is looked whether everything is home.
const LOOK: Nanos = Nanos::from_millis(100);
/// What is not home after this long counts as not home.
const PATIENCE: Nanos = Nanos::from_secs(3600);

/// What the busy volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A drive.
    Drive,
    /// A Manylogs volume.
    Volume,
}

/// When its writes go to the stores of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadPolicy {
    /// There are no stores.
    None,
    /// By the paper's counts: 32 in flight at the base, 32 at a store, 256 brought home together,
    /// of volumes of four drives: a quarter of that for one.
    EverestPaper,
    /// By the time that a request would wait.
    Ours(OursOptions),
    /// Always.
    Always,
}

/// What the default policy is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OursOptions {
    /// Threshold of the base and of the stores.
    pub threshold: Nanos,
    /// See [`OffloadOptions::calm`].
    pub calm: Nanos,
    /// See [`OffloadOptions::together`].
    pub together: usize,
}

impl Default for OursOptions {
    fn default() -> Self {
        let OffloadOptions { policy, calm, together, .. } = OffloadOptions::default();
        let threshold = match policy {
            Policy::Wait { base, .. } => base,
            _ => Nanos::from_millis(15),
        };
        Self { threshold, calm, together }
    }
}

impl OffloadPolicy {
    /// Name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::EverestPaper => "everest-paper",
            Self::Ours(_) => "wait",
            Self::Always => "always",
        }
    }

    fn options(self) -> OffloadOptions {
        let default = OffloadOptions::default();
        match self {
            Self::None => default,
            Self::Ours(OursOptions { threshold, calm, together }) => {
                let policy = Policy::Wait { base: threshold, store: threshold };
                OffloadOptions { policy, calm, together, ..default }
            }
            Self::EverestPaper => {
                let policy = Policy::Counts { base: 32 / DRIVES, store: 32 / DRIVES };
                let together = 256 / manylogs_block::to_usize(DRIVES);
                OffloadOptions { policy, together, calm: Nanos(0), ..default }
            }
            Self::Always => OffloadOptions { policy: Policy::Always, ..default },
        }
    }
}

/// Why an episode has no figures.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EpisodeFailure {
    /// A request failed.
    #[error("a request failed: {0}")]
    Io(#[from] IoError),
    /// The base volume cannot be opened.
    #[error("the base volume: {0}")]
    Base(#[from] OffloadError),
    /// A store cannot be made.
    #[error("a store: {0}")]
    Store(#[from] StoreError),
    /// The volume cannot be made.
    #[error("the volume: {0}")]
    Volume(#[from] VolumeError),
    /// Requests are in flight, and no event is left that could answer them.
    #[error("the volumes stopped answering; this is a defect")]
    Stalled,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EpisodeFigures {
    /// Requests to the busy volume.
    pub requests: u64,
    /// Their mean latency.
    pub mean_ms: f64,
    /// The latency that 99 per cent do not exceed.
    pub p99_ms: f64,
    /// The same of its reads.
    pub reads_p99_ms: f64,
    /// The same of its writes.
    pub writes_p99_ms: f64,
    /// Mean latency of the lenders' own requests.
    pub lenders_mean_ms: f64,
    /// 99 per cent of these do not exceed this.
    pub lenders_p99_ms: f64,
    /// Writes that went to stores, per cent.
    pub offloaded_percent: f64,
    /// The most that stores held, of the four drives that a volume has in the paper.
    pub held_max_mb: f64,
    /// Time from the end of the last burst until everything was home.
    pub home_after_s: f64,
}

struct World {
    sim: Sim,
    host: NodeId,
    devices: Vec<Rc<dyn BlockDevice>>,
    offloaded: Option<Offloaded>,
}

/// What the clients share.
struct Load {
    runtime: Handle,
    devices: Vec<Rc<dyn BlockDevice>>,
    running: Cell<usize>,
    latencies: RefCell<[Latencies; 3]>,
    failed: RefCell<Option<IoError>>,
}

/// Runs an episode on this thread.
///
/// # Errors
/// If the volumes cannot be made, or a request fails.
pub fn run(
    episode: &Episode,
    drive: &Arc<DriveSettings>,
    on: On,
    policy: OffloadPolicy,
    seed: u64,
) -> Result<EpisodeFigures, EpisodeFailure> {
    // The same requests whatever is below them: a volume is smaller than its drive.
    let room = Sectors(drive.capacity().0 / 20 * 17 / 8 * 8);
    World::new(drive, on, policy, seed)?.run(episode, episode.arrivals(room, seed))
}

impl World {
    fn new(
        drive: &Arc<DriveSettings>,
        on: On,
        policy: OffloadPolicy,
        seed: u64,
    ) -> Result<Self, EpisodeFailure> {
        let sim = Sim::new(seed, TaskOrder::Fifo);
        let (host, node) = (sim.node(), sim.node());
        let modelled = |number: u64| -> Rc<dyn BlockDevice> {
            let options = drive.options(seed ^ number << 32);
            Rc::new(ModelledDrive::new(sim.handle(node), &drive.profile, &options))
        };
        let drives: Vec<_> = (0..VOLUMES as u64).map(modelled).collect();
        let meter = |drive: &Rc<dyn BlockDevice>| Meter::new(sim.handle(host), Rc::clone(drive));
        let meters: Vec<Meter> = drives.iter().skip(1).map(meter).collect();
        let mut devices = vec![on_drive(&sim, host, Rc::clone(&drives[0]), on)?];
        for meter in &meters {
            devices.push(Rc::new(meter.clone()));
        }
        let mut offloaded = None;
        if policy != OffloadPolicy::None {
            let below = Rc::clone(&devices[0]);
            let base: Rc<dyn BlockDevice> = Rc::new(Beginning::new(below, HEADER));
            let volume = borrow(&sim, host, base, meters, policy)?;
            devices[0] = Rc::new(volume.clone());
            offloaded = Some(volume);
        }
        Ok(Self { sim, host, devices, offloaded })
    }

    fn run(
        &self,
        episode: &Episode,
        arrivals: Vec<Arrival>,
    ) -> Result<EpisodeFigures, EpisodeFailure> {
        let began = self.sim.now();
        let load = Rc::new(Load {
            runtime: self.sim.handle(self.host),
            devices: self.devices.clone(),
            running: Cell::new(1),
            latencies: RefCell::default(),
            failed: RefCell::default(),
        });
        let sending = Rc::clone(&load);
        load.runtime.spawn(async move { sending.send(began, arrivals).await });
        let home = self.watch(Time(began.0 + episode.last_burst_ends().0));
        self.sim.run_until(|| load.running.get() == 0 || load.failed.borrow().is_some());
        if let Some(error) = load.failed.borrow_mut().take() {
            return Err(error.into());
        }
        if load.running.get() > 0 {
            return Err(EpisodeFailure::Stalled);
        }
        self.sim.run_until(|| home.get().is_some());
        let held = self.offloaded.as_ref().map(Offloaded::figures).unwrap_or_default();
        Ok(figures(&load.latencies.borrow(), home.get().unwrap_or(PATIENCE), held))
    }

    /// How long after `since` everything is home for the first time, once it is.
    fn watch(&self, since: Time) -> Rc<Cell<Option<Nanos>>> {
        let home = Rc::new(Cell::new(None));
        let Some(volume) = self.offloaded.clone() else {
            home.set(Some(Nanos(0)));
            return home;
        };
        let (runtime, told) = (self.sim.handle(self.host), Rc::clone(&home));
        self.sim.handle(self.host).spawn(async move {
            runtime.sleep_until(since).await;
            while volume.figures().held.0 > 0 && runtime.now().since(since) < PATIENCE {
                runtime.sleep(LOOK).await;
            }
            told.set(Some(runtime.now().since(since)));
        });
        home
    }
}

fn figures(
    [reads, writes, lenders]: &[Latencies; 3],
    home_after: Nanos,
    held: OffloadFigures,
) -> EpisodeFigures {
    let mut all = reads.clone();
    all.add(writes);
    let ms = |us: f64| round3(us / 1e3);
    let p99 = |of: &Latencies| ms(of.at_us(Percentile::whole(99)));
    let writes_sent = (held.offloaded + held.home).max(1);
    EpisodeFigures {
        requests: all.count(),
        mean_ms: ms(all.mean_us()),
        p99_ms: p99(&all),
        reads_p99_ms: p99(reads),
        writes_p99_ms: p99(writes),
        lenders_mean_ms: ms(lenders.mean_us()),
        lenders_p99_ms: p99(lenders),
        offloaded_percent: round3(100.0 * held.offloaded as f64 / writes_sent as f64),
        held_max_mb: round3(DRIVES as f64 * held.held_max.bytes() as f64 / 1e6),
        home_after_s: round3(home_after.as_secs_f64()),
    }
}

/// What the busy volume's requests go to.
fn on_drive(
    sim: &Sim,
    host: NodeId,
    drive: Rc<dyn BlockDevice>,
    on: On,
) -> Result<Rc<dyn BlockDevice>, EpisodeFailure> {
    if on == On::Drive {
        return Ok(drive);
    }
    let runtime = sim.handle(host);
    let config = VolumeConfig::for_device(drive.capabilities().capacity);
    let volume =
        sim.block_on(host, async move { Volume::create(runtime, drive, &config).await })?;
    Ok(Rc::new(volume))
}

/// Stores at the ends of the lenders' drives, and the base volume above them.
fn borrow(
    sim: &Sim,
    host: NodeId,
    base: Rc<dyn BlockDevice>,
    meters: Vec<Meter>,
    policy: OffloadPolicy,
) -> Result<Offloaded, EpisodeFailure> {
    let runtime = sim.handle(host);
    sim.block_on(host, async move {
        let mut lenders: Vec<Rc<dyn Lender>> = Vec::new();
        for meter in meters {
            let capacity = meter.capabilities().capacity.0;
            let len = capacity / STORE / 8 * 8;
            let extent = Extent::new(capacity / 8 * 8 - len, len);
            let device: Rc<dyn BlockDevice> = Rc::new(meter.clone());
            let part: Rc<dyn BlockDevice> = Rc::new(Part { device, extent });
            let options = StoreOptions { log: LOG };
            let store = CircularStore::create(runtime.clone(), vec![part], options).await?;
            lenders.push(Rc::new(Lending::open(store, Some(meter)).await?));
        }
        Offloaded::create(&runtime, Rc::clone(&base)).await?;
        Ok(Offloaded::open(runtime, base, lenders, policy.options()).await?)
    })
}

impl Load {
    /// Sends each request when its time has come, whatever became of earlier ones.
    async fn send(self: Rc<Self>, began: Time, arrivals: Vec<Arrival>) {
        for (tag, arrival) in arrivals.into_iter().enumerate() {
            self.runtime.sleep_until(Time(began.0 + arrival.at.0)).await;
            let Arrival { extent, volume, is_read, .. } = arrival;
            let request = if is_read {
                Request::Read { extent }
            } else {
                let payload = Payload::tags((tag as u64) << 8, extent.len);
                Request::Write { extent, payload, fua: true, hint: Hint::None }
            };
            let kind = if volume > 0 { 2 } else { usize::from(!is_read) };
            let (load, sent) = (Rc::clone(&self), self.runtime.now());
            let answer = self.devices[volume].submit(request);
            self.running.set(self.running.get() + 1);
            self.runtime.spawn(async move {
                match answer.await {
                    Ok(_) => {
                        let took = load.runtime.now().since(sent);
                        load.latencies.borrow_mut()[kind].record(took);
                    }
                    Err(error) => *load.failed.borrow_mut() = Some(error),
                }
                load.running.set(load.running.get() - 1);
            });
        }
        self.running.set(self.running.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use manylogs_disk::profile;

    use super::*;

    /// Bursts as dense as the fitted ones of the first episode, which a drive cannot keep up with.
    fn small() -> (Episode, Arc<DriveSettings>) {
        let episode = Episode {
            requests: 40_000,
            span: Nanos::from_secs(120),
            burst: Nanos::from_secs(4),
            ..Episode::ALL[0]
        };
        let library = profile::Library::of_user();
        let profile = library.find_or_load("cheetah-15k5").unwrap().unwrap();
        (episode, Arc::new(DriveSettings::new(Arc::new(profile), false)))
    }

    #[test]
    fn a_seed_decides_everything_and_stores_help_and_end_empty() {
        let (episode, drive) = small();
        let run = |policy, seed| run(&episode, &drive, On::Drive, policy, seed).unwrap();
        let alone = run(OffloadPolicy::None, 1);
        let ours = run(OffloadPolicy::Ours(OursOptions::default()), 1);
        assert_eq!(ours, run(OffloadPolicy::Ours(OursOptions::default()), 1));
        assert_ne!(ours, run(OffloadPolicy::Ours(OursOptions::default()), 2));
        assert_eq!(alone.requests, ours.requests);
        assert!(ours.mean_ms * 5.0 < alone.mean_ms, "{ours:?} beside {alone:?}");
        assert!(ours.offloaded_percent > 10.0 && ours.home_after_s < 300.0, "{ours:?}");
        assert_eq!(alone.offloaded_percent, 0.0);
    }
}
