//! The replay command from end to end, on small traces.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Outcome, Place, text};
use serde_json::Value;

/// The policies compared if the trace records no flush.
const POLICIES: [&str; 4] = ["nologging", "single-log", "mlb", "mlb-paper"];

fn json(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.path(name)).unwrap()).unwrap()
}

#[test]
fn the_json_holds_what_the_documentation_promises() {
    let place = Place::new();
    let trace = place.trace("t.csv", 2_000);
    place.run(&["replay", text(&trace), "--json", "r.json", "--seed", "7"]).succeeds();
    let result = json(&place, "r.json");
    assert_eq!(result["seed"], 7);
    assert_eq!(result["drive"], "exos-x20");
    assert_eq!(result["trace"]["requests"], 2_000);
    for policy in POLICIES {
        let found = &result["policies"][policy];
        assert_eq!(found["requests"], 2_000, "{policy}");
        for kind in ["durable", "reads"] {
            for figure in ["mean", "p50", "p90", "p99", "p999", "max"] {
                let latency = found["latency_us"][kind][figure].as_f64().unwrap();
                assert!(latency > 0.0, "{policy} {kind} {figure}");
            }
        }
        for figure in ["durable_mean", "durable_p50", "durable_p90", "durable_p99", "reads_mean"] {
            let gain = &found["gain"][figure];
            let [low, estimate, high] =
                ["low", "estimate", "high"].map(|key| gain[key].as_f64().unwrap());
            assert!(0.0 < low && low <= estimate && estimate <= high, "{policy} {figure}: {gain}");
        }
        for figure in ["logged_writes", "log_swaps", "mapping_table_bytes_max"] {
            assert!(found[figure].is_u64(), "{policy} {figure}");
        }
        assert!(found["simulated_seconds"].as_f64().unwrap() > 39.0);
    }
    let base = &result["policies"]["nologging"];
    assert_eq!(result["baseline"], "nologging");
    assert_eq!(result["durability"]["mode"], "all");
    assert_eq!(base["logged_writes"], 0);
    assert_eq!(base["gain"]["durable_mean"]["estimate"], 1.0);
    assert!(result["policies"]["mlb"]["logged_writes"].as_u64().unwrap() > 600);
    let best = result["verdict"]["policy"].as_str().unwrap();
    assert!(best.starts_with("mlb"), "{best} is what format can make");
}

/// The modelled drive keeps no content, so that records of a full log cannot be read from it.
#[test]
fn full_logs_are_swapped_in_idle_time() {
    let place = Place::new();
    let fixed = ["replay", "tenant:T7/0@1", "--window", "0+5m", "--drive", "constellation-es3"];
    let rate = ["--rate", "auto", "--utilisation", "0.2", "--seeds", "1", "--json", "r.json"];
    place.run(&[&fixed[..], &rate, &["--policy", "nologging,mlb-256"]].concat()).succeeds();
    let result = json(&place, "r.json");
    let swaps = result["policies"]["mlb-256"]["log_swaps"].as_u64().unwrap();
    assert!((1..100).contains(&swaps), "{swaps}");
}

#[test]
fn the_same_command_writes_the_same_bytes() {
    let place = Place::new();
    let trace = place.trace("t.csv", 3_000);
    let run = |args: &[&str]| {
        let fixed = ["replay", text(&trace), "--json", "r.json", "--report", "r.html"];
        place.run(&[&fixed[..], args].concat()).succeeds();
        ["r.json", "r.html"].map(|name| std::fs::read(place.path(name)).unwrap())
    };
    let first = run(&[]);
    assert!(first == run(&[]), "JSON and report are the same to the byte");
    let figures = |args: &[&str]| {
        run(args);
        json(&place, "r.json")["policies"].to_string()
    };
    let (one, four) = (figures(&["--threads", "1"]), figures(&["--threads", "4"]));
    assert_eq!(one, four, "whatever runs beside");
    assert_ne!(one, figures(&["--seed", "2"]));
}

/// A trace of writes with flushes, one every tenth of a second.
fn flushed(requests: u64) -> String {
    let mut text = String::from("time_us,op,offset,bytes\n");
    for i in 0..requests {
        let at = i * 100_000;
        text += &format!("{at},W,{},4096\n", i * 7_919 % 250_000 * 4096);
        text += &format!("{},F,0,0\n", at + 200);
    }
    text
}

#[test]
fn an_answer_from_memory_is_not_durable() {
    let place = Place::new();
    let trace = place.file("t.csv", flushed(400));
    place.run(&["replay", text(&trace), "--json", "r.json"]).succeeds();
    let result = json(&place, "r.json");
    assert_eq!(result["durability"]["mode"], "recorded", "as the trace has flushes");
    for policy in ["nologging", "nologging:cache=off", "mlb"] {
        let found = &result["policies"][policy]["latency_us"];
        assert_eq!(found["syncs"]["requests"], 3 * 400, "{policy}");
        assert_eq!(found["durable"], found["syncs"], "{policy}");
        // The mean of three seeds; a revolution takes 8 ms.
        let mean = found["durable"]["mean"].as_f64().unwrap();
        assert!(mean > 1_000.0, "{policy}: {mean} us until data is durable");
    }
    let cached = &result["policies"]["mlb"]["latency_us"]["cached_writes"];
    assert!(cached["mean"].as_f64().unwrap() < 100.0, "from memory: {cached}");
    let gain = result["policies"]["mlb"]["gain"]["durable_mean"]["estimate"].as_f64().unwrap();
    assert!(gain < 20.0, "{gain} times as fast is an acknowledgement from memory");
}

