//! The cleaner of a journal that keeps its content: what it writes anew, and what goes home.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, e2fsck, load, mkfs, mount_in};
use crate::lazy::{again, check_tree, make_tree, run_in};
use manylogs_block::{Request, Rng, to_usize};
use manylogs_ext4::{Change, Cleaner, Ext4, FileKind, Ino, Mode, New, SinkStats};
use manylogs_sim::{DiskImage, Stopped, Survival};

/// Bytes of the journal of [`SMALL`] images.
const JOURNAL_BYTES: u64 = 4 << 20;
/// Inodes of a block of their table.
const PER_BLOCK: usize = 16;

/// The permissions of files, by number: those of the last sync, and those that may be newer.
#[derive(Clone, Debug, Default)]
struct Modes(Rc<RefCell<BTreeMap<usize, (u16, u16)>>>);

fn name(file: usize) -> String {
    format!("file {file}")
}

impl Modes {
    /// Makes files in so many blocks of inodes, durably: the first one of each block.
    async fn make(&self, fs: &Ext4, blocks: usize) -> Vec<(usize, Ino)> {
        let mut firsts = Vec::new();
        for file in 0..blocks * PER_BLOCK {
            let new = New::plain(FileKind::File, 0o644);
            let made = fs.create(Ino::ROOT, name(file).as_bytes(), new).await.unwrap();
            if file % PER_BLOCK == 0 {
                firsts.push((file, made.ino));
            }
        }
        fs.sync_all().await.unwrap();
        self.0.borrow_mut().extend(firsts.iter().map(|(file, _)| (*file, (0o644, 0o644))));
        firsts
    }

    async fn change(&self, fs: &Ext4, (file, ino): (usize, Ino), number: u64) {
        let permissions = 0o400 | u16::try_from(number % 256).unwrap();
        self.0.borrow_mut().get_mut(&file).unwrap().1 = permissions;
        let change = Change { permissions: Some(permissions), ..Change::default() };
        fs.change(ino, change).await.unwrap();
    }

    /// Makes all changes durable.
    async fn sync(&self, fs: &Ext4, ino: Ino) {
        fs.sync(ino).await.unwrap();
        self.0.borrow_mut().values_mut().for_each(|(synced, newest)| *synced = *newest);
    }

    async fn check(&self, fs: &Ext4) {
        let all = self.0.borrow().clone();
        for (file, (synced, newest)) in all {
            let found = fs.lookup(Ino::ROOT, name(file).as_bytes()).await.unwrap().permissions;
            let is_right = found == newest || found == synced;
            assert!(is_right, "file {file} has {found:o} and not {synced:o} or {newest:o}");
        }
    }
}

/// Fills the journal six times: nine updates in ten are of one inode, and one is of one of
/// `others`, which lie in blocks of their own.
async fn fill(fs: &Ext4, modes: &Modes, others: usize) -> SinkStats {
    let files = modes.make(fs, others).await;
    let (before, mut rng, mut number) = (fs.journal_stats(), Rng::new(1), 0);
    while fs.journal_stats().since(&before).log_bytes < 6 * JOURNAL_BYTES {
        let other = to_usize(rng.below(others as u64));
        let file = files[if number % 10 == 0 { other } else { 0 }];
        modes.change(fs, file, number).await;
        modes.sync(fs, file.1).await;
        number += 1;
    }
    fs.journal_stats().since(&before)
}

/// The disk after [`fill`] with this cleaner, its files, and what the cleaner did; `None` without
/// mkfs.
fn filled(cleaner: Cleaner) -> Option<(World, Modes, SinkStats)> {
    let world = World::new(5, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    let modes = Modes::default();
    let filling = modes.clone();
    let stats = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.clean_by(cleaner);
        make_tree(&fs).await;
        let stats = fill(&fs, &filling, 8).await;
        check_tree(&fs).await.unwrap();
        filling.check(&fs).await;
        fs.unmount().await.unwrap();
        stats
    });
    Some((world, modes, stats))
}

/// Checks the tree and the files by a mount that goes on with the journal, and after a replay by
/// e2fsck.
fn judge(image: DiskImage, modes: &Modes) {
    let check = |world: &World, mode| {
        let modes = modes.clone();
        run_in(mode, world, async move |fs: Ext4| {
            assert_eq!(check_tree(&fs).await, Ok(()));
            modes.check(&fs).await;
        });
    };
    let world = again(image);
    let (_dir, path) = world.saved();
    check(&world, Mode::Lazy);
    assert!(e2fsck(&["-fp"], &path).0 <= 1);
    let replayed = again(load(&path));
    replayed.check();
    check(&replayed, Mode::Ordered);
}

