//! A chain of single drives in files: links are added and removed while it is served and while it is
//! not, drives fail, and the SSD of its cache is found and missed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::client::{Client, FLUSH, READ, WRITE};
use common::served::{MANYLOGS, Server, run};
use common::text;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;
/// Blocks that are written: most of the export.
const BLOCKS: u64 = 1_500;

fn nbd(folder: &Path, member: &str) -> (Server, Client) {
    let socket = folder.join("nbd.sock");
    let address = format!("unix:{}", socket.display());
    let mut command = Command::new(MANYLOGS);
    command.arg("serve").arg(folder.join(member)).args(["--nbd", &address]);
    let server = Server::start(&mut command);
    (server, Client::connect(&socket, PATIENCE))
}

fn block(at: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|word| (at * 1_000_003 + version * 512 + word).to_le_bytes()).collect()
}

fn place(i: u64) -> u64 {
    i * 7919 % 8_000 * BLOCK
}

fn write(client: &mut Client, version: u64) {
    for i in 0..BLOCKS {
        assert_eq!(client.ask(0, WRITE, place(i), 4096, &block(place(i), version)), 0);
    }
    assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
}

fn check(client: &mut Client, version: u64) {
    for i in 0..BLOCKS {
        assert!(client.read(place(i), 4096) == block(place(i), version), "block {i}");
    }
}

/// The links by number, with the names of their files.
fn links(member: &str) -> Vec<String> {
    let listed = run(&["member", "list", member, "--json"], 0, "[");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let link = |link: &Value| {
        let name = link["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        format!("{} {name} {}", link["pair"].as_u64().unwrap() + 1, link["state"].as_str().unwrap())
    };
    listed.as_array().unwrap().iter().map(link).collect()
}

#[test]
fn links_come_and_go_while_the_chain_is_served_and_while_it_is_not() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let name = |name: &str| text(&path(name)).to_owned();
    let [a, b, c, new] = ["a.img", "b.img", "c.img", "new.img"].map(name);
    let options = ["--export", "32M", "--size", "48M", "--sparse", "--segment", "2M"];
    let args = [&["format", "--gecko", &a, &b, &c][..], &options].concat();
    run(&args, 0, "3 drives");
    File::create(&new).unwrap().set_len(50 << 20).unwrap();

    let (server, mut client) = nbd(folder.path(), "b.img");
    write(&mut client, 1);
    run(&["member", "add", &c, &b], 2, "is a member of this chain already");
    run(&["member", "add", &c, &new], 0, "link 4 of the chain now");
    run(&["member", "remove", &a], 0, "no link of the chain any more");
    assert_eq!(links(&c), ["2 b.img current", "3 c.img current", "4 new.img current"]);
    run(&["status", &new], 0, "member 4");
    check(&mut client, 1);
    write(&mut client, 2);
    drop(client);
    server.kill();

    // The removed drive is not needed, and counts for nothing if it is there.
    run(&["check", &c], 0, "");
    fs::rename(path("a.img"), path("a.old")).unwrap();
    let (server, mut client) = nbd(folder.path(), "new.img");
    check(&mut client, 2);
    drop(client);
    server.kill();

    run(&["member", "remove", "2", "--of", &c], 0, "no link of the chain any more");
    assert_eq!(links(&new), ["3 c.img current", "4 new.img current"]);
    run(&["member", "remove", &c], 2, "at least two links");
    fs::remove_file(path("b.img")).unwrap();
    let (server, mut client) = nbd(folder.path(), "c.img");
    check(&mut client, 2);
    drop(client);
    server.kill();
}

/// Blocks that fill the first of four small drives, and a part of the next.
const MANY: u64 = 5_000;

