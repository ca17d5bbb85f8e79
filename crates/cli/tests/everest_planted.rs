//! The judge of killed servers of base volumes and stores (`tests/programs/everest_kills.py`)
//! notices bugs of theirs, and accepts correct servers.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::{Command, Output};

use common::Place;
use common::served::MANYLOGS;

const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/everest_kills.py");
/// Kills of the base's server.
const ROUNDS: &str = "8";

fn judged(bug: Option<&str>) -> Output {
    let place = Place::new();
    let mut judge = Command::new("python3");
    judge.args([JUDGE, MANYLOGS]).arg(place.path("")).args([ROUNDS, "1", "sectors"]);
    judge.env_remove("MANYLOGS_PLANT");
    if let Some(bug) = bug {
        judge.env("MANYLOGS_PLANT", bug);
    }
    judge.output().unwrap()
}

fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

#[test]
fn stores_that_are_forgotten_or_borrowed_again_are_noticed_after_kills() {
    if !works("python3", &["--version"]) || !works("ip", &["-V"]) || !works("nsenter", &["-V"]) {
        return manylogs_testkit::skip("needs python3, ip and nsenter");
    }
    if !works("unshare", &["--net", "true"]) {
        return manylogs_testkit::skip("needs network namespaces");
    }
    let sound = judged(None);
    assert!(sound.status.success(), "{sound:?}");
    assert!(String::from_utf8_lossy(&sound.stdout).contains("nothing lost or wrong"), "{sound:?}");

    for (bug, words) in [
        ("UnlistedTooEarly", "sectors are lost or wrong"),
        ("EvacuationForgotten", "was evacuated, and is borrowed"),
    ] {
        let planted = judged(Some(bug));
        let said = String::from_utf8_lossy(&planted.stderr).into_owned();
        assert_eq!(planted.status.code(), Some(1), "{bug}: {planted:?}");
        assert!(said.contains(words), "{bug}: {said}");
    }
}
