//! A chain of drives in files: made, served, killed, served again, and refused if incomplete.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::client::{Client, FLUSH, FUA, TRIM, WRITE, ZERO};
use common::image::program;
use common::served::{MANYLOGS, Server, can_serve, run};
use common::text;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;
const NAMES: [&str; 3] = ["a.img", "b.img", "c.img"];

/// Three files with a chain on them.
struct Chain(TempDir);

impl Chain {
    fn of(options: &[&str]) -> Self {
        let chain = Self(TempDir::new().unwrap());
        let paths = NAMES.map(|name| chain.name(name));
        let paths = paths.iter().map(String::as_str);
        let args: Vec<&str> =
            ["format", "--gecko"].into_iter().chain(paths).chain(options.iter().copied()).collect();
        run(&args, 0, "segments");
        chain
    }

    fn small() -> Self {
        Self::of(&["--size", "48M", "--sparse", "--segment", "2M"])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }

    fn serve(&self, member: &str, options: &[&str]) -> Command {
        let mut command = Command::new(MANYLOGS);
        command.arg("serve").arg(self.path(member)).args(options);
        command
    }

    fn nbd(&self, member: &str) -> (Server, Client) {
        self.nbd_with(member, &[])
    }

    fn nbd_with(&self, member: &str, options: &[&str]) -> (Server, Client) {
        let socket = self.path("nbd.sock");
        let address = format!("unix:{}", socket.display());
        let options = [&["--nbd", &address], options].concat();
        let server = Server::start(&mut self.serve(member, &options));
        let client = Client::connect(&socket, PATIENCE);
        (server, client)
    }

    /// What the server says of the chain.
    fn status(&self) -> serde_json::Value {
        let status = run(&["status", &self.name("a.img"), "--json"], 0, "\"chain\"");
        let mut status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["chain"].take()
    }
}

/// The content of a block, which depends on its address and on its version.
fn block(at: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|word| (at * 1_000_003 + version * 512 + word).to_le_bytes()).collect()
}

#[test]
fn a_chain_keeps_over_kills_what_was_flushed_by_whichever_member_it_is_served() {
    let chain = Chain::small();
    let place = |i: u64| i * 7919 % 17_000 * BLOCK;
    for (round, member) in (0..6).zip(NAMES.into_iter().cycle()) {
        let (server, mut client) = chain.nbd(member);
        for i in 0..400 {
            let at = place(i);
            if round > 0 {
                let zeroed = i % 50 == 7;
                let before = if zeroed { vec![0; 4096] } else { block(at, round - 1) };
                assert!(client.read(at, 4096) == before, "round {round}, block {i}");
            }
            // The last writes of each round are durable when they are answered.
            let flags = if i >= 390 { FUA } else { 0 };
            assert_eq!(client.ask(flags, WRITE, at, 4096, &block(at, round)), 0);
        }
        for i in (7..400).step_by(50) {
            let command = if i % 100 == 7 { TRIM } else { ZERO };
            assert_eq!(client.ask(0, command, place(i), 4096, &[]), 0);
        }
        assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
        drop(client);
        server.kill();
    }
    let (server, mut client) = chain.nbd("a.img");
    assert_eq!(client.ask(0, WRITE, 0, 4096, &block(0, 99)), 0);
    drop(client);
    // There was no flush: a clean stop makes the writes durable.
    run(&["stop", &chain.name("c.img")], 0, "closed");
    assert!(server.wait().0.success());
    let (server, mut client) = chain.nbd("b.img");
    assert!(client.read(0, 4096) == block(0, 99));
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
}

#[test]
fn a_chain_that_is_written_over_and_over_is_cleaned() {
    let chain = Chain::small();
    for cleaning in ["mtt", "segment", "auto"] {
        let socket = chain.path("nbd.sock");
        let address = format!("unix:{}", socket.display());
        let options = ["--nbd", &address, "--cleaning", cleaning];
        let server = Server::start(&mut chain.serve("a.img", &options));
        let mut client = Client::connect(&socket, PATIENCE);
        let content = vec![7; 1 << 20];
        // Half of 144 MiB is exported; this writes four times that.
        for i in 0..288u64 {
            let at = (i * 37 % 64) << 20;
            assert_eq!(client.ask(0, WRITE, at, 1 << 20, &content), 0);
        }
        assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
        let status = run(&["status", &chain.name("b.img"), "--json"], 0, "\"chain\"");
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["chain"]["cleaning"], cleaning);
        assert!(status["chain"]["emptied_segments"].as_u64() > Some(10), "{status}");
        assert!(status["chain"]["hops"].as_u64() > Some(1), "{status}");
        assert!(client.read(5 << 20, 1 << 20) == content);
        drop(client);
        server.kill();
    }
}

