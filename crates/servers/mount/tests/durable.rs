//! Which changes are durable without a sync after a kill of the server; and for whom blocks are
//! reserved.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Mount, have, sh, unmount};
use manylogs_mount::{MountOptions, serve};

/// The variable with the arguments of [`Served`]'s server: image, directory and options, separated
/// by tabs.
const TOLD: &str = "MLFS_TEST_SERVES";

/// Not a test by itself: the process that [`Served`] starts and kills.
#[test]
fn serves_what_the_environment_says() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split('\t').collect();
    let mut options = MountOptions::default();
    options.add(told[2]).unwrap();
    serve(Path::new(told[0]), Path::new(told[1]), options, || ()).unwrap();
}

/// A server that is a process of its own.
struct Served<'m> {
    mount: &'m Mount,
    server: Child,
}

impl<'m> Served<'m> {
    fn start(mount: &'m Mount, options: &str) -> Self {
        let told = format!("{}\t{}\t{options}", mount.image().display(), mount.root().display());
        let mut server = Command::new(std::env::current_exe().unwrap());
        server.args(["--exact", "serves_what_the_environment_says", "--nocapture"]);
        server.env(TOLD, told).stdout(Stdio::null());
        // The lock of a killed process may last for a moment more.
        for _ in 0..1000 {
            let mut server = server.spawn().unwrap();
            while server.try_wait().unwrap().is_none() {
                let dev = |path: &Path| fs::metadata(path).map(|found| found.dev()).unwrap_or(0);
                if ![0, dev(mount.dir.path())].contains(&dev(&mount.root())) {
                    return Self { mount, server };
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("it is not served");
    }

    fn root(&self) -> std::path::PathBuf {
        self.mount.root()
    }
}

impl Drop for Served<'_> {
    /// Kills the server.
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        assert!(Command::new("umount").arg("-l").arg(self.root()).status().unwrap().success());
    }
}

fn create(path: &Path, bytes: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Changes names in `dir`, and checks the result.
fn change_names(dir: &Path) {
    fs::create_dir(dir.join("made")).unwrap();
    drop(File::create(dir.join("created")).unwrap());
    symlink("somewhere", dir.join("symlink")).unwrap();
    fs::hard_link(dir.join("one"), dir.join("linked")).unwrap();
    fs::remove_file(dir.join("two")).unwrap();
    fs::remove_dir(dir.join("empty")).unwrap();
    fs::rename(dir.join("three"), dir.join("renamed")).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|name| name.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

const AFTER: [&str; 6] = ["created", "linked", "made", "one", "renamed", "symlink"];

#[test]
fn kills_leave_what_mounts_and_flags_promise() {
    let programs = have(&["chattr", "umount"]);
    for (options, flag) in [("dirsync", ""), ("sync", ""), ("noatime", "+D"), ("noatime", "+S")] {
        let Some(mount) = Mount::new(&["-b", "4096"]).filter(|_| programs) else { return };
        let is_sync = options == "sync" || flag == "+S";
        {
            let served = Served::start(&mount, options);
            let dir = served.root().join("dir");
            fs::create_dir(&dir).unwrap();
            if !flag.is_empty() {
                let set = Command::new("chattr").arg(flag).arg(&dir).output().unwrap();
                assert!(set.status.success(), "{set:?}");
            }
            fs::create_dir(dir.join("empty")).unwrap();
            for name in ["one", "two", "three"] {
                create(&dir.join(name), b"old").sync_all().unwrap();
            }
            change_names(&dir);
            if is_sync {
                let file = create(&dir.join("one"), &[7; 50_000]);
                file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
                file.set_len(40_000).unwrap();
            }
        }
        {
            let served = Served::start(&mount, "");
            let dir = served.root().join("dir");
            assert_eq!(names(&dir), AFTER, "{options} {flag}");
            if is_sync {
                assert!(fs::read(dir.join("one")).unwrap() == [7; 40_000], "{options} {flag}");
                let mode = fs::metadata(dir.join("one")).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o640);
            }
        }
        let mut mount = mount;
        mount.start();
        mount.stop();
    }
}

#[test]
fn kills_leave_no_empty_file_where_another_was() {
    for mode in ["mode=ordered", "mode=data", "mode=ordered,noauto_da_alloc"] {
        let Some(mount) = Mount::new(&["-b", "4096"]) else { return };
        let new: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        {
            let served = Served::start(&mount, mode);
            let root = served.root();
            for name in ["renamed", "saved", "cut"] {
                create(&root.join(name), &[1; 100_000]).sync_all().unwrap();
            }
            drop(create(&root.join("new"), &new));
            fs::rename(root.join("new"), root.join("renamed")).unwrap();
            // As under a shell, which shares the descriptor with the programs that it starts.
            drop(create(&root.join("saved"), &new));
            let file = File::options().write(true).open(root.join("cut")).unwrap();
            file.set_len(0).unwrap();
            file.write_all_at(&new, 0).unwrap();
            drop(file);
            create(&root.join("other"), b"other").sync_all().unwrap();
        }
        let served = Served::start(&mount, "");
        if mode.contains("noauto") {
            // The option is accepted, and promises nothing to check.
            continue;
        }
        for name in ["renamed", "saved", "cut"] {
            let found = fs::read(served.root().join(name)).unwrap();
            assert!(found == new, "{mode}: {name} has {} bytes", found.len());
        }
    }
}

/// An ordinary user, then root, write until there is no room; returns the bytes of each.
fn fill(root: &Path) -> [u64; 2] {
    fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap();
    [65_534, 0].map(|id| {
        let path = root.join(format!("of {id}"));
        let mut dd = Command::new("dd");
        dd.arg("if=/dev/zero").arg("bs=4k").arg(format!("of={}", path.display()));
        let said = dd.uid(id).gid(id).output().unwrap();
        assert!(!said.status.success(), "there is room for everything: {said:?}");
        File::open(&path).unwrap().sync_all().unwrap();
        fs::metadata(&path).unwrap().len()
    })
}

fn available(root: &Path) -> u64 {
    let usage = rustix::fs::statvfs(root).unwrap();
    usage.f_bavail * usage.f_frsize
}

#[test]
fn reserved_blocks_are_for_whom_the_kernel_gives_them() {
    if !have(&["dd", "mount"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096", "-m", "12"]) else { return };
    let copy = mount.dir.path().join("copy");
    fs::copy(mount.image(), &copy).unwrap();
    let at = mount.dir.path().join("kernel");
    fs::create_dir(&at).unwrap();
    let mut kernel = Command::new("mount");
    kernel.args(["-t", "ext4", "-o", "loop"]).args([&copy, &at]);
    if !kernel.status().unwrap().success() {
        manylogs_testkit::skip("the kernel does not mount images here");
        return;
    }
    let kernel = (available(&at), fill(&at), available(&at));
    unmount(&at);
    mount.start();
    let own = (available(&mount.root()), fill(&mount.root()), available(&mount.root()));
    assert_eq!(sh(&mount, "stat -c %U 'of 0'"), "root\n");
    mount.stop();
    println!("available, of a user, of root, left: {own:?}; the kernel's ext4: {kernel:?}");
    let near = |one: u64, two: u64| one.abs_diff(two) <= 256 << 10;
    assert!(near(own.0, kernel.0) && own.2 == 0 && kernel.2 == 0, "{own:?}, {kernel:?}");
    assert!(near(own.1[0], kernel.1[0]), "{own:?}, {kernel:?}");
    assert!(near(own.1[1], kernel.1[1]), "{own:?}, {kernel:?}");
}

/// Sets the property of a file by `ioctl`, asks for it, and tries what is refused.
const BY_IOCTL: &str = r#"
import errno, fcntl, os, struct, sys
GET, SET = 0x80044d70, 0x40044d71
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
get = lambda: struct.unpack("I", fcntl.ioctl(file, GET, bytes(4)))[0]
put = lambda flag: fcntl.ioctl(file, SET, struct.pack("I", flag))
def refused(flag):
    try:
        put(flag)
    except OSError as error:
        return error.errno
assert get() == 0
put(1)
assert get() == 1 and os.getxattr(file, "user.manylogs.durable") == b"1"
assert refused(2) == errno.EINVAL
os.seteuid(65534)
assert refused(0) == errno.EPERM and get() == 1
os.seteuid(0)
os.chown(file, 65534, 65534)
os.seteuid(65534)
put(0)
assert get() == 0
"#;

#[test]
fn programs_ask_by_ioctl() {
    let programs = have(&["python3", "umount"]);
    let Some(mount) = Mount::new(&["-b", "4096"]).filter(|_| programs) else { return };
    let served = Served::start(&mount, "noatime");
    let mut python = Command::new("python3");
    let done = python.args(["-c", BY_IOCTL]).arg(served.root().join("file")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
