//! The commands on volumes, as a user runs them, and their messages for bad input.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use common::served::{Image, MANYLOGS, Server, can_serve, root, run, text};
use manylogs::{Health, Volume};
use manylogs_block::{BlockDevice, Extent, Hint, Payload, Request};
use manylogs_storage::{FileDevice, OpenMode, Reactor, VolumeLock};
use manylogs_testkit::skip;
use tempfile::TempDir;

const CLOSED: i32 = 0;
const FAILED: i32 = 1;
const INPUT: i32 = 2;
const DAMAGE: i32 = 3;
const LOSS: i32 = 4;
const BUSY: i32 = 5;
const PERMISSION: i32 = 6;
const VERSION: i32 = 7;

/// An image of 64 MiB with a volume on it.
fn formatted() -> Image {
    Image::formatted(&["--size", "64M"])
}

/// Logs small durable writes and then leaves the volume as a crash does; returns the sector of the
/// first record.
fn logged(image: &Image, writes: u64) -> u64 {
    let reactor = Reactor::new().unwrap();
    let options = manylogs_storage::OpenOptions::new(OpenMode::Exclusive);
    let device = FileDevice::open(&reactor, Path::new(image.path()), &options).unwrap();
    let (runtime, device) = (reactor.handle(), Rc::new(device));
    reactor.block_on(async move {
        let options = manylogs::OpenOptions::default();
        let (volume, _) = Volume::open(runtime, device, &options).await.unwrap();
        for i in 0..writes {
            let extent = Extent::new(1000 + 64 * i, 8);
            let payload = Payload::bytes(vec![0x5a; 4096]);
            let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
            volume.submit(write).await.unwrap();
        }
        let used = volume.log_occupancy();
        let log = used.iter().find(|log| log.used.0 > 0).unwrap();
        log.region.start.0
    })
}

#[test]
fn a_volume_from_format_to_the_linear_table() {
    let image = formatted();
    let path = image.path();
    run(&["status", path], CLOSED, "state           closed");
    run(&["check", path], CLOSED, "nothing is wrong");
    logged(&image, 5);
    run(&["status", path], CLOSED, "20.0 KiB in 5 extents");
    run(&["status", path, "--json"], CLOSED, "\"at_risk_bytes\": 20480");
    run(&["check", path], CLOSED, "not closed in order");
    run(&["dump", path], CLOSED, "data 1.");
    let dump = run(&["dump", path, "--json"], CLOSED, "\"table\"");
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    let log = dump["logs"][0]["log"].to_string();
    run(&["dump", path, "--log", &log], CLOSED, "record 1.");
    run(&["dump", path, "--log", &log, "--json"], CLOSED, "\"entries\"");
    run(&["dump", path, "--log", "99999"], INPUT, "there is no log 99999");
    run(&["scrub", path], CLOSED, "5 logged extents read");
    run(&["table", path, "--dm"], INPUT, "not drained");
    run(&["checkpoint", path], CLOSED, "written home in 5 writes");
    logged(&image, 3);
    run(&["drain", path, "--wipe"], CLOSED, "3 extents");
    run(&["status", path], CLOSED, "drained");
    let table = run(&["table", path, "--dm"], CLOSED, "linear");
    check_table(&table, &image);
    run(&["check", path, "--json"], CLOSED, "\"findings\": []");
}

/// Checks that the written data is where the table says.
fn check_table(table: &str, image: &Image) {
    let line = table.lines().next().unwrap();
    let fields: Vec<&str> = line.split(' ').collect();
    assert_eq!((fields[0], fields[2], fields[3]), ("0", "linear", image.path()));
    let start: u64 = fields[4].parse().unwrap();
    let mut found = [0; 4096];
    image.file().read_exact_at(&mut found, (start + 1000) * 512).unwrap();
    assert_eq!(found, [0x5a; 4096]);
}

