//! Requests of newer kernels: files without a name, times of birth, `syncfs`, privileges.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use common::{Mount, have, sh};
use manylogs_mount::{MountOptions, serve};
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, fallocate, linkat, syncfs};

/// A file without a name in `dir`.
fn unnamed(dir: &Path, more: OFlags) -> File {
    let flags = (OFlags::TMPFILE | more).bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).mode(0o640).open(dir).unwrap()
}

fn name(file: &File, path: &Path) -> rustix::io::Result<()> {
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, by_number, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

#[test]
fn a_file_without_a_name_can_be_used_and_named() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let dir = mount.root().join("dir");
    fs::create_dir(&dir).unwrap();
    let mut file = unnamed(&dir, OFlags::empty());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().mode()), (0, 0o100_640));
    file.write_all(&[7; 100_000]).unwrap();
    name(&file, &dir.join("named")).unwrap();
    name(&file, &dir.join("twice")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    file.seek(SeekFrom::Start(99_990)).unwrap();
    let mut end = Vec::new();
    file.read_to_end(&mut end).unwrap();
    assert_eq!(end, [7; 10]);
    let ends = unnamed(&dir, OFlags::empty());
    ends.write_all_at(&[8; 50_000], 0).unwrap();
    ends.sync_all().unwrap();
    // With `O_EXCL` the file can never get a name.
    let kept = unnamed(&dir, OFlags::EXCL);
    assert_eq!(name(&kept, &dir.join("kept")), Err(rustix::io::Errno::NOENT));
    drop((file, ends, kept));
    mount.stop();
    mount.start();
    assert_eq!(fs::read(dir.join("named")).unwrap(), [7; 100_000]);
    assert_eq!(fs::metadata(dir.join("twice")).unwrap().nlink(), 2);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    mount.stop();
}

#[test]
fn births_are_told_and_stay() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    let before = SystemTime::now();
    mount.start();
    fs::write(mount.root().join("file"), "content").unwrap();
    let born = fs::metadata(mount.root().join("file")).unwrap().created().unwrap();
    assert!(before <= born && born <= SystemTime::now(), "{before:?} {born:?}");
    mount.stop();
    mount.start();
    let file = File::options().write(true).open(mount.root().join("file")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(file.metadata().unwrap().created().unwrap(), born);
    assert_eq!(file.metadata().unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);
    drop(file);
    mount.stop();
    // Inodes of 128 bytes have no room for the time of birth.
    let Some(mut mount) = Mount::new(&["-b", "4096", "-I", "128"]) else { return };
    mount.start();
    fs::write(mount.root().join("file"), "content").unwrap();
    assert!(fs::metadata(mount.root().join("file")).unwrap().created().is_err());
    mount.stop();
}

/// A loop device; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output();
        let made = made.ok().filter(|made| made.status.success());
        if made.is_none() {
            manylogs_testkit::skip("needs loop devices");
        }
        Some(Self(String::from_utf8(made?.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_disk_is_claimed_synced_as_a_whole_and_free_when_umount_returns() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    let Some(disk) = Loop::new(&mount.image()) else { return };
    mount.disk = Some(disk.0.clone());
    mount.start();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = format!("{} {} fuseblk.manylogs ", disk.0.display(), mount.root().display());
    assert!(mounts.contains(&line), "{mounts}");
    // The kernel has claimed the disk, and the refusal says where it is mounted.
    let other = mount.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let refused = serve(&disk.0, &other, MountOptions::default(), || ()).unwrap_err().to_string();
    assert!(refused.contains("is mounted on"), "{refused}");

    fs::write(mount.root().join("file"), vec![7; 300_000]).unwrap();
    syncfs(File::open(mount.root()).unwrap()).unwrap();
    // What the disk holds now is what a crash would leave.
    let mut crashed = Mount::new(&["-b", "4096"]).unwrap();
    fs::copy(mount.image(), crashed.image()).unwrap();
    crashed.start();
    assert_eq!(fs::read(crashed.root().join("file")).unwrap(), vec![7; 300_000]);
    crashed.stop();

    fs::write(mount.root().join("late"), vec![8; 300_000]).unwrap();
    common::unmount(&mount.root());
    // Checked at once, without waiting for the server.
    let checked = Command::new("e2fsck").arg("-fn").arg(mount.image()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && !said.contains("recover"), "{said}");
    mount.server.take().unwrap().join().unwrap().unwrap();
    mount.start_with("ro");
    assert_eq!(fs::read(mount.root().join("late")).unwrap(), vec![8; 300_000]);
    assert!(fs::write(mount.root().join("new"), "x").is_err());
    mount.stop();
}

#[test]
fn a_disk_that_is_refused_is_let_go() {
    let Some(mount) = Mount::new(&["-b", "1024"]) else { return };
    let Some(disk) = Loop::new(&mount.image()) else { return };
    for _ in 0..2 {
        let refused = serve(&disk.0, &mount.root(), MountOptions::default(), || ());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("-b 4096"), "{refused}");
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*mount.root().to_string_lossy()), "{mounts}");
}

