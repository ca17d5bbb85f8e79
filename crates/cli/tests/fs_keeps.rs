//! The kernel's caches of a mounted file system: it asks for nothing twice, is told of all changes
//! that no program made, and each cache has an option that turns it off.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::Place;
use common::image::caches;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RawDir, StatxFlags, XattrFlags, removexattr,
    setxattr, statat, statx,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const DIRS: usize = 20;
const FILES: usize = 40;
/// How long it may take until the kernel is told of a change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait where a planted bug keeps it from being told.
const IN_VAIN: Duration = Duration::from_secs(1);

/// A mounted image.
struct Server {
    place: Place,
}

impl Server {
    /// Starts a server with the bugs `planted`; prints why and returns `None` where it cannot
    /// mount.
    fn start(options: &str, planted: &str) -> Option<Self> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let place = Place::new();
        File::create(place.path("disk.img")).unwrap().set_len(64 << 20).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        // Without an index, new names go to the first block with room.
        mkfs.args(["-q", "-b", "4096", "-O", "^dir_index"]).arg(place.path("disk.img"));
        let made = mkfs.status().is_ok_and(|status| status.success());
        if !root || !made || !Path::new("/dev/fuse").exists() {
            manylogs_testkit::skip("needs root, /dev/fuse and mkfs.ext4");
            return None;
        }
        fs::create_dir(place.path("mnt")).unwrap();
        let mount = ["fs", "mount", "disk.img", "mnt", "--background", "-o", options];
        let started = place.command(&mount).env("MANYLOGS_PLANT", planted).output().unwrap();
        assert!(started.status.success(), "{started:?}");
        Some(Self { place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path("mnt").join(name)
    }

    /// Requests of the kernel by kind.
    fn requests(&self) -> BTreeMap<String, u64> {
        let status = self.place.run(&["fs", "status", "mnt", "--json"]);
        let status: Value = serde_json::from_str(&status.succeeds().stdout).unwrap();
        let kinds = &status["server"]["file_system"]["kernel_requests"];
        let count = |kind: &Value| {
            (kind["kind"].as_str().unwrap().to_owned(), kind["requests"].as_u64().unwrap())
        };
        kinds.as_array().unwrap().iter().map(count).collect()
    }

    /// The requests that the kernel sends during `work`. Reading the counts itself sends a few
    /// about the root.
    fn asked(&self, work: impl FnOnce(&Self)) -> BTreeMap<String, u64> {
        let before = self.requests();
        work(self);
        let since = |(kind, count): (String, u64)| {
            let more = count - before.get(&kind).copied().unwrap_or(0);
            (kind, more)
        };
        self.requests().into_iter().map(since).filter(|(_, more)| *more > 0).collect()
    }

    /// Reads all names and attributes, as `find` and `du` do; returns the number of files.
    fn walk(&self) -> usize {
        fn below(dir: &Path) -> usize {
            let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
            entries.fold(0, |count, path| match fs::symlink_metadata(&path).unwrap().is_dir() {
                true => count + below(&path),
                false => count + 1,
            })
        }
        below(&self.path("tree"))
    }

    fn plant_tree(&self) {
        for dir in 0..DIRS {
            let dir = self.path(&format!("tree/dir{dir}"));
            fs::create_dir_all(&dir).unwrap();
            (0..FILES).for_each(|file| fs::write(dir.join(format!("file{file}")), "x").unwrap());
        }
    }

    /// Has the kernel drop all caches that it can.
    fn forget(&self) {
        File::open(self.path("")).and_then(|root| root.sync_all()).unwrap();
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }

    /// Unmounts, with retries: a child that another test forks has our descriptors until it runs
    /// its program, and the file system is busy until then.
    fn unmount(&self) {
        const BUSY: i32 = 5;
        let stop = || self.place.run(&["fs", "unmount", "mnt"]);
        let mut stopped = stop();
        for _ in 0..100 {
            if stopped.code != Some(BUSY) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
            stopped = stop();
        }
        if !thread::panicking() {
            stopped.succeeds();
        }
    }

    fn is_mounted(&self) -> bool {
        let device = |path| fs::metadata(path).map(|found| found.dev());
        // That of a dead mount cannot be read.
        !matches!((device(self.path("")), device(self.place.path(""))), (Ok(of), Ok(at)) if of == at)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_mounted() {
            self.unmount();
        }
    }
}

/// Whether `is_so` becomes true within `patience`.
fn becomes(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + patience;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

fn patience(planted: &str) -> Duration {
    if planted.is_empty() { PATIENCE } else { IN_VAIN }
}

#[test]
fn what_was_looked_at_is_not_asked_for_again() {
    let _alone = caches(FlockOperation::LockExclusive);
    let Some(server) = Server::start("noatime", "") else { return };
    server.plant_tree();
    server.forget();
    let cold = server.asked(|server| assert_eq!(server.walk(), DIRS * FILES));
    // Each directory takes a list with its inodes, and the answer of its end.
    let listed = cold.get("readdirplus").copied().unwrap_or(0);
    assert!(listed <= 3 * (DIRS as u64 + 1), "{cold:?}");
    assert!(cold.get("lookup").copied().unwrap_or(0) <= 4, "{cold:?}");
    // The kernel takes the directories' times as changed by the listing, so one more walk comes
    // first.
    server.walk();
    let warm = server.asked(|server| assert_eq!(server.walk(), DIRS * FILES));
    assert!(warm.values().sum::<u64>() <= 6, "{warm:?}");
    // A missing name is cached too, until it is created.
    let missing = server.path("tree/dir0/missing");
    let asked = server.asked(|_| (0..50).for_each(|_| assert!(!missing.exists())));
    assert!(asked.get("lookup").copied().unwrap_or(0) <= 1, "{asked:?}");
    fs::write(&missing, "x").unwrap();
    assert_eq!(server.walk(), DIRS * FILES + 1);
    fs::rename(&missing, server.path("tree/elsewhere")).unwrap();
    assert!(!missing.exists());
    assert_eq!(server.walk(), DIRS * FILES + 1);
}

#[test]
fn a_cold_list_takes_one_request_for_many_names() {
    const NAMES: u64 = 1000;
    let _alone = caches(FlockOperation::LockExclusive);
    let Some(server) = Server::start("noatime", "") else { return };
    fs::create_dir(server.path("tree")).unwrap();
    (0..NAMES).for_each(|name| fs::write(server.path(&format!("tree/{name}")), "x").unwrap());
    server.forget();
    // As `find` and `du` look at a file. Whoever asks for the time of birth as well, as the standard
    // library does, has the server asked for each: a list does not tell it.
    let cold = server.asked(|server| {
        let entries = fs::read_dir(server.path("tree")).unwrap().map(|entry| entry.unwrap().path());
        let found = entries.map(|path| statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap());
        assert_eq!(found.filter(|found| found.st_size == 1).count() as u64, NAMES);
    });
    assert!(cold.values().sum::<u64>() <= NAMES / 32 + 8, "{cold:?}");
}

#[test]
fn options_turn_each_cache_off() {
    let options = "noattrcache,lookupcache=none,nodircache,noreaddirplus";
    let Some(server) = Server::start(options, "") else { return };
    server.plant_tree();
    server.walk();
    let files = (DIRS * FILES) as u64;
    let warm = server.asked(|server| assert_eq!(server.walk(), DIRS * FILES));
    assert!(warm["lookup"] >= files && warm["readdir"] >= 2 * DIRS as u64, "{warm:?}");
    assert!(warm["opendir"] >= DIRS as u64 && !warm.contains_key("readdirplus"), "{warm:?}");
    let missing = server.path("missing");
    let asked = server.asked(|_| (0..50).for_each(|_| assert!(!missing.exists())));
    assert!(asked["lookup"] >= 50, "{asked:?}");
}

/// What programs do to names, attributes, lists, links and content, each looked at in between. All
/// of it is as if nothing were cached.
fn uses(server: &Server) {
    let path = |name: &str| server.path(&format!("used/{name}"));
    let listed = || {
        let entries = fs::read_dir(server.path("used")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fs::create_dir(server.path("used")).unwrap();
    for round in 0..3_usize {
        assert!(listed().is_empty() && !path("a").exists() && !path("b").exists());
        fs::write(path("a"), vec![1; 5000]).unwrap();
        assert_eq!(fs::metadata(path("a")).unwrap().len(), 5000);
        let file = File::options().write(true).open(path("a")).unwrap();
        file.write_all_at(&[2; 100], 9000).unwrap();
        assert_eq!(fs::read(path("a")).unwrap().len(), 9100);
        file.set_len(10).unwrap();
        assert_eq!(fs::read(path("a")).unwrap(), [1; 10]);
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::metadata(path("a")).unwrap().mode() & 0o777, 0o600);
        fs::rename(path("a"), path("b")).unwrap();
        assert!(!path("a").exists() && path("b").exists());
        fs::hard_link(path("b"), path("c")).unwrap();
        assert_eq!(fs::metadata(path("b")).unwrap().nlink(), 2);
        assert_eq!(listed(), ["b", "c"]);
        std::os::unix::fs::symlink("b", path("link")).unwrap();
        assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("b"));
        fs::remove_file(path("link")).unwrap();
        std::os::unix::fs::symlink(format!("c{round}"), path("link")).unwrap();
        assert_eq!(fs::read_link(path("link")).unwrap(), PathBuf::from(format!("c{round}")));
        fs::remove_file(path("b")).unwrap();
        assert_eq!(fs::metadata(path("c")).unwrap().nlink(), 1);
        assert_eq!(fs::read(path("c")).unwrap(), [1; 10]);
        assert_eq!(listed(), ["c", "link"]);
        ["c", "link"].iter().for_each(|name| fs::remove_file(path(name)).unwrap());
    }
}

/// How often each look at something is repeated.
const LOOKS: u64 = 20;

/// What programs look at again and again, and the requests that this takes if nothing is kept.
type Look = (&'static str, fn(&Server), &'static str);

const LOOKED_AT: [Look; 7] = [
    (
        "attributes",
        |server| assert!(fs::metadata(server.path("file")).unwrap().is_file()),
        "getattr",
    ),
    ("names", |server| assert!(server.path("file").exists()), "lookup"),
    ("missing names", |server| assert!(!server.path("missing").exists()), "lookup"),
    ("lists", |server| assert_eq!(fs::read_dir(server.path("dir")).unwrap().count(), 1), "opendir"),
    ("links", |server| drop(fs::read_link(server.path("link")).unwrap()), "readlink"),
    ("content", |server| assert_eq!(fs::read(server.path("file")).unwrap(), [7; 100]), "read"),
    (
        "lists with inodes",
        |server| assert_eq!(fs::read_dir(server.path("dir")).unwrap().count(), 1),
        "readdirplus",
    ),
];

/// What is asked for at each look.
fn looked_at_each_time(server: &Server) -> Vec<&'static str> {
    fs::write(server.path("file"), [7; 100]).unwrap();
    std::os::unix::fs::symlink("file", server.path("link")).unwrap();
    fs::create_dir(server.path("dir")).unwrap();
    File::create(server.path("dir/file")).unwrap();
    let each_time = |(what, look, kind): &Look| {
        look(server);
        let asked = server.asked(|server| (0..LOOKS).for_each(|_| look(server)));
        let count = asked.get(*kind).copied().unwrap_or(0);
        // Whoever reads the counts asks for a few things too.
        (count >= LOOKS).then_some(*what)
    };
    LOOKED_AT.iter().filter_map(each_time).collect()
}

#[test]
fn each_option_turns_one_cache_off_and_all_stays_right() {
    let _kept = caches(FlockOperation::LockShared);
    for (option, asked_for) in [
        ("noatime", &[][..]),
        ("noattrcache", &["attributes"]),
        ("lookupcache=positive", &["missing names"]),
        ("lookupcache=none", &["names", "missing names"]),
        ("nodircache", &["lists", "lists with inodes"]),
        ("nolinkcache", &["links"]),
        ("noreaddirplus", &[]),
        ("noreaddirplus,nodircache", &["lists"]),
        ("nodatacache", &["content"]),
        ("noawake", &[]),
        ("nouring", &[]),
        ("uring", &[]),
    ] {
        let Some(server) = Server::start(&format!("noatime,{option}"), "") else { return };
        uses(&server);
        assert_eq!(looked_at_each_time(&server), asked_for, "{option}");
        server.unmount();
        let image = server.place.path("disk.img");
        let checked = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
        assert!(checked.status.success(), "{option}: {checked:?}");
    }
}

#[test]
fn wrong_values_of_these_options_are_refused_with_what_to_give() {
    let place = Place::new();
    fs::create_dir(place.path("mnt")).unwrap();
    for (option, words) in [
        ("lookupcache=some", "give all, positive or none"),
        ("noattrcache=1", "it takes no value"),
        ("uring=maybe", "it takes no value"),
        ("noawake=yes", "it takes no value"),
        ("attr_timeout=0", "noattrcache"),
        ("writeback_cache", "leave it out"),
        ("nodatacaches", "unknown mount option nodatacaches: see manylogs fs mount --help"),
    ] {
        let refused = place.run(&["fs", "mount", "disk.img", "mnt", "-o", option]);
        refused.fails(2, &[option, words]);
    }
}

/// Whether programs see blocks that write-back adds to a file, because the server tells the kernel.
fn tells_blocks(planted: &str) -> Option<bool> {
    let _kept = caches(FlockOperation::LockShared);
    let server = Server::start("noatime", planted)?;
    let path = server.path("holes");
    let file = File::create(&path).unwrap();
    // More extents than fit in the inode.
    (0..400).for_each(|piece| file.write_all_at(&[7; 4096], piece * 8192).unwrap());
    let promised = fs::metadata(&path).unwrap().blocks();
    file.sync_all().unwrap();
    // Checked by the kernel's cached attributes first: reading `now` refreshes them.
    let told = becomes(patience(planted), || fs::metadata(&path).unwrap().blocks() > promised);
    let now = statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BLOCKS).unwrap();
    assert!(now.stx_blocks > promised, "write-back added no blocks: nothing is tested");
    Some(told)
}