#[test]
fn a_format_shows_what_the_device_held_unless_it_zeroes() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("old.img");
    let old = vec![0x77; 64 << 20];
    for (zero, wanted) in [(false, 0x77), (true, 0)] {
        std::fs::write(&path, &old).unwrap();
        let mut args = vec!["format", path.to_str().unwrap(), "--force"];
        args.extend(zero.then_some("--zero"));
        run(&args, CLOSED, "for data");
        let reactor = Reactor::new().unwrap();
        let options = manylogs_storage::OpenOptions::new(OpenMode::Exclusive);
        let device = Rc::new(FileDevice::open(&reactor, &path, &options).unwrap());
        let runtime = reactor.handle();
        let found = reactor.block_on(async move {
            let options = manylogs::OpenOptions::default();
            let (volume, _) = Volume::open(runtime, device, &options).await.unwrap();
            let whole = Extent::new(0, volume.layout().capacity().0);
            volume.submit(Request::Read { extent: whole }).await.unwrap().to_bytes().unwrap()
        });
        assert!(found.iter().all(|byte| *byte == wanted), "with --zero: {zero}");
    }
}

#[test]
fn format_overwrites_nothing_by_accident() {
    let image = formatted();
    run(&["format", image.path()], BUSY, "holds a Manylogs volume");
    run(&["format", image.path(), "--size", "64M"], BUSY, "exists already");
    run(&["format", image.path(), "--force", "--label", "x"], CLOSED, "for data");
    let dir = TempDir::new().unwrap();
    let other = dir.path().join("other");
    std::fs::write(&other, vec![7; 1 << 25]).unwrap();
    run(&["format", other.to_str().unwrap()], BUSY, "unknown data");
    assert_eq!(std::fs::read(&other).unwrap(), vec![7; 1 << 25]);
}

#[test]
fn absurd_sizes_and_parameters_are_refused_and_leave_no_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("disk.img");
    let path = path.to_str().unwrap();
    run(&["format", path], INPUT, "give --size");
    run(&["format", path, "--size", "0"], INPUT, "expected a size");
    run(&["format", path, "--size", "1M"], INPUT, "between 16.0 MiB and");
    run(&["format", path, "--size", "900000T"], INPUT, "");
    run(&["format", path, "--size", "64M", "--log", "8M", "--group", "4M"], INPUT, "log=8M");
    run(&["format", path, "--size", "64M", "--threshold", "60M"], INPUT, "threshold=60M");
    run(&["format", path, "--size", "64M", "--label", &"x".repeat(33)], INPUT, "32 bytes");
    run(&["format", path, "--size", "64M", "--physical-sector", "520"], INPUT, "512 or 4096");
    assert!(!Path::new(path).exists());
}

#[test]
fn what_is_no_volume_is_said_to_be_none() {
    let dir = TempDir::new().unwrap();
    for (name, len) in [("tiny", 100), ("empty", 1 << 24)] {
        let path = dir.path().join(name);
        File::create(&path).unwrap().set_len(len).unwrap();
        for command in ["check", "dump", "status", "drain", "checkpoint", "scrub", "grow", "set"] {
            run(&[command, path.to_str().unwrap()], INPUT, "");
        }
    }
    let missing = dir.path().join("missing");
    run(&["check", missing.to_str().unwrap()], INPUT, "does not exist");
    run(&["check", dir.path().to_str().unwrap()], INPUT, "directory");
    run(&["check", "/dev/null"], INPUT, "give a block device or an ordinary file");
}