#[test]
fn durability_is_as_asked_for() {
    let place = Place::new();
    let trace = place.file("t.csv", flushed(200));
    let run = |how: &str| {
        let args = ["replay", text(&trace), "--json", "r.json", "--durability", how];
        let stdout = place.run(&args).succeeds().stdout.clone();
        (json(&place, "r.json")["policies"]["mlb"]["latency_us"].clone(), stdout)
    };
    let (all, said) = run("all");
    assert_eq!(all["durable_small_writes"]["requests"], 600);
    assert_eq!(all["syncs"]["requests"], 0);
    assert!(said.contains("every write is durable"), "{said}");
    let (every, said) = run("sync-every=1s");
    assert_eq!(every["syncs"]["requests"], 60);
    assert!(said.contains("a flush every 1s"), "{said}");
    let bad = ["replay", text(&trace), "--durability", "sometimes"];
    place.run(&bad).fails(2, &["recorded, all or sync-every=5s"]);
}

#[test]
fn few_writes_are_no_ground_for_a_verdict() {
    let place = Place::new();
    let trace = place.trace("t.csv", 60);
    let outcome = place.run(&["replay", text(&trace), "--json", "r.json"]);
    assert!(outcome.succeeds().stdout.contains("too few durable writes"), "{}", outcome.stdout);
    let result = json(&place, "r.json");
    assert_eq!(result["verdict"]["decision"], "no-difference");
    assert!(result["policies"]["mlb"]["gain"]["durable_mean"].is_null());
}

#[test]
fn the_report_is_one_file_that_asks_for_nothing() {
    let place = Place::new();
    let trace = place.trace("t.csv", 2_000);
    place.run(&["replay", text(&trace), "--report", "r.html"]).succeeds();
    let html = std::fs::read_to_string(place.path("r.html")).unwrap();
    for policy in POLICIES {
        assert!(html.contains(policy));
    }
    for outside in ["src=\"http", "href=\"http", "@import", "url(http", "fetch("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("manylogs replay"), "the command line to repeat it");
}

#[test]
fn the_table_is_printed_and_nothing_else_in_a_pipe() {
    let place = Place::new();
    let trace = place.trace("t.csv", 500);
    let outcome = place.run(&["replay", text(&trace)]);
    outcome.succeeds();
    assert_eq!(outcome.stderr, "");
    let title = outcome.stdout.lines().find(|line| line.starts_with("policy")).unwrap();
    for column in ["durable mean", "p50", "p90", "p99", "times as fast", "reads", "streams", "busy"]
    {
        assert!(title.contains(column), "{title}");
    }
}

#[test]
fn a_trace_is_written_as_csv_where_the_name_says_so() {
    let place = Place::new();
    let trace = place.trace("t.csv", 200);
    for (output, first) in [("o.csv", &b"t_ns,op,lba"[..]), ("o.trace", b"MLTRACE\n")] {
        place.run(&["trace", "convert", text(&trace), "-o", output]).succeeds();
        assert!(std::fs::read(place.path(output)).unwrap().starts_with(first), "{output}");
    }
    let figures = |trace: &str| {
        let args = ["replay", trace, "--policy", "nologging,mlb", "--json", "r.json"];
        place.run(&args).succeeds();
        json(&place, "r.json")["policies"].to_string()
    };
    assert_eq!(figures("o.csv"), figures("t.csv"));
    assert_eq!(figures("o.trace"), figures("t.csv"));
}

#[test]
fn a_trace_is_written_in_the_format_that_is_asked_for() {
    let place = Place::new();
    let trace = place.trace("t.csv", 200);
    let said = |outcome: Outcome| outcome.succeeds().stdout.clone();
    let msr = said(place.run(&["trace", "convert", text(&trace), "-o", "o.msr"]));
    assert!(msr.contains("200 requests written to o.msr (msr)"), "{msr}");
    assert!(!msr.contains("cannot hold"), "nothing is lost: {msr}");
    let args = ["trace", "convert", text(&trace), "-o", "plain", "--to", "tencent"];
    let tencent = said(place.run(&args));
    assert!(tencent.contains("what tencent cannot hold: "), "{tencent}");
    assert!(tencent.contains("earlier time, by 980.000 ms at most"), "{tencent}");
    let flushed = place.file("f.csv", flushed(100));
    let lost = said(place.run(&["trace", "convert", text(&flushed), "-o", "f.spc"]));
    assert!(lost.contains("what spc cannot hold: ") && lost.contains("flushes"), "{lost}");
    let read = said(place.run(&["trace", "stat", "o.msr", "--json"]));
    assert!(read.contains("\"requests\": 200"), "{read}");
    for (args, words) in [
        (["-o", "o.csv.gz", "--seed", "1"], ["pack the file", "o.csv.gz"]),
        (["-o", "o", "--to", "mobile"], ["only read", "blkparse"]),
        (["-o", "o", "--to", "punch-cards"], ["unknown trace format", "punch-cards"]),
    ] {
        let convert = ["trace", "convert", text(&trace)];
        place.run(&[&convert[..], &args[..]].concat()).fails(2, &words);
        assert!(!place.path(args[1]).exists(), "{args:?}");
    }
}

