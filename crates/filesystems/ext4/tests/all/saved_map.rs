//! The map of a journal that keeps its content, saved so that a mount need not read all of it. It is
//! believed only if it is of this journal, and of what the journal holds now.

use std::cell::Cell;
use std::rc::Rc;

use crate::broken_log::{full_with_map, middle, note, set_note, used, with_flipped};
use crate::common::{SMALL, SMALL_MIB, World, content, mkfs, mount_in};
use crate::lazy::{again, check_tree, left_full, make_tree, run_in};
use manylogs_block::{Extent, Lba, Nanos, Request, Rng, Sector, Sectors, to_usize};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, Mode, New};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{RawKind, RawLog};

/// Begins a block of a saved map.
const WORD: &[u8] = b"MLSM";
/// Sectors of a block.
const BLOCK: u64 = 8;

fn file() -> New {
    New::plain(FileKind::File, 0o644)
}

/// The first sectors of the saved map's blocks.
fn map_of(image: &DiskImage) -> Vec<u64> {
    let starts = (0..SMALL_MIB * 2048).step_by(to_usize(BLOCK));
    let is_map = |at: &u64| {
        let first = image.read(Extent::new(*at, 1)).to_bytes();
        first.is_some_and(|bytes| bytes.starts_with(WORD))
    };
    starts.filter(is_map).collect()
}

/// How much a mount reads, and whether the tree is there.
fn mounting(image: DiskImage) -> (Sectors, Result<(), Error>) {
    let world = again(image);
    let read = Rc::new(Cell::new(Sectors(0)));
    let counted = Rc::clone(&read);
    world.disk.fail_requests(Box::new(move |request| {
        if let Request::Read { extent } = request {
            counted.set(counted.get() + extent.len);
        }
        None
    }));
    let mounting = mount_in(Mode::Lazy, Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        (read.get(), check_tree(&fs).await)
    })
}

#[test]
fn a_mount_with_a_saved_map_does_not_read_the_journal() {
    let Some((image, log)) = full_with_map() else { return };
    assert!(!map_of(&image).is_empty());
    let (read, found) = mounting(image.clone());
    assert_eq!(found, Ok(()));
    let mut without = image;
    set_note(&mut without, &log, &[0; 40]);
    let (more, found) = mounting(without);
    assert_eq!(found, Ok(()));
    assert!(read.0 * 2 < more.0, "{read:?} {more:?}");
}

/// The image with a map whose copies all say that home is as new.
fn with_stale_copies(image: &DiskImage, log: &RawLog) -> DiskImage {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    let transactions = number(&note(image, log)[24..]);
    let mut image = image.clone();
    for block in map_of(&image) {
        let extent = Extent::new(block, BLOCK);
        let mut bytes = image.read(extent).to_bytes().unwrap().to_vec();
        let before = number(&bytes[4..]) * 255;
        for record in transactions.saturating_sub(before)..255 {
            bytes[16 * (record + 1) + 7] &= 0xFE;
        }
        for (lba, sector) in extent.range().zip(bytes.chunks(512)) {
            image.corrupt(Lba(lba), Sector::Bytes(sector.to_vec().into()));
        }
    }
    image
}

/// A map that was overwritten in part, as transactions do it that come behind, and one that says
/// something else.
fn a_torn_map_is_read_no_further() {
    let Some((image, log)) = full_with_map() else { return };
    assert_eq!(mounting(with_stale_copies(&image, &log)).1, Ok(()));
    for block in map_of(&image) {
        for torn in [block + 1..block + 4, block + 4..block + 8, block..block + 8] {
            let mut image = image.clone();
            torn.for_each(|lba| image.corrupt(Lba(lba), Sector::Zero));
            assert_eq!(mounting(image).1, Ok(()));
        }
    }
}

#[test]
fn a_map_that_is_not_whole_is_not_believed() {
    a_torn_map_is_read_no_further();
}

