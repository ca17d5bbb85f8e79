//! The drives of a chain and their content.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Payload, Request, Rng};
use manylogs_filters::Zoned;
use manylogs_gecko::{Chain, ChainError};
use manylogs_logstore::ondisk::equal_logs::{log_count, logs};
use manylogs_logstore::store::Device;
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Survival};

use super::plan::GeckoPlan;

/// Content of drives that are not in use.
#[derive(Clone)]
pub(super) struct Images(pub(super) Vec<DiskImage>);

impl Images {
    pub(super) fn blank(plan: &GeckoPlan) -> Self {
        Self(vec![DiskImage::default(); plan.drives.len()])
    }

    /// A hash: equal contents have equal hashes, and other contents different ones, except by rare
    /// chance.
    pub(super) fn fingerprint(&self) -> u64 {
        let mix = |sum: u64, image: &DiskImage| Rng::new(sum ^ image.fingerprint()).next_u64();
        self.0.iter().fold(0, mix)
    }
}

/// The drives of a world. Clones are the same drives.
#[derive(Clone)]
pub(super) struct Drives(Vec<CrashDisk>);

impl Drives {
    pub(super) fn new(runtime: &Handle, plan: &GeckoPlan, images: &Images) -> Self {
        let drives = plan.drives.iter().zip(&images.0);
        let drive = |(config, image): (&CrashDiskConfig, &DiskImage)| {
            CrashDisk::new(runtime.clone(), *config, image.clone())
        };
        Self(drives.map(drive).collect())
    }

    pub(super) fn events(&self) -> u64 {
        self.0.iter().map(CrashDisk::events).sum()
    }

    /// Kills the user of all drives or cuts their power, now. Each drive loses other data.
    pub(super) fn crash(&self, rng: &mut Rng) -> Images {
        let killed = rng.one_in(2);
        let mut crash = |drive: &CrashDisk| {
            if killed {
                return drive.after_kill(rng);
            }
            let survival = match rng.below(4) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random,
            };
            drive.after_power_cut(survival, rng)
        };
        Images(self.0.iter().map(&mut crash).collect())
    }

    /// Makes the chain for the first incarnation, or opens it.
    pub(super) async fn open(
        &self,
        runtime: Handle,
        plan: &GeckoPlan,
        incarnation: usize,
        fresh: bool,
    ) -> Result<Chain, ChainError> {
        let device = |drive: &CrashDisk| -> Rc<dyn BlockDevice> {
            if !plan.zoned {
                return Rc::new(drive.clone());
            }
            let segments = log_count(drive.capabilities().capacity, plan.segment);
            let segments = logs(Device(0), segments, plan.segment).map(|(_, segment)| segment);
            Rc::new(Zoned::new(drive.clone(), segments))
        };
        let mut drives: Vec<_> = self.0.iter().map(device).collect();
        let settings = plan.settings[incarnation];
        if fresh {
            return Chain::create(runtime, drives, plan.options(), settings).await;
        }
        // A chain finds its members by their labels, in whatever order the drives come.
        drives.rotate_left(incarnation % plan.drives.len());
        Chain::open(runtime, drives, settings).await
    }
}

/// Reads the whole content of the chain.
pub(super) async fn read_all(chain: &Chain) -> Result<Payload, String> {
    let extent = Extent::new(0, chain.capabilities().capacity.0);
    let read = chain.submit(Request::Read { extent }).await;
    read.map_err(|error| format!("read: {error}"))
}