#[test]
fn blocks_that_write_back_adds_are_seen() {
    assert_ne!(tells_blocks(""), Some(false));
}

#[test]
fn planted_blocks_that_are_not_told_are_noticed() {
    assert_ne!(tells_blocks("MlfsBlocksUntold"), Some(true));
}

/// The blocks of a file, from the kernel's cache or from the server.
fn blocks(path: &Path, how: AtFlags) -> u64 {
    statx(CWD, path, how, StatxFlags::BLOCKS).unwrap().stx_blocks
}

#[test]
fn a_block_of_extended_attributes_counts_at_once() {
    let Some(server) = Server::start("noatime", "") else { return };
    let path = server.path("file");
    fs::write(&path, "x").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let before = blocks(&path, AtFlags::empty());
    setxattr(&path, "user.large", &[b'v'; 3000], XattrFlags::empty()).unwrap();
    assert_eq!(blocks(&path, AtFlags::empty()), before + 8);
    removexattr(&path, "user.large").unwrap();
    assert_eq!(blocks(&path, AtFlags::empty()), before);
}

/// Whether a name is found that was created although the call reported an error.
fn finds_what_failed(planted: &str) -> Option<bool> {
    let all = format!("MlfsCreateFails,{planted}");
    let _kept = caches(FlockOperation::LockShared);
    let server = Server::start("noatime", &all)?;
    let path = server.path("fails");
    assert!(!path.exists(), "the kernel keeps that it is missing");
    fs::create_dir(&path).unwrap_err();
    Some(becomes(patience(planted), || path.exists()))
}