#[test]
fn settings_are_kept_and_mistakes_change_nothing() {
    let image = formatted();
    let path = image.path();
    let before = run(&["set", path], CLOSED, "logging=on\nthreshold=");
    assert!(before.contains("\ncheckpoint=22:00-06:00\n"), "{before}");
    assert!(!run(&["status", path], CLOSED, "").contains("settings"));
    for (pair, says) in [
        ("treshold=1K", "did you mean `threshold`"),
        ("frob=1", "there are: logging, threshold"),
        ("threshold", "expected key=value"),
        ("threshold=100", "whole sectors"),
        ("swap=140%", "not above 0 and at most 1"),
        ("threshold=4M", "threshold=4M"),
    ] {
        run(&["set", path, "appends=3", pair], INPUT, says);
    }
    assert_eq!(run(&["set", path], CLOSED, ""), before);
    logged(&image, 2);
    let change = ["set", path, "threshold=16K", "checkpoint=01:00-05:30", "checkpoint-rate=20M"];
    run(&[&change[..], &["logging=off"]].concat(), CLOSED, "logging=off\nthreshold=16K\n");
    run(&["set", path], CLOSED, "checkpoint=01:00-05:30\ncheckpoint-rate=20M\n");
    let settings = "settings        logging=off threshold=16K checkpoint=01:00-05:30";
    run(&["status", path], CLOSED, settings);
    run(&["status", path, "--json"], CLOSED, "\"checkpoint-rate\": \"20M\"");
    run(&["status", path], CLOSED, "8.0 KiB in 2 extents");
    run(&["checkpoint", path], CLOSED, "written home in 2 writes");
    image.file().set_len(1 << 27).unwrap();
    run(&["grow", path], CLOSED, "for data");
    run(&["set", path, "--json"], CLOSED, "\"logging\": \"off\"");
    run(&["check", path], CLOSED, "nothing is wrong");
    let file = image.file();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    run(&["set", path, "appends=3"], BUSY, "is locked by process");
}

#[test]
fn a_damaged_first_superblock_is_said_and_repaired() {
    let image = formatted();
    logged(&image, 4);
    image.file().write_all_at(&[9; 512], 0).unwrap();
    run(&["check", image.path()], DAMAGE, "first superblock is damaged");
    run(&["checkpoint", image.path()], CLOSED, "the copy at the end was used");
    run(&["check", image.path(), "--repair"], CLOSED, "superblock copies written anew");
    run(&["check", image.path()], CLOSED, "nothing is wrong");
    let end = image.file().metadata().unwrap().len();
    image.file().write_all_at(&[9; 512], 0).unwrap();
    image.file().write_all_at(&[9; 4096], end - 4096).unwrap();
    run(&["check", image.path()], INPUT, "no Manylogs volume");
}

#[test]
fn damage_to_logged_data_is_a_loss_that_repair_marks() {
    let image = formatted();
    let log = logged(&image, 4);
    // A record is a header sector and eight of payload: damage the payload of the second.
    image.file().write_all_at(&[9; 512], (log + 9 + 3) * 512).unwrap();
    run(&["check", image.path()], LOSS, "payload is damaged");
    run(&["scrub", image.path()], LOSS, "damaged: exported sectors 1064+8");
    run(&["check", image.path(), "--repair"], LOSS, "1 extents lost");
    run(&["status", image.path()], CLOSED, "lost            1 extents");
    run(&["check", image.path()], LOSS, "exported sectors 1064+8 are marked as lost");
    run(&["scrub", image.path()], LOSS, "lost: exported sectors 1064+8");
    run(&["drain", image.path()], LOSS, "overwrite or discard them");
    // A checkpoint finds the damage too, with and without a server. It does not give the data up at
    // the first attempt.
    for served in [false, true] {
        if served && !can_serve(false) {
            break;
        }
        let image = formatted();
        let log = logged(&image, 4);
        image.file().write_all_at(&[9; 512], (log + 9 + 3) * 512).unwrap();
        let server = served.then(|| Server::start(&mut image.serve(&["--file"])));
        run(&["checkpoint", image.path()], FAILED, "1 extents could not be read");
        if let Some(server) = server {
            run(&["stop", image.path()], CLOSED, "closed");
            assert!(server.wait().0.success());
        }
    }
    let image = formatted();
    let log = logged(&image, 4);
    image.file().write_all_at(&[9; 512], (log + 9) * 512).unwrap();
    run(&["checkpoint", image.path()], LOSS, "check --repair");
    run(&["check", image.path(), "--repair"], LOSS, "1 damaged records given up");
    run(&["check", image.path()], CLOSED, "nothing is wrong");
}

