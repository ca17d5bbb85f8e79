//! The replay command from end to end, on small traces.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Outcome, Place, text};
use serde_json::Value;

const POLICIES: [&str; 4] = ["nologging", "single-log", "mlb-32", "mlb-256"];

fn json(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.path(name)).unwrap()).unwrap()
}

/// Removes what depends on the speed of the computer, and the command line.
fn without_wall(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| {
                !key.starts_with("wall_") && key != "requests_per_wall_second" && key != "command"
            });
            fields.values_mut().for_each(without_wall);
        }
        Value::Array(items) => items.iter_mut().for_each(without_wall),
        _ => {}
    }
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
        for figure in ["mean", "p50", "p90", "p99", "p999", "max"] {
            assert!(found["latency_us"][figure].as_f64().unwrap() > 0.0, "{policy} {figure}");
        }
        for figure in ["mean_over_percentiles", "p50", "p90", "p99"] {
            assert!(found["speedup_over_nologging"][figure].as_f64().unwrap() > 0.0);
        }
        for figure in ["logged_writes", "log_swaps", "mapping_table_bytes_max"] {
            assert!(found[figure].is_u64(), "{policy} {figure}");
        }
        assert!(found["simulated_seconds"].as_f64().unwrap() > 39.0);
        assert!(found["wall_seconds"].is_f64() && found["requests_per_wall_second"].is_f64());
    }
    let base = &result["policies"]["nologging"];
    assert_eq!(base["logged_writes"], 0);
    assert_eq!(base["speedup_over_nologging"]["mean_over_percentiles"], 1.0);
    assert!(result["policies"]["mlb-256"]["logged_writes"].as_u64().unwrap() > 600);
}

#[test]
fn the_same_seed_gives_the_same_bytes_whatever_runs_beside() {
    let place = Place::new();
    let trace = place.trace("t.csv", 3_000);
    let run = |out: &str, threads: &str, seed: &str| {
        let args = ["replay", text(&trace), "--json", out, "--threads", threads, "--seed", seed];
        place.run(&args).succeeds();
        let mut value = json(&place, out);
        without_wall(&mut value);
        value.to_string()
    };
    let first = run("a.json", "1", "1");
    assert_eq!(first, run("b.json", "4", "1"));
    assert_ne!(first, run("c.json", "4", "2"));
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
    for column in ["mean", "p50", "p90", "p99", "max", "speed-up", "log swaps", "table", "busy"] {
        assert!(title.contains(column), "{title}");
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
