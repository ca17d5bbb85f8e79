//! `manylogs fs keeping`: the promises about durable-only files, at a small scale.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Place;

#[test]
fn what_is_promised_of_files_that_need_no_place_holds() {
    let place = Place::new();
    if std::process::Command::new("mkfs.ext4").arg("-V").output().is_err() {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    // With so few logs the other gates fail, because one log is a quarter of all.
    let small = ["--logs", "40M", "--gate", "segments,pass"];
    let said = place.run(&[&["fs", "keeping", "--json", "found.json"], &small[..]].concat());
    said.succeeds();
    let json = std::fs::read_to_string(place.path("found.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cases = found["cases"].as_array().unwrap();
    let gates: Vec<&str> = cases.iter().map(|case| case["gate"].as_str().unwrap()).collect();
    assert_eq!(gates, ["segments", "pass"]);
    for case in cases {
        assert_eq!((&case["home_bytes"], &case["home_on_drive_bytes"]), (&0.into(), &0.into()));
        assert!(case["written_bytes"].as_u64().unwrap() > 100_000, "{case}");
        assert_eq!(case["misses"].as_array().map(Vec::len), Some(0), "{case}");
    }
    assert!(cases[0]["checkpoints"].as_u64().unwrap() > 0, "{}", cases[0]);
    assert!(said.stdout.contains("pass ratio"), "{said:?}");
    place.run(&["fs", "keeping", "--logs", "1M"]).fails(2, &["40M"]);
}
