//! Mounts whose server was killed, and disks with several names.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::path::Path;

use common::image::{can_mount, image, program};
use common::{Outcome, Place, text};
use serde_json::Value;

/// A test's directory; mounts in it are ended even if the test fails.
struct Scene(Place);

impl std::ops::Deref for Scene {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for target in targets.filter(|target| target.starts_with(text(&self.path("")))) {
            let _ = program("umount").args(["-l", target]).status();
        }
    }
}

fn mount(place: &Place, source: &str, target: &str) -> Outcome {
    place.run(&["fs", "mount", source, target, "--background"])
}

/// Kills the server of the mount on `target`, and waits until the kernel has noticed.
fn kill(place: &Place, target: &str) {
    let status = place.run(&["fs", "status", target, "--json"]);
    let status: Value = serde_json::from_str(&status.succeeds().stdout).unwrap();
    let pid = i32::try_from(status["server"]["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let gone = (0..3000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        // `statfs` reaches the server; attributes come from the kernel's cache.
        rustix::fs::statfs(place.path(target)).is_err()
    });
    assert!(gone, "the kernel knows that nobody serves it");
}

/// Writes a file and syncs it.
fn write(place: &Place, name: &str, content: &str) {
    let path = place.path(name);
    fs::write(&path, content).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(path: &Path) -> Self {
        let shown = program("losetup").args(["--find", "--show"]).arg(path).output().unwrap();
        assert!(shown.status.success(), "{shown:?}");
        Self(String::from_utf8(shown.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = program("losetup").args(["--detach", &self.0]).status();
    }
}

fn is_clean(path: &Path) {
    let checked = program("e2fsck").arg("-fn").arg(path).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

fn a_dead_mount_is_told_and_taken_over(place: &Place, source: &str) {
    for dir in ["mnt", "elsewhere"] {
        fs::create_dir_all(place.path(dir)).unwrap();
    }
    mount(place, source, "mnt").succeeds();
    write(place, "mnt/file", "synced");
    kill(place, "mnt");
    let words = ["was killed", "fs mount", "fs unmount", source];
    for command in ["status", "checkpoint", "set", "top"] {
        place.run(&["fs", command, "mnt"]).fails(1, &words);
    }
    let listed = place.run(&["list"]);
    assert!(listed.succeeds().stdout.contains("its server was killed"), "{listed:?}");
    // A mount of another disk does not take the dead mount over.
    place.file("other.img", vec![0; 1 << 20]);
    mount(place, "other.img", "mnt").fails(5, &words);
    let taken = mount(place, source, "mnt");
    assert!(taken.succeeds().stderr.contains("takes over"), "{taken:?}");
    assert_eq!(fs::read_to_string(place.path("mnt/file")).unwrap(), "synced");
    kill(place, "mnt");
    let ended = place.run(&["fs", "unmount", "mnt"]);
    assert!(ended.succeeds().stderr.contains("had been killed"), "{ended:?}");
    assert!(place.path("mnt").is_dir());
    // A mount on another directory takes it over as well.
    mount(place, source, "mnt").succeeds();
    kill(place, "mnt");
    assert!(mount(place, source, "elsewhere").succeeds().stderr.contains("takes over"));
    assert!(place.path("mnt").is_dir());
    place.run(&["fs", "unmount", "elsewhere"]).succeeds();
}

#[test]
fn a_dead_mount_of_an_image_is_told_and_taken_over() {
    let place = Scene(Place::new());
    if !can_mount() {
        return;
    }
    let Some(path) = image(&place, 128, &[]) else { return };
    a_dead_mount_is_told_and_taken_over(&place, text(&path));
    // A program with an open file does not prevent that.
    mount(&place, "disk.img", "mnt").succeeds();
    let open = File::open(place.path("mnt/file")).unwrap();
    kill(&place, "mnt");
    mount(&place, "disk.img", "mnt").succeeds();
    drop(open);
    place.run(&["fs", "unmount", "mnt"]).succeeds();
    is_clean(&path);
}

#[test]
fn a_dead_mount_of_a_disk_is_told_and_taken_over() {
    let place = Scene(Place::new());
    if !can_mount() {
        return;
    }
    let Some(path) = image(&place, 128, &[]) else { return };
    let disk = Loop::attach(&path);
    a_dead_mount_is_told_and_taken_over(&place, &disk.0);
    drop(disk);
    is_clean(&path);
}

#[test]
fn a_disk_is_opened_once_whatever_it_is_called() {
    let place = Scene(Place::new());
    if !can_mount() {
        return;
    }
    let Some(path) = image(&place, 256, &[]) else { return };
    for dir in ["mnt", "other"] {
        fs::create_dir(place.path(dir)).unwrap();
    }
    fs::hard_link(&path, place.path("link.img")).unwrap();
    mount(&place, "disk.img", "mnt").succeeds();
    let disk = Loop::attach(&place.path("link.img"));
    let on = place.path("mnt");
    // The refusal says which process has the disk, and where it is mounted.
    let words = ["locked by process", text(&on)];
    mount(&place, &disk.0, "other").fails(5, &words);
    mount(&place, "link.img", "other").fails(5, &["link.img"]);
    let commands: [&[&str]; 9] = [
        &["fs", "adopt", &disk.0, "--yes"],
        &["fs", "release", &disk.0],
        &["fs", "check", &disk.0],
        &["fs", "check", &disk.0, "--repair"],
        &["format", &disk.0, "--force"],
        &["serve", &disk.0, "--file"],
        &["drain", &disk.0],
        &["check", &disk.0, "--repair"],
        &["set", &disk.0, "threshold=8K"],
    ];
    for command in commands {
        place.run(command).fails(5, &words);
    }
    place.run(&["fs", "unmount", "mnt"]).succeeds();
    // The other way round.
    mount(&place, &disk.0, "mnt").succeeds();
    mount(&place, "disk.img", "other").fails(5, &["attached to"]);
    place.run(&["format", "disk.img", "--force"]).fails(5, &["attached to"]);
    place.run(&["fs", "unmount", "mnt"]).succeeds();
    drop(disk);
    is_clean(&path);
}

#[test]
fn of_two_mounts_at_once_one_is_there() {
    let place = Scene(Place::new());
    if !can_mount() {
        return;
    }
    let Some(path) = image(&place, 64, &[]) else { return };
    let targets = ["a", "b", "c", "d"];
    for dir in targets {
        fs::create_dir(place.path(dir)).unwrap();
    }
    let start = |target: &'static str| {
        let mut command = place.command(&["fs", "mount", "disk.img", target, "--background"]);
        (target, command.spawn().unwrap())
    };
    let mut all: Vec<_> = targets.into_iter().map(start).collect();
    let is_there: Vec<&str> = all
        .iter_mut()
        .filter_map(|(target, child)| child.wait().unwrap().success().then_some(*target))
        .collect();
    assert_eq!(is_there.len(), 1, "{is_there:?}");
    place.run(&["fs", "unmount", is_there[0]]).succeeds();
    is_clean(&path);
}

fn content(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

/// Checks a read-only mount: synced content is there, and not a byte of the image changes.
fn read_only_shows_and_keeps(place: &Place, image: &Path) {
    let before = content(image);
    let mounted = place.run(&["fs", "mount", "disk.img", "mnt", "--background", "-o", "ro,noload"]);
    assert!(mounted.succeeds().stderr.contains("noload changes nothing"), "{mounted:?}");
    for number in 0..50 {
        let found = fs::read_to_string(place.path(&format!("mnt/{number}"))).unwrap();
        assert_eq!(found, format!("content {number}"));
    }
    assert!(!place.path("mnt/removed").exists());
    let refused = fs::write(place.path("mnt/new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let status = place.run(&["fs", "status", "mnt"]);
    assert!(status.succeeds().stdout.contains("mounted"), "{status:?}");
    assert!(content(image) == before, "while it is mounted");
    place.run(&["fs", "unmount", "mnt"]).succeeds();
    assert!(content(image) == before, "when it was unmounted");
}

fn change(place: &Place) {
    write(place, "mnt/removed", "x");
    for number in 0..50 {
        write(place, &format!("mnt/{number}"), &format!("content {number}"));
    }
    // The file's removal is in the journal only, and the file is an orphan while it is open.
    fs::remove_file(place.path("mnt/removed")).unwrap();
    write(place, "mnt/49", "content 49");
}

#[test]
fn nothing_is_written_to_what_is_mounted_read_only() {
    let place = Scene(Place::new());
    if !can_mount() {
        return;
    }
    let Some(path) = image(&place, 128, &[]) else { return };
    fs::create_dir(place.path("mnt")).unwrap();
    for adopted in [false, true] {
        if adopted {
            place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
        }
        mount(&place, "disk.img", "mnt").succeeds();
        change(&place);
        place.run(&["fs", "unmount", "mnt"]).succeeds();
        read_only_shows_and_keeps(&place, &path);
        mount(&place, "disk.img", "mnt").succeeds();
        let open = {
            write(&place, "mnt/open", "x");
            File::open(place.path("mnt/open")).unwrap()
        };
        fs::remove_file(place.path("mnt/open")).unwrap();
        change(&place);
        kill(&place, "mnt");
        drop(open);
        place.run(&["fs", "unmount", "mnt"]).succeeds();
        read_only_shows_and_keeps(&place, &path);
        // A writable mount recovers as usual.
        mount(&place, "disk.img", "mnt").succeeds();
        assert_eq!(fs::read_to_string(place.path("mnt/7")).unwrap(), "content 7");
        place.run(&["fs", "unmount", "mnt"]).succeeds();
    }
    place.run(&["fs", "release", "disk.img"]).succeeds();
    is_clean(&path);
}

#[test]
fn options_of_ext4_that_change_nothing_are_told_once() {
    let place = Scene(Place::new());
    if !can_mount() || image(&place, 64, &[]).is_none() {
        return;
    }
    fs::create_dir(place.path("mnt")).unwrap();
    let options = "discard,barrier=1,commit=30,stripe=4,user_xattr,acl,x-gvfs-show";
    let said = place.run(&["fs", "mount", "disk.img", "mnt", "--background", "-o", options]);
    let about = said.succeeds().stderr.lines().filter(|line| line.contains("mount option"));
    let about: Vec<_> = about.collect();
    assert!(about.len() == 1 && about[0].contains("discard changes nothing: "), "{said:?}");
    place.run(&["fs", "unmount", "mnt"]).succeeds();
}

#[test]
fn what_holds_no_ext4_is_named() {
    let place = Scene(Place::new());
    fs::create_dir(place.path("mnt")).unwrap();
    let mut content = vec![0; 64 << 20];
    let mut names = |at: usize, magic: &[u8], what: &str| {
        content.fill(0);
        content[at..at + magic.len()].copy_from_slice(magic);
        place.file("disk.img", &content);
        let commands: [&[&str]; 4] = [
            &["fs", "mount", "disk.img", "mnt"],
            &["fs", "adopt", "disk.img", "--yes", "--fstab", "/nonexistent"],
            &["fs", "status", "disk.img"],
            &["fs", "check", "disk.img"],
        ];
        for command in commands {
            let said = place.run(command);
            said.fails(2, &["no ext4 here", what]);
            assert_eq!(said.stderr.matches("disk.img").count(), 1, "{said:?}");
        }
    };
    names(0, b"XFSB", "it holds an XFS file system");
    names(65_600, b"_BHRfS_M", "it holds a Btrfs file system");
    names(3, b"NTFS    ", "it holds an NTFS file system");
    names(4086, b"SWAPSPACE2", "it holds swap space");
    names(0, b"LUKS\xba\xbe", "it holds a LUKS encrypted volume");
    names(0, b"MANYLOGS", "manylogs serve");
    names(0, b"", "it is empty");
}

#[test]
fn adopted_disks_and_mounts_are_listed() {
    let place = Scene(Place::new());
    if !can_mount() {
        return;
    }
    let Some(path) = image(&place, 256, &["-L", "listed"]) else { return };
    fs::create_dir(place.path("mnt")).unwrap();
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    let found = |device: &str| {
        let listed = place.run(&["list", "--json"]);
        let value: Value = serde_json::from_str(&listed.succeeds().stdout).unwrap();
        let systems = value["file_systems"].as_array().unwrap().clone();
        systems.into_iter().find(|system| system["device"] == device)
    };
    assert_eq!(found(text(&path)), None, "images are listed while they are mounted");
    mount(&place, "disk.img", "mnt").succeeds();
    let system = found(text(&path)).unwrap();
    assert_eq!((&system["state"], &system["mode"]), (&"mounted".into(), &"manylogs".into()));
    assert_eq!(system["mounted_on"], text(&place.path("mnt")));
    assert!(system["server_pid"].is_number() && system["label"] == "listed", "{system}");
    write(&place, "mnt/file", "x");
    place.run(&["fs", "unmount", "mnt"]).succeeds();
    let disk = Loop::attach(&path);
    let system = found(&disk.0).unwrap();
    assert_eq!((&system["mounted_on"], &system["server_pid"]), (&Value::Null, &Value::Null));
    let listed = place.run(&["list"]);
    let line = listed.stdout.lines().find(|line| line.starts_with(&format!("{} ", disk.0)));
    assert!(line.unwrap().contains(system["state"].as_str().unwrap()), "{listed:?}");
}
