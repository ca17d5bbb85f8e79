//! Links that are added to a chain and removed from it, one case each.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Hint, Nanos, Payload, Request, Rng, Sectors};
use manylogs_gecko::{Chain, ChainError, ChainOptions, ChainSettings, LinkError};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

const SEGMENT: Sectors = Sectors(256);
const PER_DRIVE: u64 = 8;
const PIECE: Sectors = Sectors(32);
/// They fill a third of two drives.
const PIECES: u64 = 30;

struct World {
    user: Handle,
    drive: Handle,
    disks: Vec<CrashDisk>,
}

fn config() -> CrashDiskConfig {
    CrashDiskConfig {
        capacity: Sectors(100 + PER_DRIVE * SEGMENT.0),
        physical_sector: Sectors(8),
        volatile_cache: true,
        native_fua: true,
        latency_max: Nanos(1 << 18),
    }
}

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    let sim = Sim::new(7, TaskOrder::Shuffled);
    let (drive, user) = (sim.node(), sim.node());
    let (drive, runtime) = (sim.handle(drive), sim.handle(user));
    let disk = |_| CrashDisk::new(drive.clone(), config(), DiskImage::default());
    let disks = (0..5).map(disk).collect();
    sim.block_on(user, test(World { user: runtime, drive, disks }))
}

fn device(disk: &CrashDisk) -> Rc<dyn BlockDevice> {
    Rc::new(disk.clone())
}

impl World {
    async fn create(&self, drives: usize, mirror: bool) -> Chain {
        let drives = self.disks[..drives].iter().map(device).collect();
        let export = Some(Sectors(PIECES * PIECE.0));
        let options = ChainOptions { segment: SEGMENT, export, mirror };
        let made = Chain::create(self.user.clone(), drives, options, ChainSettings::default());
        made.await.unwrap()
    }

    async fn open(&self, drives: &[usize]) -> Result<Chain, ChainError> {
        let drives = drives.iter().map(|number| device(&self.disks[*number])).collect();
        Chain::open(self.user.clone(), drives, ChainSettings::default()).await
    }

    /// The same drives after a power cut: the old ones and their user know nothing of it.
    fn crashed(&self) -> Self {
        let mut rng = Rng::new(3);
        let cut = |disk: &CrashDisk| {
            let image = disk.after_power_cut(Survival::Nothing, &mut rng);
            CrashDisk::new(self.drive.clone(), config(), image)
        };
        let disks = self.disks.iter().map(cut).collect();
        Self { disks, user: self.user.clone(), drive: self.drive.clone() }
    }
}

async fn write(chain: &Chain, pieces: std::ops::Range<u64>, tag: u64) {
    for piece in pieces {
        let (payload, hint) = (Payload::tags(tag + (piece << 8), PIECE), Hint::None);
        let extent = Extent::new(piece * PIECE.0, PIECE.0);
        chain.submit(Request::Write { extent, payload, fua: true, hint }).await.unwrap();
    }
}

async fn holds(chain: &Chain, pieces: std::ops::Range<u64>, tag: u64) -> bool {
    for piece in pieces {
        let extent = Extent::new(piece * PIECE.0, PIECE.0);
        let read = chain.submit(Request::Read { extent }).await.unwrap();
        if read != Payload::tags(tag + (piece << 8), PIECE) {
            return false;
        }
    }
    true
}

const A: u64 = 1 << 20;
const B: u64 = 1 << 30;

/// The first link, which has a root, leaves. The others are the chain then, with it or without it.
#[test]
fn a_link_that_left_is_needed_no_more_and_does_not_come_back() {
    in_virtual_time(|world| async move {
        let chain = world.create(3, false).await;
        write(&chain, 0..PIECES, A).await;
        chain.remove_link(0).await.unwrap();
        assert_eq!(chain.links().iter().map(|link| link.link).collect::<Vec<_>>(), [1, 2]);
        write(&chain, 0..4, B).await;
        let cut = world.crashed();
        for drives in [&[1, 2][..], &[0, 1, 2]] {
            let chain = cut.open(drives).await.unwrap();
            assert!(holds(&chain, 0..4, B).await && holds(&chain, 4..PIECES, A).await);
            assert_eq!(chain.links().len(), 2);
            chain.close().await.unwrap();
        }
        assert!(matches!(cut.open(&[0, 1]).await, Err(ChainError::Missing { .. })));
    });
}

/// A pair is added and takes what another pair held.
#[test]
fn a_pair_is_added_and_another_leaves() {
    in_virtual_time(|world| async move {
        let world = World { disks: [&world.disks[..], &world.disks[..1]].concat(), ..world };
        let spare = CrashDisk::new(world.drive.clone(), config(), DiskImage::default());
        let chain = world.create(4, true).await;
        write(&chain, 0..PIECES, A).await;
        let one = vec![(device(&world.disks[4]), 4)];
        let wanted = LinkError::Drives { wanted: 2, given: 1 };
        assert_eq!(chain.add_link(one).await, Err(wanted));
        let two = vec![(device(&world.disks[4]), 4), (device(&spare), 5)];
        assert_eq!(chain.add_link(two).await, Ok(2));
        chain.remove_link(1).await.unwrap();
        assert!(holds(&chain, 0..PIECES, A).await);
        chain.close().await.unwrap();
        let last = [world.disks[0].clone(), world.disks[1].clone(), world.disks[4].clone(), spare];
        let world = World { disks: last.to_vec(), ..world };
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        assert!(holds(&chain, 0..PIECES, A).await);
        assert_eq!(chain.links().iter().map(|link| link.link).collect::<Vec<_>>(), [0, 2]);
    });
}

/// What cannot be done is refused with the reason, and changes nothing.
#[test]
fn links_that_the_chain_cannot_do_without_stay() {
    in_virtual_time(|world| async move {
        let chain = world.create(2, false).await;
        assert_eq!(chain.remove_link(1).await, Err(LinkError::Last));
        assert_eq!(chain.remove_link(2).await, Err(LinkError::NoSuchLink { link: 2 }));
        chain.close().await.unwrap();
        let drives = world.disks[..3].iter().map(device).collect();
        let options = ChainOptions { segment: SEGMENT, export: None, mirror: false };
        let made = Chain::create(world.user.clone(), drives, options, ChainSettings::default());
        let chain = made.await.unwrap();
        assert!(matches!(chain.remove_link(0).await, Err(LinkError::Room { .. })));
        assert!(chain.links().iter().all(|link| link.leaving.is_none()));
    });
}
