//! Drives from data sheets, from the catalogue, and recognised from the machine's disks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Outcome, Place, text};
use serde_json::Value;
use std::path::Path;

const SHEET: [&str; 12] = [
    "--capacity",
    "18T",
    "--rpm",
    "7200",
    "--outer",
    "270",
    "--inner",
    "130",
    "--seek",
    "8.5",
    "--cache",
    "256M",
];

/// Runs the command with the user's profiles in the place.
fn run(place: &Place, args: &[&str]) -> Outcome {
    let mut command = place.command(args);
    command.env("MANYLOGS_DRIVES", place.path("drives"));
    Outcome::of(&command.output().unwrap())
}

fn json(place: &Place, args: &[&str]) -> Value {
    let said = run(place, args).succeeds().stdout.clone();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn a_data_sheet_is_enough_for_every_command() {
    let place = Place::new();
    let new = run(&place, &[&["drive", "new", "backup-1"][..], &SHEET].concat());
    let said = &new.succeeds().stdout;
    assert!(said.contains("backup-1.toml: written") && said.contains("guessed"), "{said}");
    let written = std::fs::read_to_string(place.path("drives/backup-1.toml")).unwrap();
    assert!(written.lines().count() <= 9, "{written}");
    let list = run(&place, &["drive", "list"]).succeeds().stdout.clone();
    assert!(list.starts_with("backup-1 ") && list.contains("(your own)"), "{list}");
    let drive = ["--drive", "backup-1"];
    let short = ["synthetic", "--limit", "300"];
    run(&place, &[&["replay"][..], &short, &drive, &["--seeds", "1"]].concat()).succeeds();
    run(&place, &["interfere", "--drive", "backup-1", "--seconds", "1"]).succeeds();
    run(&place, &["drive", "exercise", "backup-1", "--load", "random-4k", "--seconds", "1"])
        .succeeds();
    place.file(
        "s.toml",
        "traces = [\"synthetic\"]\ndrives = [\"backup-1\"]\n\
        policies = [\"nologging\"]\nlimit = 200\n",
    );
    run(&place, &["sweep", "s.toml"]).succeeds();
    run(&place, &["drive", "validate", "backup-1"]).succeeds();
    // An existing name is not overwritten, and another profile's serial number is refused.
    run(&place, &[&["drive", "new", "backup-1"][..], &SHEET].concat()).fails(5, &["--force"]);
}

#[test]
fn what_is_shown_is_taken_back_and_drives_are_drawn() {
    let place = Place::new();
    run(&place, &[&["drive", "new", "mine"][..], &SHEET].concat()).succeeds();
    let shown = run(&place, &["drive", "show", "mine"]).succeeds().stdout.clone();
    assert!(shown.contains("[range]") && shown.contains("guess: no maker says"), "{shown}");
    let file = place.file("shown.toml", &shown);
    let again = run(&place, &["drive", "show", text(&file)]).succeeds().stdout.clone();
    assert_eq!(shown, again);
    for name in ["cheetah-15k5", "st8000as0002", "exos-x24-24t"] {
        let shown = run(&place, &["drive", "show", name]).succeeds().stdout.clone();
        let file = place.file("shown.toml", &shown);
        assert_eq!(run(&place, &["drive", "show", text(&file)]).succeeds().stdout, shown);
    }
    let vary = |seed| {
        let args = ["drive", "vary", "--like", "mine", "--seed", seed];
        run(&place, &args).succeeds().stdout.clone()
    };
    assert_eq!(vary("1"), vary("1"));
    assert_ne!(vary("1"), vary("2"));
    let file = place.file("drawn.toml", vary("1"));
    let found = json(&place, &["drive", "compare", "mine", text(&file), "--json"]);
    let figures = &found["figures"];
    for figure in ["sequential_outer_mb_s", "random_reads_per_second_depth_4", "gain_of_mlb"] {
        assert!(figures[figure]["ratio"].as_f64().unwrap() > 0.0, "{figure}: {found}");
    }
    // The sheet states the rate, so it is not drawn at random.
    assert_eq!(figures["average_seek_ms"]["ratio"], 1.0);
    let outer = figures["sequential_outer_mb_s"]["ratio"].as_f64().unwrap();
    assert!((outer - 1.0).abs() < 0.01, "{found}");
}

#[test]
fn advice_says_what_the_gain_is_over_what_the_drive_may_be() {
    let place = Place::new();
    run(&place, &["drive", "new", "mine", "--capacity", "18T", "--rpm", "7200"]).succeeds();
    let advise = |drive: &str| {
        let args = ["advise", "synthetic", "--limit", "600", "--seeds", "1", "--json", "a.json"];
        let outcome = run(&place, &[&args[..], &["--drive", drive]].concat());
        outcome.succeeds();
        let json: Value =
            serde_json::from_slice(&std::fs::read(place.path("a.json")).unwrap()).unwrap();
        (json, outcome.stdout.clone(), outcome.stderr)
    };
    let (found, said, noted) = advise("mine");
    let range = &found["drive_range"];
    let (low, high) = (range["low"].as_f64().unwrap(), range["high"].as_f64().unwrap());
    let estimate = found["gain"]["durable_mean"]["estimate"].as_f64().unwrap();
    assert!(low < high && low < estimate * 1.1 && estimate < high * 1.1, "{range} {estimate}");
    assert!(range["decided_by"].is_array());
    assert!(said.contains("over what the drive may be: between"), "{said}");
    assert!(noted.contains("guessed, within ranges"), "{noted}");
    // A drive without guessed figures has no range, and its advice is unchanged.
    let (found, said, _) = advise("exos-x20");
    assert!(found.get("drive_range").is_none() && !said.contains("may be"), "{found}");
}

/// A copy of sysfs with one disk.
fn sysfs(place: &Place, path: &str, files: &[(&str, &[u8])]) {
    let dir = place.path("sys/devices").join(path);
    for (name, content) in
        [("size", &b"35156656128\n"[..]), ("queue/rotational", b"1\n")].iter().chain(files)
    {
        let file = dir.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }
    let class = place.path("sys/class/block");
    std::fs::create_dir_all(&class).unwrap();
    let link = class.join(Path::new(path).file_name().unwrap());
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(dir, link).unwrap();
}

fn identified(place: &Place, disk: &str) -> Value {
    let sys = place.path("sys");
    json(place, &["drive", "identify", disk, "--sys", text(&sys), "--json"])
}

const SERIAL: &[u8] = b"\0\x80\0\x08ZR512ABC";
const TURNS: &[u8] = b"\0\xb1\0\x3c\x1c\x20\0\0"; // 7200

#[test]
fn a_disk_is_its_own_profile_then_its_model_then_its_class() {
    let place = Place::new();
    let model = |model: &'static [u8]| {
        let files = [
            ("device/vendor", &b"ATA\n"[..]),
            ("device/model", model),
            ("device/vpd_pg80", SERIAL),
            ("device/vpd_pgb1", TURNS),
        ];
        sysfs(&place, "pci0/ata1/host0/0:0:0:0/block/sdb", &files);
        identified(&place, "/dev/sdb")
    };
    let found = model(b"ST18000NM000J-2T\n");
    assert_eq!(
        (&found["found_by"], &found["drive"]),
        (&"catalogue".into(), &"exos-x18-18t".into())
    );
    assert!(found["not_modelled"][0].as_str().unwrap().contains("550 random writes"), "{found}");
    let found = model(b"ST18000NM999Z-2T\n");
    assert_eq!((&found["found_by"], &found["disk"]["rpm"]), (&"class".into(), &7200.into()));
    let own = ["drive", "new", "mine", "--serial", "ZR512ABC"];
    run(&place, &[&own[..], &SHEET].concat()).succeeds();
    let found = model(b"ST18000NM000J-2T\n");
    assert_eq!((&found["found_by"], &found["drive"]), (&"own".into(), &"mine".into()));
    // A second profile for the same disk is refused.
    let own = ["drive", "new", "other", "--serial", "ZR512ABC"];
    run(&place, &[&own[..], &SHEET].concat()).fails(5, &["mine.toml", "ZR512ABC"]);
    let drives = place.path("drives");
    std::fs::copy(drives.join("mine.toml"), drives.join("twin.toml")).unwrap();
    let sys = place.path("sys");
    run(&place, &["drive", "identify", "sdb", "--sys", text(&sys)])
        .fails(2, &["ZR512ABC", "mine.toml", "twin.toml"]);
}

