//! A chain of pairs in files: halves are replaced while it is served and while it is not, fail, and
//! come back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::client::{Client, FLUSH, WRITE};
use common::served::{MANYLOGS, Server, can_serve, run};
use common::text;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;
const NAMES: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];

/// Four files with a chain of two pairs on them.
struct Pairs(TempDir);

impl Pairs {
    fn new() -> Self {
        let pairs = Self(TempDir::new().unwrap());
        let paths = NAMES.map(|name| pairs.name(name));
        let paths = paths.iter().map(String::as_str);
        let options = ["--mirror", "--size", "48M", "--sparse", "--segment", "2M"];
        let args: Vec<&str> =
            ["format", "--gecko"].into_iter().chain(paths).chain(options).collect();
        run(&args, 0, "4 drives in pairs");
        pairs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }

    fn spare(&self, name: &str, mib: u64) -> String {
        File::create(self.path(name)).unwrap().set_len(mib << 20).unwrap();
        self.name(name)
    }

    fn nbd(&self, member: &str, options: &[&str]) -> (Server, Client) {
        let socket = self.path("nbd.sock");
        let address = format!("unix:{}", socket.display());
        let mut command = Command::new(MANYLOGS);
        command.arg("serve").arg(self.path(member)).args(["--nbd", &address]).args(options);
        let server = Server::start(&mut command);
        (server, Client::connect(&socket, PATIENCE))
    }

    /// The state of each half, with the name of its file.
    fn halves(&self, member: &str) -> Vec<String> {
        let listed = run(&["member", "list", &self.name(member), "--json"], 0, "[");
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let half = |half: &Value| {
            let path = half["path"].as_str().unwrap_or("-");
            let name = path.rsplit('/').next().unwrap().to_owned();
            format!("{name} {}", half["state"].as_str().unwrap())
        };
        listed.as_array().unwrap().iter().map(half).collect()
    }
}

fn block(at: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|word| (at * 1_000_003 + version * 512 + word).to_le_bytes()).collect()
}

fn place(i: u64) -> u64 {
    i * 7919 % 8_000 * BLOCK
}

fn write(client: &mut Client, version: u64) {
    for i in 0..300 {
        assert_eq!(client.ask(0, WRITE, place(i), 4096, &block(place(i), version)), 0);
    }
    assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
}

fn check(client: &mut Client, version: u64) {
    for i in 0..300 {
        assert!(client.read(place(i), 4096) == block(place(i), version), "block {i}");
    }
}

#[test]
fn a_half_is_replaced_while_the_chain_is_served_and_the_other_one_may_go_then() {
    let pairs = Pairs::new();
    let new = pairs.spare("new.img", 48);
    let (server, mut client) = pairs.nbd("b.img", &[]);
    write(&mut client, 1);
    let said = run(&["member", "replace", &pairs.name("a.img"), &new], 0, "has everything now");
    assert!(said.contains("MiB copied"), "{said}");
    assert_eq!(pairs.halves("b.img")[..2], ["new.img current", "b.img current"]);
    run(&["status", &pairs.name("c.img")], 0, "new.img  current since opening");
    write(&mut client, 2);
    drop(client);
    server.kill();
    // The half that was replaced counts for nothing, and one half of each pair is enough.
    fs::create_dir(pairs.path("away")).unwrap();
    for name in ["b.img", "d.img"] {
        fs::rename(pairs.path(name), pairs.path("away").join(name)).unwrap();
    }
    let nowhere = ["--nbd", "unix:/nowhere/x"];
    let socket = format!("unix:{}", pairs.path("nbd.sock").display());
    run(&["serve", &new, "--nbd", &socket], 2, "half 2 of pair 1 is missing");
    run(&[["serve", &pairs.name("a.img")], nowhere].concat(), 2, "/nowhere/x");
    let (server, mut client) = pairs.nbd("new.img", &["--degraded"]);
    check(&mut client, 2);
    write(&mut client, 3);
    drop(client);
    server.kill();
    // Those that were missing come back, and have missed writes.
    for name in ["b.img", "d.img"] {
        fs::rename(pairs.path("away").join(name), pairs.path(name)).unwrap();
    }
    assert_eq!(
        pairs.halves("b.img"),
        ["new.img current", "- missing", "c.img current", "- missing"]
    );
    let (server, mut client) = pairs.nbd("d.img", &[]);
    check(&mut client, 3);
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
    // They join again, one after the other, while nobody serves the chain.
    let [b, c, d] = ["b.img", "c.img", "d.img"].map(|name| pairs.name(name));
    run(&["member", "replace", "1.2", &b, "--of", &c], 5, "--force");
    run(&["member", "replace", "1.2", &b, "--of", &c, "--force"], 0, "has everything now");
    run(&["member", "replace", "2.2", &d, "--of", &b, "--force"], 0, "has everything now");
    let all = ["new.img current", "b.img current", "c.img current", "d.img current"];
    assert_eq!(pairs.halves("a.img"), all);
    for name in ["new.img", "c.img"] {
        fs::rename(pairs.path(name), pairs.path("away").join(name)).unwrap();
    }
    let (server, mut client) = pairs.nbd("b.img", &["--degraded"]);
    check(&mut client, 3);
    drop(client);
    server.kill();
}

