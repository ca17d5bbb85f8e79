//! Our file systems: refusals, and mounts with a server in the background.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use common::Place;

/// Makes an image with a file system; prints why and returns false if there is no mkfs.ext4.
fn image(place: &Place) -> bool {
    File::create(place.path("disk.img")).unwrap().set_len(1 << 30).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    let made = mkfs.args(["-q", "-b", "4096"]).arg(place.path("disk.img")).status();
    let is_made = made.is_ok_and(|status| status.success());
    if !is_made {
        manylogs_testkit::skip("needs mkfs.ext4");
    }
    fs::create_dir(place.path("mnt")).unwrap();
    is_made
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let place = Place::new();
    let mount = |args: &[&str]| place.run(&[&["fs", "mount", "disk.img", "mnt"], args].concat());
    mount(&[]).fails(2, &["mnt", "not a directory"]);
    fs::create_dir(place.path("mnt")).unwrap();
    mount(&[]).fails(2, &["manylogs: disk.img does not exist"]);
    mount(&["--mode", "eager"]).fails(2, &["eager", "ordered, lazy, data"]);
    mount(&["-o", "ro,barriers=0"]).fails(2, &["barriers=0", "--help"]);
    mount(&["-o", "ro,usrquota"]).fails(2, &["usrquota", "leave it out"]);
    mount(&["--memory", "16M"]).fails(2, &["memory=16M", "at least 64"]);
    mount(&["-o", "memory=lots"]).fails(2, &["memory=lots", "at least 64"]);
    mount(&["-o", "errors=panic"]).fails(2, &["errors=panic"]);
    mount(&["--background", "-o", "data=writeback"]).fails(2, &["data=writeback", "data=ordered"]);
    mount(&["--emulate", "no-such-drive"]).fails(2, &["no-such-drive", "exos-x20"]);
    place.file("disk.img", vec![0; 1 << 20]);
    mount(&[]).fails(2, &["no ext4 here"]);
    let said = mount(&["--background"]);
    said.fails(2, &["no ext4 here", "it is empty"]);
    assert_eq!(said.stderr.lines().count(), 1, "one message for one error: {said:?}");
    place.run(&["fs", "status", "disk.img"]).fails(2, &["no ext4 here"]);
    place.run(&["fs", "status", "mnt"]).fails(2, &["mnt", "mounted there"]);
    place.run(&["fs", "unmount", "mnt"]).fails(2, &["mnt", "mounted there"]);
    place.run(&["fs", "check", "disk.img"]).fails(2, &["disk.img", "no ext4"]);
    place.run(&["fs", "check", "nothing"]).fails(2, &["nothing does not exist"]);
}

#[test]
fn a_check_finds_damage_and_changes_nothing() {
    let place = Place::new();
    if !image(&place) {
        return;
    }
    let good = place.run(&["fs", "check", "disk.img"]);
    assert!(good.succeeds().stdout.contains("nothing is wrong"), "{good:?}");
    let file = File::options().read(true).write(true).open(place.path("disk.img")).unwrap();
    // The block bitmap of the first group, whose block number is in the first descriptor.
    let mut place_of = [0; 4];
    file.read_exact_at(&mut place_of, 4096).unwrap();
    let bitmap = u64::from(u32::from_le_bytes(place_of)) * 4096;
    let mut byte = [0];
    file.read_exact_at(&mut byte, bitmap).unwrap();
    file.write_all_at(&[byte[0] ^ 1], bitmap).unwrap();
    let before = fs::metadata(place.path("disk.img")).unwrap().modified().unwrap();
    place.run(&["fs", "check", "disk.img"]).fails(3, &["damaged"]);
    let listed = place.run(&["fs", "check", "disk.img", "--json"]);
    assert!(listed.stdout.contains("\"clean\": false"), "{listed:?}");
    assert_eq!(fs::metadata(place.path("disk.img")).unwrap().modified().unwrap(), before);
}

/// A journal is lengthened, and never shortened; an adopted file system is refused.
#[test]
fn a_journal_gets_the_length_that_was_asked_for() {
    let place = Place::new();
    if !image(&place) {
        return;
    }
    let journal = |size| place.run(&["fs", "journal", "disk.img", "--size", size]);
    journal("4M").fails(2, &["disk.img", "MiB, and 4 MiB were asked for", "tune2fs"]);
    journal("2G").fails(2, &["disk.img", "no room", "2048 MiB"]);
    journal("40G").fails(2, &["--size", "40000 MiB at most"]);
    let done = journal("100M");
    assert!(done.succeeds().stdout.contains("and has 100 MiB"), "{done:?}");
    let shown = Command::new("dumpe2fs").arg("-h").arg(place.path("disk.img")).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("100M"), "{shown:?}");
    let check = Command::new("e2fsck").arg("-fn").arg(place.path("disk.img")).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    journal("200M").fails(2, &["disk.img", "fs release"]);
}

#[test]
fn a_mount_goes_on_in_the_background_and_its_end_is_waited_for() {
    let place = Place::new();
    let root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root || !Path::new("/dev/fuse").exists() {
        manylogs_testkit::skip("needs root and /dev/fuse");
        return;
    }
    if !image(&place) {
        return;
    }
    for mode in
        [&["--mode", "data"][..], &["-o", "data=ordered,noatime"], &["--emulate", "exos-x20"]]
    {
        let args = [&["fs", "mount", "disk.img", "mnt", "--background"], mode].concat();
        place.run(&args).succeeds();
        fs::write(place.path("mnt/file"), vec![7; 3_000_000]).unwrap();
        let status = place.run(&["fs", "status", "mnt"]);
        assert!(status.succeeds().stdout.contains("mounted"), "{status:?}");
        place.run(&["fs", "mount", "disk.img", "mnt", "--background"]).fails(5, &["locked"]);
        let open = File::open(place.path("mnt/file")).unwrap();
        place.run(&["fs", "unmount", "mnt"]).fails(5, &["somebody uses it"]);
        drop(open);
        // Retries: a closed file is released once the server has got that request.
        let unmounted = (0..100).find_map(|_| {
            let said = place.run(&["fs", "unmount", "mnt"]);
            (said.code != Some(5)).then_some(said)
        });
        unmounted.unwrap().succeeds();
        let checked = Command::new("e2fsck").arg("-fn").arg(place.path("disk.img")).output();
        assert!(checked.unwrap().status.success());
    }
    place.run(&["fs", "mount", "disk.img", "mnt", "--background", "-o", "ro"]).succeeds();
    // The server does not learn of a second mount point, and goes on.
    fs::create_dir(place.path("second")).unwrap();
    let bind = ["--bind", "mnt", "second"];
    assert!(
        Command::new("mount").args(bind).current_dir(place.path("")).status().unwrap().success()
    );
    place.run(&["fs", "unmount", "second"]).succeeds();
    assert_eq!(fs::read(place.path("mnt/file")).unwrap(), vec![7; 3_000_000]);
    assert!(fs::write(place.path("mnt/new"), "x").is_err());
    place.run(&["fs", "unmount", "mnt"]).succeeds();
}
