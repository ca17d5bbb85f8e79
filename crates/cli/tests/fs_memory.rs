//! A server's memory under floods of requests: it stays below its bound plus the program's own
//! needs, no request is refused, and all memory is given back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use common::Place;
use rustix::fs::{FlockOperation, XattrFlags};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// The least bound, so that short floods reach it.
const BOUND: u64 = 64 * MIB;
/// The program's own needs: its code, buffers of the device, and memory kept by the allocator.
const BESIDE: u64 = 64 * MIB;
/// Number of programs that write and read at the same time, 1 MiB each.
const PROGRAMS: usize = 500;
const THREADS: usize = 8;
const NAMES: usize = 200_000;
/// Number of the names that are created and removed with little memory.
const FEWER: usize = 10_000;
const DIRS: usize = 50;

/// A mounted image, and its server.
struct Server {
    place: Place,
    pid: u64,
}

/// An image with a file system.
fn image() -> Option<Place> {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let place = Place::new();
    File::create(place.path("disk.img")).unwrap().set_len(2 << 30).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-b", "4096", "-N", "260000"]).arg(place.path("disk.img"));
    let made = mkfs.status().is_ok_and(|status| status.success());
    if !root || !made || !Path::new("/dev/fuse").exists() {
        manylogs_testkit::skip("needs root, /dev/fuse and mkfs.ext4");
        return None;
    }
    fs::create_dir(place.path("mnt")).unwrap();
    Some(place)
}

impl Server {
    /// Starts a server on a slow drive, with the least bound and `bug` planted. Prints why and
    /// returns `None` where it cannot mount.
    fn start(bug: &str) -> Option<Self> {
        Some(Self::mount(image()?, &["--memory", "64M", "--emulate", "wd5000ys"], bug))
    }

    fn mount(place: Place, options: &[&str], bug: &str) -> Self {
        let mount = [&["fs", "mount", "disk.img", "mnt", "--background"], options].concat();
        let started = place.command(&mount).env("MANYLOGS_PLANT", bug).output().unwrap();
        assert!(started.status.success(), "{started:?}");
        let mut server = Self { place, pid: 0 };
        server.pid = server.status()["server"]["pid"].as_u64().unwrap();
        server
    }

    fn status(&self) -> Value {
        let status = self.place.run(&["fs", "status", "mnt", "--json"]);
        serde_json::from_str(&status.succeeds().stdout).unwrap()
    }

    /// A figure of a part of the memory account.
    fn part(&self, name: &str, figure: &str) -> u64 {
        let status = self.status();
        let memory = &status["server"]["file_system"]["memory"];
        let mut parts = memory["parts"].as_array().unwrap().iter();
        parts.find(|part| part["part"] == name).unwrap()[figure].as_u64().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path("mnt").join(name)
    }

