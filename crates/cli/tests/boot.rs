//! What serves chains of drives at boot: the unit and the rule.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::served::run;
use common::text;
use tempfile::TempDir;

fn packaged(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name))
        .unwrap()
}

/// A chain of two files.
fn chain() -> (TempDir, [String; 2]) {
    let dir = TempDir::new().unwrap();
    let names = ["a.img", "b.img"].map(|name| text(&dir.path().join(name)).to_owned());
    let size = ["--size", "48M", "--sparse", "--segment", "2M"];
    let args = [&["format", "--gecko", &names[0], &names[1]][..], &size].concat();
    run(&args, 0, "segments");
    (dir, names)
}

#[test]
fn the_unit_and_the_rule_of_chains_use_what_is_there() {
    let unit = packaged("systemd/manylogs-chain@.service");
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    let help = run(&["serve", "--help"], 0, "");
    let options: Vec<_> = start.split(' ').filter(|word| word.starts_with("--")).collect();
    assert!(options.len() >= 3, "{start}");
    for option in options.into_iter().chain(["--sleep", "--wake-budget", "--degraded"]) {
        assert!(help.contains(option), "{option}");
    }
    let rule = packaged("udev/60-manylogs.rules");
    let (_dir, members) = chain();
    // The facts by which the rule finds the unit and names the disk, the same from each member.
    let probed = members.each_ref().map(|member| run(&["probe", member], 0, "MANYLOGS_CHAIN="));
    let told = |facts: &str, name: &str| {
        let line = facts.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap().to_owned()
    };
    let ids: BTreeSet<String> = probed.iter().map(|facts| told(facts, "MANYLOGS_CHAIN")).collect();
    assert_eq!(ids.len(), 1, "{probed:?}");
    let id = ids.first().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(told(&probed[0], "ID_FS_TYPE"), "manylogs_chain");
    for words in [
        "ENV{ID_FS_TYPE}==\"manylogs_chain\", GOTO=\"manylogs_chain\"",
        "SYMLINK+=\"manylogs/chain-$env{MANYLOGS_CHAIN}\", TAG+=\"systemd\"",
        "ENV{SYSTEMD_WANTS}+=\"manylogs-chain@$env{MANYLOGS_CHAIN}.service\"",
    ] {
        assert!(rule.contains(words), "{words}");
    }
    assert!(start.contains(" /dev/manylogs/chain-%i "), "{start}");
    let makefile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile"));
    assert!(makefile.unwrap().contains("UNITS := manylogs@.service manylogs-chain@.service"));
}

/// The server of a chain is confined as that of a volume, but for the commands about power.
#[test]
fn both_units_confine_their_servers() {
    let settings = |name| -> BTreeSet<String> {
        let kept = |line: &&str| line.contains('=') && !line.starts_with('#');
        packaged(name).lines().filter(kept).map(str::to_owned).collect()
    };
    let volumes = settings("systemd/manylogs@.service");
    let chains = settings("systemd/manylogs-chain@.service");
    let only: Vec<&String> = volumes.difference(&chains).collect();
    let may_differ = [
        "Description=",
        "BindsTo=",
        "After=",
        "EnvironmentFile=",
        "ExecStart=",
        "StartLimitBurst=",
        "RestartPreventExitStatus=",
        "RestartSec=",
        "CapabilityBoundingSet=",
        "WantedBy=",
    ];
    for line in only {
        assert!(may_differ.iter().any(|name| line.starts_with(name)), "{line}");
    }
    let capabilities = |of: &BTreeSet<String>| {
        of.iter().find(|line| line.starts_with("CapabilityBoundingSet=")).unwrap().clone()
    };
    assert_eq!(capabilities(&chains), capabilities(&volumes) + " CAP_SYS_RAWIO");
}

/// While a member is missing the server says which, with an exit code that the unit tries again.
#[test]
fn a_missing_member_is_named_and_tried_again() {
    let (_dir, [first, second]) = chain();
    // Files beside the first one are looked at.
    fs::remove_file(&second).unwrap();
    run(&["serve", &first, "--file"], 2, "missing");
    let unit = packaged("systemd/manylogs-chain@.service");
    let never = unit.lines().find(|line| line.starts_with("RestartPreventExitStatus=")).unwrap();
    assert!(!never.contains('2'), "{never}");
}
