//! What small durable writes and a stream cost each other on MLFS, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Place;
use serde_json::Value;

/// The figures of `fs interfere` with 320 small writes a second on the Cheetah; prints why and
/// returns `None` where there is no mkfs.ext4.
fn measured(place: &Place, args: &[&str]) -> Option<Value> {
    let usual = ["fs", "interfere", "--rate", "320", "--seconds", "3", "--json", "figures.json"];
    let said = place.run(&[&usual, args].concat());
    if said.code == Some(2) && said.stderr.contains("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4, and room in /dev/shm");
        return None;
    }
    said.succeeds();
    let mut found: Value =
        serde_json::from_slice(&std::fs::read(place.path("figures.json")).unwrap()).unwrap();
    found["command"].take();
    std::fs::remove_file(place.path("figures.json")).unwrap();
    Some(found)
}

fn figure(case: &Value, path: &str) -> f64 {
    case.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {case}"))
}

#[test]
fn a_log_near_the_head_keeps_the_stream_and_shortens_syncs() {
    let place = Place::new();
    let Some(found) = measured(&place, &["--stream", "read"]) else { return };
    let of = |mode: usize, path: &str| figure(&found["cases"][mode], path);
    let [ordered, data, adaptive, manylogs] = [0, 1, 2, 3];
    assert!(of(manylogs, "/kept") > 0.8 && of(ordered, "/kept") < 0.5, "{found}");
    let mb_s = |mode| of(mode, "/stream_mb_s");
    assert!(mb_s(manylogs) > 1.05 * mb_s(adaptive), "nearer than the middle: {found}");
    assert!(mb_s(adaptive) > 1.2 * mb_s(data), "one record, and no flush: {found}");
    let mean = |mode| of(mode, "/sync_ms/mean");
    assert!(10.0 * mean(manylogs) < mean(ordered) && mean(manylogs) < mean(adaptive), "{found}");
    assert!((of(manylogs, "/writes_per_second") - 320.0).abs() < 10.0, "{found}");
    for (path, wanted) in [("/flushes", 0.0), ("/records", of(manylogs, "/transactions"))] {
        assert!((of(manylogs, path) - wanted).abs() < 0.5, "{path}: {found}");
    }
    let over: Vec<&Value> =
        found["speedups"].as_array().unwrap().iter().map(|it| &it["over"]).collect();
    assert_eq!(over, ["ordered", "data", "adaptive"]);
}

#[test]
fn the_same_command_gives_the_same_figures() {
    let place = Place::new();
    let args = ["--stream", "write", "--mode", "manylogs,adaptive", "--drive-cache", "on"];
    let Some(first) = measured(&place, &[&args[..], &["--threads", "1"]].concat()) else { return };
    let again = measured(&place, &[&args[..], &["--threads", "2"]].concat()).unwrap();
    assert_eq!(first, again);
    let case = &first["cases"][0];
    assert!(figure(case, "/stream_mb_s") > 0.8 * figure(case, "/stream_mb_s_alone"), "{first}");
}

#[test]
fn on_an_array_a_record_stays_on_one_drive() {
    let place = Place::new();
    let arrays = ["--array", "raid0:4", "--array", "raid0:4:placement=ignored"];
    let args = ["--stream", "read", "--mode", "ordered,manylogs"];
    let Some(found) = measured(&place, &[&arrays[..], &args].concat()) else { return };
    let of = |case: usize, path: &str| figure(&found["cases"][case], path);
    let [ordered, known, ignored] = [0, 1, 3];
    assert_eq!(found["cases"][known]["drive"], "raid0:4:chunk=64K of cheetah-15k5");
    assert!(of(known, "/stream_mb_s_alone") > 250.0, "four drives: {found}");
    assert!(of(known, "/kept") > of(ignored, "/kept"), "{found}");
    assert!(of(known, "/kept") > 0.8 && of(ordered, "/kept") < 0.5, "{found}");
    assert!(of(known, "/sync_ms/mean") < 10.0, "{found}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = Place::new();
    let fails = |args: &[&str], words: &[&str]| {
        place.run(&[&["fs", "interfere"], args].concat()).fails(2, words);
    };
    fails(&["--stream", "random"], &["random", "read or write"]);
    fails(&["--rate", "0"], &["--rate 0", "above 0"]);
    fails(&["--mode", "eager"], &["eager", "ordered"]);
    fails(&["--drive", "no-such-drive"], &["no-such-drive", "exos-x20"]);
    fails(&["--array", "raid7:4"], &["raid7:4", "raid0:N"]);
    fails(&["--array", "raid0:4", "--drive", "st8000as0002"], &["--array", "one by one"]);
    fails(&["--array", "raid0:4", "--slow-member", "4:20ms"], &["members are 0 to 3"]);
    fails(&["--json", "no/such/dir.json"], &["no/such/dir.json"]);
}
