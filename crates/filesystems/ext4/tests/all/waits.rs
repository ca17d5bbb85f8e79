//! Waits in the right order, on a device that holds requests until the test releases them.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, mkfs, mount};
use bytes::Bytes;
use manylogs_block::{Handle, Nanos, Request, RequestKind, Rng};
use manylogs_ext4::{BLOCK_BYTES, Ext4, FileKind, Ino, New, SetXattr, Taken};
use manylogs_filters::Stop;
use manylogs_sim::{CrashDisk, DiskImage, Survival};

type Disk = Rc<Stop<CrashDisk>>;

/// Mounts an image on a disk that can hold requests, and calls `work`, which may unmount it.
fn run<F: Future<Output = ()> + 'static>(
    image: DiskImage,
    seed: u64,
    work: impl FnOnce(Ext4, Disk, Handle) -> F + 'static,
) -> World {
    let world = World::new(seed, SMALL_MIB, image);
    let (disk, runtime) = (Rc::new(Stop::new(world.disk.clone())), world.runtime());
    let mounting = mount(disk.clone(), runtime.clone());
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        work(fs, disk, runtime).await;
    });
    world
}

async fn file(fs: &Ext4, name: &str) -> Ino {
    fs.create(Ino::ROOT, name.as_bytes(), New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

/// Whether the request writes a block that begins with these bytes.
fn writes(request: &Request, beginning: &[u8]) -> bool {
    let Request::Write { payload, .. } = request else { return false };
    let bytes = payload.to_bytes().unwrap();
    bytes.chunks(BLOCK_BYTES).any(|block| block.starts_with(beginning))
}

/// A checkpoint writes a block home that is freed meanwhile. The block's next content is written
/// after that write, or to another block.
fn freed_blocks_wait_for_what_goes_home() {
    const TARGET: [u8; 1000] = [b't'; 1000];
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = run(image, 1, async move |fs: Ext4, disk: Disk, runtime: Handle| {
        let new = New { target: TARGET.to_vec().into(), ..New::plain(FileKind::Symlink, 0o777) };
        fs.create(Ino::ROOT, b"link", new).await.unwrap();
        fs.sync_all().await.unwrap();
        // From here on only a checkpoint writes it.
        disk.hold_those(|request| writes(request, &TARGET));
        for number in 0.. {
            if disk.held() > 0 {
                break;
            }
            file(&fs, &number.to_string()).await;
            fs.sync_all().await.unwrap();
            runtime.sleep(Nanos::from_millis(10)).await;
        }
        disk.hold(&[]);
        fs.unlink(Ino::ROOT, b"link").await.unwrap();
        fs.sync_all().await.unwrap();
        // What is free now may be picked, though nothing has to be read from the disk.
        runtime.sleep(Nanos::from_millis(10)).await;
        let ino = file(&fs, "file").await;
        fs.write(ino, 0, content(7, BLOCK_BYTES)).await.unwrap();
        fs.sync(ino).await.unwrap();
        disk.release().await;
        fs.unmount().await.unwrap();
    });
    let read = world.run(async |fs: Ext4| {
        let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
        let read = fs.read(ino, 0, BLOCK_BYTES).await.unwrap();
        fs.unmount().await.unwrap();
        read
    });
    assert!(read.unwrap() == content(7, BLOCK_BYTES), "older content landed on newer");
    world.check();
}

/// The running transaction is empty, but the one being committed is not durable yet.
fn a_sync_waits_for_what_is_being_committed() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    run(image, 1, async move |fs: Ext4, disk: Disk, runtime: Handle| {
        file(&fs, "file").await;
        disk.hold(&[RequestKind::Flush]);
        runtime.sleep(Nanos::from_secs(7)).await;
        assert_eq!(disk.held(), 1, "the flush of the commit that the interval brings");
        let synced = Rc::new(Cell::new(false));
        let (syncing, done) = (fs.clone(), Rc::clone(&synced));
        runtime.spawn(async move {
            syncing.sync_all().await.unwrap();
            done.set(true);
        });
        runtime.sleep(Nanos::from_secs(1)).await;
        assert!(!synced.get(), "a sync is answered before the commit");
        disk.hold(&[]);
        disk.release().await;
        runtime.sleep(Nanos::from_secs(1)).await;
        assert!(synced.get());
        fs.unmount().await.unwrap();
    });
}

/// A page changes while its earlier content is on its way, and the file grows within this last
/// page.
#[test]
fn what_changes_while_it_is_written_is_written_again() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let bytes = Bytes::from(content(1, 300));
    let (expected, written) = (bytes.clone(), bytes);
    let world = run(image, 1, async move |fs: Ext4, disk: Disk, runtime: Handle| {
        let ino = file(&fs, "file").await;
        fs.write(ino, 0, written.slice(..100)).await.unwrap();
        fs.sync(ino).await.unwrap();
        fs.write(ino, 100, written.slice(100..200)).await.unwrap();
        disk.hold(&[RequestKind::Write]);
        let syncing = fs.clone();
        runtime.spawn(async move { syncing.sync(ino).await.unwrap() });
        runtime.sleep(Nanos::from_millis(10)).await;
        assert_eq!(disk.held(), 1, "the page");
        fs.write(ino, 200, written.slice(200..)).await.unwrap();
        disk.hold(&[]);
        disk.release().await;
        runtime.sleep(Nanos::from_millis(100)).await;
        fs.sync(ino).await.unwrap();
        fs.unmount().await.unwrap();
    });
    let read = world.run(async |fs: Ext4| {
        let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
        fs.read(ino, 0, 1000).await.unwrap()
    });
    assert!(read.unwrap() == expected);
}

