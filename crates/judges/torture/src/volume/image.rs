//! Makes volumes as images of disks, and recovers them in a virtual world of their own: for tests
//! that run volumes elsewhere.

use std::rc::Rc;

use manylogs::{CreateOptions, Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Payload};
use manylogs_logstore::VolumeId;
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Oracle, Sim, Survival, TaskOrder};

use crate::report::Violation;
use crate::volume::disks::DiskImages;
use crate::volume::machine::Images;
use crate::volume::recovery::Recovered;

/// The content of a crashed image.
#[derive(Debug)]
pub struct CrashedVolume(Recovered);

impl CrashedVolume {
    /// Recovers `disk`: with the snapshot, and if there is one, also from the logs alone.
    ///
    /// # Errors
    /// If the disk holds no volume, it cannot be opened or read, or the two tables differ.
    pub fn recover(disk: DiskImage, config: CrashDiskConfig, seed: u64) -> Result<Self, Violation> {
        let images = Images { disk: DiskImages::one(disk), nvram: None };
        let recovered = Recovered::of(&images, config, seed, false).map_err(Violation)?;
        recovered.map(Self).ok_or_else(|| Violation("no volume is found".to_owned()))
    }

    /// The content of the volume when it is opened as usual.
    #[must_use]
    pub const fn content(&self) -> &Payload {
        self.0.content()
    }

    /// Checks every sector, in both recoveries. `as_seen` turns the volume's content into the form
    /// that the oracle knows.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn check(
        &self,
        oracle: &Oracle,
        as_seen: impl Fn(&Payload) -> Payload,
    ) -> Result<(), Violation> {
        self.0.check_as(oracle, as_seen).map_err(Violation)
    }
}

/// The image of a new volume.
///
/// # Errors
/// If a volume cannot be made with these parameters.
pub fn new_volume(
    config: CrashDiskConfig,
    parameters: &VolumeConfig,
    volume: VolumeId,
    seed: u64,
) -> Result<DiskImage, Violation> {
    let sim = Sim::new(seed, TaskOrder::Fifo);
    let (drive, user) = (sim.node(), sim.node());
    let disk = CrashDisk::new(sim.handle(drive), config, DiskImage::default());
    let device: Rc<dyn BlockDevice> = Rc::new(disk.clone());
    let (runtime, parameters) = (sim.handle(user), *parameters);
    let created = sim.block_on(user, async move {
        let options = CreateOptions { volume: Some(volume), ..CreateOptions::default() };
        Volume::create_with(runtime, device, &parameters, &options).await.map(drop)
    });
    created.map_err(|error| Violation(format!("create: {error}")))?;
    Ok(disk.after_power_cut(Survival::Everything, &mut manylogs_block::Rng::new(seed)))
}
