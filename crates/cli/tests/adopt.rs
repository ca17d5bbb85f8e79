//! Disks adopted by `manylogs fs adopt`: the kernel and other programs are kept away from them, bad
//! disks are refused, and files survive round trips between MLFS and the kernel.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::Place;
use common::image::{can_mount, image, program, serve, unmount};
use manylogs_block::Rng;

fn run(name: &str, args: &[&str], path: &Path) -> Output {
    program(name).args(args).arg(path).output().unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// An image mounted by the kernel; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, options: &str) -> Result<Self, String> {
        let dir = image.with_file_name("kernel");
        fs::create_dir_all(&dir).unwrap();
        let wanted = options.split(',').any(|option| option == "ro");
        loop {
            let mut mount = Command::new("mount");
            mount.args(["-t", "ext4", "-o", options]).args([image, &dir]);
            let done = mount.output().unwrap();
            if !done.status.success() {
                return Err(said(&done));
            }
            let mounted = Self(dir.clone());
            let flags = rustix::fs::statvfs(&dir).unwrap().f_flag;
            // The loop device is read-only for a moment after another test mounted with "ro", and
            // then so is what is mounted.
            if wanted || !flags.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
                return Ok(mounted);
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Retries: a process that another test starts has a copy of each open file for a moment.
        let unmounted = || Command::new("umount").arg(&self.0).status().unwrap().success();
        assert!((0..1000).any(|_| unmounted()), "umount");
    }
}

#[test]
fn whoever_does_not_know_the_bit_is_kept_away_and_changes_nothing() {
    let place = Place::new();
    let Some(disk) = image(&place, 256, &[]) else { return };
    place.run(&["probe", "disk.img"]).fails(2, &["disk.img"]);
    let adopted = place.run(&["fs", "adopt", "disk.img", "--yes", "--log-every", "128M"]);
    assert!(adopted.succeeds().stdout.contains("2 logs, 20 MiB"), "{adopted:?}");
    // The udev rule runs this, so that no desktop offers to mount the disk as ext4.
    let probed = place.run(&["probe", "disk.img"]);
    assert_eq!(probed.succeeds().stdout, "ID_FS_TYPE=mlfs\nID_FS_USAGE=filesystem\n");
    let before = fs::read(&disk).unwrap();
    let refused: [(&str, &[&str]); 7] = [
        ("e2fsck", &["-fy"]),
        ("e2fsck", &["-p"]),
        ("e2fsck", &["-fy", "-b", "32768", "-B", "4096"]),
        ("tune2fs", &["-L", "other"]),
        ("tune2fs", &["-O", "^FEATURE_I30"]),
        ("resize2fs", &["-f"]),
        ("debugfs", &["-w", "-R", "rm /.manylogs"]),
    ];
    for (name, args) in refused {
        let text = said(&run(name, args, &disk));
        let known = ["unsupported feature", "Couldn't find valid filesystem superblock"];
        assert!(known.iter().any(|known| text.contains(known)), "{name} {args:?}: {text}");
    }
    if can_mount() {
        for options in ["loop", "loop,ro", "loop,ro,noload", "loop,sb=131072", "loop,ro,sb=131072"]
        {
            assert!(Mounted::new(&disk, options).is_err(), "{options}");
        }
    }
    place.run(&["fs", "adopt", "disk.img", "--yes"]).fails(2, &["adopted already", "fs release"]);
    place
        .run(&["fs", "mount", "disk.img", ".", "--mode", "ordered"])
        .fails(2, &["adopted", "fs release"]);
    assert!(fs::read(&disk).unwrap() == before, "a refusal changes nothing");
    let status = place.run(&["fs", "status", "disk.img", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.succeeds().stdout).unwrap();
    assert_eq!(status["adopted"], "yes");
    let mlfs = &status["mlfs"];
    assert_eq!((&mlfs["logs"], &mlfs["log_state"]), (&2.into(), &"drained".into()));
    assert_eq!(mlfs["copies_with_bit"], serde_json::json!([1]));
    let checked = place.run(&["fs", "check", "disk.img"]);
    assert!(checked.succeeds().stdout.contains("2 logs, 20 MiB together, drained"), "{checked:?}");
    place.run(&["fs", "release", "disk.img"]).succeeds();
    assert_eq!(run("e2fsck", &["-fn"], &disk).status.code(), Some(0));
    place.run(&["fs", "release", "disk.img"]).fails(2, &["not adopted"]);
}

#[test]
fn errors_that_were_found_end_at_e2fsck_in_spite_of_the_bit() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(disk) = image(&place, 256, &[]) else { return };
    let mounted = Mounted::new(&disk, "loop").unwrap();
    fs::write(mounted.0.join("bad"), [7; 5000]).unwrap();
    drop(mounted);
    assert!(run("debugfs", &["-w", "-R", "sif bad block[0] 1"], &disk).status.success());
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    let root = serve(&place);
    assert_eq!(fs::read(root.join("bad")).unwrap_err().raw_os_error(), Some(117));
    fs::write(root.join("new"), "after the damage").unwrap();
    unmount(&place);
    // The file system needs e2fsck, and every command refuses it until then.
    place.run(&["fs", "mount", "disk.img", "mlfs"]).fails(2, &["errors", "fs release", "e2fsck"]);
    place.run(&["fs", "release", "disk.img"]).fails(3, &["errors", "e2fsck -f", "fs release"]);
    place.run(&["fs", "adopt", "disk.img", "--yes"]).fails(2, &["errors", "e2fsck"]);
    let checked = run("e2fsck", &["-fy"], &disk);
    assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
    place.run(&["fs", "release", "disk.img"]).succeeds();
    assert_eq!(run("e2fsck", &["-fn"], &disk).status.code(), Some(0));
    let mounted = Mounted::new(&disk, "loop").unwrap();
    assert_eq!(fs::read(mounted.0.join("new")).unwrap(), b"after the damage");
    assert!(!mounted.0.join(".manylogs").exists());
}

