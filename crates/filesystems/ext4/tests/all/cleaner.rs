//! The cleaner of a journal that keeps its content: what it writes anew, and what goes home.

use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, e2fsck, load, mkfs, mount_in};
use crate::lazy::{again, check_tree, make_tree, run_in};
use manylogs_block::{Rng, to_usize};
use manylogs_ext4::{Change, Cleaner, Ext4, FileKind, Ino, Mode, New, SinkStats};
use manylogs_sim::Survival;

/// Bytes of the journal of [`SMALL`] images.
const JOURNAL_BYTES: u64 = 4 << 20;
/// Inodes of a block of their table.
const PER_BLOCK: usize = 16;

/// Gives an inode another mode, durably.
async fn touch(fs: &Ext4, ino: Ino, number: u64) {
    let permissions = Some(0o400 | u16::try_from(number % 64).unwrap());
    fs.change(ino, Change { permissions, ..Change::default() }).await.unwrap();
    fs.sync(ino).await.unwrap();
}

/// Fills the journal six times: nine updates in ten are of two inodes, and one is of one of
/// `others`, which lie in blocks of their own.
async fn fill(fs: &Ext4, others: usize) -> SinkStats {
    let mut inos = Vec::new();
    for number in 0..others * PER_BLOCK {
        let new = New::plain(FileKind::File, 0o644);
        let name = format!("file {number}");
        inos.push(fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap().ino);
    }
    let (before, mut rng, mut number) = (fs.journal_stats(), Rng::new(1), 0);
    while fs.journal_stats().since(&before).log_bytes < 6 * JOURNAL_BYTES {
        let other = to_usize(rng.below(others as u64)) * PER_BLOCK;
        touch(fs, if number % 10 == 0 { inos[other] } else { inos[0] }, number).await;
        number += 1;
    }
    fs.journal_stats().since(&before)
}

/// The disk after [`fill`] with this cleaner, and what that did; `None` without mkfs.
fn filled(cleaner: Cleaner) -> Option<(World, SinkStats)> {
    let world = World::new(5, SMALL_MIB, mkfs(SMALL_MIB, SMALL)?);
    let stats = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        fs.clean_by(cleaner);
        make_tree(&fs).await;
        let stats = fill(&fs, 8).await;
        check_tree(&fs).await.unwrap();
        fs.unmount().await.unwrap();
        stats
    });
    Some((world, stats))
}

/// Checks the tree by a mount that goes on with the journal, and after a replay by e2fsck.
fn judge(world: &World) {
    let opened = again(world.settled());
    run_in(Mode::Lazy, &opened, async |fs: Ext4| assert_eq!(check_tree(&fs).await, Ok(())));
    let (_dir, path) = world.saved();
    assert!(e2fsck(&["-fp"], &path).0 <= 1);
    let replayed = again(load(&path));
    replayed.check();
    run_in(Mode::Ordered, &replayed, async |fs: Ext4| assert_eq!(check_tree(&fs).await, Ok(())));
}

#[test]
fn what_is_written_again_stays_in_the_journal_and_the_rest_goes_home() {
    let Some((world, stats)) = filled(Cleaner::Own) else { return };
    println!("{stats:?}");
    assert!(stats.renewed_bytes > 0 && stats.home_bytes > 0, "{stats:?}");
    // The tree goes home, and of the updates hardly anything: each block is written once a lap.
    assert!(stats.home_bytes < stats.changed_bytes / 5, "{stats:?}");
    assert!(stats.renewed_bytes < stats.changed_bytes / 4, "{stats:?}");
    judge(&world);
}

#[test]
fn the_cleaner_of_the_paper_renews_all() {
    let Some((world, stats)) = filled(Cleaner::Paper) else { return };
    println!("{stats:?}");
    assert!(stats.renewed_bytes > 0 && stats.home_bytes == 0, "{stats:?}");
    judge(&world);
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
