//! A journal that keeps its content.

use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, e2fsck, load, mkfs, mount_in};
use manylogs_block::{Nanos, Rng};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, Mode, New, Options};
use manylogs_sim::{DiskImage, Survival};

/// The first bytes of the journal's own blocks.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
/// Bytes of the journal of [`SMALL`] images.
const JOURNAL_BYTES: u64 = 4 << 20;

/// Mounts the world's disk in this mode and calls `work`.
pub(crate) fn run_in<T: 'static>(
    mode: Mode,
    world: &World,
    work: impl AsyncFnOnce(Ext4) -> T + 'static,
) -> T {
    let mounting = mount_in(mode, Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move { work(mounting.await.unwrap()).await })
}

async fn directory(fs: &Ext4, parent: Ino, name: &str) -> Ino {
    let new = New::plain(FileKind::Directory, 0o755);
    fs.create(parent, name.as_bytes(), new).await.unwrap().ino
}

/// A target that begins as blocks of the journal do, and takes a block.
pub(crate) fn target(number: u64) -> Vec<u8> {
    let mut target = vec![b'a' + u8::try_from(number % 26).unwrap(); 900];
    target[..4].copy_from_slice(&MAGIC);
    target
}

/// Makes directories with symbolic links in them, removes one, and makes a file.
pub(crate) async fn make_tree(fs: &Ext4) {
    for number in 0..40 {
        let dir = directory(fs, Ino::ROOT, &format!("dir {number}")).await;
        let new = New { target: target(number).into(), ..New::plain(FileKind::Symlink, 0o777) };
        fs.create(dir, b"link", new).await.unwrap();
        fs.sync_all().await.unwrap();
    }
    let gone = fs.lookup(Ino::ROOT, b"dir 7").await.unwrap().ino;
    fs.unlink(gone, b"link").await.unwrap();
    fs.remove_directory(Ino::ROOT, b"dir 7").await.unwrap();
    let file = fs.create(Ino::ROOT, b"file", New::plain(FileKind::File, 0o644)).await.unwrap().ino;
    fs.write(file, 0, content(3, 200_000)).await.unwrap();
}

/// Checks the tree of [`make_tree`].
pub(crate) async fn check_tree(fs: &Ext4) -> Result<(), Error> {
    for number in (0..40).filter(|number| *number != 7) {
        let dir = fs.lookup(Ino::ROOT, format!("dir {number}").as_bytes()).await?.ino;
        let link = fs.lookup(dir, b"link").await?.ino;
        if fs.read_link(link).await? != target(number) {
            return Err(Error::Invalid("another target"));
        }
    }
    let gone = fs.lookup(Ino::ROOT, b"dir 7").await;
    let file = fs.lookup(Ino::ROOT, b"file").await?.ino;
    let read = fs.read(file, 0, 300_000).await?;
    let sound = gone == Err(Error::NotFound) && read == content(3, 200_000);
    if sound { Ok(()) } else { Err(Error::Invalid("another content")) }
}

/// A disk whose journal keeps the tree after an unmount; `None` without mkfs.
pub(crate) fn left_full() -> Option<World> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    let home = run_in(Mode::Lazy, &world, async |fs: Ext4| {
        make_tree(&fs).await;
        let home = fs.journal_stats().home_bytes;
        fs.unmount().await.unwrap();
        home
    });
    assert_eq!(home, 0, "the journal has room for all of it");
    Some(world)
}

pub(crate) fn again(image: DiskImage) -> World {
    World::new(2, SMALL_MIB, image)
}

#[test]
fn every_mode_and_e2fsck_find_what_was_left_in_the_journal() {
    let Some(world) = left_full() else { return };
    for mode in [Mode::Lazy, Mode::Ordered, Mode::Data, Mode::Runs] {
        let world = again(world.settled());
        run_in(mode, &world, async |fs: Ext4| {
            assert_eq!(check_tree(&fs).await, Ok(()));
            fs.unmount().await.unwrap();
        });
        if mode != Mode::Lazy {
            world.check();
        }
    }
    let (_dir, path) = world.saved();
    let (code, said) = e2fsck(&["-fp"], &path);
    assert!(code <= 1, "{said}");
    let world = again(load(&path));
    world.check();
    run_in(Mode::Lazy, &world, async |fs: Ext4| assert_eq!(check_tree(&fs).await, Ok(())));
}

