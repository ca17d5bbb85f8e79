//! Advice from end to end, on small traces.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Place, text};
use serde_json::Value;

fn advice(place: &Place, trace: &str, args: &[&str]) -> (Value, String) {
    let fixed = ["advise", trace, "--json", "a.json", "--report", "a.html", "--seeds", "2"];
    let said = place.run(&[&fixed[..], args].concat()).succeeds().stdout.clone();
    let json = std::fs::read(place.path("a.json")).unwrap();
    (serde_json::from_slice(&json).unwrap(), said)
}

#[test]
fn a_reader_beside_small_writes_is_what_it_is_for() {
    let place = Place::new();
    let (found, said) = advice(&place, "synthetic", &["--limit", "3000"]);
    assert_eq!(found["decision"], "use", "{said}");
    let policy = found["policy"].as_str().unwrap();
    assert!(policy.starts_with("mlb"));
    let gain = &found["gain"];
    for key in ["durable_mean", "durable_p99", "reads_mean", "stream_mb_s"] {
        let [low, estimate, high] =
            ["low", "estimate", "high"].map(|end| gain[key][end].as_f64().unwrap());
        assert!(low <= estimate && estimate <= high, "{key}: {}", gain[key]);
    }
    assert!(gain["durable_mean"]["low"].as_f64().unwrap() > 1.0);
    for kept in ["reads_mean", "stream_mb_s"] {
        assert!(gain[kept]["estimate"].as_f64().unwrap() >= 0.99, "{kept}: {}", gain[kept]);
    }
    assert!(found["reasons"].as_array().unwrap().len() >= 4);
    let choices = found["caches"]["choices"].as_array().unwrap();
    let told: Vec<_> = choices.iter().map(|c| (&c["volume"], &c["write_cache"])).collect();
    let (yes, no) = (&Value::from(true), &Value::from(false));
    assert_eq!(told, [(no, yes), (no, no), (yes, yes), (yes, no)], "{choices:?}");
    assert!(choices.iter().all(|choice| choice["durable_mean_us"].as_f64().unwrap() > 0.0));
    let set = found["caches"]["set_for_volume"].as_bool().unwrap();
    let sentence =
        format!("with the volume: set the drive's write cache {}", manylogs_block::on_off(set));
    assert!(said.contains(&sentence), "{said}");
    assert!(found["warnings"].is_array() && found["settings"].is_object());
    assert!(said.contains("manylogs format /dev/sdX") && said.contains("noatime"), "{said}");
    // The policy that it names can be replayed.
    let args = ["replay", "synthetic", "--limit", "500", "--policy", policy];
    place.run(&args).succeeds();
    let page = std::fs::read_to_string(place.path("a.html")).unwrap();
    assert!(page.contains("Use it on exos-x20"));
}

#[test]
fn a_load_that_does_not_fit_the_drive_is_judged_at_a_rate_that_does() {
    let place = Place::new();
    let args = ["--limit", "2000", "--rate", "40"];
    let (found, said) = advice(&place, "synthetic", &args);
    let too_much = &found["too_much"];
    assert_eq!(too_much["asked"], 40.0, "{said}");
    let judged = too_much["judged"].as_f64().unwrap();
    assert!(judged > 0.5 && judged < 40.0, "{judged}");
    assert!(too_much["volume_keeps_up"].is_boolean(), "{too_much}");
    assert!(said.contains("This load does not fit exos-x20"), "{said}");
    assert!(!said.contains("latency measures backlog"), "{said}");
    // The rate that it names does fit.
    let plain =
        ["replay", "synthetic", "--limit", "2000", "--policy", "nologging", "--json", "r.json"];
    place.run(&[&plain[..], &["--rate", &judged.to_string()]].concat()).succeeds();
    let json: Value =
        serde_json::from_slice(&std::fs::read(place.path("r.json")).unwrap()).unwrap();
    assert_eq!(json["policies"]["nologging"]["overload"]["overloaded"], false);
}

