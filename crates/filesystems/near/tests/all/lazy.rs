//! Metadata that stays in the logs: what is read and counted in which mode, and planted bugs that
//! change that.

#[cfg(feature = "plant")]
use crate::common::all_are_noticed;
use crate::common::{Case, Disk, all_hold, file, images, on_with};
use manylogs::{Anchors, CheckpointPolicy, VolumeConfig};
use manylogs_block::{BlockDevice, Extent, Handle, Nanos, Request};
use manylogs_ext4::{Ext4, FileKind, Ino, New};
use manylogs_ext4check::check;
use manylogs_near::{Near, NearOptions};
use manylogs_sim::DiskImage;
use manylogs_torture::ext4::{ImageSource, Images, SMALL_MIB, content};

/// Directories that a case makes.
const DIRS: u64 = 40;
/// Bytes that may be beyond a share of the logs until a pass has ended.
const SLACK: u64 = 1 << 18;

/// Mounts in the mode `manylogs+lazy` or `manylogs`, and unmounts after `work`.
fn mounted<T: 'static>(
    (image, anchors): (&DiskImage, Anchors),
    keeps_metadata: bool,
    work: impl AsyncFnOnce(&Near, Disk, Handle) -> T + 'static,
) -> (T, DiskImage) {
    let near = NearOptions { keeps_metadata, ..NearOptions::default() };
    on_with(image, anchors, near, async |near: Near, disk, runtime| {
        let done = work(&near, disk, runtime).await;
        near.unmount().await.unwrap();
        done
    })
}

/// Brings everything home: a plain ext4 without errors is left.
fn is_drained(image: &DiskImage, anchors: Anchors) {
    let near = NearOptions::default();
    let leave = async |near: Near, _, _| near.drain().await.unwrap();
    let (_, settled) = on_with(image, anchors, near, leave);
    let report = check(&ImageSource::new(&settled, SMALL_MIB)).unwrap();
    assert!(report.is_spotless(), "{:?}", report.findings);
}

async fn make_dirs(fs: &Ext4, from: u64) {
    for number in from..from + DIRS {
        let name = format!("dir {number}").into_bytes();
        let dir =
            fs.create(Ino::ROOT, &name, New::plain(FileKind::Directory, 0o755)).await.unwrap();
        fs.sync(dir.ino).await.unwrap();
    }
}

async fn are_there(fs: &Ext4, dirs: std::ops::Range<u64>) -> bool {
    for number in dirs {
        let name = format!("dir {number}").into_bytes();
        let Ok(dir) = fs.lookup(Ino::ROOT, &name).await else { return false };
        if fs.list(dir.ino, 0).await.is_err() {
            return false;
        }
    }
    true
}

/// Waits until a checkpoint in idle time has ended.
async fn idle(near: &Near, runtime: &Handle) {
    let mut settings = near.volume().config();
    settings.checkpoint = CheckpointPolicy::Idle;
    near.volume().reconfigure(&settings).unwrap();
    runtime.sleep(Nanos::from_secs(10)).await;
}

/// Makes directories, and returns what the superblock says of kept versions.
async fn marks(near: &Near, disk: Disk, _: Handle) -> u8 {
    let extent = Extent::new(near.volume().layout().anchors().unwrap().first.start.0, 8);
    make_dirs(near.fs(), 0).await;
    let read = disk.submit(Request::Read { extent }).await.unwrap();
    read.to_bytes().unwrap()[48] & (8 | 64)
}

/// Older programs must refuse the logs from the first kept metadata on, and not before.
fn older_programs_are_kept_away(images: &Images) -> Option<&'static str> {
    let (image, anchors) = images.near(0);
    let (before, image) = mounted((image, anchors), false, marks);
    assert_eq!(before, 0, "nothing is kept yet");
    let (marked, image) = mounted((&image, anchors), true, async |near, disk, clock| {
        for number in 0..DIRS {
            let name = format!("dir {number}").into_bytes();
            near.fs().remove_directory(Ino::ROOT, &name).await.unwrap();
        }
        marks(near, disk, clock).await
    });
    is_drained(&image, anchors);
    (marked != 8 | 64).then_some("the superblock does not say that metadata is kept")
}

