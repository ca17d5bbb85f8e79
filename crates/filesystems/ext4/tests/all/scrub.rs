//! A scrub of a journal that keeps what it holds.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{Judged, SMALL_MIB, World, mkfs};
use crate::damaged_copy::{damage, targets};
use crate::lazy::{again, check_tree, left_full, make_tree, run_in, target};
use manylogs_block::{Extent, IoError, Nanos, Request, Rng};
use manylogs_ext4::{
    Error, Ext4, FileKind, Ino, LastScrub, Mode, New, Options, Scrubbed, Timestamp,
};
use manylogs_sim::Survival;
use manylogs_torture::ext4::{RawKind, RawLog, SMALL_OPTIONS, options};

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
    if found.1.lost == 0 {
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
    assert!(first.renewed > 10 && first.lost == 0, "{first:?}");
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
    assert!(found.is_none_or(|(first, _)| first.renewed == 0 && first.lost > 0));
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
            assert_eq!((found.renewed, found.lost), (0, 3), "{found:?}");
            assert!(found.named.iter().all(|(block, _)| homes.contains(&block.0)), "{found:?}");
            assert!(found.named.iter().all(|(_, holds)| holds.contains("directory")), "{found:?}");
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
        assert_eq!((found.brought_home, found.lost), (1, 0), "{found:?}");
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
        assert_eq!((fs.last_scrub(), fs.scrubbed_blocks()), (None, 0));
        runtime.sleep(Nanos::from_secs(3600)).await;
        let LastScrub { ended_ago, found } = fs.last_scrub().unwrap();
        assert!(found.blocks > 40 && found.lost == 0, "{found:?}");
        assert_eq!(fs.scrubbed_blocks(), found.blocks);
        assert!(ended_ago < Nanos::from_secs(1900), "{ended_ago:?}");
        // One that is asked for is the last, and the next in idle time comes a week after it.
        runtime.sleep(Nanos::from_secs(6 * 24 * 3600)).await;
        let asked = fs.scrub_journal().await.unwrap();
        let last = || fs.last_scrub().unwrap();
        assert_eq!(last(), LastScrub { ended_ago: Nanos(0), found: asked.clone() });
        runtime.sleep(Nanos::from_secs(6 * 24 * 3600)).await;
        assert_eq!(last().ended_ago, Nanos::from_secs(6 * 24 * 3600));
        assert_eq!(fs.scrubbed_blocks(), found.blocks + asked.blocks);
        runtime.sleep(Nanos::from_secs(2 * 24 * 3600)).await;
        assert!(last().ended_ago < Nanos::from_secs(24 * 3600));
        fs.unmount().await.unwrap();
    });
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        assert!(matches!(fs.scrub_journal().await, Err(Error::Unsupported(_))));
    });
}

/// Makes so many symbolic links whose targets take a block each.
async fn make_links(fs: &Ext4, links: u64) {
    for number in 0..links {
        let new = New { target: target(number).into(), ..New::plain(FileKind::Symlink, 0o777) };
        fs.create(Ino::ROOT, format!("link {number}").as_bytes(), new).await.unwrap();
        if number % 50 == 0 {
            fs.sync_all().await.unwrap();
        }
    }
    fs.sync_all().await.unwrap();
}

/// More damaged copies than one transaction renews, and the largest one takes.
const MANY: u64 = 300;

/// An unmount at any moment of a scrub ends, and so does the scrub. What it says to be renewed is
/// so.
#[test]
fn an_unmount_ends_a_scrub() {
    let Some(image) = mkfs(SMALL_MIB, SMALL_OPTIONS) else { return };
    let mut cut_short = 0;
    for delay_ms in 0..40 {
        let world = World::new(delay_ms, SMALL_MIB, image.clone());
        let (disk, runtime) = (Rc::new(world.disk.clone()), world.runtime());
        let (damaged, found) = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            make_links(&fs, MANY).await;
            let now = disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
            let targets = targets(&now);
            damage(&*disk, &targets).await;
            let (scrubbed, scrubbing) = (Rc::new(RefCell::new(None)), fs.clone());
            let into = Rc::clone(&scrubbed);
            runtime.spawn(async move {
                *into.borrow_mut() = Some(scrubbing.scrub_journal().await.unwrap());
            });
            runtime.sleep(Nanos::from_millis(delay_ms)).await;
            fs.unmount().await.unwrap();
            // A scrub that waits for ever is not there after an hour either.
            runtime.sleep(Nanos::from_secs(3600)).await;
            let found: Scrubbed = scrubbed.borrow_mut().take().expect("the scrub ends");
            (targets.len() as u64, found)
        });
        assert!(damaged >= MANY && found.lost == 0, "{damaged} {found:?}");
        assert!(found.is_cut_short || found.renewed >= MANY, "{found:?}");
        cut_short += u64::from(found.is_cut_short);
        let world = again(world.settled());
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            let lost = fs.scrub_journal().await.unwrap().lost;
            assert!(lost + found.renewed <= damaged, "{lost} {found:?}");
        });
    }
    assert!((1..40).contains(&cut_short), "{cut_short} scrubs were cut short");
}

