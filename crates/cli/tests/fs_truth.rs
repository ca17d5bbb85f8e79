//! All commands state the same and true facts about a file system, however it was left.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use common::Place;
use common::image::{can_mount, image, program, serve, unmount};
use serde_json::Value;

fn json(place: &Place, command: &str, image: &str) -> Value {
    let said = place.run(&["fs", command, image, "--json"]);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// The state by the status and the check, which must agree, and the bytes that are only in logs.
fn state(place: &Place, image: &str) -> (String, Option<u64>) {
    let (status, check) = (json(place, "status", image), json(place, "check", image));
    assert_eq!(status["state"], check["state"], "{status} {check}");
    assert_eq!(status["state_text"], check["state_text"]);
    assert_eq!(check["findings"], Value::Array(Vec::new()), "{check}");
    assert_eq!(check["clean"], true, "{check}");
    let said = place.run(&["fs", "check", image]);
    assert!(said.succeeds().stdout.contains("nothing is wrong"), "{said:?}");
    (status["state"].as_str().unwrap().to_owned(), status["logged_bytes"].as_u64())
}

fn sync(path: &Path, bytes: usize) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file.sync_all().unwrap();
}

/// Blocks in use and inodes in use, as `df` counts them.
fn used(root: &Path) -> [i64; 2] {
    let said = Command::new("stat").args(["-f", "-c", "%b %f %c %d"]).arg(root).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let numbers: Vec<i64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    [numbers[0] - numbers[1], numbers[2] - numbers[3]]
}

#[test]
fn a_disk_is_said_to_be_what_it_is_after_use_and_after_a_crash() {
    let place = Place::new();
    if !can_mount() || image(&place, 256, &[]).is_none() {
        return;
    }
    assert_eq!(state(&place, "disk.img"), ("clean".to_owned(), None));
    place.run(&["fs", "adopt", "disk.img", "--yes", "--log-every", "128M"]).succeeds();
    assert_eq!(state(&place, "disk.img"), ("drained".to_owned(), Some(0)));
    let root = serve(&place);
    for number in 0..40 {
        sync(&root.join(format!("file {number}")), 5000);
    }
    let mounted = json(&place, "status", "disk.img");
    assert_eq!((&mounted["state"], mounted["logged_bytes"].is_u64()), (&"mounted".into(), true));
    place.run(&["fs", "check", "disk.img"]).fails(5, &["disk.img"]);
    // The image as a power cut would leave it.
    fs::copy(place.path("disk.img"), place.path("crashed.img")).unwrap();
    unmount(&place);

    let (word, logged) = state(&place, "disk.img");
    assert!(word == "logged" && logged > Some(40 * 5000), "{word} {logged:?}");
    assert_eq!(json(&place, "status", "disk.img")["adopted"], "yes");
    let (word, logged) = state(&place, "crashed.img");
    assert!(word == "killed" && logged > Some(40 * 5000), "{word} {logged:?}");
    for image in ["disk.img", "crashed.img"] {
        let said = place.run(&["fs", "checkpoint", image]);
        assert!(said.succeeds().stdout.contains("drained: everything is at home"), "{said:?}");
        assert_eq!(state(&place, image), ("drained".to_owned(), Some(0)));
        place.run(&["fs", "set", image, "idle=7s"]).succeeds();
        assert_eq!(state(&place, image).0, "drained", "nothing was written to the logs");
        place.run(&["fs", "release", image]).succeeds();
        assert_eq!(state(&place, image), ("clean".to_owned(), None));
        let checked = program("e2fsck").arg("-fn").arg(place.path(image)).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_plain_disk_that_was_left_by_a_crash_is_judged_as_a_mount_would_show_it() {
    let place = Place::new();
    if !can_mount() || image(&place, 64, &[]).is_none() {
        return;
    }
    let root = serve(&place);
    for number in 0..300 {
        sync(&root.join(format!("file {number}")), 100);
    }
    fs::copy(place.path("disk.img"), place.path("crashed.img")).unwrap();
    let before = fs::read(place.path("crashed.img")).unwrap();
    unmount(&place);
    assert_eq!(state(&place, "disk.img"), ("clean".to_owned(), None));
    assert_eq!(state(&place, "crashed.img"), ("killed".to_owned(), None));
    assert!(fs::read(place.path("crashed.img")).unwrap() == before, "nothing is written");
    let checked = program("e2fsck").arg("-fy").arg(place.path("crashed.img")).output().unwrap();
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
    assert_eq!(state(&place, "crashed.img"), ("clean".to_owned(), None));
}

#[test]
fn damage_is_found_below_the_logs_too() {
    let place = Place::new();
    if !can_mount() || image(&place, 256, &[]).is_none() {
        return;
    }
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    let root = serve(&place);
    sync(&root.join("file"), 5000);
    unmount(&place);
    // The inode bitmap of the first group, whose first sector is in the logs. Its block number is
    // in the first descriptor.
    let file = File::options().read(true).write(true).open(place.path("disk.img")).unwrap();
    let mut number = [0; 4];
    file.read_exact_at(&mut number, 4096 + 4).unwrap();
    file.write_all_at(&[1], u64::from(u32::from_le_bytes(number)) * 4096 + 1024).unwrap();
    place.run(&["fs", "check", "disk.img"]).fails(3, &["damaged", "fs release", "e2fsck -f"]);
    assert_eq!(json(&place, "check", "disk.img")["clean"], false);
}

#[test]
fn what_df_shows_differs_by_the_logs_alone_after_an_adoption() {
    let place = Place::new();
    if !can_mount() {
        return;
    }
    let Some(disk) = image(&place, 256, &[]) else { return };
    let kernel = place.path("kernel");
    fs::create_dir(&kernel).unwrap();
    let mount = Command::new("mount").args(["-o", "loop"]).args([&disk, &kernel]).status();
    assert!(mount.unwrap().success());
    sync(&kernel.join("file"), 1_000_000);
    let before = used(&kernel);
    assert!(Command::new("umount").arg(&kernel).status().unwrap().success());
    assert_eq!(used(&serve(&place)), before);
    unmount(&place);
    place.run(&["fs", "adopt", "disk.img", "--yes", "--log-every", "128M"]).succeeds();
    let logs = json(&place, "status", "disk.img")["mlfs"]["log_bytes"].as_i64().unwrap();
    assert_eq!(used(&serve(&place)), [before[0] + logs / 4096, before[1] + 1]);
    unmount(&place);
}
