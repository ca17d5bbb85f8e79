//! The devices of a world: a disk and, where the table is kept apart, non-volatile RAM.

use std::rc::Rc;

use manylogs::{OpenOptions, Phase, PhaseProbe, RecoveryReport, TablePlace, Volume, VolumeError};
use manylogs_block::{BlockDevice, Geometry, Handle, Nvram, Rng};
use manylogs_sim::{CrashDiskConfig, CrashNvram, NvramImage, Survival};

use crate::volume::disks::{DiskImages, Disks};

/// Content of the devices that nobody uses.
#[derive(Clone)]
pub(crate) struct Images {
    pub(crate) disk: DiskImages,
    pub(crate) nvram: Option<NvramImage>,
}

impl Images {
    /// Makes the devices of a new volume with its table in `table`, on an array if one is given.
    pub(crate) fn blank(table: TablePlace, array: Option<Geometry>) -> Self {
        let nvram = match table {
            TablePlace::Logs => None,
            TablePlace::Nvram(size) => Some(NvramImage::blank(size)),
        };
        Self { disk: DiskImages::blank(array), nvram }
    }

    /// A hash: equal for equal contents, and different for others but by rare chance.
    pub(crate) fn fingerprint(&self) -> u64 {
        let nvram = self.nvram.as_ref().map_or(0, NvramImage::fingerprint);
        self.disk.fingerprint().wrapping_add(nvram)
    }

    /// Makes durable all that a power cut could still take.
    pub(crate) fn settle(&mut self) {
        self.disk.settle();
        if let Some(nvram) = &mut self.nvram {
            nvram.settle();
        }
    }
}

/// See the module. Clones are the same devices.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) disk: Disks,
    nvram: Option<CrashNvram>,
}

impl Machine {
    /// Devices that hold `images`; see [`Disks::new`].
    pub(crate) fn new(runtime: Handle, disk: CrashDiskConfig, images: Images) -> Self {
        Self {
            disk: Disks::new(runtime, disk, images.disk),
            nvram: images.nvram.map(CrashNvram::new),
        }
    }

    pub(crate) fn nvram(&self) -> Option<Rc<dyn Nvram>> {
        let nvram = self.nvram.clone()?;
        Some(Rc::new(nvram))
    }

    /// The disk as the volume gets it, which tells `probe` what it writes for.
    pub(crate) fn device(&self, probe: &PhaseProbe) -> Rc<dyn BlockDevice> {
        self.disk.device(probe)
    }

    /// Opens the volume on these devices.
    pub(crate) async fn open(
        &self,
        runtime: Handle,
        options: OpenOptions,
    ) -> Result<(Volume, RecoveryReport), VolumeError> {
        let probe = PhaseProbe::default();
        let options = OpenOptions { probe: probe.clone(), nvram: self.nvram(), ..options };
        Volume::open(runtime, self.device(&probe), &options).await
    }

    /// Points at which a crash can be told apart.
    pub(crate) fn events(&self) -> u64 {
        self.disk.events() + self.nvram.as_ref().map_or(0, CrashNvram::operations)
    }

    /// What the volume last used the disk for. A table kept apart is formatted before the disk is.
    pub(crate) fn phase(&self) -> Phase {
        if self.disk.events() == 0 { Phase::Open } else { self.disk.phase() }
    }

    /// `watch` is called between any two operations on the non-volatile RAM.
    pub(crate) fn watch_nvram(&self, watch: impl FnMut() + 'static) {
        if let Some(nvram) = &self.nvram {
            nvram.watch(watch);
        }
    }

    /// Must come at the end: the watcher most often holds these devices.
    pub(crate) fn unwatch_nvram(&self) {
        if let Some(nvram) = &self.nvram {
            nvram.unwatch();
        }
    }

    /// Kills the user or cuts the power, now: of all devices.
    pub(crate) fn crash(&self, rng: &mut Rng) -> Images {
        let nvram = self.nvram.as_ref();
        if rng.one_in(2) {
            return Images {
                disk: self.disk.after_kill(rng),
                nvram: nvram.map(CrashNvram::after_kill),
            };
        }
        let (of_disk, of_nvram) = (survival(rng), survival(rng));
        Images {
            disk: self.disk.after_power_cut(of_disk, rng, survival),
            nvram: nvram.map(|nvram| nvram.after_power_cut(of_nvram, rng)),
        }
    }
}

fn survival(rng: &mut Rng) -> Survival {
    match rng.below(4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Random,
    }
}
