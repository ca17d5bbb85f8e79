//! The JSON output has exactly the keys that `docs/json.md` documents.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;

use common::{Place, text};
use serde_json::Value;

const LATENCY: [&str; 7] = ["requests", "mean", "p50", "p90", "p99", "p999", "max"];
const INTERVAL: [&str; 3] = ["estimate", "low", "high"];

/// Paths and types that the section of this title documents.
fn documented(title: &str) -> BTreeMap<String, String> {
    let text = include_str!("../../../docs/json.md");
    let section = text.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (path, rest) = row.split_once("` | ").unwrap();
        (path.to_owned(), rest.split(" |").next().unwrap().to_owned())
    })
    .collect()
}

/// Calls `leaf` with the path of each value that has no parts.
fn walk(value: &Value, path: &str, leaf: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) if path != "settings" => {
            for (key, field) in fields {
                let key = if path == "policies" { "*" } else { key };
                let joint = if path.is_empty() { "" } else { "." };
                walk(field, &format!("{path}{joint}{key}"), leaf);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, &format!("{path}[]"), leaf)),
        _ => leaf(path, value),
    }
}

fn compare(outputs: &[Value], title: &str) {
    let documented = documented(title);
    let mut seen = BTreeMap::new();
    for output in outputs {
        walk(output, "", &mut |path, value| {
            let whole = documented.get(path).map(|kind| (path, kind.as_str()));
            let part = path.rsplit_once('.').and_then(|(parent, last)| {
                let kind = documented.get(parent)?.as_str();
                let parts = match kind {
                    "latency" => &LATENCY[..],
                    "interval" => &INTERVAL[..],
                    _ => &[],
                };
                parts.contains(&last).then_some((parent, kind))
            });
            let (name, kind) = whole.or(part).unwrap_or_else(|| panic!("{path} is not documented"));
            seen.insert(name.to_owned(), ());
            let fits = match kind {
                "text" => value.is_string(),
                "whole" => value.is_u64(),
                "real" => value.is_number(),
                "bool" => value.is_boolean(),
                "object" => value.is_object(),
                _ => value.is_number(),
            };
            assert!(fits || value.is_null(), "{path} is {value} instead of {kind}");
        });
    }
    let unseen: Vec<&String> = documented.keys().filter(|name| !seen.contains_key(*name)).collect();
    let parts = ["policies.*.checkpoint", "warnings[]", "trace.transforms[]", "commands[]"];
    assert!(unseen.iter().all(|name| parts.contains(&name.as_str())), "never seen: {unseen:?}");
}

fn output(place: &Place, args: &[&str]) -> Value {
    place.run(&[args, &["--json", "r.json"]].concat()).succeeds();
    serde_json::from_slice(&std::fs::read(place.path("r.json")).unwrap()).unwrap()
}

#[test]
fn replay_writes_what_is_documented() {
    let place = Place::new();
    let trace = place.trace("t.csv", 1_000);
    let auto = ["replay", text(&trace), "--rate", "auto", "--seeds", "1"];
    let sync = ["replay", "synthetic", "--limit", "1500", "--durability", "sync-every=1s"];
    let drive = ["--drive", "st8000as0002", "--policy", "nologging,mlsmr", "--seeds", "1"];
    let shingled = [&["replay", "synthetic", "--limit", "500"][..], &drive].concat();
    let outputs = [&auto[..], &sync, &shingled].map(|args| output(&place, args));
    compare(&outputs, "`replay --json`");
}

#[test]
fn exercise_writes_what_is_documented() {
    let place = Place::new();
    let found = ["st8000as0002", "exos-x20"].map(|drive| {
        let load = ["--load", "random-4k", "--seconds", "20", "--json"];
        let said = place.run(&[&["drive", "exercise", drive][..], &load].concat());
        serde_json::from_str::<Value>(&said.succeeds().stdout).unwrap()
    });
    compare(&found, "`drive exercise --json`");
}

#[test]
fn advise_writes_what_is_documented() {
    let place = Place::new();
    let advise = |args: &[&str]| {
        output(&place, &[&["advise", "synthetic", "--seeds", "1", "--limit"][..], args].concat())
    };
    let fits = advise(&["1500"]);
    let too_much = advise(&["1500", "--rate", "40"]);
    let shingled = advise(&["300", "--drive", "st8000as0002"]);
    // A drive by its data sheet has ranges.
    let ranged = advise(&["400", "--drive", "barracuda-1t"]);
    compare(&[fits, too_much, shingled, ranged], "`advise --json`");
}

#[test]
fn the_status_of_a_file_system_is_what_is_documented() {
    let place = Place::new();
    let images = [&["-b", "4096"][..], &["-b", "1024"]].map(|options| {
        let image = place.file("disk.img", "");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let made =
            std::process::Command::new("mkfs.ext4").arg("-q").args(options).arg(&image).status();
        if !made.is_ok_and(|status| status.success()) {
            manylogs_testkit::skip("needs mkfs.ext4");
            return None;
        }
        let said = place.run(&["fs", "status", "disk.img", "--json"]);
        serde_json::from_str::<Value>(&said.succeeds().stdout).ok()
    });
    let [Some(usual), Some(refused)] = images else { return };
    assert_eq!((&usual["state"], &usual["refused"]), (&"clean".into(), &Value::Null));
    assert!(refused["refused"].as_str().unwrap().contains("-b 4096"));
    compare(&[usual, refused], "`fs status --json`");
}

#[test]
fn the_check_of_a_file_system_is_what_is_documented() {
    let place = Place::new();
    let image = place.file("disk.img", "");
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut mkfs = std::process::Command::new("mkfs.ext4");
    let made = mkfs.args(["-q", "-b", "4096"]).arg(&image).status();
    if !made.is_ok_and(|status| status.success()) {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    let check = || {
        let said = place.run(&["fs", "check", "disk.img", "--json"]);
        serde_json::from_str::<Value>(&said.stdout).unwrap()
    };
    let good = check();
    // Damages the first group's count of free blocks.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 2], 4096 + 12).unwrap();
    let damaged = check();
    assert_eq!((&good["clean"], &damaged["clean"]), (&Value::Bool(true), &Value::Bool(false)));
    let made = mkfs.arg("-F").status();
    assert!(made.is_ok_and(|status| status.success()));
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    // Damages one copy of the logs' superblock.
    let content = std::fs::read(&image).unwrap();
    let copy = content.chunks(512).position(|sector| sector.starts_with(b"MANYLOGS")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"damaged!", copy as u64 * 512).unwrap();
    let mut damaged_logs = check();
    assert_eq!(damaged_logs["log_findings"][0]["severity"], "redundancy");
    place.run(&["fs", "check", "disk.img"]).fails(3, &["manylogs fs check --repair"]);
    place.run(&["fs", "check", "disk.img", "--repair"]).succeeds();
    place.run(&["fs", "check", "disk.img"]).succeeds();
    // This part has the keys of the status, which another test compares.
    damaged_logs["mlfs"] = good["mlfs"].clone();
    compare(&[good, damaged, damaged_logs], "`fs check --json`");
}
