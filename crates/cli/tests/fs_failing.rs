//! What programs see of a disk that fails, while the kernel caches its file system.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::Place;
use common::image::{caches, can_mount, program, unmount};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate};
use rustix::io::Errno;

const BLOCK: u64 = 4096;
const BLOCK_LEN: usize = 4096;
const IMAGE: u64 = 64 << 20;
/// Nothing is written but by a sync.
const NOTHING_BY_ITSELF: &str = "noatime,commit=300";

/// A file system in memory that is full, with an image whose blocks are all there but for some:
/// writes to these fail.
struct FailingDisk {
    place: Place,
}

impl FailingDisk {
    /// Makes the image, has `prepare` make files in it, and takes away the blocks of the file
    /// `failing` but for the first `spared`. Prints why and returns `None` where that cannot be
    /// done.
    fn new(prepare: fn(&Path), (failing, spared): (&str, usize)) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        if program("debugfs").output().is_err() {
            manylogs_testkit::skip("needs debugfs");
            return None;
        }
        let disk = Self { place: Place::new() };
        fs::create_dir_all(disk.memory()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=80m", "tmpfs"]).arg(disk.memory());
        if !mount.status().is_ok_and(|status| status.success()) {
            manylogs_testkit::skip("tmpfs cannot be mounted");
            return None;
        }
        let image = File::create_new(disk.image()).unwrap();
        fallocate(&image, FallocateFlags::empty(), 0, IMAGE).unwrap();
        let options = ["-q", "-F", "-b", "4096", "-E", "nodiscard"];
        assert!(program("mkfs.ext4").args(options).arg(disk.image()).status().unwrap().success());
        disk.serve("");
        prepare(&disk.root());
        unmount(&disk.place);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let gone = disk.blocks_of(failing).split_off(spared);
        gone.iter().for_each(|block| fallocate(&image, hole, block * BLOCK, BLOCK).unwrap());
        // The room of the holes is taken by another file.
        let other = File::create_new(disk.memory().join("other")).unwrap();
        let mut taken = 0_usize;
        while other.write_at(&[1; BLOCK_LEN], taken as u64 * BLOCK).is_ok() {
            taken += 1;
        }
        assert!(taken >= gone.len(), "{taken}");
        Some(disk)
    }

    fn memory(&self) -> PathBuf {
        self.place.path("memory")
    }

    fn image(&self) -> PathBuf {
        self.memory().join("disk.img")
    }

    fn root(&self) -> PathBuf {
        self.place.path("mlfs")
    }

    /// Mounts the image, with the bugs `planted`.
    fn serve(&self, planted: &str) {
        fs::create_dir_all(self.root()).unwrap();
        let mount =
            ["fs", "mount", "memory/disk.img", "mlfs", "--background", "-o", NOTHING_BY_ITSELF];
        let started = self.place.command(&mount).env("MANYLOGS_PLANT", planted).output().unwrap();
        assert!(started.status.success(), "{started:?}");
    }

    /// Numbers of a file's blocks on the device, in the order of the file.
    fn blocks_of(&self, file: &str) -> Vec<u64> {
        let order = format!("blocks {file}");
        let said = program("debugfs").args(["-R", &order]).arg(self.image()).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        said.split_whitespace().map(|block| block.parse().unwrap()).collect()
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        // What fails leaves nothing mounted; the image may be in use for a moment more.
        let _ = Command::new("umount").arg("-l").arg(self.root()).output();
        let _ = Command::new("umount").arg("-l").arg(self.memory()).output();
    }
}