/// The journal is written several times over. Live blocks are still found, and few blocks went
/// home.
#[test]
fn a_journal_of_any_age_has_room() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(3, SMALL_MIB, image);
    let stats = run_in(Mode::Lazy, &world, async |fs: Ext4| {
        make_tree(&fs).await;
        while fs.journal_stats().log_bytes < 5 * JOURNAL_BYTES {
            let dir = directory(&fs, Ino::ROOT, "short").await;
            fs.sync(dir).await.unwrap();
            fs.remove_directory(Ino::ROOT, b"short").await.unwrap();
        }
        assert_eq!(check_tree(&fs).await, Ok(()));
        let stats = fs.journal_stats();
        fs.unmount().await.unwrap();
        stats
    });
    assert!(stats.home_bytes > 0 && stats.at_risk_bytes < JOURNAL_BYTES / 2, "{stats:?}");
    assert!(stats.home_bytes < stats.log_bytes / 4, "{stats:?}");
    let world = again(world.settled());
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.bring_home().await.unwrap();
        assert_eq!(fs.journal_stats().at_risk_bytes, 0);
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.unmount().await.unwrap();
    });
}

#[test]
fn a_mount_that_is_read_only_reads_the_journal_and_writes_nothing() {
    let Some(world) = left_full() else { return };
    let before = world.settled().fingerprint();
    let world = again(world.settled());
    let options = Options { read_only: true, ..manylogs_torture::ext4::options(world.runtime()) };
    let disk = Rc::new(world.disk.clone());
    let mounting = Ext4::mount_in(Mode::Lazy, disk, world.runtime(), options);
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.unmount().await.unwrap();
    });
    assert_eq!(world.settled().fingerprint(), before);
}

#[test]
fn a_tree_that_is_arranged_is_the_same_tree() {
    let Some(world) = left_full() else { return };
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        let before = fs.journal_stats();
        let done = fs.arrange().await.unwrap();
        // The root, lost+found, and the directories that were not removed.
        assert_eq!((done.directories, done.is_whole), (41, true), "{done:?}");
        let logged = fs.journal_stats().since(&before).log_bytes;
        assert!(done.blocks > 41 && logged >= done.blocks * 4096, "{logged}, {done:?}");
        assert_eq!(check_tree(&fs).await, Ok(()));
        fs.unmount().await.unwrap();
    });
    for mode in [Mode::Lazy, Mode::Ordered] {
        run_in(mode, &world, async move |fs: Ext4| {
            if mode == Mode::Ordered {
                assert!(matches!(fs.arrange().await, Err(Error::Unsupported(_))));
            }
            assert_eq!(check_tree(&fs).await, Ok(()), "{mode:?}");
            fs.unmount().await.unwrap();
        });
    }
}

/// Whether content that is only in the journal is found by a mount in a mode that does not look for
/// content there.
fn content_in_the_journal_goes_home_first() -> bool {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return true };
    let world = World::new(4, SMALL_MIB, image);
    run_in(Mode::Data, &world, async |fs: Ext4| {
        let new = New::plain(FileKind::File, 0o644);
        let file = fs.create(Ino::ROOT, b"file", new).await.unwrap().ino;
        fs.write(file, 0, content(5, 50_000)).await.unwrap();
        fs.sync(file).await.unwrap();
    });
    let world = again(world.disk.after_power_cut(Survival::Everything, &mut Rng::new(4)));
    run_in(Mode::Lazy, &world, async |fs: Ext4| {
        let file = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
        fs.read(file, 0, 60_000).await.unwrap() == content(5, 50_000)
    })
}

