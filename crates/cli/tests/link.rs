//! The link between host and modelled drive, on the command line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Place, text};
use serde_json::Value;

/// The profile of the default drive without its `[link]`, as a file.
fn without_link(place: &Place) -> std::path::PathBuf {
    let path = format!("{}/../../profiles/exos-x20.toml", env!("CARGO_MANIFEST_DIR"));
    let profile = std::fs::read_to_string(path).unwrap();
    let (before, from) = profile.split_once("\n[link]\n").unwrap();
    let (_, after) = from.split_once("\n[").unwrap();
    place.file("old.toml", format!("{before}\n[{after}"))
}

#[test]
fn links_multiply_and_each_case_says_which_it_is() {
    let place = Place::new();
    let usual = ["interfere", "--drive", "exos-x20", "--policy", "nologging", "--stream", "random"];
    let load = ["--stream-depth", "8", "--sync-mode", "fua", "--seconds", "4", "--json", "f.json"];
    let links = ["--drive-cache", "on", "--drive-link", "sata,sas", "--drive-fua", "off,on"];
    let found = place.run(&[&usual[..], &load, &links].concat());
    let table = found.succeeds().stdout.clone();
    for drive in ["exos-x20 sata ", "exos-x20 sata+fua", "exos-x20 sas ", "exos-x20 sas+fua"] {
        assert!(table.contains(drive), "{drive:?} in {table}");
    }
    let found: Value =
        serde_json::from_slice(&std::fs::read(place.path("f.json")).unwrap()).unwrap();
    let cases = found["cases"].as_array().unwrap();
    let told: Vec<_> = cases.iter().map(|case| (&case["drive_link"], &case["drive_fua"])).collect();
    let (sata, sas) = (Value::from("sata"), Value::from("sas"));
    let (off, on) = (Value::from(false), Value::from(true));
    assert_eq!(told, [(&sata, &off), (&sata, &on), (&sas, &off), (&sas, &on)]);
    // A durable write that drains the queue costs the stream more than one that is queued.
    let kept = |case: usize| cases[case]["kept"].as_f64().unwrap();
    assert!(kept(0) < 0.9 * kept(1), "{} {}", kept(0), kept(1));
}

#[test]
fn what_is_assumed_or_makes_no_difference_is_said() {
    let place = Place::new();
    let old = without_link(&place);
    let load = ["--load", "random-4k", "--seconds", "1"];
    let exercise = |drive: &str, args: &[&str]| {
        let found = place.run(&[&["drive", "exercise", drive][..], &load, args].concat());
        found.succeeds().stderr.clone()
    };
    let said = exercise(text(&old), &[]);
    assert!(said.contains("has no [link]: sata is assumed for 7200 rpm, with FUA off"), "{said}");
    assert_eq!(exercise(text(&old), &["--drive-link", "sas"]), "");
    let said = exercise("exos-x20", &["--drive-cache", "off", "--drive-fua", "on"]);
    assert!(said.contains("makes no difference while its write cache is off"), "{said}");
    let said = exercise("cheetah-15k5", &["--drive-link", "sata"]);
    assert!(said.contains("no SATA drive turns 15017 times a minute"), "{said}");
    assert_eq!(exercise("exos-x20", &["--drive-link", "sas", "--drive-fua", "off"]), "");
    let shown = place.run(&["drive", "show", text(&old)]).succeeds().stdout.clone();
    assert!(shown.contains("sata is assumed"), "{shown}");
    let shown = place.run(&["drive", "show", "cheetah-15k5"]).succeeds().stdout.clone();
    assert!(shown.contains("kind = \"sas\"") && shown.contains("kind = \"manual"), "{shown}");
}

#[test]
fn links_that_are_none_are_refused() {
    let place = Place::new();
    let image = place.file("disk.img", vec![0_u8; 1 << 20]);
    let serve = ["serve", text(&image), "--raw", "--loop"];
    let mount = ["fs", "mount", text(&image), "/nowhere"];
    for (args, words) in [
        (&["interfere", "--drive-link", "nvme"][..], "expected sata or sas"),
        (&["interfere", "--drive-fua", "maybe"], "expected on or off"),
        (&["drive", "exercise", "exos-x20", "--load", "mixed", "--drive-link", ""], "sata or sas"),
        (&[&serve[..], &["--drive-link", "sas"]].concat(), "give --emulate, too"),
        (&[&mount[..], &["--drive-fua", "on"]].concat(), "give --emulate, too"),
    ] {
        place.run(args).fails(2, &[words]);
    }
}
