//! Messages that a user can act on: suggested commands work as printed, and other programs
//! recognise a volume.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::image::program;
use common::served::{Image, Server, can_serve, run};
use common::{Place, text};

fn formatted() -> Image {
    Image::formatted(&["--size", "512M", "--sparse"])
}

#[test]
fn a_table_names_its_device_for_whoever_reads_it_elsewhere() {
    let place = Place::new();
    place.run(&["format", "disk.img", "--size", "64M"]).succeeds();
    place.run(&["drain", "disk.img"]).succeeds();
    let table = place.run(&["table", "disk.img", "--dm"]);
    let device = place.path("disk.img").canonicalize().unwrap();
    let word = format!(" linear {} ", device.display());
    assert!(table.succeeds().stdout.lines().all(|line| line.contains(&word)), "{table:?}");
    let named = place.run(&["table", "disk.img", "--dm", "--device-name", "/dev/sdb"]);
    assert!(named.succeeds().stdout.contains(" linear /dev/sdb "), "{named:?}");
}

#[test]
fn a_trace_of_minutes_is_described_once() {
    let place = Place::new();
    let trace = place.trace("t.csv", 600);
    let said = place.run(&["trace", "stat", text(&trace)]);
    let lines: Vec<&str> = said.succeeds().stdout.lines().collect();
    let once: BTreeSet<&str> = lines.iter().copied().collect();
    assert_eq!(lines.len(), once.len(), "{}", said.stdout);
    let busiest = |lines: &[&str]| lines.iter().filter(|line| line.contains("busiest")).count();
    assert_eq!(busiest(&lines), 2);
    // Longer traces have windows of five minutes and of an hour.
    let long: String =
        (0..800).map(|i| format!("{},R,{},4096\n", i * 1_000_000, i * 8192)).collect();
    let trace = place.file("long.csv", "time_us,op,offset,bytes\n".to_owned() + &long);
    let said = place.run(&["trace", "stat", text(&trace)]);
    assert_eq!(busiest(&said.succeeds().stdout.lines().collect::<Vec<_>>()), 4);
}

/// Whether the programs are installed; prints which are missing.
fn are_here(names: &[&str]) -> bool {
    let missing: Vec<_> =
        names.iter().filter(|name| program(name).arg("-V").output().is_err()).collect();
    if !missing.is_empty() {
        manylogs_testkit::skip(format_args!("needs {missing:?}"));
    }
    missing.is_empty()
}

#[test]
fn mkfs_does_not_take_a_volume_for_an_empty_disk() {
    if !are_here(&["blkid", "mkfs.xfs", "wipefs"]) {
        return;
    }
    let image = formatted();
    let known = common::served::ok(program("blkid").arg("-p").arg(image.path()));
    assert!(known.contains("PTTYPE=\"PMBR\""), "{known}");
    let listed = common::served::ok(program("wipefs").arg(image.path()));
    assert!(listed.contains("PMBR"), "{listed}");
    let before = fs::read(image.path()).unwrap();
    let made = program("mkfs.xfs").arg(image.path()).output().unwrap();
    assert!(!made.status.success(), "{made:?}");
    assert!(fs::read(image.path()).unwrap() == before, "refused, and written all the same");
    // With --force wipefs damages one of two superblocks.
    common::served::ok(program("wipefs").args(["--all", "--force"]).arg(image.path()));
    run(&["check", image.path()], 3, "the copy at the end is used");
    run(&["check", image.path(), "--repair"], 0, "");
    let known = common::served::ok(program("blkid").arg("-p").arg(image.path()));
    assert!(known.contains("PMBR"), "{known}");
}