#[test]
fn the_tail_cache_has_what_was_written_last_and_its_ssd_may_be_lost() {
    const BLOCKS: u64 = 1500;
    let chain = Chain::small();
    let ssd = chain.name("ssd.img");
    let wipe = || File::create(&ssd).unwrap().set_len(16 << 20).unwrap();
    wipe();
    let options = ["--cache", &ssd, "--cache-memory", "1M"];
    let check = |client: &mut Client, version: u64| {
        (0..BLOCKS).for_each(|i| assert!(client.read(i * BLOCK, 4096) == block(i, version), "{i}"));
    };
    let hits = |status: &serde_json::Value| status["flash"]["hits"].as_u64().unwrap();
    for version in 0..2 {
        let (server, mut client) = chain.nbd_with("a.img", &options);
        if version > 0 {
            // The server was killed: what the SSD has is found again.
            check(&mut client, version - 1);
            let status = chain.status();
            assert!(hits(&status) > 500, "{status}");
        }
        for i in 0..BLOCKS {
            assert_eq!(client.ask(0, WRITE, i * BLOCK, 4096, &block(i, version)), 0);
        }
        assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
        check(&mut client, version);
        let status = chain.status();
        assert!(status["tail_hits"].as_u64() > Some(200), "{status}");
        assert!(status["cache_bytes"].as_u64() <= Some(1 << 20), "{status}");
        assert!(status["flash"]["written_bytes"].as_u64() >= Some(3 << 20), "{status}");
        assert_eq!(status["flash"]["faults"], 0, "{status}");
        run(&["top", &chain.name("c.img"), "--count", "1"], 0, "the tail is on drive 1");
        run(&["metrics", &chain.name("b.img")], 0, "chain_ssd_written_ever_bytes_total");
        drop(client);
        server.kill();
    }
    // Whoever finds the SSD is told what it is.
    run(&["status", &ssd], 0, "tail cache      of the chain");
    run(&["probe", &ssd], 0, "ID_FS_TYPE=manylogs_cache");
    run(&["check", &ssd], 0, "the chain's drives have everything");
    run(&["drain", &ssd], 2, "manylogs serve MEMBER --cache");
    // Damaged, as if it were worn out; missing; and another one, which holds nothing.
    let image = fs::OpenOptions::new().write(true).open(&ssd).unwrap();
    (2..16).for_each(|stripe| image.write_all_at(&[7; 1 << 19], (stripe << 20) + 8192).unwrap());
    let (server, mut client) = chain.nbd_with("b.img", &options);
    check(&mut client, 1);
    let status = chain.status();
    assert!(status["flash"]["faults"].as_u64() > Some(0), "{status}");
    drop(client);
    server.kill();
    fs::remove_file(&ssd).unwrap();
    let (server, mut client) = chain.nbd_with("b.img", &options);
    check(&mut client, 1);
    assert!(chain.status()["flash"]["problem"].is_string());
    run(&["status", &chain.name("c.img")], 0, "is not used");
    drop(client);
    server.kill();
    wipe();
    let (server, mut client) = chain.nbd_with("b.img", &options);
    check(&mut client, 1);
    assert!(chain.status()["flash"]["problem"].is_null());
    drop(client);
    server.kill();
    // A cache of another chain, or something else, is refused.
    let other = Chain::small();
    run(&["serve", &other.name("a.img"), "--file", "--cache", &ssd], 2, "of another chain");
    let drive = chain.name("c.img");
    run(&["serve", &other.name("a.img"), "--file", "--cache", &drive], 2, "would be lost");
}