#[test]
fn disks_that_no_profile_can_stand_for_are_named() {
    let place = Place::new();
    let sys = place.path("sys");
    let refused = |disk: &str, words: &[&str]| {
        run(&place, &["drive", "identify", disk, "--sys", text(&sys)]).fails(2, words);
    };
    sysfs(&place, "virtual/block/loop0", &[]);
    refused("loop0", &["loop0", "virtual disk"]);
    sysfs(&place, "pci0/usb2/host3/block/sdc", &[("device/model", b"Ext HDD\n")]);
    refused("sdc", &["sdc", "USB bridge", "Ext HDD", "--drive"]);
    sysfs(
        &place,
        "pci0/ata2/host1/block/sdd",
        &[("device/model", b"Fast\n"), ("device/vendor", b"ATA\n"), ("queue/rotational", b"0\n")],
    );
    refused("sdd", &["does not turn"]);
    sysfs(
        &place,
        "pci0/ata2/host1/block/sde",
        &[("device/model", b"Old\n"), ("device/vendor", b"ATA\n")],
    );
    refused("sde", &["sde", "how fast it turns", "drive new"]);
    refused("sdz", &["sdz"]);
    run(&place, &["drive", "identify", "/dev/null"]).fails(2, &["not a block device"]);
    run(&place, &["drive", "identify", "/dev/nothing"]).fails(2, &["/dev/nothing"]);
    sysfs(
        &place,
        "pci0/ata3/host2/block/sdf",
        &[
            ("device/vendor", b"ATA\n"),
            ("device/model", b"ST30000NM004K\n"),
            ("device/vpd_pgb1", TURNS),
            ("queue/zoned", b"host-managed\n"),
            ("queue/independent_access_ranges/0/sector", b"0\n"),
            ("queue/independent_access_ranges/1/sector", b"8\n"),
        ],
    );
    let found = identified(&place, "sdf")["not_modelled"].to_string();
    assert!(found.contains("2 actuators") && found.contains("host-managed"), "{found}");
}

