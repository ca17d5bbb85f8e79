use manylogs_block::Nanos;

use super::*;
use crate::planted::{Bug, with};
use crate::profile::{Profile, catalogue, catalogued_model, drives, find};
use crate::validate::gates;

const SHEET: &str = "
name = \"backup-1\"
capacity = \"18T\"
rpm = 7200
outer_mb_s = 270
inner_mb_s = 130
seek_ms = 8.5
cache = \"256M\"
link = \"sata\"
";

fn sheet(text: &str) -> Sheet {
    Sheet::parse("test.toml", text).unwrap()
}

fn refused(from: &str, to: &str) -> String {
    assert!(SHEET.contains(from), "{from}");
    Profile::parse("test.toml", &SHEET.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_data_sheet_makes_a_drive_with_its_figures() {
    let profile = Profile::parse("test.toml", SHEET).unwrap();
    assert_eq!(profile.capacity().0, 35_156_656_128);
    assert_eq!(profile.seek.average_ms, Some(8.5));
    let found = gates(&profile, 1);
    assert!((found.sequential_outer_mb_s / 270.0 - 1.0).abs() < 0.01, "{found:?}");
    assert!((found.sequential_inner_mb_s / 130.0 - 1.0).abs() < 0.01, "{found:?}");
    let last = crate::Geometry::new(&profile.geometry).locate(manylogs_block::Lba(35_156_656_127));
    assert!(last.cylinder < profile.geometry.cylinders);
}

#[test]
fn units_are_those_that_are_named() {
    let with = |line: &str| sheet(&SHEET.replace("outer_mb_s = 270", line));
    assert_eq!(with("outer_mb_s = \"270 MB/s\"").value(Key::Outer), Some(270.0));
    assert_eq!(with("outer_mb_s = \"250 MiB/s\"").value(Key::Outer), Some(262.144));
    let sheet = sheet(&SHEET.replace("seek_ms = 8.5", "seek_ms = \"8500 us\""));
    assert_eq!(sheet.value(Key::Seek), Some(8.5));
    assert_eq!(sheet.value(Key::Cache), Some(268_435_456.0));
}

/// The bug in the reader of units must make the test above fail.
#[test]
fn planted_units_are_noticed() {
    let found = with(Bug::UnitTakenForAnother, || {
        sheet(&SHEET.replace("outer_mb_s = 270", "outer_mb_s = \"250 MiB/s\""))
    });
    assert_ne!(found.value(Key::Outer), Some(262.144));
}

fn defaults_leave_the_sheet_alone() -> bool {
    let given = sheet(SHEET);
    let complete = given.clone().complete("test.toml").unwrap();
    given.figures.iter().all(|(key, figure)| complete.figures[key] == *figure)
}

#[test]
fn a_default_is_taken_only_for_what_is_missing() {
    assert!(defaults_leave_the_sheet_alone());
    assert!(!with(Bug::DefaultOverSheet, defaults_leave_the_sheet_alone));
    let complete = sheet(SHEET).complete("test.toml").unwrap();
    assert!(Key::ALL.iter().all(|key| {
        complete.figures.contains_key(key) || matches!(key, Key::Band | Key::PersistentCache)
    }));
    for (key, figure) in &complete.figures {
        let guessed = figure.origin() == Origin::Guess;
        assert_eq!(guessed, figure.range.is_some(), "{key:?}: {figure:?}");
    }
}

fn measured_stays() -> bool {
    let text = format!("{SHEET}segments = 40\n[source]\nsegments = \"measurement: streams\"\n");
    let complete = sheet(&text).complete("test.toml").unwrap();
    (1..=8).all(|seed| {
        let drawn = complete.drawn(seed);
        drawn.value(Key::Segments) == Some(40.0) && drawn.value(Key::Seek) == Some(8.5)
    })
}

#[test]
fn what_was_measured_is_not_varied() {
    assert!(measured_stays());
    assert!(!with(Bug::RangeOnMeasured, measured_stays));
}

/// Whether drawn drives reach both ends of every range.
fn ranges_are_drawn_whole() -> bool {
    let complete = sheet(SHEET).complete("test.toml").unwrap();
    let drawn: Vec<Sheet> = (1..=200).map(|seed| complete.drawn(seed)).collect();
    complete.ranges().all(|(key, (low, high))| {
        let values = || drawn.iter().filter_map(|one| one.value(key));
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        let near = 0.1 * (high - low) + if key.kind() == FigureKind::Count { 1.0 } else { 0.0 };
        least >= low && most <= high && least <= low + near && most >= high - near
    })
}

#[test]
fn a_range_is_drawn_from_end_to_end() {
    assert!(ranges_are_drawn_whole());
    assert!(!with(Bug::RangeStopsAtMiddle, ranges_are_drawn_whole));
}

#[test]
fn a_seed_gives_the_same_drive_and_it_is_one() {
    for (like, uncertain) in [("exos-x20", 8), ("st8000as0002", 8), ("cheetah-15k5", 0)] {
        let of = Sheet::of(&find(like).unwrap().unwrap()).complete(like).unwrap();
        assert!(of.ranges().count() >= uncertain, "{like}");
        for seed in 1..=20 {
            let drawn = of.drawn(seed);
            assert_eq!(drawn, of.drawn(seed));
            assert_eq!(drawn.ranges().count(), 0);
            let profile = drawn.clone().profile(like).unwrap_or_else(|e| panic!("{seed}: {e}"));
            assert_eq!(profile.capacity(), find(like).unwrap().unwrap().capacity());
        }
    }
}

#[test]
fn what_is_written_is_read_back() {
    let texts = [
        SHEET.to_owned(),
        SHEET.replace("cache = \"256M\"", "shingled = true"),
        format!("{SHEET}[bars]\nrandom_reads = [[16, 168.0]]\nsource.random_reads = \"sheet\"\n"),
        SHEET.replace("link = \"sata\"", "serials = [\"ZR5\"]\nmodels = [\"ST18000NM000J\"]"),
    ];
    for text in texts {
        let first = Profile::parse("test.toml", &text).unwrap();
        let second = Profile::parse("again.toml", &first.toml()).unwrap();
        assert_eq!(first.sheet, second.sheet, "{}", first.toml());
        assert_eq!(format!("{:?}", first.geometry), format!("{:?}", second.geometry));
        assert_eq!(format!("{:?}", first.bars), format!("{:?}", second.bars));
    }
    for name in drives() {
        let first = find(name).unwrap().unwrap();
        let second = Profile::parse(name, &first.toml()).unwrap();
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}

#[test]
fn figures_that_cannot_be_are_refused_by_name() {
    let cases = [
        ("inner_mb_s = 130", "inner_mb_s = 300", "`inner_mb_s`: expected at most the outer rate"),
        ("seek_ms = 8.5", "seek_ms = 17", "`seek_ms`: expected milliseconds, at most two rev"),
        ("seek_ms = 8.5", "seek_ms = 8500", "`seek_ms`: expected a number from"),
        ("rpm = 7200", "rpm = 0", "`rpm`: expected the revolutions a minute of a disk, found 0"),
        ("rpm = 7200", "rpm = 72", "`rpm`: expected a number from 3600"),
        ("rpm = 7200", "", "missing field `rpm`"),
        ("\"18T\"", "\"16.4TiB\"", "`capacity`: expected the capacity as the data sheet names it"),
        ("\"18T\"", "18", "`capacity`: expected a number from 32768"),
        ("\"18T\"", "\"18\"", "has no unit"),
        ("\"18T\"", "\"big\"", "`capacity`: expected a capacity as"),
        ("\"256M\"", "\"256 MHz\"", "`cache`: expected a size as"),
        ("link", "version = 2\nlink", "`version`: expected at most 1, found 2: a newer version"),
        ("link", "like = \"floppy\"\nlink", "`like`: expected a drive that comes with"),
        ("link", "bufer = 3\nlink", "unknown field `bufer`"),
        ("\"sata\"", "\"nvme\"", "unknown variant `nvme`"),
    ];
    for (from, to, expected) in cases {
        let error = refused(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    let ranged = |tail: &str| {
        let text = format!("{SHEET}{tail}");
        Profile::parse("test.toml", &text).unwrap_err().to_string()
    };
    let error = ranged("[range]\nseek_ms = [8, 9]");
    assert!(error.contains("`range.seek_ms`: expected none"), "{error}");
    let error = ranged("[range]\nheads = [8, 9]");
    assert!(error.contains("expected `heads`, too"), "{error}");
    let error = ranged("[source]\nspeed = \"x\"");
    assert!(error.contains("`source.speed`: expected the name of a figure"), "{error}");
}

#[test]
fn every_entry_of_the_catalogue_is_a_drive() {
    let entries = catalogue().unwrap();
    assert!(entries.len() >= 30, "{} models", entries.len());
    let mut models = std::collections::BTreeSet::new();
    let mut names: std::collections::BTreeSet<&str> = drives().into_iter().collect();
    for entry in entries {
        let name = &entry.name;
        assert!(names.insert(name), "{name} twice");
        assert!(!entry.models.is_empty() && !entry.model.is_empty(), "{name}");
        entry.models.iter().for_each(|model| assert!(models.insert(model), "{model} twice"));
        for (key, figure) in &entry.figures {
            let named = figure.source.len() > "data sheet: ".len();
            assert!(named, "{name}: {key:?} names no sheet");
        }
        entry.clone().profile(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Guard regions of shingled drives pass the head, too, without lowering the published rate.
#[test]
fn the_catalogues_drives_meet_their_sheets() {
    for name in ["barracuda-8t", "wd-red-2t", "exos-x24-24t", "mg10-20t", "exos-15e900-900g"] {
        let profile = crate::profile::catalogued(name).unwrap().unwrap();
        let gates = gates(&profile, 1);
        let bars = crate::validate::own_bars(&profile, &gates, 1);
        assert!(!bars.is_empty() && bars.iter().all(|bar| bar.passed), "{name}: {bars:?}");
    }
}

/// Whether each model number leads to its own entry, and to no neighbour's.
fn models_are_told_apart() -> bool {
    let entries = catalogue().unwrap();
    let own = |told: &str| catalogued_model(told).unwrap().map(|sheet| sheet.name.clone());
    let found = entries.iter().all(|entry| {
        entry.models.iter().all(|model| {
            own(model).as_ref() == Some(&entry.name)
                && own(&format!("{model}-2TV103")).as_ref() == Some(&entry.name)
                && own(&format!("WDC  {model}")).as_ref() == Some(&entry.name)
        })
    });
    found && own("ST18000NM999Z").is_none() && own("QEMU HARDDISK").is_none()
}

#[test]
fn a_model_gets_its_own_entry_and_not_a_neighbours() {
    assert!(models_are_told_apart());
    assert!(!with(Bug::NeighbourModel, models_are_told_apart));
}

#[test]
fn power_is_read_and_written_and_must_name_its_sources() {
    let power = "\n[power]\nactive_w = 9.0\nidle_w = 5.5\nstandby_w = 1.0\nspin_up_w = 20.0\n\
                 spin_up_s = 15.0\nstarts_max = 1000\n[power.source]\n";
    let keys = ["active_w", "idle_w", "standby_w", "spin_up_w", "spin_up_s", "starts_max"];
    let sources = |keys: &[&str]| keys.iter().map(|key| format!("{key} = \"sheet\"\n")).collect();
    let text =
        |sources: String| format!("name = \"s\"\ncapacity = \"4T\"\nrpm = 7200\n{power}{sources}");
    let profile = Profile::parse("test", &text(sources(&keys))).unwrap();
    assert!((profile.power().idle_w - 5.5).abs() < 1e-9);
    assert_eq!(Profile::parse("again", &profile.toml()).unwrap().power(), profile.power());
    let refused = Profile::parse("test", &text(sources(&keys[1..]))).unwrap_err().to_string();
    assert!(refused.contains("power.active_w"), "{refused}");
    let silent = Profile::parse("test", "name = \"s\"\ncapacity = \"4T\"\nrpm = 7200\n").unwrap();
    assert_eq!(silent.power().spin_up(), Nanos::from_secs(10));
}
