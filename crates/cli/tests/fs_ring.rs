//! Mounts over both ways by which the kernel's requests come: io_uring, and /dev/fuse.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::image::{can_mount, image, program};
use common::{Place, text};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Options for each way; with the first one opened files are read anew.
const WAYS: [&str; 2] = ["uring", "nouring"];
const MIB: usize = 1 << 20;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted image.
struct Server {
    place: Place,
    way: &'static str,
}

impl Server {
    /// Starts a server with the bugs `planted`; prints why and returns `None` where it cannot
    /// mount.
    fn start(way: &'static str, more: &[&str], planted: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let place = Place::new();
        image(&place, 256, &[])?;
        fs::create_dir(place.path("mnt")).unwrap();
        let server = Self { place, way };
        server.mount(more, planted);
        Some(server)
    }

    fn mount(&self, more: &[&str], planted: &str) {
        let options = format!("strictatime,{}", self.way);
        let mount = ["fs", "mount", "disk.img", "mnt", "--background", "-o", &options];
        let mount = [&mount[..], more].concat();
        let started = self.place.command(&mount).env("MANYLOGS_PLANT", planted).output().unwrap();
        assert!(started.status.success(), "{started:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path("mnt").join(name)
    }

    fn status(&self) -> Value {
        let status = self.place.run(&["fs", "status", "disk.img", "--json"]);
        serde_json::from_str(&status.succeeds().stdout).unwrap()
    }

    fn through(&self) -> String {
        let status = self.status();
        status["server"]["file_system"]["requests_through"].as_str().unwrap().to_owned()
    }

    /// Requests of the kinds so far.
    fn requests(&self, kinds: &[&str]) -> u64 {
        let status = self.status();
        let all = status["server"]["file_system"]["kernel_requests"].as_array().unwrap();
        let of = all.iter().filter(|kind| kinds.contains(&kind["kind"].as_str().unwrap()));
        of.map(|kind| kind["requests"].as_u64().unwrap()).sum()
    }

    fn pid(&self) -> Pid {
        let pid = self.status()["server"]["pid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    fn unmount(&self) {
        const BUSY: i32 = 5;
        let stop = || self.place.run(&["fs", "unmount", "mnt"]);
        let ended = becomes(|| {
            let stopped = stop();
            if stopped.code != Some(BUSY) {
                stopped.succeeds();
                return true;
            }
            false
        });
        assert!(ended);
        self.is_clean();
    }

    fn is_clean(&self) {
        let checked = program("e2fsck").arg("-fn").arg(self.place.path("disk.img")).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failure is it still mounted.
        let _ = program("umount").args(["-l", text(&self.place.path("mnt"))]).output();
    }
}

fn becomes(is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether the kernel has FUSE over io_uring, and it is switched on.
fn is_offered() -> bool {
    let offered = fs::read("/sys/module/fuse/parameters/enable_uring");
    let offered = offered.is_ok_and(|says| says.starts_with(b"Y"));
    if !offered {
        manylogs_testkit::skip("needs Linux 6.14 and fuse.enable_uring=Y");
    }
    offered
}

/// Bytes that differ from place to place.
fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        u8::try_from(state >> 56).unwrap()
    };
    (0..len).map(next).collect()
}

#[test]
fn the_status_says_which_way_requests_come() {
    if !is_offered() {
        return;
    }
    for (way, through) in [("uring", "io_uring"), ("nouring", "/dev/fuse")] {
        let Some(server) = Server::start(way, &[], "") else { return };
        assert_eq!(server.through(), through);
        let ring_bytes = &server.status()["server"]["file_system"]["ring_bytes"];
        assert_eq!(ring_bytes.as_u64().unwrap() > 0, way == "uring");
        server.unmount();
    }
}

#[test]
#[cfg(feature = "plant")]
fn a_kernel_that_refuses_the_ring_is_served_through_the_device() {
    if !is_offered() {
        return;
    }
    // The kernel refuses entries that are too small.
    let Some(server) = Server::start("uring", &[], "RingEntriesTooSmall") else { return };
    assert_eq!(server.through(), "/dev/fuse");
    fs::write(server.path("file"), "content").unwrap();
    assert_eq!(fs::read(server.path("file")).unwrap(), b"content");
    server.unmount();
}

/// Whether content of many lengths comes back, and with it values of attributes, links and lists.
fn keeps(server: &Server) -> bool {
    let lengths = [0, 1, 100, 4095, 4096, 4097, 70_000, MIB - 1, MIB, 3 * MIB + 17];
    let kept = |(number, len): (usize, &usize)| {
        let (path, bytes) = (server.path(&format!("of{len}")), content(*len, number as u64));
        fs::write(&path, &bytes)?;
        Ok(fs::read(&path)? == bytes && fs::metadata(&path)?.len() == *len as u64)
    };
    let kept: std::io::Result<Vec<bool>> = lengths.iter().enumerate().map(kept).collect();
    let link = content(2000, 9).iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>();
    let long = content(3000, 5);
    let others = || -> std::io::Result<bool> {
        std::os::unix::fs::symlink(&link, server.path("link"))?;
        let path = server.path("of1");
        setxattr(&path, "user.long", &long, XattrFlags::empty())?;
        let mut value = vec![0; 4096];
        let len = getxattr(&path, "user.long", &mut value[..])?;
        let names = fs::read_dir(server.path(""))?.collect::<Result<Vec<_>, _>>()?;
        let read = fs::read_link(server.path("link"))? == Path::new(&link);
        // Beside those above there is lost+found.
        Ok(read && value[..len] == long && names.len() == lengths.len() + 2)
    };
    kept.is_ok_and(|kept| kept.iter().all(|kept| *kept)) && others().unwrap_or(false)
}

#[test]
fn content_and_names_come_back() {
    for way in WAYS {
        let Some(server) = Server::start(way, &[], "") else { return };
        assert!(keeps(&server), "{way}");
        server.unmount();
    }
}

#[test]
#[cfg(feature = "plant")]
fn planted_answers_that_are_cut_short_or_of_another_request_are_noticed() {
    if !is_offered() {
        return;
    }
    for bug in ["RingAnswerCutShort", "RingAnswerOfAnother"] {
        let Some(server) = Server::start("uring", &[], bug) else { return };
        assert!(!keeps(&server), "{bug}");
    }
}

#[test]
fn errors_are_those_of_the_operation() {
    for way in WAYS {
        let Some(server) = Server::start(way, &[], "") else { return };
        let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
        let of = |name: &str| server.path(name);
        assert_eq!(kind(fs::read(of("missing")).map(drop)), ErrorKind::NotFound);
        fs::create_dir(of("dir")).unwrap();
        assert_eq!(kind(fs::create_dir(of("dir"))), ErrorKind::AlreadyExists);
        fs::write(of("dir/file"), "x").unwrap();
        assert_eq!(kind(fs::remove_dir(of("dir"))), ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind(fs::remove_dir(of("dir/file"))), ErrorKind::NotADirectory);
        assert_eq!(kind(fs::write(of(&"n".repeat(256)), "x")), ErrorKind::InvalidFilename);
        let path = of("dir/file");
        setxattr(&path, "user.a", b"value", XattrFlags::empty()).unwrap();
        assert_eq!(getxattr(&path, "user.a", &mut [0_u8; 2]), Err(Errno::RANGE));
        assert_eq!(getxattr(&path, "user.b", &mut [0_u8; 9]), Err(Errno::NODATA));
        server.unmount();
    }
}

#[test]
fn many_threads_are_served_at_once() {
    const THREADS: usize = 48;
    const FILES: usize = 12;
    for way in WAYS {
        let Some(server) = Server::start(way, &[], "") else { return };
        let work = |thread: usize| {
            let dir = server.path(&format!("of{thread}"));
            fs::create_dir(&dir).unwrap();
            for number in 0..FILES {
                let bytes = content(number * 30_000, (thread * FILES + number) as u64);
                let path = dir.join(number.to_string());
                let mut file = File::create_new(&path).unwrap();
                file.write_all(&bytes).unwrap();
                file.sync_all().unwrap();
                assert!(fs::read(&path).unwrap() == bytes, "{}", path.display());
            }
            let names = fs::read_dir(&dir).unwrap().count();
            assert_eq!(names, FILES);
            (0..FILES / 2).for_each(|number| {
                fs::remove_file(dir.join(number.to_string())).unwrap();
            });
        };
        let work = &work;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
        server.unmount();
    }
}

/// Whether the server hears what the kernel forgets.
fn hears_of_forgotten(planted: &str) -> Option<bool> {
    let server = Server::start("uring", &[], planted)?;
    for number in 0..50 {
        let path = server.path(&number.to_string());
        fs::write(&path, "x").unwrap();
        fs::remove_file(path).unwrap();
    }
    let heard = || server.requests(&["forget", "batch_forget"]) > 0;
    let all = if planted.is_empty() {
        becomes(heard)
    } else {
        // Far longer than it takes.
        thread::sleep(Duration::from_secs(2));
        heard()
    };
    if planted.is_empty() {
        server.unmount();
    }
    Some(all)
}

#[test]
fn what_the_kernel_forgets_is_heard() {
    if is_offered() {
        assert_ne!(hears_of_forgotten(""), Some(false));
    }
}

#[test]
#[cfg(feature = "plant")]
fn planted_a_device_that_is_not_read_is_noticed() {
    if is_offered() {
        assert_ne!(hears_of_forgotten("RingDeviceUnread"), Some(true));
    }
}

/// A program that writes and syncs without end.
fn writer(server: &Server) -> Child {
    let path = server.path("written");
    let script = "import os, sys\n\
         fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n\
         print('x', flush=True)\n\
         while True:\n    os.pwrite(fd, b'w' * 70000, 0)\n    os.fsync(fd)\n";
    let mut child = Command::new("python3")
        .args(["-c", script, text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    thread::sleep(Duration::from_millis(100));
    child
}

/// Waits for the end of a child that may hang.
fn ends(mut child: Child) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// On a slow drive, so that requests wait.
const SLOW: [&str; 2] = ["--emulate", "wd5000ys"];

#[test]
fn a_program_that_is_killed_while_its_request_waits_ends() {
    for way in WAYS {
        let Some(server) = Server::start(way, &SLOW, "") else { return };
        for signal in [Signal::TERM, Signal::KILL] {
            let child = writer(&server);
            let pid = Pid::from_child(&child);
            kill_process(pid, signal).unwrap();
            assert!(ends(child), "{way}");
        }
        fs::write(server.path("after"), "x").unwrap();
        server.unmount();
    }
}

#[test]
fn programs_get_errors_when_the_server_is_killed_and_a_mount_takes_over() {
    for way in WAYS {
        let Some(server) = Server::start(way, &SLOW, "") else { return };
        fs::write(server.path("kept"), "kept").unwrap();
        File::open(server.path("kept")).unwrap().sync_all().unwrap();
        let children: Vec<_> = (0..3).map(|_| writer(&server)).collect();
        kill_process(server.pid(), Signal::KILL).unwrap();
        assert!(children.into_iter().all(ends), "{way}: callers wait for a dead server");
        server.mount(&[], "");
        assert_eq!(fs::read(server.path("kept")).unwrap(), b"kept");
        server.unmount();
    }
}

#[test]
fn an_unmount_while_requests_wait_ends_with_the_last_user() {
    for way in WAYS {
        let Some(server) = Server::start(way, &SLOW, "") else { return };
        let pid = server.pid();
        let child = writer(&server);
        let lazily = program("umount").args(["-l", text(&server.place.path("mnt"))]).output();
        assert!(lazily.unwrap().status.success());
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        assert!(ends(child), "{way}");
        assert!(becomes(|| rustix::process::test_kill_process(pid).is_err()), "{way}: server");
        server.is_clean();
    }
}

#[test]
fn an_aborted_connection_ends_server_and_callers() {
    for way in WAYS {
        let Some(server) = Server::start(way, &SLOW, "") else { return };
        let (pid, child) = (server.pid(), writer(&server));
        let Some(connection) = connection(&server.path("")) else { return };
        fs::write(connection.join("abort"), "1").unwrap();
        assert!(ends(child), "{way}");
        assert!(becomes(|| rustix::process::test_kill_process(pid).is_err()), "{way}: server");
        let _ = program("umount").args(["-l", text(&server.place.path("mnt"))]).output();
        server.is_clean();
    }
}

/// The kernel's control directory of the connection below `path`.
fn connection(path: &Path) -> Option<PathBuf> {
    let control = Path::new("/sys/fs/fuse/connections");
    let _ = program("mount").args(["-t", "fusectl", "none", text(control)]).output();
    let device = rustix::fs::stat(path).unwrap().st_dev;
    let found = control.join(rustix::fs::minor(device).to_string());
    if !found.exists() {
        manylogs_testkit::skip("needs fusectl");
        return None;
    }
    Some(found)
}

#[test]
fn parts_of_one_file_by_many_threads_are_kept_apart() {
    const BLOCK: usize = 128 << 10;
    for way in WAYS {
        let Some(server) = Server::start(way, &[], "") else { return };
        let path = server.path("shared");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        file.set_len((32 * BLOCK) as u64).unwrap();
        thread::scope(|scope| {
            for number in 0..32_usize {
                let (file, path) = (&file, &path);
                scope.spawn(move || {
                    let (at, bytes) = ((number * BLOCK) as u64, content(BLOCK, number as u64));
                    file.write_all_at(&bytes, at).unwrap();
                    let mut read = vec![0; BLOCK];
                    File::open(path).unwrap().read_exact_at(&mut read, at).unwrap();
                    assert!(read == bytes, "{way}, block {number}");
                });
            }
        });
        drop(file);
        server.unmount();
    }
}

/// Of a disk the kernel waits for the answer to its last request, which comes after all else.
#[test]
fn an_unmount_of_a_disk_returns_when_the_server_is_done() {
    for way in WAYS {
        let Some(server) = Server::start(way, &[], "") else { return };
        server.unmount();
        let attached = program("losetup")
            .args(["--find", "--show"])
            .arg(server.place.path("disk.img"))
            .output()
            .unwrap();
        assert!(attached.status.success(), "{attached:?}");
        let disk = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
        server.place.run(&["fs", "mount", &disk, "mnt", "--background", "-o", way]).succeeds();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(table.lines().any(|line| line.starts_with(&disk) && line.contains("fuseblk")));
        let bytes = content(3 * MIB, 4);
        fs::write(server.path("file"), &bytes).unwrap();
        assert!(fs::read(server.path("file")).unwrap() == bytes);
        let unmounted = || program("umount").arg(server.place.path("mnt")).output().unwrap();
        assert!(becomes(|| unmounted().status.success()), "{way}");
        // Nothing is written any more.
        server.is_clean();
        let detached = program("losetup").args(["--detach", &disk]).status();
        assert!(detached.unwrap().success());
    }
}