#[test]
fn nothing_to_log_is_no_reason_to_use_it() {
    let place = Place::new();
    let mut reads = String::from("time_us,op,offset,bytes\n");
    for i in 0..600_u64 {
        reads += &format!("{},R,{},65536\n", i * 20_000, i * 7_919 % 250_000 * 65_536);
    }
    let trace = place.file("t.csv", reads);
    let (found, said) = advice(&place, text(&trace), &[]);
    assert_eq!(found["decision"], "no-difference", "{said}");
    assert!(found["gain"]["durable_mean"].is_null());
    assert!(found["commands"].as_array().unwrap().is_empty(), "there is nothing to do");
    assert!(said.contains("too few durable writes"), "{said}");
}

#[test]
fn the_same_command_gives_the_same_advice() {
    let place = Place::new();
    let args = ["--limit", "1500", "--threads", "1"];
    let first = advice(&place, "synthetic", &args).0;
    assert_eq!(first, advice(&place, "synthetic", &["--limit", "1500", "--threads", "3"]).0);
}

#[test]
fn on_a_shingled_drive_it_judges_the_volume_that_format_makes_there() {
    let place = Place::new();
    let args = ["--limit", "300", "--drive", "st8000as0002"];
    let (found, said) = advice(&place, "synthetic", &args);
    assert!(found["policy"].as_str().unwrap().starts_with("mlb-shingled"), "{said}");
    let reasons = found["reasons"].as_array().unwrap();
    let reason = reasons.iter().filter_map(Value::as_str).find(|text| text.contains("bands"));
    assert!(reason.is_some_and(|text| text.contains("26.8 GB")), "{said}");
}

#[test]
fn a_replay_on_a_shingled_drive_begins_with_a_cache_as_full_as_asked_for() {
    let place = Place::new();
    let mean = |cache: &str| {
        let args = ["replay", "synthetic", "--limit", "300", "--drive", "st8000as0002", "--policy"];
        let rest = ["nologging", "--json", "r.json", "--seeds", "1", "--smr-cache", cache];
        place.run(&[&args[..], &rest].concat()).succeeds();
        let json = std::fs::read(place.path("r.json")).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        json["policies"]["nologging"]["latency_us"]["durable"]["mean"].as_f64().unwrap()
    };
    let (empty, half, full) = (mean("empty"), mean("0.5"), mean("full"));
    // A full cache takes no write before a band is cleaned.
    assert!(full > 10.0 * empty && full > half, "{empty}, {half}, {full}");
    let conventional = ["replay", "synthetic", "--limit", "300", "--smr-cache", "0.5"];
    place.run(&conventional).fails(2, &["conventional drive"]);
    let wrong = ["replay", "synthetic", "--drive", "st8000as0002", "--smr-cache", "fully"];
    place.run(&wrong).fails(2, &["empty, full or a share"]);
}

#[test]
fn on_an_array_it_compares_the_array_that_is_known_with_one_that_is_not() {
    let place = Place::new();
    let args = ["--limit", "700", "--drive", "cheetah-15k5", "--array", "raid0:4"];
    let (found, said) = advice(&place, "synthetic", &args);
    assert_eq!(found["drive"], "raid0:4:chunk=64K of cheetah-15k5", "{said}");
    let one_drive = &found["one_drive"];
    assert_eq!(one_drive["policy"], found["policy"], "{said}");
    let durable = |gain: &Value| gain["durable_mean"]["estimate"].as_f64().unwrap();
    assert!(durable(&one_drive["gain"]) > 0.1 && durable(&found["gain"]) > 0.1, "{found}");
    assert!(said.contains("with the array taken for one drive"), "{said}");
    let ignored = ["--limit", "300", "--array", "raid0:4:placement=ignored"];
    let (found, _) = advice(&place, "synthetic", &ignored);
    assert!(found["one_drive"].is_null(), "it is one drive already");
    for (array, words) in [("raid0:1", "2 to 64 members"), ("raid9:4", "unknown array")] {
        place.run(&["advise", "synthetic", "--array", array]).fails(2, &[words]);
    }
    let shingled = ["advise", "synthetic", "--array", "raid0:2", "--drive", "st8000as0002"];
    place.run(&shingled).fails(2, &["an array writes in place"]);
}
