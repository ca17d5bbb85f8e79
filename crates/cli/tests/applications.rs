//! `manylogs fs applications`: programs beside a reader, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Place;
use serde_json::Value;

/// The figures that the program writes for these arguments, with `bugs` planted; prints why and
/// returns `None` where there is no mkfs.ext4.
fn measured(args: &[&str], bugs: &str) -> Option<Value> {
    let place = Place::new();
    let usual = ["fs", "applications", "--seconds", "5", "--json", "figures.json"];
    let mut command = place.command(&[&usual, args].concat());
    let said = common::Outcome::of(&command.env("MANYLOGS_PLANT", bugs).output().unwrap());
    if said.code == Some(2) && said.stderr.contains("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4, and room in /dev/shm");
        return None;
    }
    said.succeeds();
    Some(serde_json::from_slice(&std::fs::read(place.path("figures.json")).unwrap()).unwrap())
}

fn kept(figures: &Value) -> Vec<f64> {
    let cases = figures["cases"].as_array().unwrap();
    cases.iter().map(|case| case["kept"].as_f64().unwrap()).collect()
}

const DATABASES: [&str; 10] = [
    "--app",
    "mongodb",
    "--mode",
    "manylogs",
    "--flush",
    "1ms",
    "--instances",
    "1,4",
    "--drive",
    "cheetah-15k5",
];

/// Whether a stream keeps about half of its bandwidth, however often databases flush.
fn half_is_kept(bugs: &str) -> Option<bool> {
    let figures = measured(&DATABASES, bugs)?;
    let cases = figures["cases"].as_array().unwrap();
    let in_time = |case: &Value| case["flush_ms"]["mean"].as_f64().unwrap() <= 20.0;
    Some(kept(&figures).iter().all(|kept| *kept >= 0.48) && cases.iter().all(in_time))
}

#[test]
fn databases_that_flush_without_a_pause_leave_a_stream_half_of_the_drive() {
    assert_ne!(half_is_kept(""), Some(false));
}

#[cfg(feature = "plant")]
#[test]
fn starving_a_stream_is_noticed() {
    assert_ne!(half_is_kept("RecordsStarveStreams"), Some(true));
}

/// Many clients together write more at a time than the threshold for logs. The database's own log
/// is durable-only and stays in the logs, so that its flushes do not wait for writes home.
#[test]
fn logs_that_need_no_place_make_flushes_short_and_streams_long() {
    let args = ["--app", "mongodb", "--clients", "64", "--flush", "33ms", "--instances", "1"];
    let args = [&args[..], &["--mode", "manylogs,manylogs+odur"]].concat();
    let Some(figures) = measured(&args, "") else { return };
    let [plain, odur] = &figures["cases"].as_array().unwrap()[..] else { panic!("{figures}") };
    let mean = |case: &Value| case["flush_ms"]["mean"].as_f64().unwrap();
    let kept = kept(&figures);
    assert!(mean(odur) <= 0.4 * mean(plain), "{figures}");
    assert!(kept[1] >= 1.4 * kept[0], "{kept:?}");
    assert_eq!((&odur["mode"], &odur["o_dur_home_bytes"]), (&"manylogs+odur".into(), &0.into()));
    assert!(plain["o_dur_home_bytes"].is_null());
}

#[test]
fn the_same_seed_gives_the_same_figures_and_mail_servers_gain() {
    let args = ["--app", "varmail", "--mode", "ordered,manylogs", "--instances", "1"];
    let Some(figures) = measured(&args, "") else { return };
    assert_eq!(measured(&args, "").unwrap()["cases"], figures["cases"]);
    for case in figures["cases"].as_array().unwrap() {
        do_what_they_are_asked(case, true);
    }
    let kept = kept(&figures);
    assert!(kept[1] > kept[0], "manylogs keeps more than ordered: {kept:?}");
}

#[test]
fn file_servers_sync_nothing() {
    let args = ["--app", "fileserver", "--mode", "manylogs", "--instances", "1"];
    let Some(figures) = measured(&args, "") else { return };
    do_what_they_are_asked(&figures["cases"][0], false);
}

/// Checks a case: 20 operations a second, with syncs or without.
fn do_what_they_are_asked(case: &Value, syncs: bool) {
    let rate = case["operations_per_s"].as_f64().unwrap();
    assert!((18.0..=20.4).contains(&rate), "{case}");
    assert_eq!(case["flush_ms"]["max"].as_f64().unwrap() > 0.0, syncs, "{case}");
}

/// Programs beyond the paper's: databases make data durable, and of their logs nothing goes home.
#[test]
fn other_programs_run_in_each_mode() {
    let apps = "postmark,postgres,sqlite,etcd,innodb,kafka";
    let args = ["--app", apps, "--mode", "ordered,manylogs+odur", "--instances", "1"];
    let Some(figures) = measured(&args, "") else { return };
    let cases = figures["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 12);
    for case in cases {
        let syncs = !["postmark", "kafka"].contains(&case["app"].as_str().unwrap());
        assert_eq!(case["flush_ms"]["max"].as_f64().unwrap() > 0.0, syncs, "{case}");
        assert!(case["carried_per_s"].as_f64().unwrap() > 5.0, "{case}");
        if case["mode"] == "manylogs+odur" {
            assert_eq!(case["o_dur_home_bytes"], 0, "{case}");
        }
    }
}

/// The faster of two modes is bounded by the slower, and both reach that rate.
#[test]
fn modes_are_judged_at_one_rate() {
    let args = ["--app", "mongodb", "--flush", "33ms", "--instances", "1", "--judge"];
    let args = [&args[..], &["--mode", "ordered,manylogs+odur"]].concat();
    let Some(figures) = measured(&args, "") else { return };
    let [judged] = &figures["judged"].as_array().unwrap()[..] else { panic!("{figures}") };
    assert_eq!((&judged["same_rate"], &judged["holds"]), (&true.into(), &true.into()));
    let free = &figures["cases"][0]["carried_per_s"];
    assert!(free.as_f64() < figures["cases"][1]["carried_per_s"].as_f64(), "{figures}");
    assert_eq!(&judged["odur"]["carry_per_s"], free);
    assert!(judged["other"]["carry_per_s"].is_null());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (args, words) in [
        (&["--app", "frob"][..], "varmail, fileserver, mongodb, postmark"),
        (&["--figure", "6"], "4a, 4b, 5"),
        (&["--mode", "ordered+odur"], "or manylogs+odur"),
        (&["--instances", "0"], "1..=64"),
        (&["--flush", "1h"], "from 100us to 60s"),
        (&["--app", "mongodb", "--figure", "5"], "cannot be used with"),
        (&["--judge", "--mode", "ordered"], "needs manylogs+odur"),
        (&["--judge", "--carry", "5"], "--carry has no place"),
        (&["--carry", "0"], "from 0.1 to 1000000"),
        (&["--drive", "no-such-drive"], "no-such-drive"),
    ] {
        Place::new().run(&[&["fs", "applications"], args].concat()).fails(2, &[words]);
    }
}
