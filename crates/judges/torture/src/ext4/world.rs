//! A disk in virtual time, and a node that uses the file system on it.

use std::fmt;
use std::rc::Rc;

use manylogs::{Anchors, DrainOptions, Layout, OpenOptions, Phase, PhaseProbe, Volume};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, Nanos, Request, Rng, Sectors,
};
use manylogs_ext4::{Error, Ext4, Memory, Mode, Options, Timestamp};
use manylogs_ext4check::{Structure, Survey};
use manylogs_near::{Near, NearOptions};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, NodeId, Sim, TaskOrder};

use crate::volume::disks::{DiskImages, Disks};

/// Options of mkfs that make groups small, so that small images have many.
pub const SMALL_OPTIONS: &[&str] = &["-g", "1024", "-J", "size=4", "-N", "2048"];
/// The size of these images.
pub const SMALL_MIB: u64 = 24;

/// Sectors of a block of the file system.
pub(super) const BLOCK_SECTORS: u64 = 8;

/// See the module.
pub struct World {
    /// The simulation with its clock.
    pub sim: Sim,
    /// The disk; the first member of an array.
    pub disk: CrashDisk,
    /// The disk, or all members of an array.
    pub(crate) disks: Disks,
    /// The node that uses the disk.
    pub user: NodeId,
    /// The disk's size.
    pub mib: u64,
}

impl World {
    /// A disk of `mib` MiB that holds `image`. Its cache is volatile. On every second seed the disk
    /// makes a FUA write durable with one command.
    #[must_use]
    pub fn new(seed: u64, mib: u64, image: DiskImage) -> Self {
        Self::with_sectors(seed, mib, image, Sectors(BLOCK_SECTORS))
    }

    /// As [`World::new`], with a disk that may tear blocks into sectors of 512 bytes.
    pub(crate) fn torn(seed: u64, mib: u64, image: DiskImage) -> Self {
        Self::with_sectors(seed, mib, image, Sectors(1))
    }

    /// As [`World::new`], with a disk that writes physical sectors of this length as a whole.
    #[must_use]
    pub fn with_sectors(seed: u64, mib: u64, image: DiskImage, physical_sector: Sectors) -> Self {
        Self::on(seed, mib, DiskImages::one(image), physical_sector)
    }

    /// As [`World::new`], on the disk or the array that holds `images`. An array has as many whole
    /// stripes as the size takes.
    pub(crate) fn of(seed: u64, mib: u64, images: DiskImages) -> Self {
        Self::on(seed, mib, images, Sectors(BLOCK_SECTORS))
    }

    fn on(seed: u64, mib: u64, images: DiskImages, physical_sector: Sectors) -> Self {
        let sim = Sim::new(seed, TaskOrder::Shuffled);
        let (drive, user) = (sim.node(), sim.node());
        let config = CrashDiskConfig {
            capacity: images.room_for(Sectors(mib << 11)),
            physical_sector,
            volatile_cache: true,
            native_fua: seed.is_multiple_of(2),
            latency_max: Nanos::from_millis(2),
        };
        let disks = Disks::new(sim.handle(drive), config, images);
        Self { sim, disk: disks.first().clone(), disks, user, mib }
    }

    /// The runtime of the user's tasks.
    #[must_use]
    pub fn runtime(&self) -> Handle {
        self.sim.handle(self.user)
    }

