//! Metadata is arranged in idle time, where that gains.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, mkfs};
use crate::lazy::{again, run_in};
use manylogs_block::{Nanos, Rng};
use manylogs_ext4::{Change, Error, Ext4, FileKind, IdleArranged, Ino, Mode, New};
use manylogs_sim::{DiskImage, Survival};

/// Directories of a tree, all in one.
const DIRECTORIES: u32 = 120;
/// How often the order is looked at.
const EVERY: Nanos = Nanos::from_secs(600);
const HOUR: Nanos = Nanos::from_secs(3600);
const DAY: Nanos = Nanos::from_secs(24 * 3600);
/// A disk whose journal holds some passes, so that the cleaner has nothing to do.
const ROOMY_MIB: u64 = 96;
const ROOMY: &[&str] = &["-g", "1024", "-J", "size=32", "-N", "2048"];

fn name(number: u32) -> Vec<u8> {
    format!("directory {number}").into_bytes()
}

async fn file(fs: &Ext4, dir: Ino, name: &[u8]) -> Ino {
    fs.create(dir, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

/// Makes directories, and then a file in each in a random order, durably one after the other: their
/// blocks lie in the journal in that order.
async fn make_in_random_order(fs: &Ext4) {
    let mut all = Vec::new();
    for number in 0..DIRECTORIES {
        let new = New::plain(FileKind::Directory, 0o755);
        all.push(fs.create(Ino::ROOT, &name(number), new).await.unwrap().ino);
    }
    fs.sync_all().await.unwrap();
    Rng::new(3).shuffle(&mut all);
    for dir in all {
        file(fs, dir, b"file").await;
        fs.sync_all().await.unwrap();
    }
}

async fn check(fs: &Ext4) -> Result<(), Error> {
    for number in 0..DIRECTORIES {
        let dir = fs.lookup(Ino::ROOT, &name(number)).await?.ino;
        fs.lookup(dir, b"file").await?;
    }
    Ok(())
}

fn arranged(fs: &Ext4) -> IdleArranged {
    fs.idle_arranged().unwrap()
}

fn roomy() -> Option<DiskImage> {
    mkfs(ROOMY_MIB, ROOMY)
}

#[test]
fn what_lies_in_another_order_is_arranged_once() {
    let Some(image) = roomy() else { return };
    let world = World::new(1, ROOMY_MIB, image);
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.arrange_every(Some(EVERY));
        make_in_random_order(&fs).await;
        assert_eq!(fs.idle_arranged(), None, "a day is the usual bound: it goes home then");
        let made = fs.journal_stats().log_bytes;
        runtime.sleep(HOUR).await;
        assert_eq!(fs.journal_stats().log_bytes, made, "arranged, though it goes home");
        fs.max_age(None);
        runtime.sleep(HOUR).await;
        let once = arranged(&fs);
        assert_eq!((once.looks, once.passes), (1, 1), "{once:?}");
        assert!(once.blocks > u64::from(DIRECTORIES), "{once:?}");
        assert!(4 * once.apart > once.met, "{once:?}");
        let renewed = fs.journal_stats().renewed_bytes;
        assert_eq!(renewed, once.blocks * 4096, "the cleaner takes the rest for hot");
        runtime.sleep(DAY).await;
        assert_eq!(arranged(&fs), once, "nothing had changed");
        // A look at what is in order changes nothing.
        file(&fs, Ino::ROOT, b"one more").await;
        fs.sync_all().await.unwrap();
        runtime.sleep(DAY).await;
        let looked = arranged(&fs);
        assert_eq!((looked.looks, looked.passes), (2, 1), "one block lay apart: {looked:?}");
        assert!(looked.apart < 8, "{looked:?}");
        assert_eq!(fs.journal_stats().home_bytes, 0);
        check(&fs).await.unwrap();
        fs.unmount().await.unwrap();
    });
    let world = World::new(2, ROOMY_MIB, world.settled());
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        check(&fs).await.unwrap();
        fs.unmount().await.unwrap();
    });
    world.check();
}

/// The task that looks is asleep for a day then.
#[test]
fn an_unmount_waits_for_no_look() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for pause in [Nanos::from_secs(1), Nanos(DAY.0 + 5 * 1_000_000_000)] {
        let world = World::new(1, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            fs.max_age(None);
            file(&fs, Ino::ROOT, b"file").await;
            fs.sync_all().await.unwrap();
            runtime.sleep(pause).await;
            let began = runtime.now();
            fs.unmount().await.unwrap();
            let took = runtime.now().since(began);
            assert!(took < Nanos::from_secs(1), "{took:?}");
        });
    }
}

/// What is set meanwhile is no time that has passed, and no time between two looks is no time to
/// wait for others.
#[test]
fn settings_are_no_time() {
    let Some(image) = roomy() else { return };
    let world = World::new(1, ROOMY_MIB, image);
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.max_age(None);
        make_in_random_order(&fs).await;
        for _ in 0..10 {
            fs.arrange_every(Some(HOUR));
            runtime.sleep(Nanos::from_secs(60)).await;
        }
        assert_eq!(arranged(&fs), IdleArranged::default(), "too early");
        fs.arrange_every(Some(Nanos(0)));
        runtime.sleep(HOUR).await;
        assert_eq!(arranged(&fs).passes, 1);
        fs.unmount().await.unwrap();
    });
}