#[test]
fn drives_that_cannot_join_are_refused() {
    let pairs = Pairs::new();
    let [a, c, d] = ["a.img", "c.img", "d.img"].map(|name| pairs.name(name));
    let (small, new) = (pairs.spare("small.img", 20), pairs.spare("new.img", 48));
    let foreign = pairs.spare("foreign.img", 48);
    File::options().write(true).open(&foreign).unwrap().write_all_at(b"XFSB", 0).unwrap();
    let refused = |served: bool| {
        run(&["member", "replace", &a, &small], 2, "small.img: the new drive has 40960 sectors");
        run(&["member", "replace", &a, &foreign], 5, "an XFS file system");
        run(&["member", "replace", &a, &d, "--force"], 2, "a member of this chain already");
        run(&["member", "replace", "1.2", &c, "--of", &a], 2, "a member of this chain already");
        run(&["member", "replace", "3.1", &new, "--of", &c], 2, "has no half 3.1");
        run(&["member", "replace", &a, "/nowhere/new"], 2, "does not exist");
        let of_none = if served { "name it as manylogs member list does" } else { "no half" };
        run(&["member", "replace", &new, &new, "--of", &c], 2, of_none);
        let all = ["a.img current", "b.img current", "c.img current", "d.img current"];
        assert_eq!(pairs.halves("a.img"), all);
    };
    refused(false);
    let (server, client) = pairs.nbd("a.img", &[]);
    refused(true);
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
    run(&["format", "--gecko", "--mirror", &a, &c, &d, "--force"], 2, "cannot be mirrored");
    // The links of this chain are single drives.
    run(&["format", "--gecko", &a, &c, "--force", "--segment", "2M"], 0, "segments");
    run(&["member", "replace", &a, &new], 2, "not mirrored");
    run(&["member", "list", &c], 0, "1.1  ");
}

#[test]
fn a_scrub_mends_a_half_from_the_other() {
    let pairs = Pairs::new();
    let (server, mut client) = pairs.nbd("a.img", &[]);
    write(&mut client, 1);
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
    run(&["scrub", &pairs.name("d.img")], 0, "0 mended, 0 damaged");
    // Some block of those that were written, where it lies on one half.
    let bytes = fs::read(pairs.path("b.img")).unwrap();
    let wanted = block(place(7), 1);
    let at = bytes.chunks(512).position(|sector| sector == &wanted[..512]).unwrap() * 512;
    let file = File::options().write(true).open(pairs.path("b.img")).unwrap();
    file.write_all_at(&[7; 512], at as u64).unwrap();
    // A check tells of it, and writes nothing.
    run(&["check", &pairs.name("c.img")], 3, "differ from their checksums");
    run(&["check", &pairs.name("a.img"), "--repair"], 0, "1 mended, 0 damaged");
    run(&["check", &pairs.name("a.img")], 0, "nothing is wrong");
    file.write_all_at(&[7; 512], at as u64).unwrap();
    run(&["scrub", &pairs.name("a.img")], 0, "1 mended, 0 damaged");
    assert_eq!(fs::read(pairs.path("b.img")).unwrap()[at..at + 512], wanted[..512]);
    run(&["scrub", &pairs.name("a.img")], 0, "0 mended, 0 damaged");
}

/// The server would wait for itself.
#[test]
fn a_drive_on_the_chain_itself_is_refused() {
    if !can_serve(false) {
        return;
    }
    let pairs = Pairs::new();
    let mut command = Command::new(MANYLOGS);
    command.arg("serve").arg(pairs.path("a.img")).arg("--file");
    let server = Server::start(&mut command);
    let own = server.path.clone();
    let a = pairs.name("a.img");
    run(&["member", "replace", &a, &own], 2, "which may be this chain");
    run(&["status", &a], 0, "current since opening");
    server.terminate();
    assert!(server.wait().0.success());
}

/// Files have no spindle: that is told and is no error, and single drives are refused.
#[test]
fn a_chain_of_files_is_served_with_sleep_and_says_that_none_sleeps() {
    let pairs = Pairs::new();
    let (server, mut client) = pairs.nbd("a.img", &["--sleep", "--wake-budget", "5"]);
    write(&mut client, 1);
    check(&mut client, 1);
    let told =
        run(&["status", &pairs.name("a.img")], 0, "never sleeps: nothing commands its power");
    assert_eq!(told.matches("never sleeps").count(), 4, "{told}");
    let status = run(&["status", &pairs.name("a.img"), "--json"], 0, "\"power\"");
    let status: Value = serde_json::from_str(&status).unwrap();
    let power = &status["chain"]["halves"][0]["power"];
    assert_eq!((&power["state"], &power["starts_left"]), (&"unsupported".into(), &5.into()));
    let metrics = run(&["metrics", &pairs.name("a.img")], 0, "manylogs_chain_halves_asleep{");
    let asleep = metrics.lines().find(|line| line.starts_with("manylogs_chain_halves_asleep{"));
    assert!(asleep.is_some_and(|line| line.ends_with(" 0")), "{metrics}");
    drop(client);
    server.kill();
    let single = TempDir::new().unwrap();
    let names = ["a.img", "b.img"].map(|name| text(&single.path().join(name)).to_owned());
    let size = ["--size", "48M", "--sparse", "--segment", "2M"];
    run(&[&["format", "--gecko", &names[0], &names[1]][..], &size].concat(), 0, "segments");
    run(&["serve", &names[0], "--file", "--sleep"], 2, "only halves of pairs sleep");
    run(&["serve", &names[0], "--file", "--wake-budget", "5"], 2, "--sleep");
}
