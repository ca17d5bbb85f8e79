//! A disk with a volatile cache that can lose its power, or outlive the process that used it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, IoResult, Lba, Media, Nanos, Payload,
    Request, Rng, Sector, Sectors, completion,
};

/// How much longer than others some reads take.
const SLOW_READ: u64 = 20;

/// How a [`CrashDisk`] behaves.
#[derive(Clone, Copy, Debug)]
pub struct CrashDiskConfig {
    /// Size.
    pub capacity: Sectors,
    /// The atomic unit of the medium: a torn write keeps or loses whole ones.
    pub physical_sector: Sectors,
    /// Whether acknowledged writes may be lost until a flush.
    pub volatile_cache: bool,
    /// Requests take a random time up to this, so that they overtake one another.
    pub latency_max: Nanos,
}

/// What of the unflushed sectors is found after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Survival {
    /// None.
    Nothing,
    /// The newest version of each, requests in flight included.
    Everything,
    /// For each physical sector any version it had since it was last durable, by chance.
    Random,
}

/// What a disk holds while nobody uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DiskImage {
    /// What no power cut takes away.
    pub durable: Media,
    /// Versions that a power cut may take, by physical sector, oldest first.
    volatile: BTreeMap<u64, Vec<Version>>,
}

/// What a write left in one physical sector: its sectors that were written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Version {
    /// The order in which writes took effect in the cache.
    applied: u64,
    sectors: Vec<(u64, Sector)>,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct CrashDisk(Rc<Disk>);

#[derive(Debug)]
struct Disk {
    runtime: Handle,
    config: CrashDiskConfig,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    image: DiskImage,
    /// Writes that were submitted and are not acknowledged yet.
    in_flight: BTreeMap<u64, (Extent, Payload)>,
    applied: u64,
    submitted: u64,
    events: u64,
    rng: Rng,
}

impl CrashDisk {
    /// A disk that holds `image`. Its tasks belong to the node of `runtime`, which should not be
    /// the node of its user: a killed process does not stop the disk.
    #[must_use]
    pub fn new(runtime: Handle, config: CrashDiskConfig, image: DiskImage) -> Self {
        let rng = Rng::new(runtime.random());
        // Versions carried over must stay older than what is written from now on.
        let applied = image.volatile.values().flatten().map(|v| v.applied).max().unwrap_or(0);
        let state =
            State { image, in_flight: BTreeMap::new(), applied, submitted: 0, events: 0, rng };
        Self(Rc::new(Disk { runtime, config, state: RefCell::new(state) }))
    }