#[test]
fn a_name_that_is_there_after_a_failure_is_found() {
    assert_ne!(finds_what_failed(""), Some(false));
}

#[test]
fn planted_missing_names_that_stay_are_noticed() {
    assert_ne!(finds_what_failed("MlfsMissingStays"), Some(true));
}

/// Reads a directory in small pieces.
struct Reader {
    dir: File,
    names: Vec<String>,
}

impl Reader {
    fn new(path: &Path) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        Self { dir: dir.into(), names: Vec::new() }
    }

    /// Reads until it has `most` names, or all.
    fn read(&mut self, most: usize) {
        let mut room = [MaybeUninit::uninit(); 1024];
        while self.names.len() < most {
            let mut entries = RawDir::new(&self.dir, &mut room);
            let Some(first) = entries.next() else { return };
            self.names.push(first.unwrap().file_name().to_str().unwrap().to_owned());
            // The other names from the same call.
            while !entries.is_buffer_empty() {
                let entry = entries.next().unwrap().unwrap();
                self.names.push(entry.file_name().to_str().unwrap().to_owned());
            }
        }
    }
}

/// Whether a reader sees a name that existed when it began, although another reader began earlier.
fn lists_what_is_new(planted: &str) -> Option<bool> {
    let _kept = caches(FlockOperation::LockShared);
    let server = Server::start("noatime", planted)?;
    let dir = server.path("dir");
    fs::create_dir(&dir).unwrap();
    let name = |number: usize| format!("{number:0200}");
    // The names fill 15 blocks of 19 names each.
    (0..15 * 19).for_each(|number| File::create(dir.join(name(number))).map(drop).unwrap());
    fs::remove_file(dir.join(name(100))).unwrap();
    let mut first = Reader::new(&dir);
    first.read(200);
    // The new name takes the place of the removed one, which the first reader has passed.
    File::create(dir.join(name(1000))).unwrap();
    let mut second = Reader::new(&dir);
    second.read(20);
    first.read(usize::MAX);
    second.read(usize::MAX);
    let mut third = Reader::new(&dir);
    third.read(usize::MAX);
    assert!(third.names.contains(&name(1000)));
    let mut sorted = second.names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), second.names.len(), "each is listed once");
    Some(second.names.contains(&name(1000)))
}

