//! An operator's commands on a mounted file system: status and settings.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use common::Place;
use common::image::{can_mount, image, serve, unmount};
use serde_json::Value;

fn status(place: &Place, of: &str) -> Value {
    let said = place.run(&["fs", "status", of, "--json"]);
    serde_json::from_str(&said.succeeds().stdout).unwrap()
}

/// The counts of the status, in this order.
fn counts<const N: usize>(status: &Value, keys: [&str; N]) -> [u64; N] {
    keys.map(|key| status[key].as_u64().unwrap_or_else(|| panic!("{key} in {status}")))
}

fn settings(place: &Place, of: &str) -> String {
    place.run(&["fs", "set", of]).succeeds().stdout.clone()
}

#[test]
fn an_operator_sees_what_syncs_cost_and_steers_the_logs() {
    let place = Place::new();
    let adopted = can_mount() && image(&place, 256, &[]).is_some();
    if !adopted {
        return;
    }
    let adopt = ["fs", "adopt", "disk.img", "--yes", "--physical-sector"];
    place.run(&[&adopt[..], &["1000"]].concat()).fails(2, &["1000", "4096"]);
    place.run(&[&adopt[..], &["4096"]].concat()).succeeds();
    place.run(&["fs", "set", "disk.img", "idle=7s"]).succeeds();
    let bytes = fs::read(place.path("disk.img")).unwrap();
    for (pair, words) in [("record=128K", "1M at once"), ("band=30M", "volumes of their own")] {
        place.run(&["fs", "set", "disk.img", pair]).fails(2, &[words]);
    }
    assert!(bytes == fs::read(place.path("disk.img")).unwrap(), "refused, and changed");
    let root = serve(&place);
    place.run(&["fs", "set", "mlfs", "record=128K"]).fails(2, &["record=128K", "1M at once"]);
    assert!(settings(&place, "mlfs").contains("idle=7s\n"), "kept while it was not mounted");

    let file = File::create(root.join("file")).unwrap();
    file.write_all_at(&[1; 8 * 4096], 0).unwrap();
    file.sync_all().unwrap();
    let keys = ["fsyncs", "transactions", "records", "flushes", "log_bytes"];
    let before = counts(&status(&place, "mlfs"), keys);
    for block in 0..8 {
        file.write_all_at(&[2; 4096], block * 4096).unwrap();
        file.sync_data().unwrap();
    }
    let now = status(&place, "disk.img");
    let after = counts(&now, keys);
    let more: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(more[..4], [8, 8, 8, 0], "a record and no flush for each: {now}");
    assert_eq!(more[4], 8 * 8192, "a sector of headers and one of content: {now}");
    assert_eq!(now["mode"], "manylogs");
    assert_eq!(now["state"], "mounted");
    assert_eq!(now["refused"], Value::Null);
    assert_eq!(now["mounted_on"], root.to_str().unwrap());
    assert_eq!(now["server"]["requests"][3]["kind"], "flush");
    assert_eq!(now["server"]["requests"][3]["requests"].as_u64().unwrap(), after[0]);

    assert!(counts(&now, ["bytes_at_risk"])[0] >= 8 * 4096, "{now}");
    place.run(&["fs", "checkpoint", "mlfs"]).succeeds();
    let home = counts(&status(&place, "mlfs"), ["bytes_at_risk", "checkpoint_bytes"]);
    assert!(home[0] == 0 && home[1] >= 8 * 4096, "{home:?}");

    place.run(&["fs", "set", "mlfs", "idle=9s"]).succeeds();
    let top = place.run(&["fs", "top", "mlfs", "--count", "1"]);
    assert!(top.succeeds().stdout.contains("flush"), "{top:?}");
    let text = place.run(&["fs", "status", "mlfs"]);
    assert!(text.succeeds().stdout.contains("in the mode manylogs"), "{text:?}");
    place.run(&["stop", "disk.img"]).fails(5, &["manylogs fs unmount"]);
    drop(file);
    unmount(&place);

    assert!(settings(&place, "disk.img").contains("idle=9s\n"), "kept while it was mounted");
    place.run(&["fs", "checkpoint", "disk.img"]).succeeds();
    let now = status(&place, "disk.img");
    assert_eq!((&now["mode"], &now["fsyncs"]), (&Value::Null, &Value::Null));
    place.run(&["fs", "release", "disk.img"]).succeeds();
}

#[test]
fn what_has_no_logs_says_so() {
    let place = Place::new();
    if !can_mount() || image(&place, 64, &[]).is_none() {
        return;
    }
    fs::create_dir(place.path("mlfs")).unwrap();
    for verb in ["set", "checkpoint", "top"] {
        place.run(&["fs", verb, "mlfs"]).fails(2, &["mlfs", "mounted there"]);
    }
    place.run(&["fs", "set", "disk.img"]).fails(2, &["disk.img", "not adopted"]);
    place.run(&["fs", "checkpoint", "disk.img"]).fails(2, &["disk.img", "not adopted"]);
    place.run(&["fs", "top", "disk.img"]).fails(2, &["disk.img"]);
    place.run(&["fs", "set", "disk.img", "idle"]).fails(2, &["idle"]);
    let root = serve(&place);
    fs::write(root.join("file"), [1; 4096]).unwrap();
    File::open(root.join("file")).unwrap().sync_all().unwrap();
    let now = status(&place, "mlfs");
    assert_eq!(now["mode"], "ordered");
    let [fsyncs, records, flushes] = counts(&now, ["fsyncs", "records", "flushes"]);
    assert!(fsyncs == 1 && records >= 1 && flushes == records, "{now}");
    place.run(&["fs", "set", "mlfs"]).fails(2, &["mode ordered", "manylogs and adaptive"]);
    place.run(&["fs", "checkpoint", "mlfs"]).fails(2, &["mode ordered"]);
    unmount(&place);
}

