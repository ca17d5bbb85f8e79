//! The interfere command from end to end.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Place;
use serde_json::Value;

fn cases(place: &Place, name: &str) -> Vec<Value> {
    let json: Value = serde_json::from_slice(&std::fs::read(place.path(name)).unwrap()).unwrap();
    json["cases"].as_array().unwrap().clone()
}

#[test]
fn lists_multiply_and_each_case_says_what_it_is() {
    let place = Place::new();
    let list = "nologging,mlb";
    let args = ["--policy", list, "--stream-depth", "1,2", "--syncs", "4,8", "--seconds", "3"];
    let run = |name: &str| {
        let common = ["interfere", "--drive", "cheetah-15k5", "--json", name, "--report", "r.html"];
        place.run(&[&common[..], &args[..]].concat()).succeeds();
        cases(&place, name)
    };
    let found = run("a.json");
    assert_eq!(found.len(), 2 * 2 * 2);
    for case in &found {
        let number = |key: &str| case[key].as_f64().unwrap();
        assert_eq!(case["drive"], "cheetah-15k5");
        assert_eq!((&case["stream"], &case["at"]), (&"read".into(), &"outer".into()));
        assert_eq!(case["stream_size_bytes"], 1 << 20);
        assert!(number("stream_mb_s_alone") > 120.0 && number("kept") <= 1.01, "{case}");
        let ms = &case["sync_ms"];
        assert!(
            ms["p50"].as_f64() <= ms["p99"].as_f64() && ms["p99"].as_f64() <= ms["max"].as_f64()
        );
        assert!(case["drive_did"]["seeks"].as_u64().unwrap() > 0);
    }
    assert_eq!(found, run("b.json"), "the same seed gives the same figures");
    let page = std::fs::read_to_string(place.path("r.html")).unwrap();
    assert!(page.contains("<polyline") && page.contains("cheetah-15k5, read at outer"));
}

#[test]
fn a_stream_with_a_rate_asks_for_a_burst_at_a_time() {
    let place = Place::new();
    let common = ["interfere", "--drive", "cheetah-15k5", "--json", "a.json", "--seconds", "4"];
    let policy = ["--policy", "nologging", "--syncs", "0", "--stream-depth", "4"];
    let bursts = ["--stream-rate", "20M,1G", "--stream-burst", "1M,4M"];
    place.run(&[&common[..], &policy, &bursts].concat()).succeeds();
    let found = cases(&place, "a.json");
    let number = |case: &Value, key: &str| case[key].as_f64().unwrap();
    assert_eq!(found.len(), 4);
    for case in &found {
        let (rate, burst) = (number(case, "stream_rate_bytes"), &case["stream_burst_bytes"]);
        let (carried, request) = (number(case, "stream_mb_s"), case["stream_ms"]["mean"].as_f64());
        if rate < 1e9 {
            assert!((carried - rate / 1e6).abs() < 1.5, "{case}");
            // Four requests take longer than one.
            let expected = if *burst == 1 << 20 { 4.0..14.0 } else { 14.0..40.0 };
            assert!(expected.contains(&request.unwrap()), "{case}");
        } else {
            assert!(carried > 120.0, "more than there is: {case}");
            assert!(request.unwrap() > 1000.0, "counted from when they were due: {case}");
        }
    }
}

#[test]
fn clients_may_sync_in_a_closed_loop_without_a_stream() {
    let place = Place::new();
    let args = ["--stream", "none", "--syncs", "closed", "--sync-clients", "8", "--seconds", "3"];
    let common = ["interfere", "--drive", "cheetah-15k5", "--json", "a.json", "--report", "r.html"];
    let sync = ["--sync-mode", "fua", "--writes-per-sync", "1", "--policy", "nologging"];
    let shown = place.run(&[&common[..], &args, &sync].concat());
    let shown = &shown.succeeds().stdout;
    assert!(shown.contains("closed fua") && shown.contains("none"), "{shown}");
    let found = cases(&place, "a.json");
    let [case] = found.as_slice() else { panic!("{found:?}") };
    assert!(case["syncs_asked"].is_null() && case["kept"].is_null(), "{case}");
    assert_eq!(case["stream_mb_s"], 0.0);
    // Eight clients that are always busy: each waits for what is in front of it.
    let (rate, ms) = (case["syncs_per_second"].as_f64(), case["sync_ms"]["mean"].as_f64());
    let in_flight = rate.unwrap() * ms.unwrap() / 1e3;
    assert!((7.5..8.5).contains(&in_flight), "{case}");
    assert!(rate.unwrap() > 150.0, "{case}");
}