#[test]
fn a_journal_with_content_is_replayed() {
    assert!(content_in_the_journal_goes_home_first());
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};
    let Some(world) = left_full() else { return };
    plant(Some(Bug::LazyOpensContent));
    assert!(!content_in_the_journal_goes_home_first());
    plant(Some(Bug::LazyNotUnescaped));
    let found = run_in(Mode::Lazy, &world, async |fs: Ext4| check_tree(&fs).await);
    plant(None);
    assert_eq!(found, Err(Error::Invalid("another target")));
    plant(Some(Bug::ArrangeRenewsHome));
    let found = run_in(Mode::Lazy, &world, async |fs: Ext4| {
        fs.arrange().await?;
        check_tree(&fs).await
    });
    plant(None);
    assert!(found.is_err(), "what is at home is old");
}

/// Bugs that one of these tests shows, which others need a crash for.
#[cfg(feature = "plant")]
#[test]
fn bugs_planted_in_checkpoints_are_noticed() {
    use crate::common::assert_noticed;
    use manylogs_plant::Bug;
    for bug in [
        Bug::LazyForgetsNewer,
        Bug::LazyTailStartStays,
        Bug::LazyEscapedGoesHome,
        Bug::LazyOldCopyWins,
    ] {
        assert_noticed(bug, a_journal_of_any_age_has_room);
    }
}

/// Shorter than what counts as idle.
const BUSY: Nanos = Nanos::from_secs(8);
const HOUR: Nanos = Nanos::from_secs(3600);

/// The bytes that went home, and those that are newer in the journal, when metadata may be so old
/// and nobody has done anything for a while. Before, somebody makes or removes a file each eight
/// seconds, for as long as `busy`.
fn aged(most: Option<Nanos>, busy: Nanos, rest: Nanos) -> Option<(u64, u64)> {
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    let runtime = world.runtime();
    let left = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.max_age(most);
        make_tree(&fs).await;
        fs.sync_all().await.unwrap();
        // Seldom, so that the journal does not become full.
        for step in 0..busy.0 / BUSY.0 {
            runtime.sleep(BUSY).await;
            if step % 2 == 0 {
                let new = New::plain(FileKind::File, 0o644);
                fs.create(Ino::ROOT, b"busy", new).await.unwrap();
            } else {
                fs.unlink(Ino::ROOT, b"busy").await.unwrap();
            }
            fs.sync_all().await.unwrap();
        }
        let at_rest = fs.journal_stats().home_bytes;
        assert_eq!(at_rest, 0, "nothing goes home while the disk is in use");
        runtime.sleep(rest).await;
        let stats = fs.journal_stats();
        check_tree(&fs).await.unwrap();
        fs.unmount().await.unwrap();
        (stats.home_bytes, stats.at_risk_bytes)
    });
    run_in(Mode::Lazy, &again(world.settled()), async |fs: Ext4| {
        check_tree(&fs).await.unwrap();
        fs.unmount().await.unwrap();
    });
    Some(left)
}

#[test]
fn what_is_too_old_goes_home_while_nobody_uses_the_disk() {
    let age = Nanos(HOUR.0 / 60);
    let busy = Nanos(age.0 + 3 * BUSY.0);
    let Some((home, newer)) = aged(Some(age), busy, HOUR) else { return };
    assert!(home > 40 * 4096 && newer == 0, "{home} {newer}");
    assert_eq!(aged(Some(HOUR), Nanos(0), Nanos(HOUR.0 / 2)).map(|(home, _)| home), Some(0));
    assert_eq!(aged(None, Nanos(0), Nanos(100 * HOUR.0)).map(|(home, _)| home), Some(0), "off");
}

#[cfg(feature = "plant")]
#[test]
fn metadata_that_never_goes_home_is_noticed() {
    manylogs_plant::plant(Some(manylogs_plant::Bug::LazyAgeForgotten));
    let found = aged(Some(HOUR), Nanos(0), Nanos(2 * HOUR.0));
    manylogs_plant::plant(None);
    assert!(found.is_none_or(|(home, newer)| home == 0 && newer > 0));
}
