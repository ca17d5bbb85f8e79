//! Metadata is read ahead through the volume: from its homes, and from the logs.

use crate::common::{images, on, on_with};
use manylogs::Anchors;
use manylogs_block::RequestKind;
use manylogs_ext4::{Ext4, FileKind, Ino, New, ReadAhead};
use manylogs_near::{Granularity, Near, NearOptions};
use manylogs_sim::DiskImage;
use manylogs_torture::ext4::Images;

/// Directories in the root, each of which takes a block.
const DIRECTORIES: u64 = 120;

fn name(number: u64) -> String {
    format!("directory {number}")
}

async fn make(fs: &Ext4) {
    for number in 0..DIRECTORIES {
        let new = New::plain(FileKind::Directory, 0o755);
        fs.create(Ino::ROOT, name(number).as_bytes(), new).await.unwrap();
    }
    fs.sync_all().await.unwrap();
}

/// Lists all directories.
async fn list(fs: &Ext4) {
    for number in 0..DIRECTORIES {
        let ino = fs.lookup(Ino::ROOT, name(number).as_bytes()).await.unwrap().ino;
        assert_eq!(fs.list(ino, 0).await.unwrap().len(), 2);
    }
}

/// How many requests read the device when all directories are listed after a mount.
fn reads_to_list(image: &DiskImage, anchors: Anchors, what: ReadAhead) -> u64 {
    let work = async move |near: Near, disk: crate::common::Disk, _| {
        near.fs().read_ahead(what);
        let before = disk.count(RequestKind::Read).requests;
        list(near.fs()).await;
        let reads = disk.count(RequestKind::Read).requests - before;
        near.unmount().await.unwrap();
        reads
    };
    on(image, anchors, Granularity::default(), work).0
}

#[test]
fn directories_that_are_new_are_read_together_from_logs_and_from_home() {
    let Some(images) = images() else { return };
    let (image, anchors) = images.near(0);
    for goes_home in [false, true] {
        let work = async move |near: Near, _, _| {
            make(near.fs()).await;
            if goes_home {
                near.volume().checkpoint().await.unwrap();
            }
            near.unmount().await.unwrap();
        };
        let ((), made) = on(image, anchors, Granularity::default(), work);
        let alone = reads_to_list(&made, anchors, ReadAhead::Off);
        let ahead = reads_to_list(&made, anchors, ReadAhead::All);
        println!("{alone} reads, {ahead} ahead");
        assert!(alone >= DIRECTORIES && ahead < alone / 4, "{alone}, {ahead}");
    }
}

/// Makes directories, each with a sync of its own, and returns how many requests list them after a
/// mount with cold caches.
fn reads_of_synced(images: &Images, what: ReadAhead) -> u64 {
    let near = || NearOptions { keeps_metadata: true, ..NearOptions::default() };
    let (image, anchors) = images.near(0);
    let (_, made) = on_with(image, anchors, near(), async |near: Near, _, _| {
        for number in 0..DIRECTORIES {
            // Neighbours in the log belong to different directories.
            let parent = name(number % 4).into_bytes();
            let parent = match number {
                0..4 => Ino::ROOT,
                _ => near.fs().lookup(Ino::ROOT, &parent).await.unwrap().ino,
            };
            let new = New::plain(FileKind::Directory, 0o755);
            let made = near.fs().create(parent, name(number).as_bytes(), new).await.unwrap();
            near.fs().sync(made.ino).await.unwrap();
        }
        near.unmount().await.unwrap();
    });
    let list = async move |near: Near, disk: crate::common::Disk, _| {
        near.fs().read_ahead(what);
        let before = disk.count(RequestKind::Read).requests;
        for parent in 0..4 {
            let top = near.fs().lookup(Ino::ROOT, name(parent).as_bytes()).await.unwrap().ino;
            for number in (4..DIRECTORIES).filter(|number| number % 4 == parent) {
                let ino = near.fs().lookup(top, name(number).as_bytes()).await.unwrap().ino;
                assert_eq!(near.fs().list(ino, 0).await.unwrap().len(), 2);
            }
        }
        let reads = disk.count(RequestKind::Read).requests - before;
        near.unmount().await.unwrap();
        reads
    };
    on_with(&made, anchors, near(), list).0
}

#[test]
fn what_was_synced_block_by_block_is_read_in_the_order_of_the_logs() {
    let Some(images) = images() else { return };
    let alone = reads_of_synced(&images, ReadAhead::Off);
    let ahead = reads_of_synced(&images, ReadAhead::All);
    println!("{alone} reads, {ahead} ahead");
    assert!(alone >= DIRECTORIES && ahead < alone / 4, "{alone}, {ahead}");
}
