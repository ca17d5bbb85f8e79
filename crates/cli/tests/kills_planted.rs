//! The judge of killed MLFS servers (`tests/programs/mlfs_kills.py`) notices a server that loses
//! synced data, and accepts a correct server.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::Place;
use common::image::{can_mount, image};
use common::served::MANYLOGS;

const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/mlfs_kills.py");

/// Ten kills are plenty for this bug: one is enough if a sync came in the second before it.
fn judged(place: &Place, disk: &Path, mode: &str, bug: Option<&str>) -> Output {
    let mut judge = Command::new("python3");
    judge.args([JUDGE, MANYLOGS]).args([disk, &place.path("root")]).args(["10", "1", mode]);
    judge.env_remove("MANYLOGS_PLANT");
    if let Some(bug) = bug {
        judge.env("MANYLOGS_PLANT", bug);
    }
    let output = judge.output().unwrap();
    // A judge that gives up leaves the file system mounted, and its server with it.
    Command::new("umount").arg("-l").arg(place.path("root")).output().unwrap();
    output
}

#[test]
fn a_sync_that_does_not_wait_is_noticed_after_kills() {
    let python = Command::new("python3").arg("--version").output().is_ok();
    if !python {
        return manylogs_testkit::skip("needs python3");
    }
    if !can_mount() {
        return;
    }
    for mode in ["ordered", "lazy", "manylogs"] {
        let place = Place::new();
        let Some(disk) = image(&place, 512, &[]) else { return };
        let sound = judged(&place, &disk, mode, None);
        assert!(sound.status.success(), "{mode}: {sound:?}");
        assert!(String::from_utf8_lossy(&sound.stdout).contains("10 kills"), "{sound:?}");

        let place = Place::new();
        let Some(disk) = image(&place, 512, &[]) else { return };
        let planted = judged(&place, &disk, mode, Some("Ext4SyncNotAwaited"));
        let said = String::from_utf8_lossy(&planted.stderr).into_owned();
        assert_eq!(planted.status.code(), Some(1), "{mode}: {planted:?}");
        let lost = ["it was synced, and is gone", "synced is version"];
        assert!(lost.iter().any(|what| said.contains(what)), "{mode}: {said}");
    }
}
