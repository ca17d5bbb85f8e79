//! Sweeps from end to end, on small traces.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{Outcome, Place, text};

const SWEEP: &str = "\
traces = ['t.csv']
drives = ['exos-x20', 'cheetah-15k5']
policies = ['nologging', 'mlb']
seeds = 2
[parameters]
threshold = ['32K', '256K']
[output]
csv = 'out.csv'
parquet = 'out.parquet'
";

fn rows(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.path("out.csv")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_sweep_is_one_row_a_run() {
    let place = Place::new();
    place.trace("t.csv", 1_000);
    let file = place.file("s.toml", SWEEP);
    let outcome = place.run(&["sweep", text(&file)]);
    let said = &outcome.succeeds().stdout;
    assert!(said.contains("| t.csv | exos-x20 | mlb:threshold=32K |"), "{said}");
    assert!(said.contains("computing took: 12 runs"), "{said}");
    let rows = rows(&place);
    assert_eq!(rows.len(), 1 + 2 * 3 * 2, "traces x drives x policies x seeds, and names");
    let documented = include_str!("../../../docs/sweeps.md");
    for name in rows[0].split(',') {
        assert!(documented.contains(&format!("| `{name}` |")), "docs/sweeps.md lacks {name}");
    }
    let parquet = std::fs::read(place.path("out.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    assert!(!place.path("out.csv.journal").exists(), "nothing is left to do");
    let threads = ["sweep", text(&file), "--threads", "1"];
    place.run(&threads).succeeds();
    assert_eq!(self::rows(&place), rows, "the same on one thread");
}

#[test]
fn a_sweep_that_was_ended_goes_on_where_it_was() {
    let place = Place::new();
    place.trace("t.csv", 30_000);
    let long = SWEEP.replace("seeds = 2", "seeds = 400");
    let file = place.file("s.toml", &long);
    let mut child = place
        .command(&["sweep", text(&file)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = place.path("out.csv.journal");
    let lines = || std::fs::read_to_string(&journal).unwrap_or_default().lines().count();
    while lines() < 4 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    child.wait().unwrap();
    let outcome = Outcome::of(&child.wait_with_output().unwrap());
    outcome.fails(130, &["interrupted"]);
    let kept = rows(&place);
    assert!(kept.len() >= 4 && lines() == kept.len(), "each finished run is in both");
    // The run of a truncated line is done again.
    let text = std::fs::read_to_string(&journal).unwrap();
    let few: Vec<&str> = text.lines().take(3).collect();
    std::fs::write(&journal, few.join("\n") + "\n{\"ask\":").unwrap();
    // A shorter sweep of the same traces takes its rows from there, too.
    place.file("s.toml", SWEEP);
    let again = place.run(&["sweep", "s.toml"]);
    let said = &again.succeeds().stdout;
    assert!(!said.contains("0 kept from before"), "{said}");
}

#[test]
fn traces_are_told_apart_by_what_they_hold() {
    let place = Place::new();
    for (dir, requests) in [("a", 400), ("b", 900)] {
        std::fs::create_dir(place.path(dir)).unwrap();
        place.trace(&format!("{dir}/sdb.trace"), requests);
    }
    let sweep = "traces = ['a/sdb.trace', 'b/sdb.trace']\ndrives = ['exos-x20']\n\
                 policies = ['nologging', 'mlb']\nseeds = 1\n[output]\ncsv = 'out.csv'\n";
    let file = place.file("s.toml", sweep);
    place.run(&["sweep", text(&file)]).succeeds();
    let rows = rows(&place);
    for (row, dir, requests) in [(1, "a", 400), (2, "a", 400), (3, "b", 900), (4, "b", 900)] {
        assert!(rows[row].starts_with(&format!("{dir}/sdb.trace,")), "{}", rows[row]);
        assert!(rows[row].contains(&format!(",{requests},")), "{}", rows[row]);
    }
}

#[test]
fn a_trace_that_changed_is_run_again() {
    let place = Place::new();
    place.trace("t.csv", 400);
    place.trace("u.csv", 600);
    // If a trace cannot be read, the rows of the others are kept for the next time.
    let sweep = "traces = ['t.csv', 'u.csv', 'none.csv']\ndrives = ['exos-x20']\n\
                 policies = ['mlb']\nseeds = 2\n[output]\ncsv = 'out.csv'\n";
    let file = place.file("s.toml", sweep);
    place.run(&["sweep", text(&file)]).fails(2, &["none.csv"]);
    let before = rows(&place);
    assert_eq!(before.len(), 1 + 2 * 2);
    place.trace("t.csv", 500);
    let again = place.run(&["sweep", text(&file)]);
    again.fails(2, &["none.csv"]);
    assert!(again.stdout.contains("computing took: 2 runs"), "{}", again.stdout);
    assert!(again.stdout.contains("2 kept from before"), "{}", again.stdout);
    let after = rows(&place);
    assert_eq!(after[3..], before[3..], "u.csv is what it was");
    assert!(after[1] != before[1] && after[1].contains(",500,"), "{after:?}");
}

#[test]
fn a_trace_that_cannot_be_read_leaves_the_others_to_run() {
    let place = Place::new();
    place.trace("t.csv", 300);
    place.file("bad.csv", "time_us,op,offset,bytes\n0,R,0,4096\n1,X,0,4096\n");
    let sweep = SWEEP.replace("'t.csv'", "'bad.csv', 'none.csv', 't.csv', ['t.csv', 'bad.csv']");
    let file = place.file("s.toml", sweep);
    let outcome = place.run(&["sweep", text(&file)]);
    outcome.fails(2, &["not complete", "bad.csv", "none.csv"]);
    assert!(outcome.stdout.contains("not run: none.csv: cannot read"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("computing took: 12 runs"), "{}", outcome.stdout);
    assert_eq!(rows(&place).len(), 1 + 12, "all of t.csv");
}

#[test]
fn rows_of_another_version_are_run_again() {
    let place = Place::new();
    place.trace("t.csv", 200);
    let file = place.file("s.toml", SWEEP);
    place.file("out.csv.journal", "{\"traces\":[]}\n{\"ask\":1}\n{\"ask\":2}\n");
    let outcome = place.run(&["sweep", text(&file)]);
    outcome.succeeds();
    assert!(outcome.stderr.contains("2 rows are of another version"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("12 runs"), "{}", outcome.stdout);
}

#[test]
fn what_is_kept_is_not_run_again() {
    let place = Place::new();
    place.trace("t.csv", 500);
    let file = place.file("s.toml", SWEEP);
    place.run(&["sweep", text(&file)]).succeeds();
    let all = rows(&place);
    // As after an interrupted command: a directory in place of the result leaves the journal there.
    std::fs::remove_file(place.path("out.parquet")).unwrap();
    let again = place.run(&["sweep", text(&file)]);
    assert!(again.succeeds().stdout.contains("12 runs"), "{again:?}");
    assert_eq!(rows(&place), all);
}

#[test]
fn each_request_can_be_kept() {
    let place = Place::new();
    place.trace("t.csv", 300);
    let file = place.file("s.toml", SWEEP.to_owned() + "requests = 'each'\n");
    place.run(&["sweep", text(&file)]).succeeds();
    assert_eq!(std::fs::read_dir(place.path("each")).unwrap().count(), 12);
}

#[test]
fn what_does_not_fit_the_drive_is_named_and_not_in_the_table() {
    let place = Place::new();
    place.trace("t.csv", 5_000);
    let sweep = "traces = ['t.csv']\ndrives = ['exos-x20']\npolicies = ['nologging', 'mlb']\n\
                 seeds = 1\nrate = 100\n[output]\ncsv = 'out.csv'\n";
    let file = place.file("s.toml", sweep);
    let outcome = place.run(&["sweep", text(&file)]);
    let said = &outcome.succeeds().stdout;
    let named = "left out: t.csv on exos-x20, nologging: the load is more than the drive can do";
    assert!(said.contains(named) && !said.contains("| nologging |"), "{said}");
    let rows = rows(&place);
    let column = rows[0].split(',').position(|name| name == "overloaded").unwrap();
    assert_eq!(rows[1].split(',').nth(column), Some("true"), "the file has it: {rows:?}");
}

#[test]
fn mistakes_are_found_first() {
    let place = Place::new();
    place.trace("t.csv", 100);
    for (from, to, words) in [
        ("policies", "polices", &["unknown field `polices`", "s.toml"][..]),
        ("'mlb'", "'mlp'", &["unknown policy `mlp`"]),
        ("'exos-x20'", "'exos-x2'", &["unknown drive `exos-x2`"]),
        ("out.csv", "none/out.csv", &["cannot write", "nothing has been run yet"]),
        ("t.csv", "u.csv", &["u.csv"]),
    ] {
        let file = place.file("s.toml", SWEEP.replace(from, to));
        place.run(&["sweep", text(&file)]).fails(2, words);
        let _ = std::fs::remove_file(place.path("out.csv.journal"));
    }
}

#[test]
fn a_sweep_runs_on_arrays_of_its_drives() {
    let place = Place::new();
    place.trace("t.csv", 300);
    let arrays = "arrays = ['raid0:2', 'raid0:2:placement=ignored']\nparameters = {}\n";
    let on = |drives: &str, arrays: &str| {
        let sweep = format!(
            "traces = ['t.csv']\ndrives = [{drives}]\npolicies = ['nologging', 'mlb']\nseeds = 1\n\
             {arrays}[output]\ncsv = 'out.csv'\n"
        );
        let file = place.file("s.toml", &sweep);
        place.run(&["sweep", text(&file)])
    };
    let outcome = on("'cheetah-15k5'", arrays);
    let said = &outcome.succeeds().stdout;
    assert!(said.contains("| raid0:2:chunk=64K of cheetah-15k5 | mlb |"), "{said}");
    assert_eq!(rows(&place).len(), 1 + 2 * 2, "arrays x policies, and names");
    on("'cheetah-15k5'", "arrays = ['raid3:4']\n").fails(2, &["arrays: unknown array"]);
    on("'st8000as0002'", arrays).fails(2, &["shingled drive"]);
}