#[test]
fn a_volume_whose_server_was_killed_is_listed() {
    if !can_serve(false) {
        return;
    }
    let image = formatted();
    let mut server = Server::start(&mut image.serve(&["--file"]));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let listed = run(&["list"], 0, image.path());
    let line = listed.lines().find(|line| line.contains(image.path())).unwrap();
    assert!(line.contains("was killed"), "{listed}");
    assert!(
        listed.contains("not closed in order: the next manylogs serve recovers it"),
        "{listed}"
    );
    let json: serde_json::Value = serde_json::from_str(&run(&["list", "--json"], 0, "")).unwrap();
    let volumes = json["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["device"] == image.path()).unwrap();
    assert_eq!((&volume["left_in_use"], &volume["server_pid"]), (&true.into(), &().into()));
    // As the message says, the next opening recovers it, and it is closed afterwards.
    run(&["checkpoint", image.path()], 0, "written home");
    let listed = run(&["list"], 0, "");
    assert!(!listed.contains(&format!("{}: not closed", image.path())), "{listed}");
}

#[test]
fn a_setting_that_is_refused_is_bad_input_served_or_not() {
    if !can_serve(false) {
        return;
    }
    let image = formatted();
    let refused = ["set", image.path(), "record=4K"];
    run(&refused, 2, "record");
    let mut server = Server::start(&mut image.serve(&["--file"]));
    run(&refused, 2, "record");
    run(&["stop", image.path()], 0, "closed");
    server.child.wait().unwrap();
}

#[test]
fn a_name_that_is_wrong_is_bad_input_to_every_command() {
    let place = Place::new();
    let commands: [&[&str]; 34] = [
        &["format", "none"],
        &["status", "none"],
        &["check", "none"],
        &["dump", "none"],
        &["serve", "none", "--file"],
        &["stop", "none"],
        &["stop", "none", "--force"],
        &["top", "none"],
        &["metrics", "none"],
        &["set", "none"],
        &["checkpoint", "none"],
        &["drain", "none"],
        &["table", "none"],
        &["scrub", "none"],
        &["grow", "none"],
        &["probe", "none"],
        &["record", "none", "-o", "x"],
        &["trace", "stat", "none"],
        &["trace", "convert", "none", "-o", "x.csv"],
        &["replay", "none"],
        &["advise", "none"],
        &["sweep", "none"],
        &["drive", "show", "none"],
        &["drive", "validate", "exos-x20", "--trace", "none"],
        &["interfere", "--drive", "none"],
        &["fs", "status", "none"],
        &["fs", "check", "none"],
        &["fs", "mount", "none", "."],
        &["fs", "unmount", "none"],
        &["fs", "adopt", "none", "--yes"],
        &["fs", "release", "none"],
        &["fs", "top", "none"],
        &["fs", "checkpoint", "none"],
        &["fs", "set", "none"],
    ];
    for command in commands {
        place.run(command).fails(2, &["none"]);
    }
}

/// Command words behind `manylogs` in backquotes or in blocks of code, up to the first other word.
fn documented(page: &str) -> Vec<Vec<String>> {
    let starts = page.match_indices("manylogs ").filter(|(at, _)| {
        let before = page[..*at].chars().next_back();
        before.is_none_or(|c| c == '`' || c == '\n')
    });
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let command = |(at, name): (usize, &str)| -> Vec<String> {
        let rest = page[at + name.len()..].lines().next().unwrap_or_default();
        let end = rest.find('`').unwrap_or(rest.len());
        let words = rest[..end].split_whitespace().take_while(is_word).take(2);
        words.map(str::to_owned).collect()
    };
    starts.map(command).filter(|words| !words.is_empty()).collect()
}

#[test]
fn every_command_in_the_documentation_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let all = [root.clone(), root.join("docs")].into_iter().flat_map(|dir| {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    });
    // The change log may name commands that no longer exist.
    let pages = all.filter(|path| {
        path.extension().is_some_and(|extension| extension == "md")
            && path.file_name() != Some("CHANGELOG.md".as_ref())
    });
    let mut commands: BTreeSet<Vec<String>> = BTreeSet::new();
    for page in pages {
        commands.extend(documented(&fs::read_to_string(page).unwrap()));
    }
    assert!(commands.len() > 30, "{commands:?}");
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = run(&[&words[..1], &["--help"]].concat(), 0, "Usage:");
        if let (true, Some(below)) = (help.contains("\nCommands:\n"), words.get(1)) {
            run(&[words[0], below, "--help"], 0, "Usage:");
        }
    }
}
