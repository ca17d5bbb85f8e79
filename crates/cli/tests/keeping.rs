//! `manylogs fs keeping`: the promises about durable-only files, at a small scale.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Place;

/// What is found of one gate.
fn found(place: &Place, args: &[&str]) -> serde_json::Value {
    let said = place.run(&[&["fs", "keeping", "--json", "found.json"], args].concat());
    said.succeeds();
    assert!(said.stdout.contains("pass ratio"), "{said:?}");
    let json = std::fs::read_to_string(place.path("found.json")).unwrap();
    let mut found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cases = found["cases"].as_array_mut().unwrap();
    assert_eq!(cases.len(), 1);
    let case = cases.remove(0);
    assert_eq!(case["gate"].as_str(), args.last().copied());
    case
}

#[test]
fn what_is_promised_of_files_that_need_no_place_holds() {
    let place = Place::new();
    if std::process::Command::new("mkfs.ext4").arg("-V").output().is_err() {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    // The pass is measured with few logs, which is short. With so few logs writers wait for room.
    let pass = found(&place, &["--logs", "40M", "--gate", "pass"]);
    let segments = found(&place, &["--gate", "segments"]);
    for case in [&pass, &segments] {
        assert_eq!((&case["home_bytes"], &case["home_on_drive_bytes"]), (&0.into(), &0.into()));
        assert!(case["written_bytes"].as_u64().unwrap() > 100_000, "{case}");
        assert_eq!(case["misses"].as_array().map(Vec::len), Some(0), "{case}");
    }
    assert!(segments["checkpoints"].as_u64().unwrap() > 0, "{segments}");
    // So little is read in so short a time that the gate need not hold.
    place.run(&["fs", "keeping", "--json", "read.json", "--logs", "40M", "--gate", "read"]);
    let read = std::fs::read_to_string(place.path("read.json")).unwrap();
    let read: serde_json::Value = serde_json::from_str(&read).unwrap();
    let read = &read["cases"][0];
    assert!(read["read_ratio"].as_f64().unwrap() > 0.2, "{read}");
    assert!(read["read_scattered_mb_per_s"].as_f64().unwrap() > 1.0, "{read}");
    place.run(&["fs", "keeping", "--logs", "1M"]).fails(2, &["40M"]);
}