#[test]
fn a_file_system_on_a_chain_survives_a_killed_server() {
    if !can_serve(true) {
        return;
    }
    if program("mkfs.ext4").arg("-V").output().is_err() || program("e2fsck").output().is_err() {
        manylogs_testkit::skip("needs mkfs.ext4 and e2fsck");
        return;
    }
    let chain = Chain::of(&["--size", "160M", "--sparse"]);
    let ok = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    let server = Server::start(&mut chain.serve("b.img", &["--loop"]));
    ok(program("mkfs.ext4").arg("-q").arg(&server.path));
    let mount = chain.path("mnt");
    fs::create_dir(&mount).unwrap();
    ok(Command::new("mount").arg(&server.path).arg(&mount));
    for i in 0..100u64 {
        fs::write(mount.join(format!("{i}")), block(i, i)).unwrap();
    }
    File::open(&mount).unwrap().sync_all().unwrap();
    ok(Command::new("sync").arg("-f").arg(&mount));
    server.kill();
    let _ = Command::new("umount").arg("-l").arg(&mount).stderr(Stdio::null()).status();
    let server = Server::start(&mut chain.serve("c.img", &["--loop"]));
    // e2fsck replays the journal; 1 means that it corrected counts in the superblock.
    let checked = program("e2fsck").arg("-fp").arg(&server.path).output().unwrap();
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
    ok(Command::new("mount").arg(&server.path).arg(&mount));
    for i in 0..100u64 {
        assert!(fs::read(mount.join(format!("{i}"))).unwrap() == block(i, i), "file {i}");
    }
    ok(Command::new("fstrim").arg(&mount));
    ok(Command::new("umount").arg(&mount));
    run(&["status", &chain.name("a.img")], 0, "chain           ");
    server.terminate();
    let (status, said) = server.wait();
    assert!(status.success(), "{said}");
}

#[test]
fn a_chain_is_served_as_a_file() {
    if !can_serve(false) {
        return;
    }
    let chain = Chain::small();
    let server = Server::start(&mut chain.serve("c.img", &["--file"]));
    let file = server.file();
    file.write_all_at(&block(3, 1), 3 * BLOCK).unwrap();
    file.sync_all().unwrap();
    drop(file);
    server.kill();
    let server = Server::start(&mut chain.serve("a.img", &["--file"]));
    let mut found = vec![0; 4096];
    server.file().read_exact_at(&mut found, 3 * BLOCK).unwrap();
    assert!(found == block(3, 1));
    run(&["checkpoint", &chain.name("b.img")], 2, "served as a chain of drives");
    run(&["serve", &chain.name("b.img"), "--file"], 5, "end its server first");
    run(&["list"], 0, "3 of 3");
    server.terminate();
    assert!(server.wait().0.success());
}

#[test]
fn members_are_found_and_what_is_not_whole_is_refused_by_name() {
    let chain = Chain::small();
    let [a, b, c] = NAMES.map(|name| chain.name(name));
    let serve = |member: &str, options: &[&str], code, what: &str| {
        let args = [&["serve", member, "--nbd", "unix:/nowhere/x"], options].concat();
        run(&args, code, what);
    };
    // A missing member.
    fs::create_dir(chain.path("away")).unwrap();
    let away = chain.name("away/b.img");
    fs::rename(&b, &away).unwrap();
    serve(&a, &[], 2, "member 2");
    run(&["status", &a], 0, "trouble");
    // The member is in another folder, and named.
    serve(&c, &["--member", &away], 2, "/nowhere/x");
    // There is a copy of a member.
    fs::copy(&a, chain.path("copy.img")).unwrap();
    serve(&c, &["--member", &away], 2, "both say that they are member 1 of 3");
    serve(&c, &["--member", &away, "--member", &a], 2, "/nowhere/x");
    fs::remove_file(chain.path("copy.img")).unwrap();
    // A member of another chain, and a file that is no member.
    let other = Chain::small();
    serve(&a, &["--member", &other.name("b.img")], 2, &other.name("b.img"));
    let plain = chain.name("plain.img");
    File::create(&plain).unwrap().set_len(1 << 26).unwrap();
    serve(&a, &["--member", &plain], 2, "plain.img: no member of a chain");
    serve(&plain, &["--member", &a], 2, "plain.img: no member of a chain");
    // A member that has missed an opening.
    fs::rename(&away, &b).unwrap();
    let old = chain.name("away/old.img");
    fs::copy(&b, &old).unwrap();
    let (server, client) = chain.nbd("a.img");
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
    fs::rename(&old, &b).unwrap();
    let socket = format!("unix:{}", chain.path("nbd.sock").display());
    run(&["serve", &a, "--nbd", &socket], 2, "b.img: a drive is older than the others");
    // Commands for volumes.
    for command in ["check", "dump"] {
        run(&[command, &c], 2, "b.img: a drive is older than the others");
    }
    for command in ["drain", "set", "checkpoint", "table"] {
        run(&[command, &c], 2, "is member 3 of 3 of the chain");
    }
    run(&["probe", &a], 0, "MANYLOGS_MEMBER=0");
    run(&["status", &a], 0, "this drive      member 1");
    run(&["status", &a, "--json"], 0, "\"segment_bytes\": 2097152");
    run(&["format", &a], 5, "a member of a chain");
    serve(&a, &["--emulate", "cheetah-15k5"], 2, "--emulate");
    serve(&a, &["--store", "unix:/nowhere/store"], 2, "--store");
}