    /// Mounts the file system with this journal. The disk labels its requests by phase.
    pub(super) fn mounting(
        &self,
        journal: &JournalAt,
    ) -> impl Future<Output = Result<Mounted, String>> + 'static {
        let (journal, disks, runtime) = (journal.clone(), self.disks.clone(), self.runtime());
        async move {
            let (anchors, keeps_metadata) = match journal {
                JournalAt::Own { log, mode } => {
                    let disk = disks.first().clone();
                    let mounted = mount_in(mode, Rc::new(Noted { disk, log }), runtime).await;
                    return mounted.map(Mounted::Own).map_err(|error| error.to_string());
                }
                JournalAt::Near { anchors, keeps_metadata } => (anchors, keeps_metadata),
            };
            let probe = PhaseProbe::default();
            let open = OpenOptions { anchors: Some(anchors), probe, ..OpenOptions::default() };
            let device = disks.device(&open.probe);
            let near = NearOptions { open, keeps_metadata, ..NearOptions::default() };
            let mounted = Near::mount(runtime.clone(), device, &near, options(runtime)).await;
            mounted.map(|(near, _)| Mounted::Near(near)).map_err(|error| error.to_string())
        }
    }

    /// Brings the content of the logs home without a mount of the file system, if every log has
    /// failed.
    pub(super) fn draining(
        &self,
        anchors: Anchors,
    ) -> impl Future<Output = Result<(), String>> + 'static {
        let (device, runtime) = (self.disks.device(&PhaseProbe::default()), self.runtime());
        let anchors = Some(anchors);
        async move {
            let options = OpenOptions { anchors, to_drain: true, ..OpenOptions::default() };
            let opened = Volume::open(runtime, device, &options).await;
            let (volume, _) = opened.map_err(|error| error.to_string())?;
            if !is_without_logs(&volume) {
                volume.close().await.map_err(|error| error.to_string())?;
                return Err("its logs are sound".to_owned());
            }
            let drained = volume.drain(&DrainOptions::default()).await;
            drained.map(drop).map_err(|error| format!("drain: {error}"))
        }
    }

    /// Mounts the file system and calls `work` with it.
    ///
    /// # Errors
    /// Those of the mount.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        work: impl FnOnce(Ext4) -> F + 'static,
    ) -> Result<T, Error> {
        let mounting = mount(Rc::new(self.disk.clone()), self.runtime());
        self.sim.block_on(self.user, async move { Ok(work(mounting.await?).await) })
    }

    /// The content of the disk once all of its cache is written.
    #[must_use]
    pub fn settled(&self) -> DiskImage {
        self.disks.settled(Sectors(self.mib << 11))
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sim, disk, user, mib, .. } = self;
        let mut told = f.debug_struct("World");
        told.field("sim", sim).field("disk", disk).field("user", user).field("mib", mib);
        told.finish_non_exhaustive()
    }
}

/// Mounts as [`mount_in`] does, in the mode `ordered`.
///
/// # Errors
/// Those of [`Ext4::mount`].
pub async fn mount(device: Rc<dyn BlockDevice>, runtime: Handle) -> Result<Ext4, Error> {
    mount_in(Mode::Ordered, device, runtime).await
}

/// Mounts with a clock that shows virtual time.
///
/// # Errors
/// Those of [`Ext4::mount`].
pub async fn mount_in(
    mode: Mode,
    device: Rc<dyn BlockDevice>,
    runtime: Handle,
) -> Result<Ext4, Error> {
    Ext4::mount_in(mode, device, runtime.clone(), options(runtime)).await
}

/// Options of a mount with a clock that shows virtual time.
#[must_use]
pub fn options(runtime: Handle) -> Options {
    Options {
        clock: clock(&runtime),
        read_only: false,
        durability: Default::default(),
        replay: Default::default(),
        memory: Memory::default(),
    }
}

/// A clock that shows virtual time, beginning on a day of 2023.
pub(crate) fn clock(runtime: &Handle) -> Rc<dyn Fn() -> Timestamp> {
    let runtime = runtime.clone();
    Rc::new(move || {
        let now = runtime.now().0;
        let seconds = 1_700_000_000 + i64::try_from(now / 1_000_000_000).unwrap_or(0);
        Timestamp { seconds, nanos: u32::try_from(now % 1_000_000_000).unwrap_or(0) }
    })
}

fn is_without_logs(volume: &Volume) -> bool {
    volume.stats().retired_logs == volume.layout().regions().len() as u64
}

