//! Runs an episode in a simulated world of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use manylogs::{Volume, VolumeConfig, VolumeError};
use manylogs_block::{
    BlockDevice, Handle, Hint, IoError, Nanos, Payload, Request, SECTOR_BYTES, Sectors, Time,
};
use manylogs_disk::device::ModelledDrive;
use manylogs_disk::{ContentTooLarge, Controller, ControllerMemory};
use manylogs_everest::{Lender, Meter, OffloadError, Offloaded, StoreError};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use thiserror::Error;

use super::devices::{Beginning, HEADER, end_of, lend};
use super::figures::{EpisodeFigures, HeldAt, Waited, of_volume_mb};
use super::generate::{Arrival, DRIVES, Episode, VOLUMES};
use super::policy::OffloadPolicy;
use crate::replay::DriveSettings;

/// What a drive has of its controllers' memory: a volume has a third of 128 MB (the paper, section
/// 4.3), half of that for writes, and is four drives.
const MEMORY: ControllerMemory = {
    let half = Sectors((64 << 20) / SECTOR_BYTES / (VOLUMES as u64 * DRIVES));
    ControllerMemory { writes: half, reads: half }
};
/// How often it is looked whether everything is home.
const LOOK: Nanos = Nanos::from_millis(100);
/// How often it is noted what stores hold.
const SAMPLE: Nanos = Nanos::from_secs(10);
/// What is not home after this long counts as not home.
const PATIENCE: Nanos = Nanos::from_secs(3600);

/// What the busy volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A drive.
    Drive,
    /// A drive behind a controller with memory that survives power cuts. The drives of the other
    /// volumes have such controllers, too.
    Controller,
    /// A Manylogs volume.
    Volume,
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
    /// The drive cannot be modelled.
    #[error(transparent)]
    Drive(#[from] ContentTooLarge),
    /// What clients use does not fit.
    #[error("clients use {} MB of {} MB", .over.bytes() / 1_000_000, .capacity.bytes() / 1_000_000)]
    Room {
        /// What they use.
        over: Sectors,
        /// What there is.
        capacity: Sectors,
    },
    /// Its bursts have no length.
    #[error("the length of the bursts: {0}")]
    Fit(String),
    /// Requests are in flight, and no event is left that could answer them.
    #[error("the volumes stopped answering; this is a defect")]
    Stalled,
}

struct World {
    sim: Sim,
    host: NodeId,
    devices: Vec<Rc<dyn BlockDevice>>,
    offloaded: Option<Offloaded>,
    reclaims: bool,
}

/// What the clients share.
struct Load {
    runtime: Handle,
    devices: Vec<Rc<dyn BlockDevice>>,
    running: Cell<usize>,
    waited: RefCell<Waited>,
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
    run_over_time(episode, drive, on, policy, seed).map(|(figures, _)| figures)
}

/// As [`run`], and what stores held over time.
///
/// # Errors
/// As there.
pub fn run_over_time(
    episode: &Episode,
    drive: &Arc<DriveSettings>,
    on: On,
    policy: OffloadPolicy,
    seed: u64,
) -> Result<(EpisodeFigures, Vec<HeldAt>), EpisodeFailure> {
    World::new(drive, on, policy, seed)?.run(episode, episode.arrivals(room(drive), seed))
}

