//! The time of day is the machine's, in its time zone, even after the zone has changed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use manylogs_storage::Reactor;

/// Set in the child processes in which the tests run themselves.
const CHILD: &str = "MANYLOGS_TEST_WALL_CLOCK";
const LOCALTIME: &str = "/etc/localtime";

/// Time zones whose names contain their rules, so that none need be installed.
const ZONES: [&str; 6] =
    ["UTC0", "IST-5:30", "NPT-5:45", "EST5EDT,M3.2.0,M11.1.0", "WEST1", "LINT-14"];

/// Runs the test `name` of this program again, as a child.
fn again(name: &str, as_what: &str, through: Option<Command>) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match through {
        Some(mut command) => {
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(["--exact", name, "--nocapture"]).env(CHILD, as_what);
    command
}

fn date() -> String {
    let output = Command::new("date").arg("+%T").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The reactor's time of day, at a moment at which `date` prints the same before and after.
fn agrees_with_date() -> String {
    let runtime = Reactor::new().unwrap().handle();
    loop {
        let before = date();
        let seconds = runtime.time_of_day().seconds();
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let shown = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
        if date() == before {
            assert_eq!(shown, before, "TZ={:?}", std::env::var("TZ"));
            return shown;
        }
    }
}

#[test]
fn the_time_of_day_is_that_of_the_time_zone() {
    if std::env::var(CHILD).is_ok() {
        println!("shown: {}", agrees_with_date());
        return;
    }
    for zone in ZONES {
        let name = "the_time_of_day_is_that_of_the_time_zone";
        let output = again(name, "zone", None).env("TZ", zone).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("shown: "), "TZ={zone}: {said}");
    }
}

/// The file of a time zone that is always `seconds` east of Greenwich (RFC 9636, version 1).
fn zone_file(seconds: i32) -> Vec<u8> {
    let mut file = b"TZif\0".to_vec();
    file.resize(20, 0);
    // No leap seconds, no transitions; one local time type, whose name has four bytes.
    file.extend([0_u32, 0, 0, 0, 1, 4].map(u32::to_be_bytes).concat());
    file.extend(seconds.to_be_bytes());
    file.extend([0, 0]);
    file.extend(b"XYZ\0");
    file
}

#[test]
fn a_changed_time_zone_counts_at_once() {
    if std::env::var(CHILD).is_ok() {
        // In a mount namespace of its own, so that no other process sees the changed
        // /etc/localtime.
        let dir = tempfile::tempdir().unwrap();
        let mut shown = Vec::new();
        for hours in [3, 7] {
            let zone = dir.path().join(format!("east-{hours}"));
            fs::write(&zone, zone_file(hours * 3600)).unwrap();
            let bind = Command::new("mount").arg("--bind").arg(&zone).arg(LOCALTIME).status();
            assert!(bind.unwrap().success());
            shown.push(agrees_with_date());
        }
        let hour = |shown: &String| shown[..2].parse::<u32>().unwrap();
        let apart = (hour(&shown[1]) + 24 - hour(&shown[0])) % 24;
        assert!((4..=5).contains(&apart), "{shown:?}");
        return;
    }
    let root = rustix::process::geteuid().is_root();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private"]);
    let may = Command::new("unshare").args(["--mount", "true"]).status();
    if !root || !Path::new(LOCALTIME).exists() || !may.is_ok_and(|status| status.success()) {
        manylogs_testkit::skip(format_args!("needs root, unshare, and {LOCALTIME}"));
        return;
    }
    let name = "a_changed_time_zone_counts_at_once";
    let output = again(name, "changed", Some(unshare)).env_remove("TZ").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