#[test]
fn several_traces_share_the_drive() {
    let place = Place::new();
    let (a, b) = (place.trace("a.csv", 300), place.trace("b.csv", 200));
    let args = ["replay", text(&a), text(&b), "--json", "r.json", "--policy", "nologging,mlb-32"];
    place.run(&args).succeeds();
    assert_eq!(json(&place, "r.json")["trace"]["requests"], 500);
}

#[test]
fn rate_auto_meets_the_utilisation_asked_for() {
    let place = Place::new();
    let trace = place.trace("t.csv", 3_000);
    let args = ["replay", text(&trace), "--policy", "nologging", "--json", "r.json"];
    place.run(&[&args[..], &["--rate", "auto", "--utilisation", "0.3"]].concat()).succeeds();
    let result = json(&place, "r.json");
    assert_eq!(result["rate"]["chosen"], "auto");
    let busy = result["policies"]["nologging"]["drive_busy_percent"].as_f64().unwrap();
    assert!((busy - 30.0).abs() < 2.0, "{busy} % busy");
}

#[test]
fn a_trace_that_outruns_the_drive_is_called_that() {
    let place = Place::new();
    let trace = place.trace("t.csv", 20_000);
    let args =
        ["replay", text(&trace), "--policy", "nologging", "--rate", "100", "--json", "r.json"];
    let outcome = place.run(&args);
    outcome.succeeds();
    assert!(outcome.stdout.contains("--rate auto"), "{}", outcome.stdout);
    let overload = &json(&place, "r.json")["policies"]["nologging"]["overload"];
    assert_eq!(overload["overloaded"], true);
    assert!(overload["held_requests"].as_u64().unwrap() > 0);
    let stopped = place.run(&[&args[..], &["--on-overload", "stop"]].concat());
    stopped.succeeds();
    let result = json(&place, "r.json");
    assert_eq!(result["policies"]["nologging"]["overload"]["stopped"], true);
    assert!(result["policies"]["nologging"]["requests"].as_u64().unwrap() < 20_000);
}

#[test]
fn a_closed_loop_says_so() {
    let place = Place::new();
    let trace = place.trace("t.csv", 1_000);
    let args = ["replay", text(&trace), "--loop", "closed", "--depth", "4", "--json", "r.json"];
    let outcome = place.run(&args);
    assert!(outcome.succeeds().stdout.contains("closed loop"));
    assert_eq!(json(&place, "r.json")["loop"]["mode"], "closed");
}

#[test]
fn ctrl_c_reports_what_is_finished() {
    let place = Place::new();
    let trace = place.trace("t.csv", 20_000);
    let args = ["replay", text(&trace), "--repeat", "100000", "--policy", "nologging", "--json"];
    let mut child = place
        .command(&[&args[..], &["r.json"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Before it catches the signal, that would end it at once.
    let catches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> 1 & 1 == 1
    };
    let began = Instant::now();
    while !catches() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not catch Ctrl-C");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(1500));
    let interrupted = Instant::now();
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    child.wait().unwrap();
    let outcome = Outcome::of(&child.wait_with_output().unwrap());
    outcome.fails(130, &["interrupted"]);
    assert!(interrupted.elapsed() < Duration::from_secs(20));
    assert_eq!(json(&place, "r.json")["interrupted"], true);
    assert!(outcome.stdout.contains("was interrupted after"), "{}", outcome.stdout);
}

#[test]
fn a_trace_is_replayed_on_an_array() {
    let place = Place::new();
    let trace = place.trace("t.csv", 1_000);
    for (array, name) in [
        ("raid0:4", "raid0:4:chunk=64K of exos-x20"),
        ("raid5:4:chunk=128K", "raid5:4:chunk=128K of exos-x20"),
        ("raid1:2", "raid1:2:chunk=64K of exos-x20"),
    ] {
        let args = ["replay", text(&trace), "--array", array, "--policy", "nologging,mlb"];
        let rest = ["--json", "r.json", "--seeds", "1"];
        place.run(&[&args[..], &rest].concat()).succeeds();
        let result = json(&place, "r.json");
        assert_eq!(result["drive"], name);
        for policy in ["nologging", "mlb"] {
            assert_eq!(result["policies"][policy]["requests"], 1_000, "{array} {policy}");
        }
        assert!(result["policies"]["mlb"]["logged_writes"].as_u64().unwrap() > 300, "{array}");
    }
    let bad = ["replay", text(&trace), "--array", "raid5:2"];
    place.run(&bad).fails(2, &["raid5 has 3 to 64 members"]);
}