#[test]
fn what_cannot_be_adopted_is_refused_with_what_to_do() {
    let place = Place::new();
    let adopt = |args: &[&str]| place.run(&[&["fs", "adopt", "disk.img"], args].concat());
    let Some(disk) = image(&place, 256, &["-L", "archive"]) else { return };
    adopt(&[]).fails(2, &["--yes"]);
    adopt(&["--yes", "--log-every", "none"]).fails(2, &["none", "10M"]);
    let fstab = place.file("fstab", "# disks\nLABEL=archive /srv ext4 noatime,barrier=0 0 2\n");
    let fstab = fstab.to_str().unwrap();
    let line = "LABEL=archive  /srv  fuse.manylogs  noatime  0 0";
    adopt(&["--yes", "--fstab", fstab]).fails(2, &["line 2", line]);
    place.file("fstab", format!("{line}\n"));
    if can_mount() {
        let mounted = Mounted::new(&disk, "loop").unwrap();
        adopt(&["--yes", "--fstab", fstab]).fails(5, &["disk.img"]);
        drop(mounted);
    }
    run("debugfs", &["-w", "-R", "feature needs_recovery"], &disk);
    adopt(&["--yes", "--fstab", fstab]).fails(2, &["e2fsck -p"]);
    run("e2fsck", &["-fy"], &disk);
    adopt(&["--yes", "--fstab", fstab]).succeeds();
    for (options, named) in [
        (&["-O", "bigalloc"][..], "bigalloc"),
        (&["-O", "inline_data"], "inline_data"),
        (&["-O", "^has_journal"], "^has_journal"),
        (&["-O", "quota"], "quota"),
    ] {
        image(&place, 256, options);
        adopt(&["--yes"]).fails(2, &[named]);
    }
    image(&place, 9, &["-J", "size=4", "-N", "8192"]);
    let before = fs::read(&disk).unwrap();
    adopt(&["--yes"]).fails(2, &["no room for logs"]);
    assert!(fs::read(&disk).unwrap() == before);
}

/// Everything under a directory, by path: a sum of each file's content, and its attributes.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, u64, u32)> {
    let (mut tree, mut open) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let full = root.join(&path);
            let known = fs::symlink_metadata(&full).unwrap();
            let sum = if known.is_file() { crc32c::crc32c(&fs::read(&full).unwrap()) } else { 0 };
            let size = if known.is_file() { known.size() } else { 0 };
            if known.is_dir() {
                open.push(path.clone());
            }
            tree.insert(path, (known.mode(), size, sum));
        }
    }
    tree
}

/// Creates, writes, truncates, renames, links and removes files at random.
fn work(root: &Path, rng: &mut Rng) {
    for number in 0..120 {
        let dir = root.join(format!("dir {}", rng.below(4)));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(format!("file {}", rng.below(60)));
        match rng.below(8) {
            0 => drop(fs::remove_file(&path)),
            1 => drop(fs::rename(&path, dir.join(format!("file {}", rng.below(60))))),
            2 => drop(fs::hard_link(&path, dir.join(format!("link {number} {}", rng.next_u64())))),
            3 => {
                drop(File::options().write(true).open(&path).map(|f| f.set_len(rng.below(90_000))));
            }
            _ => {
                let file = File::options().write(true).create(true).truncate(false).open(&path);
                let len = usize::try_from(rng.below(60_000)).unwrap();
                let bytes: Vec<u8> =
                    (0..len).map(|at| (at as u64 ^ number).to_le_bytes()[0]).collect();
                file.unwrap().write_all_at(&bytes, rng.below(400_000)).unwrap();
            }
        }
    }
}

