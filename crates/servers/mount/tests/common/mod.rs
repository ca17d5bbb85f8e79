//! Images that tests mount, and programs that use them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylogs_mount::{MountOptions, ServeError, serve};
use tempfile::TempDir;

/// An image that is mounted, until it is unmounted.
pub(crate) struct Mount {
    pub(crate) dir: TempDir,
    /// The disk that is mounted in the image's place.
    pub(crate) disk: Option<PathBuf>,
    pub(crate) server: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Mount {
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// An image that nobody has mounted; `None`, which is said, where that cannot be.
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

    /// Serves it in a thread, and waits until it is there.
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
        // It is mounted when its root is another device.
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

/// A child that another test starts has this one's files until it runs its program: nobody can
/// unmount meanwhile.
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
    /// A test that failed leaves nothing mounted.
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = Command::new("umount").arg("-l").arg(self.root()).status();
        }
    }
}

/// Runs a script in the mounted file system; what it prints.
pub(crate) fn sh(mount: &Mount, script: &str) -> String {
    let script = format!("exec 2>&1; {script}");
    let said = Command::new("sh").args(["-euc", &script]).current_dir(mount.root()).output();
    let said = said.unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{script}: {text}");
    text.into_owned()
}

/// Whether programs are there; what is missing is said.
pub(crate) fn have(programs: &[&str]) -> bool {
    let missing =
        programs.iter().find(|program| Command::new(program).arg("--help").output().is_err());
    if let Some(missing) = missing {
        manylogs_testkit::skip(format_args!("needs {missing}"));
    }
    missing.is_none()
}
