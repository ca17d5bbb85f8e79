//! Drives of a chain, in virtual time, which crash.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Hint, Nanos, Payload, Request, Rng, Sectors};
use manylogs_gecko::{Chain, ChainError, ChainOptions, ChainSettings, summary_room};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

pub(crate) const SEGMENT: Sectors = Sectors(256);
/// Length of each write. Six or seven of them fill a segment.
pub(crate) const PIECE: Sectors = Sectors(32);
const DISKS: usize = 5;

/// Drives, and who uses them.
pub(crate) struct World {
    /// Clock and tasks of the chain.
    pub(crate) user: Handle,
    /// Those of the drives, which a crash of the user leaves alone.
    pub(crate) drive: Handle,
    pub(crate) disks: Vec<CrashDisk>,
    /// Segments of each drive.
    pub(crate) per_drive: u64,
    /// Physical sector of the drives.
    pub(crate) physical: Sectors,
    pub(crate) settings: ChainSettings,
    /// Whether new chains keep summaries.
    pub(crate) summaries: bool,
}

/// Runs a test with five blank drives of so many segments.
pub(crate) fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    per_drive: u64,
    settings: ChainSettings,
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    on_sectors(Sectors(8), per_drive, settings, test)
}

/// As [`in_virtual_time`], with drives of this physical sector.
pub(crate) fn on_sectors<T: 'static, F: Future<Output = T> + 'static>(
    physical: Sectors,
    per_drive: u64,
    settings: ChainSettings,
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    let sim = Sim::new(7, TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let (drive, runtime) = (sim.handle(drive), sim.handle(user));
    let (disks, summaries) = (Vec::new(), true);
    let mut world = World { user: runtime, drive, disks, per_drive, physical, settings, summaries };
    world.disks = (0..DISKS).map(|_| world.disk(DiskImage::default())).collect();
    sim.block_on(user, test(world))
}

pub(crate) fn device(disk: &CrashDisk) -> Rc<dyn BlockDevice> {
    Rc::new(disk.clone())
}

impl World {
    /// A drive with this content.
    pub(crate) fn disk(&self, image: DiskImage) -> CrashDisk {
        let config = CrashDiskConfig {
            capacity: Sectors(100 + self.per_drive * SEGMENT.0)
                + summary_room(self.per_drive, SEGMENT),
            physical_sector: self.physical,
            volatile_cache: true,
            native_fua: true,
            latency_max: Nanos(1 << 18),
        };
        CrashDisk::new(self.drive.clone(), config, image)
    }

    /// A chain of the first drives, whose export has so many pieces.
    pub(crate) async fn create(&self, drives: usize, mirror: bool, pieces: u64) -> Chain {
        let drives = self.disks[..drives].iter().map(device).collect();
        let (segment, export) = (SEGMENT, Some(Sectors(pieces * PIECE.0)));
        let options = ChainOptions { segment, export, mirror, summaries: self.summaries };
        let made = Chain::create(self.user.clone(), drives, options, self.settings);
        made.await.unwrap()
    }

    /// Opens the chain with the drives of these numbers.
    pub(crate) async fn open(&self, drives: &[usize]) -> Result<Chain, ChainError> {
        let drives = drives.iter().map(|number| device(&self.disks[*number])).collect();
        Chain::open(self.user.clone(), drives, self.settings).await
    }

    /// The same drives after a power cut: the old ones and their user know nothing of it.
    pub(crate) fn crashed(&self) -> Self {
        let mut rng = Rng::new(3);
        let cut = |disk: &CrashDisk| self.disk(disk.after_power_cut(Survival::Nothing, &mut rng));
        let disks = self.disks.iter().map(cut).collect();
        Self { disks, user: self.user.clone(), drive: self.drive.clone(), ..*self }
    }
}

/// The content of a piece that was written with `tag`, which no other version of it has.
pub(crate) fn content(piece: u64, tag: u64) -> Payload {
    Payload::tags(tag + (piece << 8), PIECE)
}

pub(crate) const fn place(piece: u64) -> Extent {
    Extent { start: manylogs_block::Lba(piece * PIECE.0), len: PIECE }
}

/// Writes a piece, durably.
pub(crate) async fn write(chain: &Chain, piece: u64, tag: u64) {
    let (extent, payload, hint) = (place(piece), content(piece, tag), Hint::None);
    chain.submit(Request::Write { extent, payload, fua: true, hint }).await.unwrap();
}

/// Whether a piece reads as it was written with `tag`.
pub(crate) async fn holds(chain: &Chain, piece: u64, tag: u64) -> bool {
    chain.submit(Request::Read { extent: place(piece) }).await == Ok(content(piece, tag))
}
