//! Images made by mkfs, disks in virtual time that hold them, and checks.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use manylogs_ext4::{Ext4, Ino};
use manylogs_sim::DiskImage;
use manylogs_torture::ext4::{self, ImageSource};
pub(crate) use manylogs_torture::ext4::{
    SMALL_MIB, SMALL_OPTIONS as SMALL, World, content, has_program as has, image_dir, mount,
    mount_in,
};

/// An image that mkfs.ext4 made; `None`, with a notice, without mkfs.ext4 or e2fsck.
pub(crate) fn mkfs(mib: u64, options: &[&str]) -> Option<DiskImage> {
    if !has("mkfs.ext4") || !has("e2fsck") {
        manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
        return None;
    }
    Some(ext4::mkfs(mib, options).unwrap())
}

/// Loads a file as a disk image.
pub(crate) fn load(path: &Path) -> DiskImage {
    ext4::load(path).unwrap()
}

/// Writes a disk image into a file. Torn sectors get arbitrary content.
pub(crate) fn save(image: &DiskImage, mib: u64, path: &Path) {
    ext4::save(image, mib, path).unwrap();
}

/// Runs e2fsck: its exit code and its output.
pub(crate) fn e2fsck(options: &[&str], path: &Path) -> (i32, String) {
    let said = ext4::e2fsck(options, path);
    (said.code, said.text)
}

/// Saving and checking the disk of a world.
pub(crate) trait Judged {
    /// Saves the disk's content into a file.
    fn saved(&self) -> (tempfile::TempDir, PathBuf);

    /// Checks that neither e2fsck nor our own check finds anything.
    fn check(&self);
}

impl Judged for World {
    fn saved(&self) -> (tempfile::TempDir, PathBuf) {
        let dir = image_dir().unwrap();
        let path = dir.path().join("image");
        save(&self.settled(), self.mib, &path);
        (dir, path)
    }

    fn check(&self) {
        let (_dir, path) = self.saved();
        let (code, said) = e2fsck(&["-fn"], &path);
        assert_eq!(code, 0, "{said}");
        let image = self.settled();
        let report = manylogs_ext4check::check(&ImageSource::new(&image, self.mib)).unwrap();
        assert_eq!(report.findings, []);
    }
}

/// A mounted image, until it is dropped.
pub(crate) struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    /// Mounts an image; `None`, with a notice, where that is impossible.
    pub(crate) fn new(image: &Path) -> Option<Self> {
        let dir = image_dir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).args([image, dir.path()]);
        if mount.output().is_ok_and(|said| said.status.success()) {
            return Some(Self { dir });
        }
        manylogs_testkit::skip("the kernel does not mount images here");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A child process that another test has just forked holds our open files until it runs its
        // program.
        let unmounted = || Command::new("umount").arg(self.path()).status().unwrap().success();
        assert!((0..1000).any(|_| unmounted()), "umount");
    }
}

pub(crate) fn can_mount() -> bool {
    let ok = has("mount") && has("losetup") && std::fs::metadata("/dev/loop-control").is_ok();
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !ok || !root {
        manylogs_testkit::skip("needs root and loop devices");
    }
    ok && root
}

/// Checks that a test fails while a bug is planted. Skipped without mkfs.ext4 and e2fsck.
#[cfg(feature = "plant")]
pub(crate) fn assert_noticed(bug: manylogs_plant::Bug, test: fn()) {
    if !has("mkfs.ext4") || !has("e2fsck") {
        manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
        return;
    }
    manylogs_plant::plant(Some(bug));
    let caught = std::panic::catch_unwind(test).is_err();
    manylogs_plant::plant(None);
    assert!(caught, "{bug:?} is not noticed");
}

/// All names of a directory except `.` and `..`.
pub(crate) async fn names(fs: &Ext4, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    ext4::names(fs, dir).await.unwrap()
}
