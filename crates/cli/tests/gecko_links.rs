//! A chain of single drives in files: links are added and removed while it is served and while it is
//! not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::client::{Client, FLUSH, WRITE};
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