/// Only a step that used the disk is followed by a pause.
#[test]
fn a_look_at_what_is_in_memory_takes_no_time() {
    let Some(image) = roomy() else { return };
    let world = World::new(1, ROOMY_MIB, image);
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        make_in_random_order(&fs).await;
        fs.max_age(None);
        fs.arrange_every(Some(Nanos::from_secs(1)));
        // Each of the directories would take a tenth of a second.
        runtime.sleep(Nanos::from_secs(3)).await;
        assert_eq!(arranged(&fs).looks, 1);
        fs.unmount().await.unwrap();
    });
}

/// A disk that is in use all the time is left alone.
#[test]
fn requests_come_first() {
    let Some(image) = roomy() else { return };
    let world = World::new(1, ROOMY_MIB, image);
    let (runtime, ended) = (world.runtime(), Rc::new(Cell::new(false)));
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.max_age(None);
        fs.arrange_every(Some(EVERY));
        make_in_random_order(&fs).await;
        let used = file(&fs, Ino::ROOT, b"used").await;
        fs.write(used, 0, vec![7; 4096]).await.unwrap();
        fs.sync(used).await.unwrap();
        let (using, clock, over) = (fs.clone(), runtime.clone(), Rc::clone(&ended));
        runtime.spawn(async move {
            while !over.get() {
                // Content is not kept: each read is a request.
                using.read(used, 0, 4096).await.unwrap();
                clock.sleep(Nanos::from_secs(1)).await;
            }
        });
        runtime.sleep(HOUR).await;
        assert_eq!(arranged(&fs), IdleArranged::default(), "though the disk was in use");
        ended.set(true);
        runtime.sleep(HOUR).await;
        assert_eq!(arranged(&fs).passes, 1, "not arranged");
        fs.unmount().await.unwrap();
    });
}

/// A pass would fill more than a quarter of this journal: it is left as it is.
#[test]
fn a_short_journal_is_left_alone() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let runtime = world.runtime();
    run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.arrange_every(Some(EVERY));
        make_in_random_order(&fs).await;
        for number in 0..DIRECTORIES {
            let dir = fs.lookup(Ino::ROOT, &name(number)).await.unwrap().ino;
            let new = New::plain(FileKind::Directory, 0o755);
            let inner = fs.create(dir, b"inner", new).await.unwrap().ino;
            file(&fs, inner, b"file").await;
        }
        fs.sync_all().await.unwrap();
        fs.max_age(None);
        runtime.sleep(DAY).await;
        let looked = arranged(&fs);
        assert_eq!(looked.blocks, 0, "{looked:?}");
        assert!(looked.looks > 0, "{looked:?}");
        fs.unmount().await.unwrap();
    });
}

/// Power cuts and unmounts at any moment of a pass.
#[test]
fn a_pass_that_ends_early_loses_nothing() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for number in 0..12 {
        let world = World::new(number, SMALL_MIB, image.clone());
        let runtime = world.runtime();
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            make_in_random_order(&fs).await;
            fs.arrange_every(Some(Nanos::from_millis(40)));
            fs.max_age(None);
            runtime.sleep(Nanos::from_millis(60 + 25 * number)).await;
            if number % 3 == 0 {
                fs.unmount().await.unwrap();
            }
        });
        let cut = world.disk.after_power_cut(Survival::Random, &mut Rng::new(number));
        let world = again(cut);
        run_in(Mode::Lazy, &world, async |fs: Ext4| {
            check(&fs).await.unwrap();
            fs.unmount().await.unwrap();
        });
    }
}

/// Changes each directory once when a pass begins; each must be so when the pass has ended.
fn directories_change_meanwhile() {
    let Some(image) = roomy() else { return };
    let world = World::new(1, ROOMY_MIB, image);
    let runtime = world.runtime();
    let changed = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        make_in_random_order(&fs).await;
        fs.max_age(None);
        fs.arrange_every(Some(Nanos::from_secs(1)));
        let mut changed = Vec::new();
        for waited in 0.. {
            if arranged(&fs).looks > 0 {
                break;
            }
            assert!(waited < 1_000_000, "nothing looks at the order");
            runtime.sleep(Nanos::from_millis(1)).await;
        }
        // That is in memory, and no request: the pass goes on meanwhile.
        for (number, permissions) in (0..DIRECTORIES).zip(0o700..) {
            let ino = fs.lookup(Ino::ROOT, &name(number)).await.unwrap().ino;
            let change = Change { permissions: Some(permissions), ..Change::default() };
            fs.change(ino, change).await.unwrap();
            changed.push((ino, permissions));
            runtime.sleep(Nanos::from_millis(5)).await;
        }
        runtime.sleep(HOUR).await;
        assert!(arranged(&fs).passes > 0, "{:?}", arranged(&fs));
        fs.unmount().await.unwrap();
        changed
    });
    let world = World::new(2, ROOMY_MIB, world.settled());
    run_in(Mode::Ordered, &world, async move |fs: Ext4| {
        check(&fs).await.unwrap();
        for (ino, permissions) in changed {
            assert_eq!(fs.attributes(ino).await.unwrap().permissions, permissions);
        }
        fs.unmount().await.unwrap();
    });
    world.check();
}

#[test]
fn what_changes_in_a_pause_stays() {
    directories_change_meanwhile();
}

#[cfg(feature = "plant")]
#[test]
fn a_pass_that_renews_what_it_saw_before_a_pause_is_noticed() {
    crate::common::assert_noticed(
        manylogs_plant::Bug::ArrangeRenewsSeen,
        directories_change_meanwhile,
    );
}