#[test]
fn a_check_judges_a_chain_and_writes_nothing() {
    let chain = Chain::small();
    let (server, mut client) = chain.nbd("a.img");
    for i in 0..200 {
        assert_eq!(client.ask(0, WRITE, i * BLOCK, 4096, &block(i, 5)), 0);
        if i % 20 == 19 {
            assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
        }
    }
    run(&["check", &chain.name("a.img")], 5, "end its server first");
    drop(client);
    server.kill();
    let a = chain.name("a.img");
    let images = || NAMES.map(|name| fs::read(chain.path(name)).unwrap());
    let before = images();
    run(&["check", &a], 0, "nothing is wrong");
    run(&["dump", &chain.name("c.img")], 0, "segment      0  drive 1");
    let dumped = run(&["dump", &a, "--json"], 0, "segments");
    let dumped: serde_json::Value = serde_json::from_str(&dumped).unwrap();
    assert_eq!(dumped["halves"][0]["segments"][0]["live_sectors"], 200 * 8);
    assert!(images() == before, "a check has written");
    // The content of one block, and then a copy of a label. The last records would not do:
    // damaged ones count as torn by the kill.
    let wanted = block(50, 5);
    let at = before[0].windows(4096).step_by(512).position(|found| found == wanted).unwrap() * 512;
    let image = fs::OpenOptions::new().write(true).open(&a).unwrap();
    image.write_all_at(&[1; 512], at as u64 + 1024).unwrap();
    run(&["check", &a], 4, "exported sectors 400+8 differ");
    run(&["check", &a], 4, "no other half has it");
    image.write_all_at(&wanted, at as u64).unwrap();
    image.write_all_at(&[0; 512], 0).unwrap();
    run(&["check", &a], 3, "a copy of the label");
    let (server, client) = chain.nbd("b.img");
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
    run(&["check", &a], 0, "nothing is wrong");
}

#[test]
fn drives_that_make_no_chain_are_refused() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, mib: u64| {
        let path = text(&dir.path().join(name)).to_owned();
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        path
    };
    let (a, b, large) = (file("a", 64), file("b", 64), file("large", 100));
    run(&["format", "--gecko", &a], 2, "2 to 7 drives, or pairs, not 1");
    run(&["format", "--gecko", &a, &b, &a], 2, "are the same drive");
    run(&["format", "--gecko", &a, &b, "--export", "100M"], 2, "exports at most");
    run(&["format", "--gecko", &a, &b, "--label", "x"], 2, "cannot be used with");
    run(&["format", &a, &b], 2, "--gecko");
    run(&["format", "--gecko", &a, "/nowhere/b"], 2, "/nowhere/b does not exist");
    File::options().write(true).open(&b).unwrap().write_all_at(b"XFSB", 0).unwrap();
    run(&["format", "--gecko", &a, &b], 5, "an XFS file system");
    assert!(fs::read(&a).unwrap().iter().all(|byte| *byte == 0), "refused, and written");
    let said = run(&["format", "--gecko", &a, &b, &large, "--force"], 0, "36.0 MiB stay unused");
    assert!(said.contains("cleaning bears"), "{said}");
    // If the format fails, the new images are removed.
    let made = text(&dir.path().join("new")).to_owned();
    let args = ["format", "--gecko", &made, &a, "--size", "64M", "--sparse"];
    run(&args, 5, "exists already");
    assert!(!dir.path().join("new").exists());
}
