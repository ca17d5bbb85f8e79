//! Damaged logs of an adopted file system, from the first refusal to a whole ext4.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::Place;
use common::image::{can_mount, image, program, serve, unmount};
use serde_json::Value;

/// Files, each synced after it was written.
const FILES: usize = 8;

fn sync(path: &Path, content: &str) {
    let mut file = File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

/// Damages the header of a record in the middle of the log, as a failing medium does.
fn damage_a_record(image: &Path) {
    let content = fs::read(image).unwrap();
    let sectors = content.chunks(512).enumerate();
    let records: Vec<usize> = sectors
        .filter(|(_, sector)| sector.starts_with(b"MLOGREC1"))
        .map(|(number, _)| number)
        .collect();
    assert!(records.len() >= FILES, "{records:?}");
    let at = records[records.len() / 2] as u64 * 512 + 100;
    File::options().write(true).open(image).unwrap().write_all_at(b"damaged", at).unwrap();
}

#[test]
fn damaged_logs_are_refused_repaired_and_left_to_e2fsck() {
    let place = Place::new();
    if !can_mount() || image(&place, 128, &[]).is_none() {
        return;
    }
    place.run(&["fs", "check", "disk.img", "--repair"]).fails(2, &["disk.img", "not adopted"]);
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    let root = serve(&place);
    for number in 0..FILES {
        sync(&root.join(format!("file {number}")), &format!("content {number}\n"));
    }
    // The image as a power cut would leave it.
    fs::copy(place.path("disk.img"), place.path("crashed.img")).unwrap();
    place.run(&["fs", "check", "disk.img", "--repair"]).fails(5, &["disk.img"]);
    unmount(&place);
    damage_a_record(&place.path("crashed.img"));

    // The commands for volumes refuse it, although a copy of the volume's superblock may lie where
    // they look for one.
    place.run(&["check", "crashed.img", "--repair"]).fails(2, &["crashed.img"]);
    place.run(&["drain", "crashed.img"]).fails(2, &["crashed.img"]);

    let check = ["fs", "check", "crashed.img"];
    place.run(&check).fails(4, &["crashed.img", "manylogs fs check --repair"]);
    let told = place.run(&[&check[..], &["--json"]].concat());
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["log_findings"][0]["severity"], "loss", "{told}");
    fs::create_dir_all(place.path("crashed")).unwrap();
    let mount = ["fs", "mount", "crashed.img", "crashed"];
    place.run(&mount).fails(3, &["manylogs fs check", "--repair"]);
    place.run(&["fs", "release", "crashed.img"]).fails(3, &["manylogs fs check", "--repair"]);

    let repair = [&check[..], &["--repair"]].concat();
    place.run(&repair).fails(4, &["lost", "manylogs fs release", "e2fsck -f"]);
    place.run(&repair).succeeds();
    place.run(&mount).fails(2, &["errors were found"]);
    place.run(&["fs", "release", "crashed.img"]).fails(3, &["e2fsck -f"]);
    let e2fsck = |option: &str| {
        let said = program("e2fsck").arg(option).arg(place.path("crashed.img")).output();
        said.unwrap().status.code()
    };
    assert!(matches!(e2fsck("-fy"), Some(0 | 1)));
    place.run(&["fs", "release", "crashed.img"]).succeeds();
    assert_eq!(e2fsck("-fn"), Some(0));
}

/// Damages a descriptor in the middle of ext4's journal. Returns how many there are.
fn damage_a_descriptor(image: &Path) -> usize {
    let content = fs::read(image).unwrap();
    let is_descriptor =
        |block: &[u8]| block.starts_with(&[0xC0, 0x3B, 0x39, 0x98, 0x00, 0x00, 0x00, 0x01]);
    let blocks = content.chunks(4096).enumerate().filter(|(_, block)| is_descriptor(block));
    let mut descriptors: Vec<_> =
        blocks.map(|(number, block)| (block[8..12].to_vec(), number as u64 * 4096)).collect();
    descriptors.sort();
    let at = descriptors[descriptors.len() / 2].1 + 100;
    File::options().write(true).open(image).unwrap().write_all_at(b"damaged", at).unwrap();
    descriptors.len()
}

