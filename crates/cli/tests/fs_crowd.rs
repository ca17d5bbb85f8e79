//! Many processes, and large directories, on one mount: small runs of `tests/programs/crowd.py` and
//! `large_directory.py` (`make programs CHECKS=crowd` has the long ones).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::Place;
use common::image::{can_mount, program};

const NO_CACHES: &str = "noattrcache,lookupcache=none,nodircache,noreaddirplus,nodatacache";

/// What the program says; prints why and returns `None` where it cannot run.
fn run(name: &str, count: u32, (mode, options): (&str, &str), planted: &str) -> Option<Output> {
    if !can_mount() {
        return None;
    }
    let missing = ["python3", "mkfs.ext4"].map(|name| program(name).arg("-V").output().is_err());
    if missing.contains(&true) {
        manylogs_testkit::skip("needs python3 and mkfs.ext4");
        return None;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let place = Place::new();
    let mut command = Command::new("python3");
    command.arg(programs.join(name)).arg(env!("CARGO_BIN_EXE_manylogs")).arg(place.path("place"));
    command.args([&count.to_string(), "1", mode, options]).env("MANYLOGS_PLANT", planted);
    Some(command.output().unwrap())
}

fn passes(name: &str, count: u32, mounted: (&str, &str)) {
    if let Some(said) = run(name, count, mounted, "") {
        assert!(said.status.success(), "{mounted:?}: {said:?}");
    }
}

#[test]
fn processes_at_once_are_all_answered() {
    passes("crowd.py", 200, ("ordered", "noatime"));
    passes("crowd.py", 100, ("ordered", NO_CACHES));
    passes("crowd.py", 100, ("manylogs", "relatime"));
}

#[test]
fn a_large_directory_that_changes_is_listed_whole() {
    passes("large_directory.py", 8_000, ("ordered", "noatime"));
}

#[test]
fn a_directory_that_changes_is_listed_whole_without_caches() {
    passes("large_directory.py", 2_000, ("ordered", NO_CACHES));
}

#[test]
fn planted_lists_by_place_are_noticed() {
    let mounted = ("ordered", "noatime");
    let Some(said) = run("large_directory.py", 5_000, mounted, "Ext4ListedByPlace") else { return };
    let errors = String::from_utf8_lossy(&said.stderr);
    let found = ["listed twice", "not listed", "another order"];
    let is_found = found.iter().any(|words| errors.contains(words));
    assert!(!said.status.success() && is_found, "{said:?}");
}