#[test]
fn another_version_and_unknown_features_are_refused() {
    for (at, with, says) in [(12, 9, "format version 9"), (55, 128, "features")] {
        let image = formatted();
        let (file, end) = (image.file(), image.file().metadata().unwrap().len());
        for copy in [0, end - 4096] {
            let mut head = [0; 4096];
            file.read_exact_at(&mut head, copy).unwrap();
            head[at] = with;
            head[8..12].fill(0);
            let checksum = crc32c::crc32c(&head);
            head[8..12].copy_from_slice(&checksum.to_le_bytes());
            file.write_all_at(&head, copy).unwrap();
        }
        run(&["check", image.path()], VERSION, says);
        run(&["drain", image.path()], VERSION, says);
    }
}

#[test]
fn a_volume_in_use_is_refused() {
    let image = formatted();
    let file = image.file();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    run(&["checkpoint", image.path()], BUSY, "is locked by process");
    run(&["status", image.path()], BUSY, "is locked by process");
    drop(file);
    let copy = image.beside("disk.copy");
    std::fs::copy(image.path(), &copy).unwrap();
    let mut id = [0; 16];
    image.file().read_exact_at(&mut id, 16).unwrap();
    let _lock = VolumeLock::take(id, Path::new(image.path())).unwrap();
    run(&["checkpoint", copy.to_str().unwrap()], BUSY, "is open already on");
    run(&["drain", copy.to_str().unwrap(), "--new-id"], CLOSED, "volume ");
    run(&["checkpoint", copy.to_str().unwrap()], CLOSED, "written home");
}

#[test]
fn a_mounted_device_and_a_lack_of_permission_are_refused() {
    if !root() {
        return skip("mounting and changing the user need root");
    }
    let mounted = std::fs::read_to_string("/proc/mounts").unwrap();
    let disk = mounted.lines().find_map(|line| line.strip_prefix("/dev/")?.split(' ').next());
    match disk.map(|name| format!("/dev/{name}")).filter(|path| Path::new(path).exists()) {
        Some(disk) => drop(run(&["format", &disk], BUSY, "")),
        None => skip("no disk is mounted here"),
    }
    let image = formatted();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", MANYLOGS, "check"])
        .arg(image.path())
        .output();
    match output {
        Ok(output) if text(&output).contains("no permission") => {
            assert_eq!(output.status.code(), Some(PERMISSION));
        }
        Ok(output) if output.status.code() == Some(PERMISSION) => {}
        _ => skip("setpriv cannot run the program as another user here"),
    }
}

#[test]
fn a_grown_image_is_taken_and_a_shrunk_one_refused() {
    let image = formatted();
    logged(&image, 4);
    image.file().set_len(1 << 27).unwrap();
    run(&["grow", image.path()], CLOSED, "was 5");
    run(&["check", image.path()], CLOSED, "4 extents logged");
    run(&["grow", image.path()], INPUT, "nothing to grow into");
    image.file().set_len(1 << 26).unwrap();
    run(&["check", image.path()], INPUT, "restore its size");
}

#[test]
fn twenty_terabytes_in_a_sparse_image() {
    let Ok(dir) = TempDir::new_in("/dev/shm") else { return skip("no /dev/shm") };
    let path = dir.path().join("huge.img");
    let path = path.to_str().unwrap();
    let output =
        Command::new(MANYLOGS).args(["format", path, "--size", "20T", "--sparse"]).output();
    let output = output.unwrap();
    if text(&output).contains("File too large") {
        return skip("no file system here takes files of 20 TiB");
    }
    assert!(output.status.success(), "{}", text(&output));
    run(&["status", path], CLOSED, "for data        19.8 TiB");
    run(&["check", path], CLOSED, "nothing is wrong");
    run(&["drain", path], CLOSED, "0 extents");
}

