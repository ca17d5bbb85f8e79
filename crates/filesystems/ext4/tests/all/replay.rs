//! Mounting with a journal that a crash left.

use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, e2fsck, has, image_dir, load, mkfs, save};
use crate::lazy::{left_full, run_in};
use manylogs_block::Rng;
use manylogs_ext4::{Change, Ext4, FileKind, Ino, Mode, New, Options, ReplayProgress};
use manylogs_sim::{DiskImage, Survival};

/// The number of the next transaction in the journal's superblock.
fn next_number(world: &World) -> u64 {
    let (_dir, path) = world.saved();
    let said = Command::new("dumpe2fs").arg("-h").arg(path).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("Journal sequence:")).unwrap();
    u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap()
}

/// Blocks of a torn transaction may lie where the next transaction with its number would be
/// written. The next number is beyond it, and beyond all that the log can have. A torn transaction of ours lacks its commit block. One of a kernel that writes the
/// commit block first (`journal_async_commit`) may have it.
#[test]
fn the_number_of_a_torn_transaction_is_not_used_again() {
    const COMMITS: u64 = 3;
    if !has("dumpe2fs") {
        manylogs_testkit::skip("needs dumpe2fs");
        return;
    }
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    assert_eq!(world.run(async |fs: Ext4| fs.unmount().await), Ok(Ok(())));
    let first = next_number(&world);
    let world = World::new(1, SMALL_MIB, world.settled());
    let synced = world.run(async |fs: Ext4| {
        for number in 0..COMMITS {
            let (name, new) = (number.to_string(), New::plain(FileKind::File, 0o600));
            fs.create(Ino::ROOT, name.as_bytes(), new).await?;
            fs.sync_all().await?;
        }
        Ok::<_, manylogs_ext4::Error>(())
    });
    assert_eq!(synced, Ok(Ok(())));
    let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
    let world = World::new(1, SMALL_MIB, crashed);
    assert_eq!(world.run(async |fs: Ext4| fs.unmount().await), Ok(Ok(())));
    let next = next_number(&world);
    assert!(next > first + COMMITS, "{next} after {COMMITS} commits from {first} on");
}

/// Size of an image with a journal of 8 MiB, of which the last MiB is for fast commits.
const FAST_MIB: u64 = 32;

/// An image whose journal is empty, with room for fast commits, as its superblock says; `None`
/// without mkfs.
fn with_fast_commits() -> Option<DiskImage> {
    let options = ["-g", "1024", "-J", "size=8", "-N", "2048", "-O", "^metadata_csum"];
    let image = mkfs(FAST_MIB, &options)?;
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, FAST_MIB, &path);
    let mut bytes = std::fs::read(&path).unwrap();
    let journal = bytes.chunks_exact_mut(4096).find(|block| {
        // The journal's superblock, of the second version.
        block.starts_with(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4])
    });
    // JBD2_FEATURE_INCOMPAT_FAST_COMMIT.
    journal.unwrap()[0x2B] |= 0x20;
    std::fs::write(&path, bytes).unwrap();
    Some(load(&path))
}

/// Whether e2fsck replays all that was logged since the log wrapped around.
fn all_is_replayed_after_fast_commits() -> bool {
    let Some(image) = with_fast_commits() else { return true };
    let world = World::new(1, FAST_MIB, image);
    let mode = |number: u64| 0o400 | u16::try_from(number % 64).unwrap();
    let last = run_in(Mode::Lazy, &world, async move |fs: Ext4| {
        let new = New::plain(FileKind::File, 0o600);
        let file = fs.create(Ino::ROOT, b"file", new).await.unwrap().ino;
        let mut number = 0;
        while fs.journal_stats().log_bytes < 9 << 20 {
            number += 1;
            let permissions = Some(mode(number));
            fs.change(file, Change { permissions, ..Change::default() }).await.unwrap();
            fs.sync(file).await.unwrap();
        }
        mode(number)
    });
    let cut = world.disk.after_power_cut(Survival::Everything, &mut Rng::new(1));
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&cut, FAST_MIB, &path);
    let (code, said) = e2fsck(&["-fp"], &path);
    assert!(code <= 1, "{said}");
    let world = World::new(2, FAST_MIB, load(&path));
    let found = world.run(async |fs: Ext4| {
        let file = fs.lookup(Ino::ROOT, b"file").await?;
        fs.unmount().await.map(|()| file.permissions)
    });
    found == Ok(Ok(last))
}

/// The log takes the room of fast commits, or keeps out of it, in agreement with what the journal's
/// superblock says: else a replay would look for the log's next block elsewhere.
#[test]
fn the_room_for_fast_commits_belongs_to_the_log() {
    assert!(all_is_replayed_after_fast_commits());
}

#[cfg(feature = "plant")]
#[test]
fn a_log_that_leaves_out_the_room_for_fast_commits_is_noticed() {
    use manylogs_plant::{Bug, plant};
    if with_fast_commits().is_none() {
        return;
    }
    plant(Some(Bug::FastCommitsKeepRoom));
    let is_replayed = all_is_replayed_after_fast_commits();
    plant(None);
    assert!(!is_replayed);
}

/// Who mounts can see how far the replay is; without one there is nothing to see.
#[test]
fn a_replay_tells_how_far_it_is() {
    let Some(world) = left_full() else { return };
    // What is seen whenever the disk is asked.
    let seen = Rc::new(RefCell::new(Vec::new()));
    let replayed = |image: DiskImage| {
        let (world, progress) = (World::new(1, SMALL_MIB, image), ReplayProgress::default());
        let replay = progress.clone();
        let (sampled, samples) = (progress.clone(), Rc::clone(&seen));
        world.disk.fail_requests(Box::new(move |_| {
            samples.borrow_mut().push((sampled.read_blocks(), sampled.blocks()));
            None
        }));
        let options = Options { replay, ..manylogs_torture::ext4::options(world.runtime()) };
        let (device, runtime) = (Rc::new(world.disk.clone()), world.runtime());
        world.sim.block_on(world.user, async move {
            let fs = Ext4::mount_in(Mode::Ordered, device, runtime, options).await.unwrap();
            fs.unmount().await.unwrap();
        });
        (progress.blocks(), world.settled())
    };
    let (full, image) = replayed(world.settled());
    let (done, all) = full.unwrap();
    assert!(all > 40 && done == all, "{done} of {all}");
    let seen = seen.take();
    let early = seen.iter().filter(|(_, home)| home.is_none()).map(|(read, _)| *read);
    let is_between = |it: &Option<(u64, u64)>| it.is_some_and(|(read, log)| 0 < read && read < log);
    let mut reading: Vec<_> = early.filter(is_between).collect();
    assert!(reading.is_sorted());
    reading.dedup();
    assert!(reading.len() > 40, "the log is read a transaction at a time: {reading:?}");
    assert!(seen.contains(&(*reading.last().unwrap(), Some((0, all)))), "then it goes home");
    let (empty, _) = replayed(image);
    assert_eq!(empty, None);
}