#[test]
fn privileges_end_with_an_allocation_by_others_too() {
    if !have(&["setfattr", "setpriv", "getfattr", "fallocate"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let script = format!(
        "chmod 711 .; capability=0x0100000200040000000000000000000000000000
        echo content >f; chmod 6777 f; setfattr -n security.capability -v $capability f
        {nobody} fallocate -l 10000 f; ! getfattr -n security.capability f 2>/dev/null
        stat -c %a f; echo content >g; chmod 2767 g; {nobody} sh -c 'echo more >>g'; stat -c %a g
        chmod 6777 g; dd if=/dev/zero of=g bs=1 count=1 conv=notrunc status=none; stat -c %a g
        chown 5 g; stat -c %a g"
    );
    assert_eq!(sh(&mount, &script), "777\n767\n6777\n777\n");
    mount.stop();
}

#[test]
fn a_copy_within_the_file_system_is_done_by_the_kernel() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    fs::write(mount.root().join("a"), vec![9; 70_000]).unwrap();
    let from = File::open(mount.root().join("a")).unwrap();
    let to = File::create(mount.root().join("b")).unwrap();
    let mut copied = 0;
    while copied < 70_000 {
        let n = rustix::fs::copy_file_range(&from, None, &to, None, 70_000 - copied).unwrap();
        assert!(n > 0);
        copied += n;
    }
    assert_eq!(fs::read(mount.root().join("b")).unwrap(), vec![9; 70_000]);
    fallocate(&to, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 65_536).unwrap();
    assert_eq!(rustix::fs::seek(&to, rustix::fs::SeekFrom::Data(0)).unwrap(), 65_536);
    drop((from, to));
    mount.stop();
}

/// Writes the handles of files into a file, or opens files by such handles: `handles.py take|open
/// LIST NAME...`.
const HANDLES: &str = r#"
import ctypes, os, pickle, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def take(name):
    handle, mount = Handle(128, 0), ctypes.c_int()
    path = os.path.join(root, name).encode()
    assert libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount), 0) == 0
    return bytes(handle)
def found(taken):
    handle = Handle.from_buffer_copy(taken)
    fd = libc.open_by_handle_at(mounted, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    path = os.readlink(f"/proc/self/fd/{fd}")
    return "directory" if os.path.isdir(f"/proc/self/fd/{fd}") else os.read(fd, 100).decode()
how, root, kept = sys.argv[1:4]
if how == "take":
    pickle.dump([take(name) for name in sys.argv[4:]], open(kept, "wb"))
else:
    mounted = os.open(root, os.O_RDONLY)
    print(*map(found, pickle.load(open(kept, "rb"))), sep=",")
"#;

#[test]
fn files_are_found_by_handles_that_somebody_kept() {
    if !have(&["python3"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let (kept, root) = (mount.dir.path().join("handles"), mount.root());
    let handles = |how: &str, names: &[&str]| {
        let mut python = Command::new("python3");
        python.args(["-c", HANDLES, how]).args([&root, &kept]).args(names);
        let said = python.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    sh(&mount, "mkdir -p d/e; echo -n one >d/e/f; echo -n two >gone; echo -n three >other");
    handles("take", &["d/e/f", "gone", "d/e", ".", "other"]);
    assert_eq!(handles("open", &[]), "one,two,directory,directory,three\n");
    mount.stop();
    mount.start();
    // The inode number of the deleted file may belong to a new file by now, with another
    // generation.
    sh(&mount, "rm gone; echo -n new >new; rm other");
    let found = handles("open", &[]);
    let stale = "Stale file handle";
    assert_eq!(found, format!("one,{stale},directory,directory,{stale}\n"));
    mount.stop();
}

#[test]
fn a_disk_that_somebody_leaves_is_waited_for() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    let Some(disk) = Loop::new(&mount.image()) else { return };
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let claimed = File::options().read(true).custom_flags(exclusive).open(&disk.0).unwrap();
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(claimed);
    });
    mount.disk = Some(disk.0.clone());
    mount.start();
    leaving.join().unwrap();
    fs::write(mount.root().join("file"), "content").unwrap();
    mount.stop();
}