/// The blocks that cannot be read. All others hold what was written.
fn lost(client: &mut Client) -> Vec<u64> {
    let mut lost = Vec::new();
    for at in (0..MANY).map(|i| i * BLOCK) {
        match client.ask(0, READ, at, 4096, &[]) {
            0 => assert!(client.read(at, 4096) == block(at, 1), "the block at {at}"),
            _ => lost.push(at),
        }
    }
    lost
}

/// A file that is cut off stands for a drive that failed.
#[test]
fn a_drive_that_failed_leaves_with_what_only_it_held() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let name = |name: &str| text(&path(name)).to_owned();
    let [a, b, c, d] = ["a.img", "b.img", "c.img", "d.img"].map(name);
    let options = ["--export", "22M", "--size", "16M", "--sparse", "--segment", "1M"];
    let args = [&["format", "--gecko", &a, &b, &c, &d][..], &options].concat();
    run(&args, 0, "4 drives");
    let (server, mut client) = nbd(folder.path(), "b.img");
    for at in (0..MANY).map(|i| i * BLOCK) {
        assert_eq!(client.ask(0, WRITE, at, 4096, &block(at, 1)), 0);
    }
    assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);

    File::options().write(true).open(path("a.img")).unwrap().set_len(0).unwrap();
    run(&["member", "remove", "1", "--of", &d], 1, "cannot be read");
    run(&["status", &d], 0, "stuck");
    let told = run(&["member", "remove", "1", "--of", &d, "--accept-loss"], 4, "LOST: ");
    assert!(told.contains("reads there fail until they are written"), "{told}");
    let gone = lost(&mut client);
    let count = gone.len() as u64;
    assert!((100..MANY - 100).contains(&count), "{count}");
    assert_eq!(client.ask(0, WRITE, gone[0], 4096, &block(gone[0], 1)), 0);
    assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
    drop(client);
    server.kill();

    fs::remove_file(path("a.img")).unwrap();
    run(&["check", &c], 4, "were lost with a link");
    let (server, mut client) = nbd(folder.path(), "d.img");
    assert_eq!(lost(&mut client), gone[1..]);
    drop(client);
    server.kill();
}

/// The row of a status about the cache's SSD.
fn ssd_of(member: &str) -> Value {
    let status = run(&["status", member, "--json"], 0, "\"chain\"");
    let mut status: Value = serde_json::from_str(&status).unwrap();
    status["chain"]["flash"].take()
}

#[test]
fn the_ssd_that_format_was_given_is_found_again_and_missed() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let name = |name: &str| text(&path(name)).to_owned();
    let [a, b, ssd] = ["a.img", "b.img", "ssd.img"].map(name);
    let wipe = || File::create(&ssd).unwrap().set_len(16 << 20).unwrap();
    wipe();
    let options = ["--size", "16M", "--sparse", "--segment", "1M"];
    let args = [&["format", "--gecko", &a, &b, "--cache", &a][..], &options].concat();
    run(&args, 2, "is the drive");
    let args = [&["format", "--gecko", &a, &b, "--cache", &ssd][..], &options].concat();
    run(&args, 0, "memory     up to ");
    let little = ["serve", &a, "--file", "--cache-memory", "64M", "--memory", "64M"];
    run(&little, 2, "are too little: written at random, the map of this chain takes up to");
    run(&["probe", &ssd], 0, "ID_FS_TYPE=manylogs_cache");

    let (server, client) = nbd(folder.path(), "b.img");
    let flash = ssd_of(&a);
    assert_eq!((&flash["path"], &flash["problem"]), (&Value::from(&*ssd), &Value::Null));
    drop(client);
    server.kill();
    // Another one, and none.
    for swap in [true, false] {
        if swap {
            wipe();
        } else {
            fs::remove_file(&ssd).unwrap();
        }
        let (server, client) = nbd(folder.path(), "a.img");
        let problem = ssd_of(&b)["problem"].as_str().unwrap_or_default().to_owned();
        assert!(problem.contains("is the SSD of the chain's tail cache"), "{problem}");
        drop(client);
        server.kill();
    }
}