/// A small file system in memory, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mounted(size: &str) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let options = format!("size={size}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(dir.path())
            .status();
        mount.is_ok_and(|status| status.success()).then_some(Self(dir))
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let status = Command::new("mount").args(["-o", &options]).arg(self.0.path()).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

const fn block(number: u64) -> Extent {
    Extent::new(100 * number, 8)
}

#[test]
fn a_sparse_image_that_runs_out_of_space_loses_nothing_acknowledged() {
    if !root() {
        return skip("mounting needs root");
    }
    let Some(disk) = SmallDisk::mounted("4m") else { return skip("tmpfs cannot be mounted") };
    let path = disk.0.path().join("disk.img");
    run(&["format", path.to_str().unwrap(), "--size", "256M", "--sparse"], CLOSED, "for data");
    let opened = |path: &Path| {
        let reactor = Reactor::new().unwrap();
        // Retries: programs that other tests start have the last reactor's file open for a moment.
        let patience = std::time::Duration::from_secs(10);
        let options = manylogs_storage::OpenOptions {
            patience,
            ..manylogs_storage::OpenOptions::new(OpenMode::Exclusive)
        };
        let device = Rc::new(FileDevice::open(&reactor, path, &options).unwrap());
        let runtime = reactor.handle();
        let volume = reactor.block_on(async move {
            let options = manylogs::OpenOptions::default();
            Volume::open(runtime, device, &options).await.unwrap().0
        });
        (reactor, volume)
    };
    let (reactor, volume) = opened(&path);
    let writer = volume.clone();
    let acknowledged = reactor.block_on(async move {
        for number in 0..4000u64 {
            let payload = Payload::bytes(vec![number.to_le_bytes()[0] | 1; 4096]);
            let extent = block(number);
            let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
            if writer.submit(write).await.is_err() {
                return number;
            }
        }
        panic!("16 MB fit into 4");
    });
    assert!(acknowledged > 100, "{acknowledged} writes");
    assert_eq!(volume.health(), Health::ReadOnly("no space is left below the volume"));
    drop((volume, reactor));
    disk.resize("512m");
    let (reactor, volume) = opened(&path);
    reactor.block_on(async move {
        for number in 0..acknowledged {
            let extent = block(number);
            let found = volume.submit(Request::Read { extent }).await.unwrap();
            let expected = vec![number.to_le_bytes()[0] | 1; 4096];
            assert_eq!(found.to_bytes().unwrap(), expected, "write {number}");
        }
        volume.close().await.unwrap();
    });
    drop(reactor);
    run(&["check", path.to_str().unwrap()], CLOSED, "nothing is wrong");
}

#[test]
fn a_table_in_non_volatile_ram_goes_with_its_volume() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (image, table) = (path("disk.img"), path("table"));
    let (place, other) = (format!("nvram:{table}"), format!("nvram:{}", path("old")));
    let own = format!("nvram:{image}");
    run(&["format", &image, "--size", "64M", "--table", &own], INPUT, "own device");
    let format = ["format", &image, "--size", "64M", "--table", &place, "--table-size"];
    run(&[&format[..], &["4K"]].concat(), INPUT, "too small");
    run(&[&format[..], &["1M", "--force"]].concat(), CLOSED, "for data");
    run(&["checkpoint", &image], INPUT, "--table nvram:PATH");
    std::fs::copy(&table, path("old")).unwrap();
    run(&["checkpoint", &image, "--table", &place], CLOSED, "written home");
    run(&["check", &image, "--table", &place], CLOSED, "nothing is wrong");
    run(&["checkpoint", &image, "--table", &other], INPUT, "old copy");
    run(&["dump", &image, "--table", &place, "--log", "0"], INPUT, "non-volatile RAM");
    std::fs::remove_file(&table).unwrap();
    let given_up = ["checkpoint", &image, "--table", &place, "--give-up-table"];
    run(&given_up, CLOSED, "written home");
    run(&["checkpoint", &image, "--table", &place], CLOSED, "written home");
    let volume = formatted();
    let plain = volume.path();
    run(&["checkpoint", plain, "--table", &place], INPUT, "open it without --table");
}

