//! The devices of a world: a disk, and non-volatile RAM if the table is kept there.

use std::rc::Rc;

use manylogs::{OpenOptions, Phase, PhaseProbe, RecoveryReport, TablePlace, Volume, VolumeError};
use manylogs_block::{BlockDevice, Geometry, Handle, Nvram, Rng};
use manylogs_sim::{CrashDiskConfig, CrashNvram, NvramImage, Survival};

use crate::volume::disks::{DiskImages, Disks};

/// Where copies may differ, one crash in this number takes members with it.
const LOSSES: u64 = 3;

/// Content of devices that are not in use.
#[derive(Clone)]
pub(crate) struct Images {
    pub(crate) disk: DiskImages,
    pub(crate) nvram: Option<NvramImage>,
}

impl Images {
    /// Blank devices for a new volume with its table in `table`, on an array if one is given.
    pub(crate) fn blank(table: TablePlace, array: Option<Geometry>) -> Self {
        let nvram = match table {
            TablePlace::Logs => None,
            TablePlace::Nvram(size) => Some(NvramImage::blank(size)),
        };
        Self { disk: DiskImages::blank(array), nvram }
    }

    /// A hash: equal contents have equal hashes, and other contents different ones, except by rare
    /// chance.
    pub(crate) fn fingerprint(&self) -> u64 {
        let nvram = self.nvram.as_ref().map_or(0, NvramImage::fingerprint);
        self.disk.fingerprint().wrapping_add(nvram)
    }

    /// Makes durable all that a power cut could still lose.
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

    /// The disk for the volume. It labels requests with the phase of `probe`.
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

    /// Number of events so far. Crashes between the same two events cannot be told apart.
    pub(crate) fn events(&self) -> u64 {
        self.disk.events() + self.nvram.as_ref().map_or(0, CrashNvram::operations)
    }

    /// The phase of the volume's last request. A table in RAM is formatted before the disk.
    pub(crate) fn phase(&self) -> Phase {
        if self.disk.events() == 0 { Phase::Open } else { self.disk.phase() }
    }

    /// Calls `watch` between any two operations on the non-volatile RAM.
    pub(crate) fn watch_nvram(&self, watch: impl FnMut() + 'static) {
        if let Some(nvram) = &self.nvram {
            nvram.watch(watch);
        }
    }

    /// Must be called at the end, because the watcher most often holds these devices.
    pub(crate) fn unwatch_nvram(&self) {
        if let Some(nvram) = &self.nvram {
            nvram.unwatch();
        }
    }

    /// Crashes as [`Machine::crash`], and the member of each column that was read is lost. The
    /// copies are not brought in step before. `None` if they did not differ, or there are none.
    pub(crate) fn lose_members(&self, rng: &mut Rng) -> Option<Images> {
        let disk = self.disk.after_loss(rng, survival)?;
        let nvram = self.nvram.as_ref().map(CrashNvram::after_kill);
        Some(Images { disk, nvram })
    }

    /// Kills the user or cuts the power of all devices now. Where copies may differ, one crash in
    /// [`LOSSES`] takes the members with it that were read.
    pub(crate) fn crash(&self, rng: &mut Rng) -> Images {
        if self.disk.may_lose()
            && rng.one_in(LOSSES)
            && let Some(images) = self.lose_members(rng)
        {
            return images;
        }
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