/// What a mount in the mode `manylogs+lazy` kept goes home in idle time of one in another mode.
fn other_modes_bring_it_home(images: &Images) -> Option<&'static str> {
    let (image, anchors) = images.near(0);
    let (kept, image) = mounted((image, anchors), true, async |near, _, _| {
        make_dirs(near.fs(), 0).await;
        near.volume().stats().kept_metadata_bytes
    });
    assert!(kept >= 4096 * DIRS, "{kept} bytes are kept");
    let (left, image) = mounted((&image, anchors), false, async |near, _, clock| {
        make_dirs(near.fs(), DIRS).await;
        idle(near, &clock).await;
        assert!(are_there(near.fs(), 0..2 * DIRS).await);
        near.volume().stats().kept_metadata_bytes
    });
    is_drained(&image, anchors);
    (left > 0).then_some("a mount in another mode leaves metadata in the logs")
}

/// In the order of [`manylogs_plant::NEAR_LAZY_SIDE`].
const CASES: [Case; 2] = [older_programs_are_kept_away, other_modes_bring_it_home];

#[test]
fn modes_may_change_at_each_mount() {
    all_hold(&CASES);
}

#[cfg(feature = "plant")]
#[test]
fn every_planted_bug_of_the_mode_is_noticed() {
    all_are_noticed(manylogs_plant::NEAR_LAZY_SIDE, &CASES);
}

#[test]
fn idle_checkpoints_take_content_home_and_leave_metadata() {
    let Some(images) = images() else { return };
    let (image, anchors) = images.near(0);
    let (_, image) = mounted((image, anchors), true, async |near, _, clock| {
        let fs = near.fs();
        make_dirs(fs, 0).await;
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(1, 20_000)).await.unwrap();
        fs.sync(ino).await.unwrap();
        let before = near.volume().stats();
        idle(near, &clock).await;
        let after = near.volume().stats();
        assert_eq!(after.kept_metadata_bytes, before.kept_metadata_bytes);
        assert_eq!(after.kept_metadata_home_bytes, 0);
        assert_eq!(after.logged_at_risk_bytes, after.kept_metadata_bytes, "content is at home");
        assert!(after.kept_metadata_bytes >= 4096 * DIRS, "{after:?}");
        near.volume().checkpoint().await.unwrap();
        let home = near.volume().stats();
        assert_eq!((home.kept_metadata_bytes, home.logged_at_risk_bytes), (0, 0));
        assert_eq!(home.kept_metadata_home_bytes, after.kept_metadata_bytes);
        assert!(are_there(fs, 0..DIRS).await);
    });
    is_drained(&image, anchors);
}

#[test]
fn the_oldest_metadata_goes_home_beyond_its_share_of_the_logs() {
    let Some(images) = images() else { return };
    let (image, anchors) = images.near(0);
    let (_, image) = mounted((image, anchors), true, async |near, _, _| {
        let fs = near.fs();
        let config = VolumeConfig { durable_budget: 0.05, ..near.volume().config() };
        near.volume().reconfigure(&config).unwrap();
        let share = near.volume().layout().log_sectors().bytes() / 20;
        let mut made = 0;
        while near.volume().stats().kept_metadata_home_bytes == 0 {
            make_dirs(fs, made).await;
            made += DIRS;
            assert!(made < 400, "nothing goes home");
            assert!(near.volume().stats().kept_metadata_bytes <= share + SLACK);
        }
        let stats = near.volume().stats();
        assert!(stats.kept_metadata_bytes > share / 2, "{stats:?}");
        assert!(stats.kept_metadata_home_bytes < share / 2, "{stats:?}");
        assert!(are_there(fs, 0..made).await);
    });
    is_drained(&image, anchors);
}
