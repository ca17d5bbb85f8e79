//! A journal that empties itself: metadata goes home half a minute after its last change.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, mkfs};
use crate::damaged_copy::damage;
use crate::lazy::{again, check_tree, make_tree, run_in};
use manylogs_block::{Nanos, Rng};
use manylogs_ext4::{Ext4, FileKind, Ino, Memory, Mode, New, Options};
use manylogs_sim::Survival;
use manylogs_torture::ext4::{RawBlock, RawKind, RawLog, options};

const SECOND: Nanos = Nanos::from_secs(1);

async fn directory(fs: &Ext4, parent: Ino, name: &str) -> Ino {
    let new = New::plain(FileKind::Directory, 0o755);
    fs.create(parent, name.as_bytes(), new).await.unwrap().ino
}

/// Blocks that went home so far.
fn home(fs: &Ext4) -> u64 {
    fs.journal_stats().home_bytes / 4096
}

/// Metadata goes home 30 s after its last change, within a look of 5 s, though requests come all
/// the time; and what was changed since does not.
fn metadata_goes_home_after_its_last_change() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let runtime = world.runtime();
    run_in(Mode::Ordered, &world, async move |fs: Ext4| {
        let (first, second) =
            (directory(&fs, Ino::ROOT, "first").await, directory(&fs, Ino::ROOT, "second").await);
        fs.sync_all().await.unwrap();
        let made = fs.journal_stats().at_risk_bytes / 4096;
        runtime.sleep(Nanos(29 * SECOND.0)).await;
        assert_eq!(home(&fs), 0, "too early");
        // The table of inodes and the directory are changed again.
        fs.create(second, b"file", New::plain(FileKind::File, 0o644)).await.unwrap();
        fs.sync_all().await.unwrap();
        for _ in 0..7 {
            runtime.sleep(SECOND).await;
            fs.attributes(first).await.unwrap();
        }
        let early = home(&fs);
        assert!(early > 0 && early < made, "{early} of {made} are home");
        assert!(fs.journal_stats().at_risk_bytes > 0, "what was changed since is home");
        runtime.sleep(Nanos(30 * SECOND.0)).await;
        let stats = fs.journal_stats();
        assert_eq!(stats.at_risk_bytes, 0, "some is not home");
        assert!(stats.home_bytes / 4096 > early);
        // Nothing is left to do, and nothing is written.
        runtime.sleep(Nanos(3600 * SECOND.0)).await;
        assert_eq!(fs.journal_stats(), stats);
        fs.unmount().await.unwrap();
    });
    world.check();
}

#[test]
fn metadata_goes_home_half_a_minute_after_its_last_change() {
    metadata_goes_home_after_its_last_change();
}

#[cfg(feature = "plant")]
#[test]
fn a_timer_that_never_comes_or_takes_all_is_noticed() {
    use manylogs_plant::Bug;
    for bug in [Bug::LazyAgeForgotten, Bug::Ext4TimerTakesAll] {
        crate::common::assert_noticed(bug, metadata_goes_home_after_its_last_change);
    }
}

/// The wall clock is set back by a year, as where a machine without a battery hears of the time
/// late. In a journal that keeps metadata the bound is another.
#[test]
fn metadata_goes_home_though_the_clock_is_set_back() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for (mode, bound) in [(Mode::Ordered, None), (Mode::Lazy, Some(Nanos(60 * SECOND.0)))] {
        let world = World::new(1, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        let (disk, usual) = (Rc::new(world.disk.clone()), options(world.runtime()));
        let set_back = Rc::new(Cell::new(0));
        let (wall, by) = (Rc::clone(&usual.clock), Rc::clone(&set_back));
        let clock = Rc::new(move || {
            let mut now = wall();
            now.seconds -= by.get();
            now
        });
        world.sim.block_on(world.user, async move {
            let options = Options { clock, ..usual };
            let fs = Ext4::mount_in(mode, disk, runtime.clone(), options).await.unwrap();
            bound.inspect(|bound| fs.max_age(Some(*bound)));
            directory(&fs, Ino::ROOT, "before").await;
            fs.sync_all().await.unwrap();
            set_back.set(365 * 24 * 3600);
            directory(&fs, Ino::ROOT, "after").await;
            fs.sync_all().await.unwrap();
            assert_eq!(home(&fs), 0, "too early");
            runtime.sleep(Nanos(bound.map_or(40, |_| 300) * SECOND.0)).await;
            assert_eq!(fs.journal_stats().at_risk_bytes, 0, "some is not home");
            assert_eq!(fs.too_old_stays(), None);
            fs.unmount().await.unwrap();
        });
    }
}