/// Serves the image in the foreground, calls `work`, and kills the server.
fn killed_after(place: &Place, work: impl FnOnce(&Path)) {
    let dir = place.path("mlfs");
    fs::create_dir_all(&dir).unwrap();
    let started = || {
        let mut server = place.command(&["fs", "mount", "disk.img", "mlfs", "--mode", "manylogs"]);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said.contains("is mounted") {
            return Some(server);
        }
        // The lock of a killed process may last for a moment more, or the disk is busy until its
        // last requests have ended.
        let code = server.wait().unwrap().code();
        assert!(matches!(code, Some(1 | 5)), "{code:?}: {said}");
        std::thread::sleep(Duration::from_millis(10));
        None
    };
    let mut server = (0..1000).find_map(|_| started()).unwrap();
    work(&dir);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(Command::new("umount").arg("-l").arg(&dir).status().unwrap().success());
}

#[test]
fn what_was_synced_survives_kills_of_the_server_and_the_release() {
    let place = Place::new();
    if !can_mount() {
        return;
    }
    let Some(disk) = image(&place, 512, &[]) else { return };
    place
        .run(&["fs", "mount", "disk.img", ".", "--mode", "manylogs"])
        .fails(2, &["adopt it first: manylogs fs adopt"]);
    place.run(&["fs", "adopt", "disk.img", "--yes", "--log-every", "128M"]).succeeds();
    let mut rng = Rng::new(7);
    let mut before = None;
    for round in 0..4 {
        killed_after(&place, |root| {
            drop(fs::remove_file(root.join("not synced")));
            assert!(before.as_ref().is_none_or(|before| tree(root) == *before), "round {round}");
            work(root, &mut rng);
            for path in tree(root).keys() {
                File::open(root.join(path)).unwrap().sync_all().unwrap();
            }
            before = Some(tree(root));
            fs::write(root.join("not synced"), vec![1; 100_000]).unwrap();
        });
        // The kernel must not mount the disk, because newer versions may be in the logs only.
        assert!(Mounted::new(&disk, "loop").is_err(), "round {round}");
    }
    let before = before.unwrap();
    let root = serve(&place);
    drop(fs::remove_file(root.join("not synced")));
    assert!(tree(&root) == before);
    unmount(&place);
    place.run(&["fs", "release", "disk.img"]).succeeds();
    let checked = run("e2fsck", &["-fn"], &disk);
    assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
    assert!(tree(&Mounted::new(&disk, "loop,ro").unwrap().0) == before);
}

/// Does `ROUND_TRIPS` round trips (3 if unset): use by the kernel, adopt, use in the mode
/// `manylogs`, release, and a program of e2fsprogs that changes the file system.
#[test]
fn every_file_survives_round_trips_between_mlfs_and_the_kernel() {
    let place = Place::new();
    if !can_mount() {
        return;
    }
    let Some(disk) = image(&place, 512, &["-E", "resize=4194304"]) else { return };
    let rounds = std::env::var("ROUND_TRIPS").map_or(3, |rounds| rounds.parse().unwrap());
    let mut rng = Rng::new(1);
    for round in 0..rounds {
        {
            let mounted = Mounted::new(&disk, "loop").unwrap();
            work(&mounted.0, &mut rng);
        }
        let every = ["128M", "256M", "1G"][usize::try_from(round % 3).unwrap()];
        place.run(&["fs", "adopt", "disk.img", "--yes", "--log-every", every]).succeeds();
        place.run(&["fs", "check", "disk.img"]).succeeds();
        assert!(Mounted::new(&disk, "loop").is_err());
        let root = serve(&place);
        work(&root, &mut rng);
        let before = tree(&root);
        unmount(&place);
        place.run(&["fs", "release", "disk.img"]).succeeds();
        let checked = run("e2fsck", &["-fn"], &disk);
        assert_eq!(checked.status.code(), Some(0), "round {round}: {}", said(&checked));
        assert!(tree(&Mounted::new(&disk, "loop,ro").unwrap().0) == before, "round {round}");
        let size = ["640M", "512M", "384M"][usize::try_from(rng.below(3)).unwrap()];
        match round % 3 {
            0 => {
                // resize2fs needs a file system that was checked since its last mount.
                assert_eq!(run("e2fsck", &["-fp"], &disk).status.code(), Some(0));
                let resized = program("resize2fs").arg(&disk).arg(size).output().unwrap();
                assert!(resized.status.success(), "{}", said(&resized));
            }
            1 => {
                assert!(
                    [Some(0), Some(1)].contains(&run("e2fsck", &["-fyD"], &disk).status.code())
                );
            }
            _ => {
                let label = format!("round{round}");
                assert!(run("tune2fs", &["-L", &label, "-c", "30"], &disk).status.success());
            }
        }
        assert!(tree(&Mounted::new(&disk, "loop,ro").unwrap().0) == before, "round {round}");
    }
    println!("{rounds} round trips");
}