#[test]
fn figures_that_cannot_be_are_named_with_their_option() {
    let place = Place::new();
    let refused = |change: (&str, &str), words: &[&str]| {
        let mut args: Vec<&str> = [&["drive", "new", "mine"][..], &SHEET].concat();
        let at = args.iter().position(|arg| *arg == change.0).unwrap();
        args[at + 1] = change.1;
        run(&place, &args).fails(2, words);
    };
    refused(("--capacity", "16.4TiB"), &["--capacity", "TB"]);
    refused(("--capacity", "18"), &["--capacity", "no unit"]);
    refused(("--rpm", "0"), &["rpm", "SSD"]);
    refused(("--inner", "300"), &["inner_mb_s", "at most the outer rate"]);
    refused(("--seek", "17"), &["seek_ms", "two revolutions"]);
    refused(("--seek", "1001"), &["seek_ms"]);
    refused(("--cache", "lots"), &["--cache", "256M"]);
    let named = |name: &str, words: &[&str]| {
        run(&place, &[&["drive", "new", name][..], &SHEET].concat()).fails(2, words);
    };
    named("../mine", &["NAME", "no path"]);
    named(".hidden", &["NAME"]);
    run(&place, &["drive", "new", "mine", "--rpm", "7200"]).fails(2, &["--capacity is required"]);
    let like = ["drive", "new", "mine", "--like", "floppy"];
    run(&place, &[&like[..], &SHEET].concat()).fails(2, &["like", "floppy"]);
    assert!(!place.path("drives").exists(), "nothing is written");
    let newer = place.file("n.toml", "version = 9\nname = \"n\"\ncapacity = \"1T\"\nrpm = 7200\n");
    run(&place, &["drive", "show", text(&newer)]).fails(7, &["version", "9", "newer"]);
    run(&place, &["drive", "show", "exos-x18-18"]).fails(2, &["exos-x18-18t"]);
}

/// A recording without requests whose header names a drive, in the format of `docs/traces.md`.
fn recording(model: &str, serial: &str, rpm: &str, link: &str) -> Vec<u8> {
    let texts = ["/dev/sdb", model, serial, rpm, link];
    let bytes = 48 + texts.iter().map(|text| 2 + text.len()).sum::<usize>() + 4;
    let mut head = b"MLTRACE\n\x01\0\0\0".to_vec();
    head.extend(u32::try_from(bytes).unwrap().to_le_bytes());
    head.extend(35_156_656_128_u64.to_le_bytes());
    head.resize(32, 0);
    head.extend(1_u32.to_le_bytes());
    head.resize(48, 0);
    for text in texts {
        head.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
        head.extend(text.as_bytes());
    }
    head.extend(crc32c::crc32c(&head).to_le_bytes());
    head
}

#[test]
fn a_trace_that_notes_its_disk_needs_no_drive() {
    let place = Place::new();
    let csv = place.trace("t.csv", 100);
    run(&place, &["trace", "convert", text(&csv), "-o", "t.trace"]).succeeds();
    let plain = std::fs::read(place.path("t.trace")).unwrap();
    let old_head = u32::from_le_bytes(plain[12..16].try_into().unwrap()) as usize;
    let replay = |head: Vec<u8>, args: &[&str]| {
        let trace = place.file("r.trace", [&head, &plain[old_head..]].concat());
        let command = ["replay", text(&trace), "--seeds", "1", "--policy", "nologging", "--json"];
        let outcome = run(&place, &[&command[..], &["r.json"], args].concat());
        outcome.succeeds();
        let json: Value =
            serde_json::from_slice(&std::fs::read(place.path("r.json")).unwrap()).unwrap();
        (json["drive"].as_str().unwrap().to_owned(), outcome.stderr)
    };
    let (drive, said) = replay(recording("ST18000NM000J-2TV103", "ZR5", "7200", "sata"), &[]);
    assert_eq!(drive, "exos-x18-18t");
    assert!(said.contains("`exos-x18-18t` of the catalogue"), "{said}");
    let (drive, said) = replay(recording("Unheard 18", "ZR5", "7200", "sata"), &[]);
    assert_eq!(drive, "sdb");
    assert!(said.contains("its class") && said.contains("guessed"), "{said}");
    let (drive, said) = replay(recording("Unheard 18", "ZR5", "", ""), &[]);
    assert_eq!(drive, "exos-x20");
    assert!(said.contains("which is not modelled"), "{said}");
    let noted = || recording("ST18000NM000J-2TV103", "ZR5", "7200", "sata");
    assert_eq!(replay(noted(), &["--drive", "wd5000ys"]).0, "wd5000ys");
    let own = ["drive", "new", "mine", "--serial", "ZR5"];
    run(&place, &[&own[..], &SHEET].concat()).succeeds();
    assert_eq!(replay(noted(), &[]).0, "mine");
}