/// A disk whose journal holds more than the memory for it.
const ROOMY_MIB: u64 = 96;
const ROOMY: &[&str] = &["-J", "size=32", "-N", "8192"];
const DIRECTORIES: u32 = 5000;

/// What is too old and damaged in the journal, and not in memory, stays there. It is tried once,
/// and not every few seconds, because each time all before it is written home.
#[test]
fn what_cannot_go_home_is_not_tried_for_ever() {
    let Some(image) = mkfs(ROOMY_MIB, ROOMY) else { return };
    let world = World::new(1, ROOMY_MIB, image);
    let (runtime, disk) = (world.runtime(), Rc::new(world.disk.clone()));
    let memory = Memory::new(Memory::LEAST);
    let options = Options { memory, ..options(world.runtime()) };
    world.sim.block_on(world.user, async move {
        let device = Rc::clone(&disk) as Rc<_>;
        let fs = Ext4::mount_in(Mode::Ordered, device, runtime.clone(), options).await.unwrap();
        for number in 0..DIRECTORIES {
            directory(&fs, Ino::ROOT, &number.to_string()).await;
        }
        fs.sync_all().await.unwrap();
        assert_eq!(home(&fs), 0, "all of it is in the journal");
        let now = disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
        let log = RawLog::of(&now, ROOMY_MIB).unwrap();
        let is_copy = |block: &RawBlock| matches!(block.kind, RawKind::Copy(_));
        let copies: Vec<_> = log.blocks.into_iter().filter(is_copy).collect();
        // The first ones are in memory as what waits, and the last ones as what was used last.
        let middle = copies.len() / 2;
        damage(&*disk, &copies[middle..middle + 40]).await;
        runtime.sleep(Nanos(60 * SECOND.0)).await;
        let (tried, stays) = (fs.journal_stats(), fs.too_old_stays());
        assert!(tried.at_risk_bytes > 0);
        assert!(stays.is_some_and(|error| error.is_damage()), "it is told");
        runtime.sleep(Nanos(3600 * SECOND.0)).await;
        assert_eq!(fs.journal_stats(), tried, "it is tried again");
        directory(&fs, Ino::ROOT, "more").await;
        fs.sync_all().await.unwrap();
    });
}

/// Power cuts at any moment around the timer, in each mode that has it.
#[test]
fn power_cuts_around_the_timer_lose_nothing() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for (number, mode) in (0..9).zip([Mode::Ordered, Mode::Data, Mode::Runs].into_iter().cycle()) {
        let world = World::new(number, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        run_in(mode, &world, async move |fs: Ext4| {
            fs.max_age(Some(Nanos::from_millis(8)));
            make_tree(&fs).await;
            fs.sync_all().await.unwrap();
            runtime.sleep(Nanos::from_millis(3 * number)).await;
            assert!(fs.journal_stats().home_bytes > 0, "nothing went home before the cut");
        });
        let cut = world.disk.after_power_cut(Survival::Random, &mut Rng::new(number));
        run_in(mode, &again(cut), async |fs: Ext4| {
            check_tree(&fs).await.unwrap();
            fs.unmount().await.unwrap();
        });
    }
}