#[test]
fn a_list_has_what_was_there_when_it_was_begun() {
    assert_ne!(lists_what_is_new(""), Some(false));
}

#[test]
fn planted_lists_that_miss_a_new_name_are_noticed() {
    assert_ne!(lists_what_is_new("MlfsListStale"), Some(true));
}

/// Makes files as `tar` does for root: each is created, written, and gets its owner, mode and time.
fn unpack(dir: &Path, files: u64) {
    for number in 0..files {
        let file = File::create_new(dir.join(number.to_string())).unwrap();
        file.write_all_at(&[7; 6000], 0).unwrap();
        let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        file.set_times(times).unwrap();
        std::os::unix::fs::fchown(&file, Some(1), Some(1)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    }
}

/// What the protocol of today's kernels has no way around; nothing else is asked for.
#[test]
fn an_unpacked_file_takes_ten_requests() {
    const UNPACKED: u64 = 100;
    let Some(server) = Server::start("noatime", "") else { return };
    let asked = server.asked(|server| unpack(&server.path(""), UNPACKED));
    let needed = [
        ("lookup", 1),
        ("create", 1),
        // `security.capability`, before the first write and the change of the owner.
        ("getxattr", 2),
        ("write", 1),
        ("setattr", 3),
        // Of the directory, which has changed.
        ("getattr", 1),
        ("release", 1),
    ];
    for (kind, each) in needed {
        let count = asked.get(kind).copied().unwrap_or(0);
        assert!(count <= each * UNPACKED + 8, "{kind}: {asked:?}");
    }
    assert!(asked.values().sum::<u64>() <= 10 * UNPACKED + 20, "{asked:?}");
}

/// `fs top` and `metrics` count by kind as `fs status` does, while programs work.
#[test]
fn requests_are_shown_by_kind() {
    let Some(server) = Server::start("noatime", "") else { return };
    let (stop, stopped) = mpsc::channel::<()>();
    let dir = server.path("");
    let busy = thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            unpack(&dir, 20);
            (0..20).for_each(|number| fs::remove_file(dir.join(number.to_string())).unwrap());
        }
    });
    let kinds = ["lookup", "create", "write", "setattr", "getattr", "release", "unlink"];
    let top = server.place.run(&["fs", "top", "mnt", "--count", "1"]);
    drop(stop);
    busy.join().unwrap();
    for kind in kinds {
        let row = top.stdout.lines().find(|line| line.starts_with(kind));
        let rate = row.and_then(|row| row.split_whitespace().nth(1));
        let rate = rate.and_then(|rate| rate.parse::<f64>().ok());
        assert!(rate.is_some_and(|rate| rate > 0.0), "{kind}: {top:?}");
    }
    let requests = server.requests();
    let metrics = server.place.run(&["metrics", "disk.img"]);
    for kind in kinds {
        let row = format!("kind=\"{kind}\"}} {}", requests[kind]);
        let of_kind = |line: &str| line.contains("kernel_requests_total") && line.ends_with(&row);
        // Asking for the counts looks at the root.
        let same = metrics.stdout.lines().any(of_kind) || kind == "getattr";
        assert!(same, "{row}: {metrics:?}");
    }
}