#[test]
fn an_array_that_only_the_user_knows_is_kept_and_shown() {
    let said = |shape: &str, size: &str| {
        let image = Image::formatted(&["--size", size, "--array", shape]);
        let path = image.path();
        run(&["status", path], CLOSED, ", as the user said");
        run(&["status", path, "--json"], CLOSED, "\"said\": true");
        run(&["dump", path], CLOSED, ", as the user said");
        image
    };
    let image = said("raid0:4:chunk=64K", "256M");
    let path = image.path();
    run(&["status", path], CLOSED, "4 columns, chunks of 64 KiB, logs on each column, as");
    logged(&image, 5);
    let status = run(&["status", path], CLOSED, "20.0 KiB in 5 extents");
    assert!(!status.contains("another shape"), "{status}");
    run(&["drain", path], CLOSED, "5 extents");
    run(&["set", path, "--geometry", "now"], CLOSED, "now        4 columns, chunks of 64 KiB");
    run(&["status", path], CLOSED, ", as the user said");
    run(&["set", path, "--geometry", "unsaid"], CLOSED, "now        one drive");
    let status = run(&["status", path], CLOSED, "state ");
    assert!(!status.contains("user said") && !status.contains("columns"), "{status}");
    run(&["check", path], CLOSED, "nothing is wrong");
    // Records fill rows: 12 KiB at least.
    let image = said("raid5:4", "192M");
    run(&["status", image.path()], CLOSED, "3 columns and one of parity, chunks of 64 KiB");
    logged(&image, 3);
    run(&["status", image.path()], CLOSED, "36.0 KiB of");
    run(&["check", image.path()], CLOSED, "not closed in order");
    run(&["set", image.path(), "--geometry", "unsaid"], INPUT, "the logs are not empty");
    run(&["drain", image.path()], CLOSED, "3 extents");
    run(&["set", image.path(), "--geometry", "unsaid"], CLOSED, "3 columns and 1 of parity");
    logged(&image, 3);
    run(&["status", image.path()], CLOSED, "12.0 KiB in 3 extents");
}

#[test]
fn an_array_that_cannot_be_is_refused() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("volume.img");
    let path = image.to_str().unwrap();
    for (shape, size, words) in [
        ("raid1:2", "256M", "all drives hold the same"),
        ("raid0:4:placement=ignored", "256M", "the placement is for models"),
        ("raid7:4", "256M", "unknown array"),
        ("raid5:4", "200M", "records can fill rows only where the device ends with a stripe"),
        ("raid5:4:chunk=8K", "192M", "chunks have 16 KiB or more"),
        ("raid0:4:chunk=64M", "256M", "is too small"),
    ] {
        let (table, format) = (dir.path().join("table"), ["format", path, "--size", size]);
        run(&[&format[..], &["--array", shape]].concat(), INPUT, words);
        assert!(!image.exists(), "{shape}: nothing is left behind");
        let place = format!("nvram:{}", table.to_str().unwrap());
        run(&[&format[..], &["--array", shape, "--table", &place]].concat(), INPUT, words);
        assert!(!image.exists() && !table.exists(), "{shape}: nothing is left behind");
    }
    let args = ["format", path, "--size", "64M", "--array", "raid0:2", "--everest", "disk"];
    run(&args, INPUT, "--array goes with a volume");
}
