//! Images with ext4, and mounting them.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use super::Place;

/// A file system of `mib` MiB; prints why and returns `None` if there is no mkfs.ext4.
pub(crate) fn image(place: &Place, mib: u64, options: &[&str]) -> Option<PathBuf> {
    let path = place.path("disk.img");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    let made =
        program("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).args(options).arg(&path).output();
    match made {
        Ok(made) => assert!(made.status.success(), "{made:?}"),
        Err(_) => {
            manylogs_testkit::skip("needs mkfs.ext4");
            return None;
        }
    }
    Some(path)
}

/// Held shared while a test depends on what the kernel caches, and alone while a test drops the
/// caches of the machine: test programs run side by side.
pub(crate) fn caches(how: FlockOperation) -> File {
    let lock = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    flock(&lock, how).unwrap();
    lock
}

/// A command for a program that may be in /usr/sbin.
pub(crate) fn program(name: &str) -> Command {
    let admin = Path::new("/usr/sbin").join(name);
    Command::new(if admin.exists() { admin.as_os_str() } else { name.as_ref() })
}

/// Whether the kernel can mount images here; prints why not.
pub(crate) fn can_mount() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let devices = ["/dev/loop-control", "/dev/fuse"];
    let can = root && devices.iter().all(|device| Path::new(device).exists());
    if !can {
        manylogs_testkit::skip("needs root, loop devices and /dev/fuse");
    }
    can
}

/// Mounts an adopted image in the mode `manylogs`; returns the mount point.
pub(crate) fn serve(place: &Place) -> PathBuf {
    let dir = place.path("mlfs");
    fs::create_dir_all(&dir).unwrap();
    place.run(&["fs", "mount", "disk.img", "mlfs", "--background"]).succeeds();
    dir
}

pub(crate) fn unmount(place: &Place) {
    // Retries: a closed file is released once the server has got that request.
    let unmounted = (0..100).find_map(|_| {
        let said = place.run(&["fs", "unmount", "mlfs"]);
        (said.code != Some(5)).then_some(said)
    });
    unmounted.unwrap().succeeds();
}