/// The note stays where other programs replay the journal and use it. They use it from its
/// beginning, so that the map stays whole.
fn a_map_of_a_journal_that_others_used_is_stale() {
    let Some((image, log)) = full_with_map() else { return };
    let old = note(&image, &log);
    let world = again(image);
    run_in(Mode::Ordered, &world, async |fs: Ext4| {
        fs.create(Ino::ROOT, b"new", file()).await.unwrap();
        fs.sync_all().await.unwrap();
    });
    let mut image = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(5));
    set_note(&mut image, &log, &old);
    let world = again(image);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        assert!(fs.lookup(Ino::ROOT, b"new").await.is_ok());
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_stale_map_is_not_believed() {
    a_map_of_a_journal_that_others_used_is_stale();
}

/// A map of the same disk that went another way: the same numbers of transactions in the same
/// places, at another time, with other blocks.
fn a_map_of_another_image_is_not_of_this_one() {
    let Some(empty) = mkfs(SMALL_MIB, SMALL) else { return };
    let left = |name: &'static [u8], after: Nanos| {
        let world = World::new(1, SMALL_MIB, empty.clone());
        let runtime = world.runtime();
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            runtime.sleep(after).await;
            for name in [name, b"common"] {
                fs.create(Ino::ROOT, name, New::plain(FileKind::Directory, 0o755)).await.unwrap();
                fs.sync_all().await.unwrap();
            }
            fs.unmount().await.unwrap();
        });
        world.settled()
    };
    let (one, mut other) = (left(b"one", Nanos(0)), left(b"two", Nanos::from_secs(50)));
    let log = RawLog::of(&one, SMALL_MIB).unwrap();
    let numbers = |log: &RawLog| log.blocks.iter().map(|it| (it.tid, it.at)).collect::<Vec<_>>();
    assert_eq!(numbers(&log), numbers(&RawLog::of(&other, SMALL_MIB).unwrap()));
    for lba in map_of(&one).into_iter().flat_map(|block| block..block + BLOCK) {
        let bytes = one.read(Extent::new(lba, 1)).to_bytes().unwrap();
        other.corrupt(Lba(lba), Sector::Bytes(bytes));
    }
    set_note(&mut other, &log, &note(&one, &log));
    run_in(Mode::Lazy, &again(other), async |fs: Ext4| {
        assert!(fs.lookup(Ino::ROOT, b"two").await.is_ok());
        assert!(fs.lookup(Ino::ROOT, b"common").await.is_ok());
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_map_of_another_image_is_not_believed() {
    a_map_of_another_image_is_not_of_this_one();
}

/// A map is saved while a transaction is being committed, which it must not have.
fn a_map_has_what_is_durable_alone() {
    let Some(empty) = mkfs(SMALL_MIB, SMALL) else { return };
    for delay in (0..40).map(|step| Nanos(step * 250_000)) {
        let world = World::new(1, SMALL_MIB, empty.clone());
        let runtime = world.runtime();
        run_in(Mode::Lazy, &world, async move |fs: Ext4| {
            fs.create(Ino::ROOT, b"old", file()).await.unwrap();
            fs.sync_all().await.unwrap();
            let ino = fs.create(Ino::ROOT, b"new", file()).await.unwrap().ino;
            let (saving, clock) = (fs.clone(), runtime.clone());
            runtime.spawn(async move {
                clock.sleep(delay).await;
                saving.save_map().await.unwrap();
            });
            fs.sync(ino).await.unwrap();
            runtime.sleep(Nanos::from_secs(1)).await;
        });
        let image = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(6));
        run_in(Mode::Lazy, &again(image), async |fs: Ext4| {
            assert!(fs.lookup(Ino::ROOT, b"old").await.is_ok());
            assert!(fs.lookup(Ino::ROOT, b"new").await.is_ok());
        });
    }
}

#[test]
fn a_map_that_is_saved_while_programs_go_on_is_whole() {
    a_map_has_what_is_durable_alone();
}

#[test]
fn nothing_is_lost_of_a_damaged_descriptor_that_the_map_does_not_need() {
    let Some((image, log)) = full_with_map() else { return };
    let block = middle(&log, |kind| kind == RawKind::Descriptor);
    let image = with_flipped(&image, &block);
    for mode in [Mode::Lazy, Mode::Ordered] {
        assert_eq!(used(mode, &image), Ok(Ok(())), "{mode:?}");
    }
    // All of it goes home, and the journal begins behind it.
    let world = again(image);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        fs.bring_home().await.unwrap();
        fs.unmount().await.unwrap();
    });
    assert!(RawLog::of(&world.settled(), SMALL_MIB).unwrap().blocks.iter().all(|it| *it != block));
}