/// Whether a program reads what the disk holds, once what was written has been given up.
fn reads_what_is_there(planted: &str) -> Option<bool> {
    const LEN: usize = 10 * BLOCK_LEN;
    let prepare = |root: &Path| fs::write(root.join("file"), [1; LEN]).unwrap();
    let _kept = caches(FlockOperation::LockShared);
    let disk = FailingDisk::new(prepare, ("/file", 0))?;
    disk.serve(planted);
    let path = disk.root().join("file");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let reads = || {
        let mut now = [9; LEN];
        file.read_exact_at(&mut now, 0).unwrap();
        now
    };
    file.write_all_at(&[2; LEN], 0).unwrap();
    let mut failures = 0;
    while file.sync_all().is_err() {
        failures += 1;
        assert!(failures < 100, "it is tried for ever");
    }
    assert!(failures > 0, "the disk does not fail: nothing is tested");
    // The kernel is told beside the answer.
    let patience = Duration::from_secs(if planted.is_empty() { 30 } else { 1 });
    let until = Instant::now() + patience;
    while reads() != [0; LEN] && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let seen = reads();
    // A kernel that is not told may still drop pages, and then see what is there in these.
    let is_told = planted.is_empty();
    assert!(!is_told || [[0; LEN], [2; LEN]].contains(&seen), "neither old nor new");
    assert_eq!(file.metadata().unwrap().len(), LEN as u64);
    drop(file);
    unmount(&disk.place);
    Some(seen == [0; LEN])
}

#[test]
fn content_that_could_not_be_written_is_not_shown_any_more() {
    assert_ne!(reads_what_is_there(""), Some(false));
}

#[test]
fn planted_losses_that_are_not_told_are_noticed() {
    assert_ne!(reads_what_is_there("MlfsLossUntold"), Some(true));
}

const NAMES: [&str; 8] = ["kept", "chmod", "gone", "old", "moved", "new", "late", "link"];

/// A list, and the attributes and content of some names, whether they are there or not.
fn state(dir: &Path) -> Vec<String> {
    let mut listed: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    listed.sort();
    let of = |name: &&str| {
        let found = fs::symlink_metadata(dir.join(name));
        let known = found.map(|of| (of.ino(), of.mode(), of.nlink(), of.len(), of.blocks()));
        format!("{name}: {known:?} {:?}", fs::read(dir.join(name)).map_err(|error| error.kind()))
    };
    NAMES.iter().map(of).chain([format!("{listed:?}")]).collect()
}

/// Changes of each kind; the errors of those that were refused.
fn change(dir: &Path, new: &str) -> Vec<Option<i32>> {
    let path = |name: &str| dir.join(name);
    let open = || File::options().write(true).open(path("kept"));
    let longer = [3; 9000];
    let tried = [
        fs::write(path(new), ""),
        fs::set_permissions(path("chmod"), fs::Permissions::from_mode(0o600)),
        open().and_then(|file| file.write_all_at(&longer, 0)),
        open().and_then(|file| file.set_len(7)),
        fs::rename(path("old"), path("moved")),
        fs::remove_file(path("gone")),
        fs::create_dir(path("dir")),
        fs::hard_link(path("kept"), path("hard")),
    ];
    tried.into_iter().map(|done| done.err().and_then(|error| error.raw_os_error())).collect()
}

#[test]
fn a_disk_that_turned_read_only_is_seen_as_it_was_then() {
    let prepare = |root: &Path| {
        let dir = root.join("dir");
        fs::create_dir(&dir).unwrap();
        for name in ["kept", "chmod", "gone", "old"] {
            fs::write(dir.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("kept", dir.join("link")).unwrap();
    };
    let _alone = caches(FlockOperation::LockExclusive);
    // The journal keeps its superblock.
    let Some(disk) = FailingDisk::new(prepare, ("<8>", 1)) else { return };
    disk.serve("");
    let dir = disk.root().join("dir");
    // All of it is cached: names, missing names, attributes, the list, content.
    state(&dir);
    assert_eq!(change(&dir, "new"), [None; 8]);
    let before = state(&dir);
    File::open(dir.join("kept")).unwrap().sync_all().unwrap_err();
    let refused = Some(Errno::ROFS.raw_os_error());
    let late = change(&dir, "late");
    // The second rename and removal find nothing to change.
    let missing = Some(Errno::NOENT.raw_os_error());
    assert_eq!(late[..4], [refused; 4], "{late:?}");
    assert!(late[4..].iter().all(|error| error.is_some() && *error != Some(5)), "{late:?}");
    assert_eq!(late[4..6], [missing; 2]);
    assert_eq!(state(&dir), before, "what was refused left nothing in the caches");
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    assert_eq!(state(&dir), before, "the server says the same as the caches did");
    unmount(&disk.place);
}