    /// The server's peak memory in bytes.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    fn is_within(&self) -> bool {
        self.peak() <= BOUND + BESIDE
    }

    fn check(&self, after: &str) {
        eprintln!("{after}: {} MiB", self.peak() / MIB);
        let status = self.status();
        let memory = &status["server"]["file_system"]["memory"];
        assert!(self.is_within(), "{after}: {} MiB\n{memory:#}", self.peak() / MIB);
        for part in memory["parts"].as_array().unwrap() {
            let [peak, share] = ["peak_bytes", "share_bytes"].map(|key| part[key].as_u64());
            assert!(peak <= share, "{after}: {part}");
        }
    }

    /// Runs `work` for each number in a thread of its own.
    fn at_once(&self, count: usize, work: impl Fn(&Self, usize) + Sync) {
        thread::scope(|scope| {
            for number in 0..count {
                let work = &work;
                scope.spawn(move || work(self, number));
            }
        });
    }

    /// Programs that write 1 MiB each, on a drive that is slower than they are.
    fn writes(&self) {
        let content = vec![7; 1 << 20];
        self.at_once(PROGRAMS, |server, number| {
            let file = File::create(server.path(&format!("file{number}"))).unwrap();
            file.write_all_at(&content, 0).unwrap();
            if number.is_multiple_of(50) {
                file.sync_all().unwrap();
            }
        });
    }

    /// The programs read it again, with direct I/O.
    fn reads(&self) {
        self.at_once(PROGRAMS, |server, number| {
            let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(direct);
            let file = options.open(server.path(&format!("file{number}"))).unwrap();
            let mut room = vec![0; (1 << 20) + 4096];
            let at = room.as_ptr().align_offset(4096);
            file.read_exact_at(&mut room[at..at + (1 << 20)], 0).unwrap();
            assert!(room[at..at + (1 << 20)].iter().all(|byte| *byte == 7));
        });
    }

    fn names(&self, numbers: Range<usize>, work: impl Fn(&Path) + Sync) {
        self.at_once(THREADS, |server, thread| {
            for number in (numbers.start + thread..numbers.end).step_by(THREADS) {
                work(&server.path(&format!("dir{}/a-name-of-some-length-{number}", number % DIRS)));
            }
        });
    }

    /// Sets attributes of the largest size, and larger ones.
    fn xattrs(&self) {
        let value = vec![1; 64 << 10];
        self.at_once(64, |server, number| {
            for round in 0..20 {
                let path = server.path(&format!("dir1/xattrs-{number}-{round}"));
                File::create(&path).unwrap();
                let set = |len: usize| {
                    rustix::fs::setxattr(&path, "user.x", &value[..len], XattrFlags::empty())
                };
                assert!(set(64 << 10).is_err(), "a block has 4096 bytes");
                set(3000).unwrap();
            }
        });
    }

    /// Opens and locks as many files as the system allows a program.
    fn handles(&self) {
        let mut open = Vec::new();
        for number in 0..20_000 {
            let name = format!("dir{}/a-name-of-some-length-{number}", number % DIRS);
            match File::open(self.path(&name)) {
                Ok(file) => open.push(file),
                Err(error) if error.raw_os_error() == Some(24) => break,
                Err(error) => panic!("{error}"),
            }
        }
        // Leaves some descriptors for this program.
        open.truncate(open.len() - 100);
        eprintln!("{} files are open", open.len());
        for file in &open {
            rustix::fs::fcntl_lock(file, FlockOperation::LockShared).unwrap();
        }
        self.check("handles and locks");
    }

    fn lists(&self) {
        self.at_once(50, |server, number| {
            let listed = fs::read_dir(server.path(&format!("dir{}", number % DIRS))).unwrap();
            assert!(listed.count() >= NAMES / DIRS);
        });
    }

    fn stop(self) -> Place {
        let unmounted = (0..100).find_map(|_| {
            let said = self.place.run(&["fs", "unmount", "mnt"]);
            (said.code != Some(5)).then_some(said)
        });
        unmounted.unwrap().succeeds();
        let image = self.place.path("disk.img");
        let checked = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        self.place
    }
}

#[test]
fn floods_of_content_stay_within_the_bound() {
    let Some(server) = Server::start("") else { return };
    server.writes();
    server.check("writes");
    server.reads();
    server.check("reads");
    // Other programs and orders are served while all of that waits for the drive.
    thread::scope(|scope| {
        scope.spawn(|| server.writes());
        assert_eq!(server.status()["state"], "mounted");
        let missing = fs::metadata(server.path("nothing")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
    let sync = File::open(server.path("file0")).unwrap();
    sync.sync_all().unwrap();
    server.check("writes over writes");
    drop(sync);
    // The kernel waits only for the answers; the jobs end a moment later.
    while server.part("requests", "used_bytes") > 0 {
        thread::yield_now();
    }
    server.stop();
}

#[test]
fn floods_of_names_stay_within_the_bound() {
    let Some(place) = image() else { return };
    // Most names are created with more memory, because transactions are larger then.
    let server = Server::mount(place, &["--memory", "512M"], "");
    (0..DIRS).for_each(|dir| fs::create_dir(server.path(&format!("dir{dir}"))).unwrap());
    server.names(0..NAMES - FEWER, |path| drop(File::create(path).unwrap()));
    let server = Server::mount(server.stop(), &["--memory", "64M"], "");
    server.names(NAMES - FEWER..NAMES, |path| drop(File::create(path).unwrap()));
    server.check("names");
    server.names(0..NAMES, |path| assert!(fs::metadata(path).unwrap().is_file()));
    server.check("lookups");
    server.xattrs();
    server.check("attributes");
    server.handles();
    server.lists();
    server.check("lists");
    server.names(NAMES - FEWER..NAMES, |path| fs::remove_file(path).unwrap());
    server.check("removals");
    server.stop();
}

#[cfg(feature = "plant")]
#[test]
fn memory_that_is_not_bounded_or_does_not_come_back_is_noticed() {
    for bug in ["MemoryUnbounded", "MemoryPagesUncounted"] {
        let Some(server) = Server::start(bug) else { return };
        server.writes();
        eprintln!("{bug}: {} MiB", server.peak() / MIB);
        assert!(!server.is_within(), "{bug} is not noticed");
        server.stop();
    }
    let Some(server) = Server::start("MemoryPermitLeaks") else { return };
    for number in 0..100 {
        fs::metadata(server.path(&number.to_string())).unwrap_err();
    }
    // When its requests have ended the server holds memory only for the status request itself.
    let left = server.part("requests", "used_bytes");
    assert!(left >= 100 * (32 << 10), "{left} bytes");
    server.stop();
}