/// After a rename, a sync of either directory makes the new name durable.
#[test]
fn a_sync_of_either_directory_waits_for_a_renaming() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for synced in ["from", "to"] {
        let world = run(image.clone(), 1, async move |fs: Ext4, _, _| {
            let mut dirs = Vec::new();
            for name in ["from", "to"] {
                let new = New::plain(FileKind::Directory, 0o755);
                dirs.push(fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap().ino);
            }
            let new = New::plain(FileKind::File, 0o644);
            fs.create(dirs[0], b"old", new).await.unwrap();
            fs.sync_all().await.unwrap();
            fs.rename((dirs[0], b"old"), (dirs[1], b"new"), Taken::Replaced).await.unwrap();
            fs.sync(dirs[usize::from(synced == "to")]).await.unwrap();
        });
        let left = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
        let world = World::new(1, SMALL_MIB, left);
        let found = world.run(async |fs: Ext4| {
            let to = fs.lookup(Ino::ROOT, b"to").await.unwrap().ino;
            fs.lookup(to, b"new").await.map(drop)
        });
        assert_eq!(found, Ok(Ok(())), "{synced} was synced");
    }
}

/// Dirty content has promises of all blocks of the disk, but no block is chosen for it yet.
#[test]
fn attributes_take_nothing_that_is_promised_to_content() {
    const CHUNK: usize = 4 * BLOCK_BYTES;
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = run(image, 1, async move |fs: Ext4, disk: Disk, _| {
        let full = file(&fs, "full").await;
        fs.sync_all().await.unwrap();
        disk.hold(&[RequestKind::Write]);
        let mut chunks = 0;
        while fs.write(full, chunks * CHUNK as u64, content(chunks, CHUNK)).await.is_ok() {
            chunks += 1;
        }
        let mut set = 0;
        for number in 0..20 {
            let (name, new) = (number.to_string(), New::plain(FileKind::File, 0o600));
            let Ok(made) = fs.create(Ino::ROOT, name.as_bytes(), new).await else { continue };
            let value = content(number, 3000);
            let given = fs.set_xattr(made.ino, b"user.large", value, SetXattr::default()).await;
            set += u32::from(given.is_ok());
        }
        assert!(set < 4, "{set} attributes have taken blocks");
        disk.hold(&[]);
        disk.release().await;
        fs.sync(full).await.unwrap();
        fs.unmount().await.unwrap();
    });
    world.check();
}

/// The last commit of a mount finds the log so full that a checkpoint begins, while the unmount
/// makes the last checkpoint. Whichever ends last, the journal must say that it is empty.
#[test]
fn what_is_unmounted_while_the_log_is_brought_home_can_be_mounted() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let commits = Rc::new(Cell::new(0));
    let counted = Rc::clone(&commits);
    run(image.clone(), 1, async move |fs: Ext4, _, runtime: Handle| {
        while fs.journal_stats().home_bytes == 0 {
            file(&fs, &counted.get().to_string()).await;
            fs.sync_all().await.unwrap();
            counted.set(counted.get() + 1);
            runtime.sleep(Nanos::from_millis(100)).await;
        }
        fs.unmount().await.unwrap();
    });
    for seed in 0..40 {
        let last = commits.get() - 1;
        let world = run(image.clone(), seed, async move |fs: Ext4, _, _| {
            for number in 0..last {
                file(&fs, &number.to_string()).await;
                fs.sync_all().await.unwrap();
            }
            file(&fs, "last").await;
            fs.unmount().await.unwrap();
        });
        let mounted = world.run(async |fs: Ext4| fs.unmount().await);
        assert_eq!(mounted, Ok(Ok(())), "seed {seed}");
    }
}

#[test]
fn everybody_waits_for_what_must_come_first() {
    freed_blocks_wait_for_what_goes_home();
    a_sync_waits_for_what_is_being_committed();
}

#[cfg(feature = "plant")]
#[test]
fn who_does_not_wait_is_noticed() {
    use manylogs_plant::Bug;

    crate::common::assert_noticed(Bug::Ext4QuietNotAwaited, freed_blocks_wait_for_what_goes_home);
    crate::common::assert_noticed(
        Bug::Ext4CommittingNotAwaited,
        a_sync_waits_for_what_is_being_committed,
    );
}