/// The place of a file system's journal.
#[derive(Clone, Debug)]
pub(super) enum JournalAt {
    /// The file system's own journal, and the mode in which it is used.
    Own { log: Log, mode: Mode },
    /// A volume with these anchors, and whether metadata stays in its logs.
    Near { anchors: Anchors, keeps_metadata: bool },
}

impl JournalAt {
    /// The journal as some user may mount it: one that keeps metadata perhaps in another mode.
    pub(super) fn in_some_mode(&self, rng: &mut Rng) -> Self {
        match self {
            Self::Own { log, mode: Mode::Lazy } => {
                let mode = match rng.below(8) {
                    0 => Mode::Ordered,
                    1 => Mode::Data,
                    _ => Mode::Lazy,
                };
                Self::Own { log: log.clone(), mode }
            }
            Self::Near { anchors, keeps_metadata: true } => {
                Self::Near { anchors: *anchors, keeps_metadata: !rng.one_in(4) }
            }
            other => other.clone(),
        }
    }
}

/// A mounted file system.
pub(super) enum Mounted {
    Own(Ext4),
    Near(Near),
}

impl Mounted {
    pub(super) const fn fs(&self) -> &Ext4 {
        match self {
            Self::Own(fs) => fs,
            Self::Near(near) => near.fs(),
        }
    }

    /// Whether every log near the head has failed.
    pub(super) fn is_without_logs(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Near(near) => is_without_logs(near.volume()),
        }
    }

    /// The layout of the logs, if they are near the head.
    pub(super) fn layout(&self) -> Option<Layout> {
        match self {
            Self::Own(_) => None,
            Self::Near(near) => Some(near.volume().layout().clone()),
        }
    }

    /// Brings everything home and leaves a plain ext4. A lazy journal keeps its transactions
    /// instead.
    pub(super) async fn leave(self) -> Result<(), String> {
        match self {
            Self::Own(fs) => fs.unmount().await.map_err(|error| format!("unmount: {error}")),
            Self::Near(near) => {
                near.drain().await.map(drop).map_err(|error| format!("drain: {error}"))
            }
        }
    }
}

/// The blocks of the journal.
#[derive(Clone, Debug)]
pub(super) struct Log(Rc<Vec<std::ops::Range<u64>>>);

impl Log {
    /// The journal of a file system.
    pub(super) fn of(survey: &Survey) -> Self {
        let blocks = survey.structures.iter().filter_map(|structure| match structure {
            Structure::Journal(block) | Structure::Log(block) => Some(block.0),
            _ => None,
        });
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for block in blocks {
            let (start, end) = (block * BLOCK_SECTORS, (block + 1) * BLOCK_SECTORS);
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        Self(Rc::new(runs))
    }

    /// Its blocks, in its order.
    pub(super) fn blocks(&self) -> Vec<u64> {
        let blocks = |run: &std::ops::Range<u64>| {
            (run.start / BLOCK_SECTORS..run.end / BLOCK_SECTORS).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(blocks).collect()
    }

    /// The purpose of a request: blocks of a transaction; the journal's superblock, which frees
    /// room; or writes home, data included.
    fn phase(&self, extent: Extent) -> Phase {
        let first = self.0.first().map_or(u64::MAX, |run| run.start);
        match self.0.iter().any(|run| run.contains(&extent.start.0)) {
            true if extent.start.0 == first => Phase::Reset,
            true => Phase::Append,
            false => Phase::Checkpoint,
        }
    }
}

/// A disk that labels its requests by phase.
struct Noted {
    disk: CrashDisk,
    log: Log,
}

impl BlockDevice for Noted {
    fn capabilities(&self) -> Capabilities {
        self.disk.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let phase = match &request {
            Request::Write { extent, .. } => self.log.phase(*extent),
            _ => Phase::Append,
        };
        self.disk.submit_labelled(request, phase as u8)
    }
}
