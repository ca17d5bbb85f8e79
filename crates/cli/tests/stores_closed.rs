//! What the commands say of base volumes that nobody serves: each knows what lies there, and names
//! the command that works.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::time::Duration;

use common::client::{Client, FUA, WRITE};
use common::served::Server;
use common::{Outcome, Place};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;

fn content(block: u64) -> Vec<u8> {
    (0..512_u64).flat_map(|word| (block << 40 | word << 8 | 0x5a).to_le_bytes()).collect()
}

/// A base volume, and a part of a disk that is lent.
struct Bench(Place);

impl Bench {
    fn new(everest: &str) -> Self {
        let place = Place::new();
        place.run(&["format", "base.img", "--size", "64M", "--everest", everest]).succeeds();
        Self(place)
    }

    fn run(&self, args: &[&str]) -> Outcome {
        self.0.run(args)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[args, &["--json"]].concat()).succeeds().stdout).unwrap()
    }

    fn lend(&self) -> Server {
        let size: &[&str] = if self.0.path("one.img").exists() { &[] } else { &["--size", "32M"] };
        let args = ["lend", "one.img", "--listen", "unix:one.sock"];
        Server::start(&mut self.0.command(&[&args[..], size].concat()))
    }

    fn serve(&self, store: &str) -> Server {
        let args = ["serve", "base.img", "--nbd", "unix:nbd.sock", "--same-disk"];
        let borrow = ["--store", store, "--offload", "always"];
        Server::start(&mut self.0.command(&[&args[..], &borrow].concat()))
    }

    /// Writes blocks 0 to 99, all of them to the store.
    fn write(&self) {
        while self.json(&["status", "base.img"])["offload"]["stores"][0]["state"] != "lends" {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut client = Client::connect(&self.0.path("nbd.sock"), PATIENCE);
        for block in 0..100 {
            let answer = client.ask(FUA, WRITE, 2 * block * BLOCK, 4096, &content(block));
            assert_eq!(answer, 0, "block {block}");
        }
    }

    /// Kills both servers while the store has data. Returns the store's name.
    fn kill_with_data(&self) -> String {
        for _ in 0..20 {
            let lent = self.lend();
            let served = self.serve(&lent.path);
            self.write();
            served.kill();
            let name = lent.path.rsplit_once('#').unwrap().1.to_owned();
            lent.kill();
            if self.json(&["stores", "base.img"])["listed"][0] == name.as_str() {
                return name;
            }
        }
        panic!("nothing is listed when the server is killed");
    }
}

#[test]
fn a_base_volume_that_nobody_serves_says_what_it_is() {
    let bench = Bench::new("disk");
    let run = |args: &[&str]| bench.run(args);
    assert!(run(&["status", "base.img"]).succeeds().stdout.contains("manylogs serve base.img\n"));
    assert!(run(&["check", "base.img"]).succeeds().stdout.contains("nothing is wrong"));
    assert!(run(&["probe", "base.img"]).succeeds().stdout.contains("ID_FS_TYPE=manylogs_base"));
    for command in ["drain", "checkpoint", "grow", "table"] {
        run(&[command, "base.img"]).fails(2, &["the base volume", "manylogs stores base.img"]);
    }
    let store = bench.kill_with_data();
    let serving = format!("manylogs serve base.img --store ADDRESS#{store}");
    let status = run(&["status", "base.img"]);
    assert!(status.succeeds().stdout.contains(&serving), "{status:?}");
    run(&["drain", "base.img"]).fails(2, &[&serving]);
    let checked = run(&["check", "base.img"]);
    assert!(checked.succeeds().stdout.contains("1 store may have newer data"), "{checked:?}");
    run(&["check", "base.img", "--repair"]).fails(2, &["--repair is for", "manylogs serve"]);
    let listed = run(&["list"]);
    assert!(listed.succeeds().stdout.contains("base volume"), "{listed:?}");

    // The store is gone for good, and nobody knows what it had.
    run(&["stores", "base.img", "forget", &store, "--accept-loss"]).succeeds();
    let told = run(&["stores", "base.img"]);
    assert!(told.succeeds().stdout.contains("lost: 66977792 bytes from byte 0"), "{told:?}");
    run(&["check", "base.img"]).fails(4, &["(1 range)", "forgotten"]);
    assert!(run(&["dump", "base.img"]).succeeds().stdout.contains("0+130816 lost"));

    // One copy of the header is damaged, and then both.
    let path = bench.0.path("base.img");
    let whole = fs::read(&path).unwrap();
    let damage = |places: &[usize]| {
        let mut bytes = whole.clone();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        fs::write(&path, bytes).unwrap();
    };
    damage(&[30]);
    assert_eq!(bench.json(&["status", "base.img"])["whole_copies"], 1);
    assert!(run(&["dump", "base.img"]).succeeds().stdout.contains("one of the two copies"));
    damage(&[30, 65536 + 30]);
    run(&["check", "base.img"]).fails(4, &["no header of a base volume that is whole"]);
    run(&["drain", "base.img"]).fails(4, &["no header of a base volume that is whole"]);
    run(&["format", "base.img", "--size", "64M", "--everest", "disk", "--force"]).succeeds();
    damage_one(&path);
    run(&["check", "base.img"]).fails(3, &["a copy of its header", "manylogs serve base.img"]);
}

/// Damages the first copy of a header.
fn damage_one(path: &std::path::Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[30] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// The disk would have twice the work. Data that is there already is served all the same.
#[test]
fn a_store_on_the_base_volumes_own_disk_is_refused() {
    let bench = Bench::new("disk");
    let lent = bench.lend();
    let (at, _) = lent.path.rsplit_once('#').unwrap();
    let serve = |store: &str| {
        let args = ["serve", "base.img", "--nbd", "unix:nbd.sock", "--patience", "9s"];
        [&args[..], &["--store", store]].concat().iter().map(|&arg| arg.to_owned()).collect()
    };
    let words = ["own disk", "--same-disk"];
    for store in [at, &lent.path] {
        let args: Vec<String> = serve(store);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        bench.run(&args).fails(2, &words);
    }
    let alone = ["serve", "base.img", "--nbd", "unix:nbd.sock", "--patience", "9s"];
    let served = Server::start(&mut bench.0.command(&alone));
    bench.run(&["stores", "base.img", "add", &lent.path]).fails(2, &words);
    served.kill();
    lent.kill();
    bench.kill_with_data();
    let lent = bench.lend();
    let args: Vec<String> = serve(&lent.path);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let served = Server::start(&mut bench.0.command(&args));
    let mut client = Client::connect(&bench.0.path("nbd.sock"), PATIENCE);
    assert!(client.read(40 * 2 * BLOCK, 4096) == content(40));
    drop((served, lent));
}