/// How often a process has called `read`.
fn reads(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    count.parse().unwrap()
}

/// Read-only mounts have no statistics: each request is a `read` of the server.
#[test]
fn a_read_only_mount_is_not_asked_for_openings() {
    let _kept = caches(FlockOperation::LockShared);
    let Some(server) = Server::start("noatime", "") else { return };
    server.plant_tree();
    server.place.run(&["fs", "unmount", "mnt"]).succeeds();
    let mount = ["fs", "mount", "disk.img", "mnt", "-o", "ro,noatime"];
    let mut child = server.place.command(&mount).spawn().unwrap();
    assert!(becomes(PATIENCE, || server.path("tree").exists()));
    let read = |file: usize| {
        let path = server.path(&format!("tree/dir{}/file{}", file % DIRS, file / DIRS));
        assert_eq!(fs::read(path).unwrap(), b"x");
    };
    (0..DIRS * FILES).for_each(read);
    let before = reads(child.id());
    (0..DIRS * FILES).for_each(read);
    let more = reads(child.id()) - before;
    assert!(more <= (DIRS * FILES) as u64 / 10, "{more} requests");
    drop(server);
    assert!(child.wait().unwrap().success());
}

/// A thread that begins another program closes its files before, and nobody can read in `/proc`
/// where it runs until it has. The server answers it all the same.
#[test]
fn a_program_that_begins_another_one_with_many_open_files_goes_on() {
    let _kept = caches(FlockOperation::LockShared);
    let Some(server) = Server::start("noatime", "") else { return };
    fs::write(server.path("file"), b"x").unwrap();
    let status = server.place.run(&["fs", "status", "mnt", "--json"]);
    let status: Value = serde_json::from_str(&status.succeeds().stdout).unwrap();
    let pid = i32::try_from(status["server"]["pid"].as_i64().unwrap()).unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    // Each is closed with a request of its own, as it may be written.
    let open = |_| File::options().write(true).open(server.path("file")).unwrap();
    let files: Vec<File> = (0..500).map(open).collect();
    let (tell, told) = mpsc::channel();
    let began = thread::spawn(move || {
        let status = Command::new("true").status();
        // The receiver is gone if this took too long.
        tell.send(status.unwrap().success()).ok();
    });
    let went_on = told.recv_timeout(PATIENCE);
    if went_on.is_err() {
        // Whoever waits for the server gets an error then.
        kill_process(pid, Signal::KILL).unwrap();
    }
    began.join().unwrap();
    drop(files);
    assert_eq!(went_on, Ok(true), "the server hangs");
}
