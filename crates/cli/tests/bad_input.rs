//! Messages to a user when something is wrong: which file, where, what to do; and the exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Place, csv, text};

#[test]
fn a_missing_trace() {
    let place = Place::new();
    place.run(&["replay", "no-such.trace"]).fails(2, &["no-such.trace", "No such file"]);
    place.run(&["trace", "stat", "no-such.trace"]).fails(2, &["no-such.trace"]);
}

#[test]
fn an_empty_trace() {
    let place = Place::new();
    let empty = place.file("empty.csv", "");
    place.run(&["replay", text(&empty)]).fails(2, &["empty.csv"]);
    let header = place.file("header.csv", "time_us,op,offset,bytes\n");
    place.run(&["replay", text(&header)]).fails(2, &["header.csv", "no request"]);
}

#[test]
fn a_malformed_record_names_its_line_and_skip_bad_goes_on() {
    let place = Place::new();
    let bad = csv(50).replace("\n400000,", "\nyesterday,");
    let trace = place.file("bad.csv", bad);
    place.run(&["replay", text(&trace)]).fails(2, &["bad.csv", "line 22", "--skip-bad"]);
    let outcome = place.run(&["replay", text(&trace), "--skip-bad", "--policy", "nologging"]);
    outcome.succeeds();
    assert!(outcome.stdout.contains("1 malformed records passed over"), "{}", outcome.stdout);
}

#[test]
fn a_truncated_recording_names_the_byte() {
    let place = Place::new();
    let trace = place.trace("t.csv", 5_000);
    place.run(&["trace", "convert", text(&trace), "-o", "t.trace"]).succeeds();
    let whole = std::fs::read(place.path("t.trace")).unwrap();
    let cut = place.file("cut.trace", &whole[..whole.len() / 2]);
    place.run(&["replay", text(&cut)]).fails(2, &["cut.trace", "byte", "cut short"]);
}

#[test]
fn noise_is_no_trace() {
    let place = Place::new();
    let noise: Vec<u8> =
        (0..4096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let noise = place.file("noise.bin", noise);
    place.run(&["replay", text(&noise)]).fails(2, &["noise.bin", "--format"]);
}

#[test]
fn an_unknown_format_lists_those_there_are() {
    let place = Place::new();
    let trace = place.trace("t.csv", 10);
    let outcome = place.run(&["replay", text(&trace), "--format", "blktrac"]);
    outcome.fails(2, &["blktrac", "blktrace", "vscsi1"]);
}

#[test]
fn an_address_beyond_the_drive_says_how_to_fit_it() {
    let place = Place::new();
    let far = "time_us,op,offset,bytes\n0,W,4096,4096\n9,R,900000000000000,4096\n";
    let trace = place.file("far.csv", far);
    place.run(&["replay", text(&trace)]).fails(2, &["far.csv", "--fit", "900000000004096"]);
    place.run(&["replay", text(&trace), "--fit", "--policy", "nologging"]).succeeds();
}

#[test]
fn an_unknown_drive_lists_the_drives_and_suggests_the_nearest() {
    let place = Place::new();
    let trace = place.trace("t.csv", 10);
    let outcome = place.run(&["replay", text(&trace), "--drive", "exos-x2O"]);
    outcome.fails(2, &["exos-x2O", "did you mean `exos-x20`?", "cheetah-15k5"]);
    place.run(&["drive", "show", "floppy"]).fails(2, &["floppy", "wd5000ys"]);
}

#[test]
fn a_broken_drive_profile_names_the_key() {
    let place = Place::new();
    let trace = place.trace("t.csv", 10);
    let profile = place.file("mine.toml", "name = 5\n");
    let outcome = place.run(&["replay", text(&trace), "--drive", text(&profile)]);
    outcome.fails(2, &["mine.toml", "name"]);
    place.run(&["drive", "show", "missing.toml"]).fails(2, &["missing.toml"]);
}

#[test]
fn an_unknown_policy_or_option_suggests_the_nearest() {
    let place = Place::new();
    let trace = place.trace("t.csv", 10);
    let run = |policy: &str| place.run(&["replay", text(&trace), "--policy", policy]);
    run("nologing").fails(2, &["nologing", "nologging"]);
    run("mlb:treshold=32K").fails(2, &["treshold", "threshold"]);
    run("mlb:threshold=lots").fails(2, &["threshold", "lots"]);
    run("mlb-32,mlb-32").fails(2, &["mlb-32", "twice"]);
}

#[test]
fn absurd_parameters_are_refused() {
    let place = Place::new();
    let trace = place.trace("t.csv", 10);
    let run = |policy: &str| place.run(&["replay", text(&trace), "--policy", policy]);
    run("mlb:log=200M,group=100M").fails(2, &["log", "group"]);
    run("mlb:swap=8").fails(2, &["swap"]);
    run("single-log:log=900T").fails(2, &["single-log"]);
}

#[test]
fn an_unwritable_output_is_found_before_the_run() {
    let place = Place::new();
    // If outputs were checked only after the run, the missing trace would be reported first.
    for option in ["--report", "--json"] {
        let outcome = place.run(&["replay", "no-such.trace", option, "no/such/dir/r"]);
        outcome.fails(2, &["no/such/dir/r", "nothing has been run"]);
        let outcome = place.run(&["replay", "no-such.trace", option, "."]);
        outcome.fails(2, &["cannot write"]);
    }
    let outcome = place.run(&["trace", "convert", "no-such.trace", "-o", "no/such/dir/t"]);
    outcome.fails(2, &["no/such/dir/t"]);
    let outcome = place.run(&["record", "/dev/null", "-o", "no/such/dir/t"]);
    outcome.fails(2, &["no/such/dir/t"]);
}

#[test]
fn only_block_devices_can_be_recorded() {
    let place = Place::new();
    let outcome = place.run(&["record", "/dev/null", "--seconds", "1", "-o", "t.trace"]);
    assert!(matches!(outcome.code, Some(1 | 2)), "{outcome:?}");
    assert!(!place.path("t.trace").exists());
}

#[test]
fn wrong_command_lines_exit_with_2() {
    let place = Place::new();
    place.run(&[]).fails(2, &["Usage"]);
    place.run(&["replay"]).fails(2, &["TRACE"]);
    place.run(&["replay", "t", "--rate", "warp"]).fails(2, &["warp", "auto"]);
    place.run(&["replay", "t", "--utilisation", "2"]).fails(2, &["--utilisation"]);
    place.run(&["replay", "t", "--depth", "0"]).fails(2, &["--depth"]);
    place.run(&["replay", "t", "--window", "lunch"]).fails(2, &["lunch", "busiest-writes"]);
    place.run(&["trace", "mix", "a", "b", "-o", "t", "--drive-size", "big"]).fails(2, &["big"]);
}

#[test]
fn a_window_without_requests() {
    let place = Place::new();
    let trace = place.trace("t.csv", 10);
    place.run(&["replay", text(&trace), "--window", "2h+5m"]).fails(2, &["window"]);
}

#[test]
fn damaged_images_are_of_ext4_and_no_crash_states() {
    let place = Place::new();
    place.run(&["torture", "--mutate", "5"]).fails(2, &["--mutate", "--system ext4"]);
    let both = ["torture", "--system", "ext4", "--mutate", "5", "--states", "5"];
    place.run(&both).fails(2, &["--mutate", "--states"]);
    place.run(&["torture", "--system", "ext4", "--faults"]).fails(2, &["--faults"]);
}