/// What a mount commits after one that saved the map is looked at: its damage is told.
fn damage_behind_the_map_is_seen() {
    let Some(world) = left_full() else { return };
    let world = again(world.settled());
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        fs.create(Ino::ROOT, b"new", file()).await.unwrap();
        fs.sync_all().await.unwrap();
    });
    let image = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(5));
    let log = RawLog::of(&image, SMALL_MIB).unwrap();
    let last = log.blocks.iter().rev().find(|block| block.kind == RawKind::Descriptor).unwrap();
    let found = used(Mode::Lazy, &with_flipped(&image, last));
    assert!(matches!(found, Err(Error::JournalLost(_))), "{found:?}");
}

#[test]
fn damage_that_came_after_the_map_is_told() {
    damage_behind_the_map_is_seen();
}

/// The map is found after a crash, with what the journal has since.
#[test]
fn a_map_is_of_use_after_a_crash() {
    let Some(empty) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, empty);
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        make_tree(&fs).await;
        fs.sync_all().await.unwrap();
        fs.save_map().await.unwrap();
        fs.create(Ino::ROOT, b"new", file()).await.unwrap();
        fs.sync_all().await.unwrap();
    });
    let image = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(5));
    let log = RawLog::of(&image, SMALL_MIB).unwrap();
    let (read, found) = mounting(image.clone());
    let mut without = image.clone();
    set_note(&mut without, &log, &[0; 40]);
    let (more, same) = mounting(without);
    assert_eq!((found, same), (Ok(()), Ok(())));
    assert!(read < more, "{read:?} {more:?}");
    run_in(Mode::Lazy, &again(image), async |fs: Ext4| {
        assert!(fs.lookup(Ino::ROOT, b"new").await.is_ok());
    });
}

/// What went home after the map was saved is not in the journal any more, though the map has it. A
/// block of it is freed then, for which no transaction has a word, and becomes content of a file.
fn what_went_home_since_is_left_out() {
    let Some(empty) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, empty);
    let length = run_in(Mode::Lazy, &world, async |fs: Ext4| {
        for number in 0..40 {
            let new = New::plain(FileKind::Directory, 0o755);
            fs.create(Ino::ROOT, format!("{number}").as_bytes(), new).await.unwrap();
        }
        fs.sync_all().await.unwrap();
        fs.save_map().await.unwrap();
        fs.bring_home().await.unwrap();
        for number in 0..40 {
            fs.remove_directory(Ino::ROOT, format!("{number}").as_bytes()).await.unwrap();
        }
        fs.sync_all().await.unwrap();
        let ino = fs.create(Ino::ROOT, b"file", file()).await.unwrap().ino;
        // All that is free, so that the blocks of the directories are among them.
        let mut length = 0;
        while fs.write(ino, length, content(length, 4096)).await.is_ok() {
            length += 4096;
        }
        fs.sync_all().await.unwrap();
        length
    });
    let image = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(7));
    run_in(Mode::Lazy, &again(image), async move |fs: Ext4| {
        fs.bring_home().await.unwrap();
        let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
        for offset in (0..length).step_by(4096) {
            let found = fs.read(ino, offset, 4096).await.unwrap();
            assert!(found == content(offset, 4096), "block {offset} is another");
        }
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_map_is_left_without_what_went_home_since() {
    what_went_home_since_is_left_out();
}

#[cfg(feature = "plant")]
#[test]
fn bugs_planted_in_saved_maps_are_noticed() {
    use crate::common::assert_noticed;
    use manylogs_plant::Bug;
    for (bug, test) in [
        (Bug::LazySavedTorn, a_torn_map_is_read_no_further as fn()),
        (Bug::LazySavedStale, a_map_of_a_journal_that_others_used_is_stale),
        (Bug::LazySavedAhead, a_map_has_what_is_durable_alone),
        (Bug::LazyLeftStays, damage_behind_the_map_is_seen),
        (Bug::LazySavedKeepsGone, what_went_home_since_is_left_out),
        (Bug::LazySavedMissesNewest, a_map_has_what_is_durable_alone),
    ] {
        assert_noticed(bug, test);
    }
}
