//! What a mount takes whose journal holds many live blocks.

use manylogs_block::{Rng, Time};
use manylogs_ext4::Ext4;
use manylogs_workload::shuffled;

use super::super::case::DiskCase;
use super::super::disk::{MlfsError, Prepared, World};
use super::run::{Updates, make};
use crate::stats::round3;

/// A journal that keeps its content, and how it is left.
#[derive(Clone, Debug)]
pub struct MountsCase {
    /// The disk. Inodes have blocks of their own ([`super::BLOCK_BYTES_PER_INODE`]).
    pub disk: DiskCase,
    /// Live blocks in the journal.
    pub live: u32,
    /// Updates after which all is synced.
    pub per_sync: u32,
    /// Whether the map of the journal is saved.
    pub saves: bool,
}

/// What mounts took, with cold caches, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MountsResult {
    /// After an unmount.
    pub unmounted_s: f64,
    /// After a power cut, when as much was logged since the map was saved as may be.
    pub cut_s: f64,
    /// What the unmount took.
    pub unmount_s: f64,
}

/// Measures one case on this thread.
///
/// # Errors
/// Whatever fails.
pub fn measure_mounts(case: &MountsCase) -> Result<MountsResult, MlfsError> {
    let (disk, live) = (&case.disk, case.live);
    let prepared = Prepared::of(disk, async move |fs| make(&fs, live).await)?;
    let (world, inos) = (prepared.world(disk)?, prepared.files().clone());
    drop(prepared);
    let mut rng = Rng::new(disk.seed);
    let updates = |world: &World, fs: Ext4| Updates::new(fs, world.runtime(), inos.clone());
    let mounted = world.mounted(disk)?;
    mounted.fs().save_maps(case.saves);
    let (mut all, order) = (updates(&world, mounted.fs().clone()), shuffled(live, &mut rng));
    let per_sync = case.per_sync;
    world.run(async move {
        for number in order {
            all.next(number, per_sync).await?;
        }
        all.sync().await
    })?;
    let began = world.now();
    world.run(async move { mounted.unmount().await })?;
    let unmount_s = seconds(began, world.now());
    world.cool()?;
    let (mounted, unmounted_s) = timed(&world, disk)?;
    let mut some = updates(&world, mounted.fs().clone());
    world.run(async move {
        // Until the map would be saved again, which it is not.
        while !some.is_map_old() {
            let number = manylogs_block::narrow(rng.below(live.into()));
            some.next(number, per_sync).await?;
        }
        some.sync().await
    })?;
    let world = world.after_crash(disk)?;
    world.cool()?;
    let (mounted, cut_s) = timed(&world, disk)?;
    world.run(async move { mounted.unmount().await })?;
    Ok(MountsResult { unmounted_s, cut_s, unmount_s })
}

fn seconds(from: Time, to: Time) -> f64 {
    round3(to.since(from).as_secs_f64())
}

fn timed(world: &World, disk: &DiskCase) -> Result<(manylogs_mlfs::Mounted, f64), MlfsError> {
    let began = world.now();
    let mounted = world.mounted(disk)?;
    Ok((mounted, seconds(began, world.now())))
}