#[test]
fn options_of_streams_go_with_the_streams_of_a_list_that_has_none_as_well() {
    let place = Place::new();
    let common = ["interfere", "--drive", "cheetah-15k5", "--json", "a.json", "--seconds", "2"];
    let streams = ["--stream", "none,read", "--stream-depth", "1,4", "--at", "inner"];
    place.run(&[&common[..], &streams, &["--policy", "nologging"]].concat()).succeeds();
    let of = |case: &Value| (case["stream"].clone(), case["stream_depth"].clone());
    let found: Vec<_> = cases(&place, "a.json").iter().map(of).collect();
    assert_eq!(found[1..], [("read".into(), 1.into()), ("read".into(), 4.into())]);
    assert_eq!((found.len(), &found[0].0), (3, &"none".into()));
}

#[test]
fn what_makes_no_sense_is_named() {
    let place = Place::new();
    for (args, words) in [
        (&["--stream", "sideways"][..], "there are: read, write, random, none"),
        (&["--stream", "none", "--syncs", "0"], "there is no load to measure"),
        (&["--stream", "none,read", "--syncs", "0"], "there is no load to measure"),
        (&["--stream", "none", "--stream-rate", "8M"], "--stream-rate goes with a stream"),
        (&["--stream", "none", "--at", "inner"], "--at goes with a stream"),
        (&["--syncs", "open"], "or closed"),
        (&["--sync-mode", "fsync"], "there are: fua, flush, journal"),
        (&["--queue", "bfq"], "there are: fcfs, elevator, sptf"),
        (&["--at", "middle"], "there are: outer, inner"),
        (&["--stream-size", "100G", "--stream-depth", "200"], "do not fit"),
        (&["--syncs=-1"], "expected syncs a second"),
        (&["--stream-burst", "4M"], "--stream-rate"),
        (&["--stream-rate", "80 %"], "expected bytes a second"),
        (&["--drive-cache", "maybe"], "expected on or off"),
        (&["--policy", "mlp"], "unknown policy"),
        (&["--drive", "chetah-15k5"], "did you mean `cheetah-15k5`"),
    ] {
        let outcome = place.run(&[&["interfere"][..], args].concat());
        outcome.fails(2, &[words]);
    }
}

#[test]
fn plain_and_volume_with_the_cache_on_and_off_stand_beside_each_other() {
    let place = Place::new();
    let load = ["--stream-depth", "8", "--sync-mode", "fua", "--seconds", "4", "--json", "f.json"];
    let drives = ["--drive-cache", "on,off", "--drive-link", "sata,sas"];
    let found = place.run(&[&["interfere"][..], &load, &drives].concat());
    let table = found.succeeds().stdout.clone();
    let fours = table.split("write cache on and off:").nth(1).expect(&table);
    let json: Value =
        serde_json::from_slice(&std::fs::read(place.path("f.json")).unwrap()).unwrap();
    for (link, name) in [("sata", " sata "), ("sas", " sas+fua ")] {
        let row = fours.lines().find(|line| line.contains(name)).expect(fours);
        let mut rest = row;
        for (policy, cache) in
            [("nologging", true), ("nologging", false), ("mlb", true), ("mlb", false)]
        {
            let case = json["cases"].as_array().unwrap().iter().find(|case| {
                case["policy"] == policy
                    && case["drive_cache"] == cache
                    && case["drive_link"] == link
            });
            let case = case.unwrap();
            let (mean, kept) =
                (case["sync_ms"]["mean"].as_f64().unwrap(), case["kept"].as_f64().unwrap());
            let figure = format!("{mean:.1} ms, {:.1} %", kept * 100.0);
            let at = rest.find(&figure).unwrap_or_else(|| panic!("{figure} in {row}"));
            rest = &rest[at + figure.len()..];
        }
    }
    let alone = place.run(&[&["interfere", "--drive-cache", "on"][..], &load].concat());
    assert!(!alone.succeeds().stdout.contains("on and off"), "there is nothing to compare");
}