    /// Counts submissions and completions: every point at which a crash can be told apart.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.0.state.borrow().events
    }

    /// What the disk holds after its user died: the cache is kept, and of each write in flight
    /// any part may still arrive.
    #[must_use]
    pub fn after_kill(&self, rng: &mut Rng) -> DiskImage {
        let mut image = self.0.state.borrow().image.clone();
        let state = self.0.state.borrow();
        for (applied, (extent, payload)) in (state.applied + 1..).zip(state.in_flight.values()) {
            for (sector, version) in self.versions(*extent, payload, applied) {
                if rng.one_in(2) {
                    image.volatile.entry(sector).or_default().push(version);
                }
            }
        }
        if !self.0.config.volatile_cache {
            image.settle(u64::MAX);
        }
        image
    }

    /// What the disk holds after its power was cut now.
    #[must_use]
    pub fn after_power_cut(&self, survival: Survival, rng: &mut Rng) -> DiskImage {
        let state = self.0.state.borrow();
        let mut image = state.image.clone();
        for (extent, payload) in state.in_flight.values() {
            for (sector, version) in self.versions(*extent, payload, u64::MAX) {
                image.volatile.entry(sector).or_default().push(version);
            }
        }
        image.cut(survival, rng);
        image
    }

    fn versions(&self, extent: Extent, payload: &Payload, applied: u64) -> BTreeMap<u64, Version> {
        let mut out = BTreeMap::new();
        for (lba, sector) in extent.range().zip(payload.sectors()) {
            let Some(sector) = sector else { continue };
            let version = out
                .entry(lba / self.0.config.physical_sector.0)
                .or_insert_with(|| Version { applied, sectors: Vec::new() });
            version.sectors.push((lba, sector));
        }
        out
    }

    fn latency(&self) -> Nanos {
        let max = self.0.config.latency_max.0;
        Nanos(1 + self.0.state.borrow_mut().rng.below(max))
    }

    fn write(&self, extent: Extent, payload: Payload, fua: bool) -> Completion {
        let id = {
            let mut state = self.0.state.borrow_mut();
            state.submitted += 1;
            let id = state.submitted;
            state.in_flight.insert(id, (extent, payload));
            id
        };
        self.later(move |disk| {
            let Some((extent, payload)) = disk.0.state.borrow_mut().in_flight.remove(&id) else {
                unreachable!("a write completes once");
            };
            let durable = fua || !disk.0.config.volatile_cache;
            let mut state = disk.0.state.borrow_mut();
            state.applied += 1;
            let versions = disk.versions(extent, &payload, state.applied);
            for (sector, version) in versions {
                state.image.volatile.entry(sector).or_default().push(version);
                if durable {
                    // Older versions of the sector in the cache cannot come back over this one.
                    state.image.settle_sector(sector, u64::MAX);
                }
            }
            Ok(Payload::default())
        })
    }

    fn later(&self, finish: impl FnOnce(&Self) -> IoResult + 'static) -> Completion {
        self.after(self.latency(), finish)
    }

    fn after(
        &self,
        latency: Nanos,
        finish: impl FnOnce(&Self) -> IoResult + 'static,
    ) -> Completion {
        let (completer, completion) = completion();
        self.0.state.borrow_mut().events += 1;
        let (disk, sleep) = (self.clone(), self.0.runtime.sleep(latency));
        self.0.runtime.spawn(async move {
            sleep.await;
            let result = finish(&disk);
            disk.0.state.borrow_mut().events += 1;
            completer.complete(result);
        });
        completion
    }
}

impl BlockDevice for CrashDisk {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            capacity: self.0.config.capacity,
            physical_sector: self.0.config.physical_sector,
            rotational: true,
            volatile_cache: self.0.config.volatile_cache,
            native_fua: true,
            discard: false,
        }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Read { extent } => {
                // Now and then a read takes long: what it points to must stay until it ends.
                let slow = if self.0.state.borrow_mut().rng.one_in(4) { SLOW_READ } else { 1 };
                let latency = Nanos(self.latency().0 * slow);
                self.after(latency, move |disk| Ok(disk.0.state.borrow().image.read(extent)))
            }
            Request::Write { extent, payload, fua, .. } => self.write(extent, payload, fua),
            Request::WriteZeroes { extent, fua } => {
                self.write(extent, Payload::zeroes(extent.len), fua)
            }
            Request::Discard { .. } => self.later(|_| Ok(Payload::default())),
            Request::Flush => {
                let covered = self.0.state.borrow().applied;
                self.later(move |disk| {
                    disk.0.state.borrow_mut().image.settle(covered);
                    Ok(Payload::default())
                })
            }
        }
    }
}

impl DiskImage {
    /// An image whose content is all durable.
    #[must_use]
    pub fn durable(media: Media) -> Self {
        Self { durable: media, volatile: BTreeMap::new() }
    }

    /// What a user of the disk reads, cache included.
    #[must_use]
    pub fn read(&self, extent: Extent) -> Payload {
        let mut seen = Media::default();
        seen.write(extent, &self.durable.read(extent));
        for version in self.volatile.values().flatten() {
            for (lba, sector) in &version.sectors {
                if extent.range().contains(lba) {
                    seen.set(*lba, sector.clone());
                }
            }
        }
        seen.read(extent)
    }

