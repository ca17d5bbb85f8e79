//! Small files that are written back together, where a log takes short content.

use std::cell::Cell;
use std::rc::Rc;

#[cfg(feature = "plant")]
use crate::common::all_are_noticed;
use crate::common::{Case, Disk, all_hold, images, with};
use manylogs_block::{Handle, Nanos, Request, Sectors};
use manylogs_ext4::{DURABLE_XATTR, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::{Images, content};

/// Files of a block each: a run of them goes home.
const FILES: u64 = 100;
const BLOCK: usize = 4096;

async fn make(fs: &Ext4, number: u64) -> Ino {
    let new = New::plain(FileKind::File, 0o644);
    fs.create(Ino::ROOT, format!("small {number}").as_bytes(), new).await.unwrap().ino
}

async fn fill(fs: &Ext4, files: &[Ino], version: u64) {
    for (number, ino) in (0..).zip(files) {
        fs.write(*ino, 0, content(1000 * version + number, BLOCK)).await.unwrap();
    }
}

async fn hold(fs: &Ext4, files: &[Ino], version: u64) -> bool {
    for (number, ino) in (0..).zip(files) {
        if fs.read(*ino, 0, BLOCK).await.unwrap() != content(1000 * version + number, BLOCK) {
            return false;
        }
    }
    true
}

async fn made(fs: &Ext4) -> Vec<Ino> {
    let mut files = Vec::new();
    for number in 0..FILES {
        files.push(make(fs, number).await);
    }
    files
}

#[test]
fn new_files_side_by_side_go_home() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let files = made(fs).await;
        fs.sync_all().await.unwrap();
        fill(fs, &files, 1).await;
        let before = near.volume().stats();
        fs.sync_all().await.unwrap();
        let (after, all) = (near.volume().stats(), FILES * BLOCK as u64);
        let logged = after.record_bytes - before.record_bytes;
        assert!(logged < all / 2, "{logged} bytes were logged of files of {all}");
        let writes = after.bypassed_writes - before.bypassed_writes;
        assert!((1..=3).contains(&writes), "{writes} writes home");
        assert!(hold(fs, &files, 1).await);
        // What replaces it is short content of each file, whatever lies beside it.
        fill(fs, &files, 2).await;
        fs.sync_all().await.unwrap();
        assert_eq!(near.volume().stats().bypassed_writes, after.bypassed_writes);
        assert!(hold(fs, &files, 2).await);
    });
}

#[test]
fn a_few_new_files_are_logged() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let files = &made(fs).await[..5];
        fs.sync_all().await.unwrap();
        fill(fs, files, 1).await;
        let before = near.volume().stats().bypassed_writes;
        fs.sync_all().await.unwrap();
        assert_eq!(near.volume().stats().bypassed_writes, before);
        assert!(hold(fs, files, 1).await);
    });
}

/// A file that needs no place stays in the logs, also among many others.
fn what_needs_no_place_is_kept(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let files = made(fs).await;
        let how = SetXattr::default();
        fs.set_xattr(files[50], DURABLE_XATTR.as_bytes(), "1", how).await.unwrap();
        fs.sync_all().await.unwrap();
        fill(fs, &files, 1).await;
        fs.sync_all().await.unwrap();
        assert!(hold(fs, &files, 1).await);
        let live = near.volume().stats().o_dur_live_bytes;
        (live != BLOCK as u64).then_some("what needs no place went home with others")
    })
}

/// Content that replaces logged content is what is read from then on.
fn what_replaces_logged_content_is_read(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let files = made(fs).await;
        for version in 1..4 {
            fill(fs, &files, version).await;
            // Every second time each file is logged by itself.
            for ino in files.iter().filter(|_| version == 2) {
                fs.sync(*ino).await.unwrap();
            }
            fs.sync_all().await.unwrap();
        }
        (!hold(fs, &files, 3).await).then_some("older content is read")
    })
}

/// Files in two places, of which one is being written: a sync of a file of the other waits for that
/// request alone.
fn a_sync_waits_for_one_request(images: &Images) -> Option<&'static str> {
    const HOLE: usize = 40;
    const LONG: Sectors = Sectors(9 * 8);
    with(images, Granularity::Sectors, async |near: Rc<Near>, disk: Disk, clock: Handle| {
        let fs = near.fs();
        let (hole, wall) = (make(fs, 1000).await, make(fs, 1001).await);
        for (ino, blocks) in [(hole, HOLE), (wall, 200)] {
            fs.write(ino, 0, content(5, blocks * BLOCK)).await.unwrap();
            fs.sync(ino).await.unwrap();
        }
        fs.unlink(Ino::ROOT, b"small 1000").await.unwrap();
        let files = made(fs).await;
        fs.sync_all().await.unwrap();
        clock.sleep(Nanos::from_millis(50)).await;
        fill(fs, &files, 1).await;
        disk.below().hold_those(
            |request| matches!(request, Request::Write { extent, .. } if extent.len >= LONG),
        );
        let syncing = fs.clone();
        clock.spawn(async move { syncing.sync_all().await.unwrap() });
        clock.sleep(Nanos::from_millis(50)).await;
        assert_eq!(disk.below().held(), 1, "the files in the hole");
        let (one, is_durable) = (fs.clone(), Rc::new(Cell::new(false)));
        let (last, told) = (files[90], Rc::clone(&is_durable));
        clock.spawn(async move {
            one.sync(last).await.unwrap();
            told.set(true);
        });
        clock.sleep(Nanos::from_millis(50)).await;
        disk.below().release().await;
        clock.sleep(Nanos::from_secs(1)).await;
        assert_eq!(disk.below().held(), 1, "files behind the wall");
        let waits = !is_durable.get();
        disk.below().hold(&[]);
        disk.below().release().await;
        fs.sync_all().await.unwrap();
        assert!(hold(fs, &files, 1).await);
        waits.then_some("a sync of one file waits for the requests of others")
    })
}

/// The cases, in the order of [`manylogs_plant::NEAR_TOGETHER`].
const CASES: [Case; 2] = [what_needs_no_place_is_kept, what_replaces_logged_content_is_read];

#[test]
fn small_files_are_kept_as_they_are_meant() {
    all_hold(&[&CASES[..], &[a_sync_waits_for_one_request]].concat());
}

#[cfg(feature = "plant")]
#[test]
fn bugs_of_writing_together_beside_a_log_are_noticed() {
    use manylogs_plant::{Bug, NEAR_TOGETHER};

    let bugs = [NEAR_TOGETHER, &[Bug::Ext4TogetherNotLetGo]].concat();
    all_are_noticed(&bugs, &[&CASES[..], &[a_sync_waits_for_one_request]].concat());
}
