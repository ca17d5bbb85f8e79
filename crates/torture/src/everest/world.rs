//! Base volumes, a store and their clients on simulated disks.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Payload, Request, Rng};
use manylogs_everest::{CircularStore, Lender, OffloadOptions, Offloaded, StoreOptions};
use manylogs_logstore::Space;
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Survival};

use super::plan::EverestPlan;

/// Content of the disks that nobody uses: the base volumes first, then the store's disks.
#[derive(Clone)]
pub(super) struct Images(pub(super) Vec<DiskImage>);

impl Images {
    pub(super) fn blank(plan: &EverestPlan) -> Self {
        Self(vec![DiskImage::default(); plan.bases.len() + plan.stores.len()])
    }

    /// A hash: equal for equal contents, and different for others but by rare chance.
    pub(super) fn fingerprint(&self) -> u64 {
        let mix = |sum: u64, image: &DiskImage| Rng::new(sum ^ image.fingerprint()).next_u64();
        self.0.iter().fold(0, mix)
    }
}

/// The disks of a world. Clones are the same disks.
#[derive(Clone)]
pub(super) struct Disks {
    bases: Vec<CrashDisk>,
    pub(super) stores: Vec<CrashDisk>,
}

/// Which of the disks the last event was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Events {
    pub(super) bases: u64,
    pub(super) stores: u64,
}

impl Disks {
    pub(super) fn new(runtime: &Handle, plan: &EverestPlan, images: &Images) -> Self {
        let make = |(config, image): (&CrashDiskConfig, &DiskImage)| {
            CrashDisk::new(runtime.clone(), *config, image.clone())
        };
        let (of_bases, of_stores) = images.0.split_at(plan.bases.len());
        Self {
            bases: plan.bases.iter().zip(of_bases).map(make).collect(),
            stores: plan.stores.iter().zip(of_stores).map(make).collect(),
        }
    }

    pub(super) fn events(&self) -> Events {
        let sum = |disks: &[CrashDisk]| disks.iter().map(CrashDisk::events).sum();
        Events { bases: sum(&self.bases), stores: sum(&self.stores) }
    }

    /// Kills the users of all disks or cuts the power of all, now.
    pub(super) fn crash(&self, rng: &mut Rng) -> Images {
        let killed = rng.one_in(2);
        let mut crash = |disk: &CrashDisk| {
            if killed {
                return disk.after_kill(rng);
            }
            let survival = match rng.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random,
            };
            disk.after_power_cut(survival, rng)
        };
        Images(self.bases.iter().chain(&self.stores).map(&mut crash).collect())
    }

    fn of_store(&self) -> Vec<Rc<dyn BlockDevice>> {
        self.stores.iter().map(|disk| Rc::new(disk.clone()) as Rc<dyn BlockDevice>).collect()
    }

    /// Makes the store, or opens it, and takes up the base volumes.
    pub(super) async fn open(
        &self,
        runtime: Handle,
        plan: &EverestPlan,
        fresh: bool,
    ) -> Result<Opened, String> {
        let devices = self.of_store();
        let store = if fresh {
            let options = StoreOptions { log: plan.log };
            CircularStore::create(runtime.clone(), devices, options).await
        } else {
            CircularStore::open(runtime.clone(), devices).await
        };
        let store: Rc<dyn Lender> = Rc::new(store.map_err(|error| error.to_string())?);
        let mut volumes = Vec::new();
        for (number, disk) in (0..).zip(&self.bases) {
            let options = OffloadOptions { base: Space(number), reclaim_every: plan.reclaim_every };
            let (disk, store) = (Rc::new(disk.clone()), Rc::clone(&store));
            let volume = Offloaded::open(runtime.clone(), disk, store, options).await;
            volumes.push(volume.map_err(|error| error.to_string())?);
        }
        Ok(Opened { volumes })
    }
}

/// Devices in use.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) volumes: Vec<Offloaded>,
}

impl Opened {
    /// Everything that the volumes hold.
    pub(super) async fn read_all(&self) -> Result<Vec<Payload>, String> {
        let mut contents = Vec::with_capacity(self.volumes.len());
        for volume in &self.volumes {
            let extent = Extent::new(0, volume.capabilities().capacity.0);
            let read = volume.submit(Request::Read { extent }).await;
            contents.push(read.map_err(|error| format!("read: {error}"))?);
        }
        Ok(contents)
    }
}