#[test]
fn a_damaged_journal_is_refused_repaired_and_left_to_e2fsck() {
    let place = Place::new();
    if !can_mount() || image(&place, 64, &["-J", "size=8"]).is_none() {
        return;
    }
    fs::create_dir_all(place.path("mlfs")).unwrap();
    let lazy = ["fs", "mount", "disk.img", "mlfs", "--mode", "lazy", "-o", "savemap"];
    place.run(&[&lazy[..], &["--background"]].concat()).succeeds();
    for number in 0..FILES {
        sync(&place.path("mlfs").join(format!("file {number}")), &format!("content {number}\n"));
    }
    // The image as a power cut would leave it: without a saved map.
    fs::copy(place.path("disk.img"), place.path("crashed.img")).unwrap();
    unmount(&place);
    place.run(&["fs", "check", "disk.img"]).succeeds();
    for image in ["disk.img", "crashed.img"] {
        assert!(damage_a_descriptor(&place.path(image)) >= FILES);
    }

    // The saved map knows what the descriptor said.
    place.run(&["fs", "check", "disk.img"]).succeeds();
    place.run(&["fs", "mount", "disk.img", "mlfs", "--background"]).succeeds();
    for number in 0..FILES {
        let file = place.path("mlfs").join(format!("file {number}"));
        assert_eq!(fs::read_to_string(file).unwrap(), format!("content {number}\n"));
    }
    unmount(&place);

    let check = ["fs", "check", "crashed.img"];
    place.run(&check).fails(4, &["the journal is damaged", "manylogs fs check --repair"]);
    let ordered = ["fs", "mount", "crashed.img", "mlfs"];
    for mount in [&[&ordered[..], &["--mode", "lazy"]].concat()[..], &ordered] {
        place.run(mount).fails(3, &["the journal is damaged", "manylogs fs check --repair"]);
    }
    let repair = [&check[..], &["--repair"]].concat();
    place.run(&repair).fails(4, &["lost", "e2fsck -f"]);
    place.run(&repair).fails(2, &["not adopted"]);
    place.run(&ordered).fails(2, &["errors were found"]);
    let e2fsck = program("e2fsck").arg("-fy").arg(place.path("crashed.img")).output().unwrap();
    assert!(matches!(e2fsck.status.code(), Some(0 | 1)), "{e2fsck:?}");
    place.run(&check).succeeds();
}

/// Damages the copies in the journal of blocks that begin with `content`. Returns how many.
fn damage_copies(image: &Path, content: &str) -> usize {
    let bytes = fs::read(image).unwrap();
    let file = File::options().write(true).open(image).unwrap();
    let blocks = bytes.chunks(4096).enumerate();
    let copies = blocks.filter(|(_, block)| block.starts_with(content.as_bytes()));
    let places: Vec<u64> = copies.map(|(number, _)| number as u64 * 4096).collect();
    for place in &places {
        file.write_all_at(b"damaged", place + 10).unwrap();
    }
    places.len()
}

fn last_scrub(place: &Place) -> serde_json::Value {
    let said = place.run(&["fs", "status", "mlfs", "--json"]).succeeds().stdout.clone();
    let status: serde_json::Value = serde_json::from_str(&said).unwrap();
    status["server"]["file_system"]["journal"]["scrub"].clone()
}

#[test]
fn a_scrub_mends_what_is_known_and_tells_what_is_lost() {
    let place = Place::new();
    if !can_mount() || image(&place, 64, &["-J", "size=8"]).is_none() {
        return;
    }
    fs::create_dir_all(place.path("mlfs")).unwrap();
    let scrub = ["fs", "scrub", "mlfs"];
    place.run(&["fs", "scrub", "disk.img"]).fails(2, &["while it is mounted", "--mode lazy"]);
    place.run(&["fs", "scrub", "dsik.img"]).fails(2, &["dsik.img does not exist"]);
    let mount = ["fs", "mount", "disk.img", "mlfs", "--background"];
    place.run(&mount).succeeds();
    place.run(&scrub).fails(2, &["mode ordered", "lazy"]);
    unmount(&place);

    let lazy = [&mount[..], &["--mode", "lazy", "-o", "savemap"]].concat();
    place.run(&lazy).succeeds();
    // The target of a long symbolic link has a block of its own.
    let target = "scrubbed/".repeat(200);
    std::os::unix::fs::symlink(&target, place.path("mlfs/link")).unwrap();
    File::open(place.path("mlfs")).unwrap().sync_all().unwrap();
    assert!(last_scrub(&place).is_null());
    let image = place.path("disk.img");
    assert_eq!(damage_copies(&image, &target), 1);
    let said = place.run(&scrub).succeeds().stdout.clone();
    assert!(said.contains("1 damaged ones written anew, 0 lost"), "{said}");
    let said = place.run(&["fs", "status", "mlfs"]).succeeds().stdout.clone();
    assert!(said.contains("scrubbed") && said.contains("1 damaged ones written anew"), "{said}");
    let metrics = place.run(&["metrics", "disk.img"]).succeeds().stdout.clone();
    assert!(metrics.contains("manylogs_journal_scrub_renewed_blocks"), "{metrics}");
    unmount(&place);

    // Nobody knows the content any more.
    assert_eq!(damage_copies(&image, &target), 1);
    place.run(&lazy).succeeds();
    let lost = place.run(&[&scrub[..], &["--json"]].concat());
    lost.fails(4, &["1 blocks of metadata are lost", "manylogs fs check --repair"]);
    let told: serde_json::Value = serde_json::from_str(&lost.stdout).unwrap();
    assert_eq!((&told["format"], &told["scrub"]["lost"]), (&1.into(), &1.into()), "{told}");
    let holds = &told["scrub"]["lost_blocks"][0]["holds"];
    assert!(holds.as_str().unwrap().contains("symbolic link"), "{told}");
    assert_eq!(last_scrub(&place)["lost"], 1);
    // What is lost cannot go home, so an unmount in another mode would fail; in this one it stays.
    unmount(&place);
}