/// Whether `fs status` says that a file is durable-only, and that this is in effect.
fn is_durable(place: &Place, file: &str) -> (bool, bool) {
    let said = status(place, file);
    (said["durable"].as_bool().unwrap(), said["in_effect"].as_bool().unwrap())
}

#[test]
fn files_that_need_no_place_stay_in_the_logs() {
    const XATTR: &str = "user.manylogs.durable";
    const O_DSYNC: i32 = 0o10_000;
    let place = Place::new();
    let adopted = can_mount() && image(&place, 256, &[]).is_some();
    if !adopted {
        return;
    }
    place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
    let root = place.path("mlfs");
    fs::create_dir_all(&root).unwrap();
    let mount = ["fs", "mount", "disk.img", "mlfs", "--background"];
    let with = |more: &[&str]| place.run(&[&mount[..], more].concat());
    with(&["--durable", "wal/*,*"]).fails(2, &["pattern \"*\"", "every file"]);
    with(&["-o", "durable=[0-9]"]).fails(2, &["durable", "* and ?"]);
    with(&["--durable", "wal/*", "--durable-dsync"]).succeeds();
    fs::create_dir_all(root.join("wal")).unwrap();
    let log = File::create(root.join("wal/1")).unwrap();
    log.write_all_at(&[1; 300_000], 0).unwrap();
    log.sync_all().unwrap();
    fs::write(root.join("plain"), [2; 300_000]).unwrap();
    assert_eq!(is_durable(&place, "mlfs/wal/1"), (true, true));
    assert_eq!(is_durable(&place, "mlfs/wal"), (false, false));
    assert_eq!(is_durable(&place, "mlfs/plain"), (false, false));
    place.run(&["fs", "checkpoint", "mlfs"]).succeeds();
    let keys = ["o_dur_live_bytes", "o_dur_home_bytes", "o_dur_moved_bytes"];
    assert_eq!(counts(&status(&place, "mlfs"), keys), [303_104, 0, 0]);
    let mut at_once = File::options();
    at_once.write(true).create(true).truncate(true).custom_flags(O_DSYNC);
    let synced = at_once.open(root.join("synced")).unwrap();
    synced.write_all_at(&[4; 50_000], 0).unwrap();
    assert_eq!(counts(&status(&place, "mlfs"), ["o_dur_live_bytes"]), [303_104 + 53_248]);
    assert_eq!(is_durable(&place, "mlfs/synced"), (false, false), "the write, not the file");
    fs::remove_file(root.join("synced")).unwrap();
    drop(synced);
    let metrics = place.run(&["metrics", "disk.img"]).succeeds().stdout.clone();
    assert!(metrics.contains("manylogs_o_dur_live_bytes"), "{metrics}");
    place.run(&["fs", "set", "mlfs", "durable-budget=10%"]).succeeds();
    assert!(settings(&place, "mlfs").contains("durable-budget=0.1\n"));

    let set = |path: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join(path), XATTR, value, flags)
    };
    assert_eq!(set("plain", b"yes"), Err(rustix::io::Errno::INVAL));
    fs::create_dir(root.join("other")).unwrap();
    set("other", b"1").unwrap();
    fs::write(root.join("other/1"), "handed down").unwrap();
    File::open(root.join("other/1")).unwrap().sync_all().unwrap();
    assert_eq!(is_durable(&place, "mlfs/other/1"), (true, true));
    set("wal/1", b"0").unwrap();
    assert_eq!(is_durable(&place, "mlfs/wal/1"), (false, false));
    assert_eq!(counts(&status(&place, "mlfs"), ["o_dur_live_bytes"]), [4096]);
    set("wal/1", b"1").unwrap();
    log.write_all_at(&[3; 300_000], 0).unwrap();
    drop(log);
    unmount(&place);

    let at_risk = status(&place, "disk.img")["logged_bytes"].as_u64().unwrap();
    assert!(at_risk >= 300_000, "{at_risk}");
    let released = place.run(&["fs", "release", "disk.img"]);
    let told = format!("{at_risk} bytes are in the logs alone: they go home first");
    assert!(released.succeeds().stdout.starts_with(&told), "{released:?}");
    with(&["-o", "durable=wal/*"]).succeeds();
    assert_eq!(is_durable(&place, "mlfs/wal/1"), (true, false));
    assert!(fs::read(root.join("wal/1")).unwrap() == [3; 300_000]);
    assert_eq!(fs::read(root.join("other/1")).unwrap(), b"handed down");
    fs::write(root.join("wal/2"), "new").unwrap();
    assert_eq!(is_durable(&place, "mlfs/wal/2"), (false, false), "there is no such log");
    unmount(&place);
}