#[test]
fn what_is_written_again_stays_in_the_journal_and_the_rest_goes_home() {
    let Some((world, modes, stats)) = filled(Cleaner::Own) else { return };
    println!("{stats:?}");
    assert!(stats.renewed_bytes > 0 && stats.home_bytes > 0, "{stats:?}");
    // The tree goes home, and of the updates hardly anything: each block is written once a lap.
    assert!(stats.home_bytes < stats.changed_bytes / 5, "{stats:?}");
    assert!(stats.renewed_bytes < stats.changed_bytes / 4, "{stats:?}");
    judge(world.settled(), &modes);
}

#[test]
fn the_cleaner_of_the_paper_renews_all() {
    let Some((world, modes, stats)) = filled(Cleaner::Paper) else { return };
    println!("{stats:?}");
    assert!(stats.renewed_bytes > 0 && stats.home_bytes == 0, "{stats:?}");
    judge(world.settled(), &modes);
}

/// An unmount, and a power cut, at any moment of the cleaner's work.
#[test]
fn the_cleaner_ends_with_the_mount() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for updates in (260..420).step_by(13) {
        let world = World::new(updates, SMALL_MIB, image.clone());
        let mounting = mount_in(Mode::Lazy, Rc::new(world.disk.clone()), world.runtime());
        world.sim.block_on(world.user, async move {
            let fs = mounting.await.unwrap();
            make_tree(&fs).await;
            let file = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
            for number in 0..updates {
                let permissions = Some(0o400 | u16::try_from(number % 64).unwrap());
                fs.change(file, Change { permissions, ..Change::default() }).await.unwrap();
                fs.sync(file).await.unwrap();
            }
            if updates % 2 == 0 {
                fs.unmount().await.unwrap();
            }
        });
        let cut = world.disk.after_power_cut(Survival::Random, &mut Rng::new(updates));
        let world = again(cut);
        run_in(Mode::Lazy, &world, async |fs: Ext4| {
            assert_eq!(check_tree(&fs).await, Ok(()));
            fs.unmount().await.unwrap();
        });
    }
}

/// How often the tail moves in [`cuts`]: several laps.
const MOVES: u64 = 80;
/// The journal's superblock begins so.
const SUPERBLOCK: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4];

/// Changes files for ever: one change in three is of any of many files, and a sync comes after
/// each fourth.
async fn change_for_ever(fs: Ext4, modes: Modes) {
    make_tree(&fs).await;
    let files = modes.make(&fs, 100).await;
    let mut rng = Rng::new(7);
    for number in 0.. {
        let other = to_usize(rng.below(files.len() as u64));
        let file = files[if number % 3 == 0 { other } else { 0 }];
        modes.change(&fs, file, number).await;
        if number % 4 == 0 {
            modes.sync(&fs, file.1).await;
        }
    }
}

/// Power cuts at and shortly after each write of the journal's superblock, by which the cleaner
/// gives room back.
fn cuts() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(6, SMALL_MIB, image);
    let (modes, moved) = (Modes::default(), Rc::new(Cell::new(false)));
    let tail = Rc::clone(&moved);
    world.disk.fail_requests(Box::new(move |request| {
        if let Request::Write { payload, .. } = request
            && payload.to_bytes().is_some_and(|bytes| bytes.starts_with(&SUPERBLOCK))
        {
            tail.set(true);
        }
        None
    }));
    let mounting = mount_in(Mode::Lazy, Rc::new(world.disk.clone()), world.runtime());
    let changing = modes.clone();
    world.runtime().spawn(async move { change_for_ever(mounting.await.unwrap(), changing).await });
    let made = || !modes.0.borrow().is_empty();
    assert_eq!(world.sim.run_until(made), Stopped::Condition);
    for number in 0..MOVES {
        moved.set(false);
        assert_eq!(world.sim.run_until(|| moved.get()), Stopped::Condition);
        let end = world.disk.events() + number % 12;
        assert_eq!(world.sim.run_until(|| world.disk.events() >= end), Stopped::Condition);
        let cut = world.disk.after_power_cut(Survival::Random, &mut Rng::new(number));
        judge(cut, &modes);
    }
}

#[test]
fn a_cut_in_the_cleaners_work_loses_nothing() {
    cuts();
}

#[cfg(feature = "plant")]
#[test]
fn bugs_planted_in_the_cleaner_are_noticed() {
    use crate::common::assert_noticed;
    use manylogs_plant::Bug;
    assert_noticed(Bug::LazyRenewsOld, cuts);
    assert_noticed(Bug::LazyTailBeforeRenewed, cuts);
}
