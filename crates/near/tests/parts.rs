//! What goes wrong in one case each, and the bugs that make it do so.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::rc::Rc;

use common::{file, images, with};
use manylogs_block::{Handle, Nanos};
use manylogs_ext4::Ino;
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::{Images, content};

/// Content that is logged, and content that is not.
const SHORT: usize = 32 << 10;
/// See [`SHORT`].
const LONG: usize = 300_000;

/// A case: what it finds wrong.
type Case = fn(&Images) -> Option<&'static str>;

fn at_risk(near: &Near) -> u64 {
    near.volume().table().iter().map(|mapped| mapped.extent.len.bytes()).sum()
}

/// What an ended file had in a log is given up with the record that frees it.
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
        // It is written back after 5 s, into a transaction that is committed after 5 s more.
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

const CASES: [Case; 3] = [
    ended_files_leave_the_logs,
    a_long_run_follows_a_short_one_that_is_not_committed,
    a_long_run_follows_a_short_one_in_the_cache,
];

#[test]
fn nothing_goes_wrong() {
    let Some(images) = images() else { return };
    for case in CASES {
        assert_eq!(case(&images), None);
    }
}

#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_of_the_parts_is_noticed() {
    use manylogs_plant::{NEAR_PARTS, plant};

    let Some(images) = images() else { return };
    assert_eq!(NEAR_PARTS.len(), CASES.len());
    for (bug, case) in NEAR_PARTS.iter().zip(CASES) {
        plant(Some(*bug));
        let noticed = case(&images);
        plant(None);
        println!("{bug:?}: {noticed:?}");
        assert!(noticed.is_some(), "{bug:?} is not noticed");
    }
}
