//! Cases in which one thing may go wrong, each with the planted bug that makes it go wrong.

use std::rc::Rc;

#[cfg(feature = "plant")]
use crate::common::all_are_noticed;
use crate::common::{Case, Disk, all_hold, file, with};
use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Request, RequestKind};
use manylogs_ext4::{Error, Ext4, Ino, SetXattr};
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::{Images, content};

/// Lengths of content that is logged, and of content that goes home.
const SHORT: usize = 32 << 10;
/// See [`SHORT`].
const LONG: usize = 300_000;

fn at_risk(near: &Near) -> u64 {
    near.volume().table().iter().map(|mapped| mapped.extent.len.bytes()).sum()
}

/// Logged content of a deleted file is given up with the record that frees its blocks.
fn ended_files_leave_the_logs(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, SHORT)).await.unwrap();
        fs.sync(ino).await.unwrap();
        let before = at_risk(&near);
        fs.unlink(Ino::ROOT, b"file").await.unwrap();
        fs.sync_all().await.unwrap();
        let gone = before.saturating_sub(at_risk(&near));
        (gone < SHORT as u64 / 2).then_some("the content of a file that ended is still logged")
    })
}

/// A long run is written over a short one that is in the running transaction.
fn a_long_run_follows_a_short_one_that_is_not_committed(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, clock: Handle| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        fs.write(ino, 8192, content(2, 4096)).await.unwrap();
        // The write is written back after 5 s, into a transaction that is committed after 5 s more.
        clock.sleep(Nanos::from_secs(7)).await;
        fs.write(ino, 0, content(3, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        let found = fs.read(ino, 0, LONG).await.unwrap();
        (found != content(3, LONG)).then_some("older content came back")
    })
}

/// A long run is written over a short one that is in the cache.
fn a_long_run_follows_a_short_one_in_the_cache(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        fs.write(ino, 8192, content(2, SHORT)).await.unwrap();
        fs.sync(ino).await.unwrap();
        fs.write(ino, 0, content(3, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        let found = fs.read(ino, 0, LONG).await.unwrap();
        (found != content(3, LONG)).then_some("older content is read")
    })
}

/// Time in which requests under way end, too short for the volume to find itself idle.
const MOMENT: Nanos = Nanos::from_millis(50);

/// Starts a task, and gives it a moment.
async fn begun(clock: &Handle, task: impl Future<Output = Result<(), Error>> + 'static) {
    clock.spawn(async move { task.await.unwrap() });
    clock.sleep(MOMENT).await;
}

/// Begins to commit the running transaction, with data that must be durable before it. The device
/// holds flushes from now on.
async fn committing(fs: &Ext4, disk: &Disk, clock: &Handle) {
    let other = file(fs, b"other").await;
    fs.write(other, 0, content(9, LONG)).await.unwrap();
    disk.below().hold(&[RequestKind::Flush]);
    let syncing = fs.clone();
    begun(clock, async move { syncing.sync_all().await }).await;
    assert_eq!(disk.below().held(), 1, "the flush before the record");
}

async fn released(disk: &Disk, clock: &Handle) {
    disk.below().hold(&[]);
    disk.below().release().await;
    clock.sleep(MOMENT).await;
}

/// A long run is written over a short one that is being committed.
fn a_long_run_follows_a_short_one_that_is_being_committed(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, disk: Disk, clock: Handle| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        fs.write(ino, 8192, content(2, 4096)).await.unwrap();
        committing(fs, &disk, &clock).await;
        fs.write(ino, 0, content(3, LONG)).await.unwrap();
        let syncing = fs.clone();
        begun(&clock, async move { syncing.sync(ino).await }).await;
        released(&disk, &clock).await;
        fs.sync(ino).await.unwrap();
        let found = fs.read(ino, 0, LONG).await.unwrap();
        (found != content(3, LONG)).then_some("older content came back")
    })
}

/// A block is freed of which a log has only the first sectors.
fn parts_of_blocks_leave_the_logs(images: &Images) -> Option<&'static str> {
    const XATTRS: [u8; 4] = 0xEA02_0000_u32.to_le_bytes();
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let (fs, volume) = (near.fs(), near.volume());
        let ino = file(fs, b"file").await;
        let set = async |name: &str, value: Vec<u8>| {
            fs.set_xattr(ino, name.as_bytes(), value, SetXattr::default()).await.unwrap();
            fs.sync_all().await.unwrap();
        };
        // The value is at the block's end, and stays there.
        set("user.large", vec![1; 2000]).await;
        volume.checkpoint().await.unwrap();
        set(&format!("user.{}", "n".repeat(100)), Vec::new()).await;
        let mut part = None;
        for mapped in volume.table() {
            let read = volume.submit(Request::Read { extent: mapped.extent }).await.unwrap();
            if read.to_bytes().unwrap().starts_with(&XATTRS) {
                part = Some(mapped.extent);
            }
        }
        let part: Extent = part.unwrap();
        assert!(part.len.0 < 8, "all of the block is logged");
        fs.unlink(Ino::ROOT, b"file").await.unwrap();
        fs.sync_all().await.unwrap();
        let left = volume.logged(part);
        (!left.is_empty()).then_some("a part of a block that is free is still logged")
    })
}

/// A run is freed of which only blocks behind the first are logged.
fn runs_that_are_logged_in_part_leave_the_logs(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, LONG)).await.unwrap();
        fs.sync(ino).await.unwrap();
        fs.write(ino, 8192, content(2, SHORT)).await.unwrap();
        fs.sync(ino).await.unwrap();
        let before = at_risk(&near);
        fs.unlink(Ino::ROOT, b"file").await.unwrap();
        fs.sync_all().await.unwrap();
        let gone = before.saturating_sub(at_risk(&near));
        (gone < SHORT as u64 / 2).then_some("the middle of a file that ended is still logged")
    })
}

/// Blocks are freed while the transaction that logs them waits for the data of another file.
fn what_is_being_committed_leaves_the_logs(images: &Images) -> Option<&'static str> {
    with(images, Granularity::Sectors, async |near: Rc<Near>, disk: Disk, clock: Handle| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, SHORT)).await.unwrap();
        committing(fs, &disk, &clock).await;
        fs.unlink(Ino::ROOT, b"file").await.unwrap();
        released(&disk, &clock).await;
        fs.sync_all().await.unwrap();
        (at_risk(&near) >= SHORT as u64).then_some("the content of a file that ended is logged")
    })
}

const CASES: [Case; 7] = [
    ended_files_leave_the_logs,
    a_long_run_follows_a_short_one_that_is_not_committed,
    a_long_run_follows_a_short_one_in_the_cache,
    a_long_run_follows_a_short_one_that_is_being_committed,
    parts_of_blocks_leave_the_logs,
    runs_that_are_logged_in_part_leave_the_logs,
    what_is_being_committed_leaves_the_logs,
];

#[test]
fn nothing_goes_wrong() {
    all_hold(&CASES);
}

#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_of_the_parts_is_noticed() {
    all_are_noticed(manylogs_plant::NEAR_PARTS, &CASES);
}
