//! A scrub of a journal that keeps what it holds.

use std::rc::Rc;

use crate::common::{Judged, SMALL_MIB, World, mkfs};
use crate::damaged_copy::{damage, targets};
use crate::lazy::{again, check_tree, left_full, make_tree, run_in};
use manylogs_block::{Nanos, Rng};
use manylogs_ext4::{Error, Ext4, Mode, Scrubbed};
use manylogs_sim::Survival;
use manylogs_torture::ext4::{RawKind, RawLog, SMALL_OPTIONS};

/// Scrubs a journal of which copies were damaged whose content is in memory. Returns what was
/// found, and by another scrub. Then the disk is as it was. `None` without mkfs.
fn scrubbed() -> Option<(Scrubbed, Scrubbed)> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL_OPTIONS)?);
    let disk = Rc::new(world.disk.clone());
    let found = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        make_tree(&fs).await;
        fs.sync_all().await.unwrap();
        let now = disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
        damage(&*disk, &targets(&now)).await;
        let first = fs.scrub_journal().await.unwrap();
        (first, fs.scrub_journal().await.unwrap())
    });
    // The server is killed: nobody remembers the content any more.
    let cut = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(2));
    if found.1.lost.is_empty() {
        let world = again(cut);
        for mode in [Mode::Lazy, Mode::Ordered] {
            run_in(mode, &world, async |fs: Ext4| {
                assert_eq!(check_tree(&fs).await, Ok(()));
                fs.unmount().await.unwrap();
            });
        }
        world.check();
    }
    Some(found)
}

#[test]
fn a_scrub_writes_anew_what_is_damaged_and_known() {
    let Some((first, second)) = scrubbed() else { return };
    assert!(first.renewed > 10 && first.lost.is_empty(), "{first:?}");
    let healthy = Scrubbed { blocks: second.blocks, ..Scrubbed::default() };
    assert_eq!(second, healthy);
    assert_eq!(first.blocks, second.blocks);
}

#[cfg(feature = "plant")]
#[test]
fn a_scrub_that_mends_nothing_is_noticed() {
    use manylogs_plant::{Bug, plant};
    plant(Some(Bug::LazyScrubLeaves));
    let found = scrubbed();
    plant(None);
    assert!(found.is_none_or(|(first, _)| first.renewed == 0 && !first.lost.is_empty()));
}

/// What nobody knows is told, each time, and stays as it is.
#[test]
fn a_scrub_tells_what_would_be_lost() {
    let Some(world) = left_full() else { return };
    let some = targets(&world.settled())[..3].to_vec();
    let homes: Vec<u64> = some
        .iter()
        .filter_map(|block| match block.kind {
            RawKind::Copy(home) => Some(home),
            _ => None,
        })
        .collect();
    let disk = Rc::new(world.disk.clone());
    world.sim.block_on(world.user, async move { damage(&*disk, &some).await });
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        for _ in 0..2 {
            let found = fs.scrub_journal().await.unwrap();
            assert_eq!((found.renewed, found.lost.len()), (0, 3), "{found:?}");
            assert!(found.lost.iter().all(|(block, _)| homes.contains(&block.0)), "{found:?}");
            assert!(found.lost.iter().all(|(_, holds)| holds.contains("directory")), "{found:?}");
        }
    });
}

/// A kernel's replay ends at a damaged descriptor. A scrub while all is known leaves nothing behind
/// it.
#[test]
fn what_a_damaged_descriptor_leads_to_goes_home() {
    let Some(world) = left_full() else { return };
    let disk = Rc::new(world.disk.clone());
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        let now = disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
        let log = RawLog::of(&now, SMALL_MIB).unwrap();
        let own = log.blocks.iter().filter(|block| matches!(block.kind, RawKind::Descriptor));
        let own: Vec<_> = own.copied().collect();
        damage(&*disk, &own[own.len() / 2..=own.len() / 2]).await;
        let found = fs.scrub_journal().await.unwrap();
        assert_eq!((found.brought_home, found.lost.len()), (1, 0), "{found:?}");
    });
    let world = again(world.disk.after_power_cut(Survival::Everything, &mut Rng::new(2)));
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.unmount().await.unwrap();
    });
    world.check();
}

#[test]
fn a_journal_is_scrubbed_in_idle_time() {
    let Some(world) = left_full() else { return };
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.max_age(None);
        runtime.sleep(Nanos::from_secs(1800)).await;
        assert_eq!(fs.last_scrub(), Scrubbed::default());
        runtime.sleep(Nanos::from_secs(3600)).await;
        let found = fs.last_scrub();
        assert!(found.blocks > 40 && found.lost.is_empty(), "{found:?}");
        fs.unmount().await.unwrap();
    });
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        assert!(matches!(fs.scrub_journal().await, Err(Error::Unsupported(_))));
    });
}
