//! Images that tests mount, and the programs that tests run on them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylogs_mount::{MountOptions, MountServerError, serve};
use tempfile::TempDir;

/// An image, and the server that has it mounted.
pub(crate) struct Mount {
    pub(crate) dir: TempDir,
    /// The disk that is mounted in the image's place.
    pub(crate) disk: Option<PathBuf>,
    pub(crate) server: Option<JoinHandle<Result<(), MountServerError>>>,
}

impl Mount {
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// A new image, not mounted; prints why and returns `None` where this machine cannot mount it.
    pub(crate) fn new(options: &[&str]) -> Option<Self> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !root || !Path::new("/dev/fuse").exists() || Command::new("e2fsck").output().is_err() {
            manylogs_testkit::skip("needs root, /dev/fuse, mkfs.ext4 and e2fsck");
            return None;
        }
        let mount = Self { dir: tempfile::tempdir().unwrap(), disk: None, server: None };
        fs::create_dir(mount.root()).unwrap();
        File::create(mount.image()).unwrap().set_len(64 << 20).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        assert!(
            mkfs.args(["-q", "-F"]).args(options).arg(mount.image()).status().unwrap().success()
        );
        Some(mount)
    }

    /// Serves the image in a thread, and waits until it is mounted.
    pub(crate) fn start(&mut self) {
        self.start_with("");
    }

    /// As [`Mount::start`], with options of `mount -o`.
    pub(crate) fn start_with(&mut self, list: &str) {
        let mut options = MountOptions::default();
        options.add(list).unwrap();
        let (tell, told) = mpsc::channel();
        let image = self.disk.clone().unwrap_or_else(|| self.image());
        let root = self.root();
        self.server =
            Some(thread::spawn(move || serve(&image, &root, options, || tell.send(()).unwrap())));
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        // It is mounted when its root is on another device than its directory.
        while fs::metadata(self.root()).unwrap().dev() == fs::metadata(&self.dir).unwrap().dev() {
            thread::yield_now();
        }
    }

    pub(crate) fn stop(&mut self) {
        unmount(&self.root());
        self.server.take().unwrap().join().unwrap().unwrap();
        let checked = Command::new("e2fsck").arg("-fn").arg(self.image()).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

/// Unmounts, with retries: a child that another test forks holds this test's files open until it
/// runs its program, and the mount is busy until then.
pub(crate) fn unmount(root: &Path) {
    let mut tries = (0..1000).map(|_| {
        let unmounted = Command::new("umount").arg(root).status().unwrap().success();
        if !unmounted {
            thread::sleep(Duration::from_millis(10));
        }
        unmounted
    });
    assert!(tries.any(|unmounted| unmounted), "umount {}", root.display());
}

impl Drop for Mount {
    /// Unmounts, so that a failed test leaves nothing mounted.
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = Command::new("umount").arg("-l").arg(self.root()).status();
        }
    }
}

/// Runs a script in the mounted file system; returns what it prints.
pub(crate) fn sh(mount: &Mount, script: &str) -> String {
    let script = format!("exec 2>&1; {script}");
    let said = Command::new("sh").args(["-euc", &script]).current_dir(mount.root()).output();
    let said = said.unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{script}: {text}");
    text.into_owned()
}

/// Whether the programs are installed; prints what is missing.
pub(crate) fn have(programs: &[&str]) -> bool {
    let missing =
        programs.iter().find(|program| Command::new(program).arg("--help").output().is_err());
    if let Some(missing) = missing {
        manylogs_testkit::skip(format_args!("needs {missing}"));
    }
    missing.is_none()
}
