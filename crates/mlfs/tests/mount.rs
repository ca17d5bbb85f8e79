//! A mounted image: programs of the kernel's side use it, and e2fsck judges it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use manylogs_mlfs::{MountError, MountOptions, serve};
use tempfile::TempDir;

/// An image that is mounted, until it is unmounted.
struct Mount {
    dir: TempDir,
    server: Option<JoinHandle<Result<(), MountError>>>,
}

impl Mount {
    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// An image that nobody has mounted; `None`, which is said, where that cannot be.
    fn new(options: &[&str]) -> Option<Self> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !root || !Path::new("/dev/fuse").exists() || Command::new("e2fsck").output().is_err() {
            eprintln!("skipped: needs root, /dev/fuse, mkfs.ext4 and e2fsck");
            return None;
        }
        let mount = Self { dir: tempfile::tempdir().unwrap(), server: None };
        fs::create_dir(mount.root()).unwrap();
        File::create(mount.image()).unwrap().set_len(64 << 20).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        assert!(
            mkfs.args(["-q", "-F"]).args(options).arg(mount.image()).status().unwrap().success()
        );
        Some(mount)
    }

    /// Serves it in a thread, and waits until it is there.
    fn start(&mut self) {
        self.start_with("");
    }

    /// As [`Mount::start`], with options of `mount -o`.
    fn start_with(&mut self, list: &str) {
        let mut options = MountOptions::default();
        options.add(list).unwrap();
        let (tell, told) = mpsc::channel();
        let (image, root) = (self.image(), self.root());
        self.server =
            Some(thread::spawn(move || serve(&image, &root, options, || tell.send(()).unwrap())));
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        // It is mounted when its root is another device.
        while fs::metadata(self.root()).unwrap().dev() == fs::metadata(&self.dir).unwrap().dev() {
            thread::yield_now();
        }
    }

    fn stop(&mut self) {
        assert!(Command::new("umount").arg(self.root()).status().unwrap().success());
        self.server.take().unwrap().join().unwrap().unwrap();
        let checked = Command::new("e2fsck").arg("-fn").arg(self.image()).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn programs_find_what_they_wrote_now_and_after_the_next_mount() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let root = mount.root();
    fs::create_dir(root.join("dir")).unwrap();
    let mut file = File::create(root.join("dir/file")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"sparse", 5_000_000).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(root.join("dir/file"), root.join("link")).unwrap();
    symlink("dir/file", root.join("symlink")).unwrap();
    fs::rename(root.join("dir"), root.join("moved")).unwrap();
    // A file without a name can be used until it is closed.
    let mut options = File::options();
    let open = options.read(true).write(true).create(true).truncate(true);
    let open = open.open(root.join("open")).unwrap();
    fs::remove_file(root.join("open")).unwrap();
    open.write_all_at(&[1; 50_000], 0).unwrap();
    let mut read = [0; 10];
    open.read_exact_at(&mut read, 49_990).unwrap();
    assert_eq!(read, [1; 10]);
    drop(open);
    assert_eq!(fs::read_link(root.join("symlink")).unwrap(), Path::new("dir/file"));
    for number in 0..500 {
        fs::write(root.join(format!("moved/{number}")), number.to_string()).unwrap();
    }
    assert_eq!(fs::read_dir(root.join("moved")).unwrap().count(), 501);
    drop(file);
    mount.stop();
    mount.start();
    let known = fs::metadata(root.join("link")).unwrap();
    assert_eq!((known.len(), known.nlink(), known.mode()), (5_000_006, 2, 0o104_755));
    let content = fs::read(root.join("moved/file")).unwrap();
    assert!(content[..100_000] == [7; 100_000] && content[5_000_000..] == *b"sparse");
    assert!(content[100_000..5_000_000].iter().all(|byte| *byte == 0));
    assert_eq!(fs::read_to_string(root.join("moved/499")).unwrap(), "499");
    fs::remove_dir_all(root.join("moved")).unwrap();
    mount.stop();
}

#[test]
fn what_cannot_be_mounted_is_refused_by_name() {
    let Some(mount) = Mount::new(&["-b", "1024"]) else { return };
    let refused = serve(&mount.image(), &mount.root(), MountOptions::default(), || ())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("1024 bytes") && refused.contains("-b 4096"), "{refused}");
    let Some(mount) = Mount::new(&["-b", "4096", "-O", "quota"]) else { return };
    let refused = serve(&mount.image(), &mount.root(), MountOptions::default(), || ())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("feature quota"), "{refused}");
}