/// Scrubs a journal whose disk fails a read if `fails` says so: what it found.
fn scrubbed_on(
    world: &World,
    mut fails: impl FnMut(Extent) -> Option<IoError> + 'static,
) -> Scrubbed {
    let armed = Rc::new(Cell::new(false));
    let is_armed = Rc::clone(&armed);
    world.disk.fail_requests(Box::new(move |request| match request {
        Request::Read { extent } if is_armed.get() => fails(*extent),
        _ => None,
    }));
    run_in(Mode::Lazy, world, async move |fs: Ext4| {
        armed.set(true);
        fs.scrub_journal().await.unwrap()
    })
}

/// Copies of links in the order of the log, of which some were removed since: their blocks lie
/// between live ones.
fn with_gaps() -> Option<World> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL_OPTIONS)?);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        make_links(&fs, 60).await;
        for number in (0..60).filter(|number| number % 5 == 2) {
            fs.unlink(Ino::ROOT, format!("link {number}").as_bytes()).await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    Some(world)
}

/// A bad block of the medium loses what it holds, and nothing of what is read with it.
#[test]
fn a_bad_block_loses_no_neighbours() {
    let Some(world) = with_gaps() else { return };
    let image = world.settled();
    let (mut lost, mut unharmed) = (0, 0);
    for block in targets(&image).into_iter().skip(10).take(20) {
        let world = again(image.clone());
        let found = scrubbed_on(&world, move |extent| {
            let bad = Extent::new(block.place * 8, 8);
            let hits = (extent.start.0..extent.start.0 + extent.len.0).contains(&bad.start.0);
            hits.then_some(IoError::Medium { extent: bad })
        });
        assert!(found.lost <= 1 && found.blocks > 50, "{found:?}");
        let home = found.named.first().map(|(home, _)| RawKind::Copy(home.0));
        assert!(home.is_none_or(|home| home == block.kind), "{found:?}");
        lost += found.lost;
        unharmed += usize::from(found.lost == 0);
    }
    assert!(lost > 5 && unharmed > 2, "{lost} {unharmed}");
}

/// A read that fails and may succeed later says nothing of the copies: the scrub ends with the
/// error.
#[test]
fn a_read_that_fails_for_now_loses_nothing() {
    let Some(world) = with_gaps() else { return };
    let image = world.settled();
    for failing in 0.. {
        let (world, mut reads) = (again(image.clone()), 0);
        let found = scrubbed_on(&world, move |extent| {
            reads += 1;
            (reads == failing + 1).then_some(IoError::Transient { extent })
        });
        assert_eq!(found.lost, 0, "{found:?}");
        let Some(failure) = found.failure else {
            assert!(failing > 2, "{failing} reads");
            return;
        };
        assert!(matches!(failure, Error::Io(IoError::Transient { .. })), "{failure:?}");
        assert!(found.is_cut_short);
    }
}

/// What cannot go home stops no scrub, and neither does a clock that stands still.
#[test]
fn an_idle_scrub_needs_neither_a_clock_nor_old_content_that_goes_home() {
    let Some(world) = left_full() else { return };
    let some = targets(&world.settled())[..3].to_vec();
    let (disk, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move { damage(&*disk, &some).await });
    let clock: Rc<dyn Fn() -> Timestamp> = Rc::new(|| Timestamp { seconds: 1 << 31, nanos: 0 });
    let options = Options { clock, ..options(runtime.clone()) };
    let disk = Rc::new(world.disk.clone());
    let mounting = Ext4::mount_in(Mode::Lazy, disk, runtime.clone(), options);
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        fs.max_age(Some(Nanos::from_secs(60)));
        runtime.sleep(Nanos::from_secs(2 * 3600)).await;
        let found = fs.last_scrub().unwrap().found;
        assert_eq!(found.lost, 3, "{found:?}");
        // The copies are still lost, so an unmount need not succeed.
        drop(fs.unmount().await);
    });
}