    /// Takes the power away.
    pub fn cut(&mut self, survival: Survival, rng: &mut Rng) {
        for versions in std::mem::take(&mut self.volatile).into_values() {
            let kept = match survival {
                Survival::Nothing => 0,
                Survival::Everything => versions.len() as u64,
                Survival::Random => rng.below(versions.len() as u64 + 1),
            };
            for version in versions.into_iter().take(manylogs_block::to_usize(kept)) {
                for (lba, sector) in version.sectors {
                    self.durable.set(lba, sector);
                }
            }
        }
    }

    /// Damages one sector of the medium: it reads as `sector` from now on.
    pub fn corrupt(&mut self, at: Lba, sector: Sector) {
        self.durable.set(at.0, sector);
    }

    fn settle(&mut self, up_to: u64) {
        let sectors: Vec<u64> = self.volatile.keys().copied().collect();
        for sector in sectors {
            self.settle_sector(sector, up_to);
        }
    }

    fn settle_sector(&mut self, sector: u64, up_to: u64) {
        let Some(versions) = self.volatile.get_mut(&sector) else { return };
        while versions.first().is_some_and(|version| version.applied <= up_to) {
            for (lba, content) in versions.remove(0).sectors {
                self.durable.set(lba, content);
            }
        }
        if versions.is_empty() {
            self.volatile.remove(&sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, Order, Sim};

    fn disk(volatile_cache: bool) -> (Sim, NodeId, CrashDisk) {
        let sim = Sim::new(3, Order::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let config = CrashDiskConfig {
            capacity: Sectors(64),
            physical_sector: Sectors(1),
            volatile_cache,
            latency_max: Nanos::from_millis(1),
        };
        let disk = CrashDisk::new(sim.handle(drive), config, DiskImage::default());
        (sim, user, disk)
    }

    fn write(lba: u64, tag: u64, fua: bool) -> Request {
        let (extent, payload) = (Extent::new(lba, 1), Payload::tags(tag, Sectors(1)));
        Request::Write { extent, payload, fua, hint: manylogs_block::Hint::None }
    }

    fn after_cut(disk: &CrashDisk, survival: Survival) -> Vec<Sector> {
        let image = disk.after_power_cut(survival, &mut Rng::new(1));
        (0..4).map(|lba| image.durable.get(lba)).collect()
    }

    #[test]
    fn an_unflushed_write_may_be_lost_and_a_flushed_or_fua_one_is_not() {
        let (sim, user, disk) = disk(true);
        let device = disk.clone();
        sim.block_on(user, async move {
            device.submit(write(0, 10, false)).await.unwrap();
            device.submit(Request::Flush).await.unwrap();
            device.submit(write(1, 11, true)).await.unwrap();
            device.submit(write(2, 12, false)).await.unwrap();
        });
        use Sector::{Tag, Zero};
        assert_eq!(after_cut(&disk, Survival::Nothing), [Tag(10), Tag(11), Zero, Zero]);
        assert_eq!(after_cut(&disk, Survival::Everything), [Tag(10), Tag(11), Tag(12), Zero]);
    }

    #[test]
    fn an_older_cached_version_never_covers_a_newer_durable_one() {
        let (sim, user, disk) = disk(true);
        let device = disk.clone();
        sim.block_on(user, async move {
            device.submit(write(0, 1, false)).await.unwrap();
            device.submit(write(0, 2, true)).await.unwrap();
        });
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random] {
            assert_eq!(after_cut(&disk, survival)[0], Sector::Tag(2));
        }
    }

    #[test]
    fn without_a_cache_every_acknowledged_write_is_durable() {
        let (sim, user, disk) = disk(false);
        let device = disk.clone();
        sim.block_on(user, async move {
            device.submit(write(3, 9, false)).await.unwrap();
        });
        assert_eq!(after_cut(&disk, Survival::Nothing)[3], Sector::Tag(9));
    }
}