/// The part of a drive that requests are for. They are the same whatever is below them: a volume is
/// smaller than its drive.
pub(super) fn room(drive: &DriveSettings) -> Sectors {
    Sectors(drive.capacity().0 / 20 * 17 / 8 * 8)
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
            let drive = Rc::new(ModelledDrive::new(sim.handle(node), &drive.profile, &options));
            match on {
                On::Controller => Rc::new(Controller::new(sim.handle(node), drive, MEMORY)),
                On::Drive | On::Volume => drive,
            }
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
        let reclaims = policy != OffloadPolicy::Kept;
        Ok(Self { sim, host, devices, offloaded, reclaims })
    }

    fn run(
        &self,
        episode: &Episode,
        arrivals: Vec<Arrival>,
    ) -> Result<(EpisodeFigures, Vec<HeldAt>), EpisodeFailure> {
        let began = self.sim.now();
        let load = Rc::new(Load {
            runtime: self.sim.handle(self.host),
            devices: self.devices.clone(),
            running: Cell::new(1),
            waited: RefCell::default(),
            failed: RefCell::default(),
        });
        let sending = Rc::clone(&load);
        load.runtime.spawn(async move { sending.send(began, arrivals).await });
        let home = self.watch(Time(began.0 + episode.last_burst_ends().0));
        let held = self.sample(began, episode.span);
        self.sim.run_until(|| load.running.get() == 0 || load.failed.borrow().is_some());
        if let Some(error) = load.failed.borrow_mut().take() {
            return Err(error.into());
        }
        if load.running.get() > 0 {
            return Err(EpisodeFailure::Stalled);
        }
        self.sim.run_until(|| home.get().is_some());
        let did = self.offloaded.as_ref().map(Offloaded::figures).unwrap_or_default();
        let (held, home_after) = (held.take(), home.get().unwrap_or(PATIENCE));
        let figures = load.waited.borrow().figures(home_after, did, &held);
        Ok((figures, held))
    }

    /// Notes what stores hold, as long as the episode lasts.
    fn sample(&self, began: Time, span: Nanos) -> Rc<RefCell<Vec<HeldAt>>> {
        let held = Rc::new(RefCell::new(Vec::new()));
        if let Some(volume) = self.offloaded.clone() {
            let (runtime, noted) = (self.sim.handle(self.host), Rc::clone(&held));
            self.sim.handle(self.host).spawn(async move {
                while runtime.now().since(began) < span {
                    runtime.sleep(SAMPLE).await;
                    let (since, mb) = (runtime.now().since(began), of_volume_mb(&volume.figures()));
                    noted.borrow_mut().push(HeldAt { since, mb });
                }
            });
        }
        held
    }

    /// How long after `since` everything is home for the first time, once it is.
    fn watch(&self, since: Time) -> Rc<Cell<Option<Nanos>>> {
        let home = Rc::new(Cell::new(None));
        let Some(volume) = self.offloaded.clone().filter(|_| self.reclaims) else {
            home.set(Some(if self.reclaims { Nanos(0) } else { PATIENCE }));
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

/// What the busy volume's requests go to.
fn on_drive(
    sim: &Sim,
    host: NodeId,
    drive: Rc<dyn BlockDevice>,
    on: On,
) -> Result<Rc<dyn BlockDevice>, EpisodeFailure> {
    if on != On::Volume {
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
            let extent = end_of(&meter);
            lenders.push(Rc::new(lend(&runtime, meter, extent, 100).await?));
        }
        Offloaded::create(&runtime, Rc::clone(&base)).await?;
        Ok(Offloaded::open(runtime, base, lenders, policy.options(DRIVES)).await?)
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
            let (load, sent) = (Rc::clone(&self), self.runtime.now());
            let answer = self.devices[volume].submit(request);
            self.running.set(self.running.get() + 1);
            self.runtime.spawn(async move {
                match answer.await {
                    Ok(_) => {
                        let took = load.runtime.now().since(sent);
                        let waited = &mut *load.waited.borrow_mut();
                        match (volume, is_read) {
                            (0, true) => waited.reads.record(took),
                            (0, false) => waited.writes.record(took),
                            _ => waited.lenders.record(took),
                        }
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

    use super::super::OursOptions;
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
        // What is never brought home is held to the end.
        let (kept, over_time) =
            run_over_time(&episode, &drive, On::Drive, OffloadPolicy::Kept, 1).unwrap();
        assert_eq!((over_time.len(), kept.home_after_s), (12, PATIENCE.as_secs_f64()));
        assert!(over_time.is_sorted_by(|one, next| one.mb <= next.mb), "{over_time:?}");
        assert!(over_time.last().is_some_and(|at| at.mb > ours.held_max_mb), "{over_time:?}");
    }
}
