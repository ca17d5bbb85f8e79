//! The budget of what is kept in the logs: who shares it, and whose content goes home. And planted
//! bugs that change that.

#[cfg(feature = "plant")]
use crate::common::all_are_noticed;
use crate::common::{Case, all_hold, on_with};
use manylogs::VolumeConfig;
use manylogs_block::{Handle, Nanos};
use manylogs_ext4::{DURABLE_XATTR, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_near::{Near, NearOptions};
use manylogs_torture::ext4::{Images, content};

/// The part of the log space that is kept, as a divisor.
const PART: u32 = 10;
/// Time in which a pass ends that has begun.
const PASS: Nanos = Nanos::from_secs(1);
/// Bytes of a write.
const PIECE: usize = 64 << 10;

/// Mounts with a small budget, with metadata that stays in the logs or without.
fn with_budget<T: 'static>(
    images: &Images,
    keeps_metadata: bool,
    work: impl AsyncFnOnce(&Near, u64, Handle) -> T + 'static,
) -> T {
    let (image, anchors) = images.near(0);
    let near = NearOptions { keeps_metadata, ..NearOptions::default() };
    let (done, _) = on_with(image, anchors, near, async |near: Near, _, clock| {
        let volume = near.volume();
        let durable_budget = 1.0 / f64::from(PART);
        volume.reconfigure(&VolumeConfig { durable_budget, ..volume.config() }).unwrap();
        let budget = volume.layout().log_sectors().bytes() / u64::from(PART);
        let done = work(&near, budget, clock).await;
        near.drain().await.unwrap();
        done
    });
    done
}

/// A file of `uid` that needs durability and no place.
async fn file_of(fs: &Ext4, name: &str, uid: u32) -> Ino {
    let new = New { uid, ..New::plain(FileKind::File, 0o644) };
    let ino = fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap().ino;
    let how = SetXattr::default();
    fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), "1", how).await.unwrap();
    ino
}

async fn put(fs: &Ext4, ino: Ino, number: u64) {
    fs.write(ino, number * PIECE as u64, content(number, PIECE)).await.unwrap();
    fs.sync(ino).await.unwrap();
}

/// What another user floods does not take away what one has in his share, and his content stays
/// whole.
fn others_keep_what_they_have(images: &Images) -> Option<&'static str> {
    with_budget(images, false, async |near, budget, _| {
        let fs = near.fs();
        let (one, other) = (file_of(fs, "one", 1).await, file_of(fs, "other", 2).await);
        // A quarter of the budget, which is less than half of it.
        let pieces = budget / 4 / PIECE as u64;
        for number in 0..pieces {
            put(fs, one, number).await;
        }
        for number in 0..3 * budget / PIECE as u64 {
            put(fs, other, number).await;
        }
        near.volume().checkpoint().await.unwrap();
        let stats = near.volume().stats();
        assert!(stats.o_dur_live_bytes <= budget, "{stats:?}");
        assert!(stats.o_dur_home_bytes > budget, "{stats:?}");
        fs.unlink(Ino::ROOT, b"other").await.unwrap();
        fs.sync_all().await.unwrap();
        let left = near.volume().stats().o_dur_live_bytes;
        for number in 0..pieces {
            let read = fs.read(one, number * PIECE as u64, PIECE).await.unwrap();
            if read != content(number, PIECE) {
                return Some("what another user had is lost");
            }
        }
        (left != pieces * PIECE as u64).then_some("what another user had went home")
    })
}

/// Content and metadata have one budget together, and each has a part of it.
fn content_and_metadata_share_it(images: &Images) -> Option<&'static str> {
    with_budget(images, true, async |near, budget, clock| {
        let fs = near.fs();
        let log = file_of(fs, "log", 1).await;
        for number in 0..2 * budget / PIECE as u64 {
            put(fs, log, number).await;
            for more in 0..12 {
                let name = format!("dir {number} {more}").into_bytes();
                let new = New::plain(FileKind::Directory, 0o755);
                let dir = fs.create(Ino::ROOT, &name, new).await.unwrap();
                fs.sync(dir.ino).await.unwrap();
            }
            clock.sleep(PASS).await;
            let stats = near.volume().stats();
            let kept = stats.o_dur_live_bytes + stats.kept_metadata_bytes;
            if kept > budget {
                return Some("more is kept than the budget");
            }
        }
        let stats = near.volume().stats();
        assert!(stats.o_dur_live_bytes > budget / 4, "{stats:?}");
        assert!(stats.kept_metadata_bytes > budget / 4, "{stats:?}");
        None
    })
}

/// In the order of [`manylogs_plant::DURABLE_BUDGET`].
const CASES: [Case; 2] = [others_keep_what_they_have, content_and_metadata_share_it];

#[test]
fn what_is_kept_has_a_budget() {
    all_hold(&CASES);
}

#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_of_the_budget_is_noticed() {
    all_are_noticed(manylogs_plant::DURABLE_BUDGET, &CASES);
}
