//! `manylogs stop` ends in bounded time whatever the trouble, and says why if the server goes on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::client::{Client, FLUSH, FUA, READ, WRITE};
use common::served::{Image, MANYLOGS, Server, ok, root, run, says, text};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit passed to `stop`.
const TIMEOUT: &str = "--timeout=3";
/// The time that `stop` may take on a busy machine: it has to start, and to ask for the reason.
const BOUND: Duration = Duration::from_secs(30);

fn socket(image: &Image) -> PathBuf {
    image.beside("nbd.sock")
}

fn serve(image: &Image) -> Server {
    let address = format!("unix:{}", socket(image).display());
    Server::start(&mut image.serve(&["--nbd", &address]))
}

fn client(image: &Image) -> Client {
    Client::connect(&socket(image), PATIENCE)
}

fn send(server: &Server, signal: Signal) {
    kill_process(Pid::from_raw(server.id()).unwrap(), signal).unwrap();
}

/// Runs `stop`, which must end within the bound with this exit code and say `what`.
fn stop(disk: &str, options: &[&str], code: i32, what: &str) {
    let began = Instant::now();
    let output = Command::new(MANYLOGS).args(["stop", disk]).args(options).output().unwrap();
    says(&output, code, what);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

#[test]
fn of_a_paused_server() {
    let image = Image::formatted(&["--size", "64M"]);
    let server = serve(&image);
    send(&server, Signal::STOP);
    stop(image.path(), &[TIMEOUT], 1, "kill -CONT");
    run(&["status", image.path()], 1, "is stopped");
    send(&server, Signal::CONT);
    // The order has arrived, and the volume is not in use.
    let (status, said) = server.wait();
    assert!(status.success(), "{said}");
    stop(image.path(), &[TIMEOUT], 2, "no server has");
}

#[test]
fn of_a_server_that_was_killed() {
    let image = Image::formatted(&["--size", "64M"]);
    let server = serve(&image);
    send(&server, Signal::KILL);
    server.wait();
    // The killed server's sockets are still there.
    stop(image.path(), &[TIMEOUT], 2, "no server has");
    stop(image.path(), &[TIMEOUT, "--force"], 2, "no server has");
    let server = serve(&image);
    stop(image.path(), &["--timeout=20"], 0, "closed");
    assert!(server.wait().0.success());
}

#[test]
fn of_a_server_whose_clients_neither_send_nor_fetch() {
    let image = Image::formatted(&["--size", "64M"]);
    let server = serve(&image);
    let mut deaf = client(&image);
    let mut together = Vec::new();
    for _ in 0..300 {
        together.extend(deaf.request(0, READ, 0, 1 << 20, &[]).0);
    }
    deaf.stream.write_all(&together).unwrap();
    let mut stalled = client(&image);
    let (request, _) = stalled.request(FUA, WRITE, 0, 1 << 20, &[1; 4096]);
    stalled.stream.write_all(&request).unwrap();
    stop(image.path(), &["--timeout=20"], 5, "2 NBD connections");
    stop(image.path(), &["--timeout=20", "--force"], 0, "closed");
    assert!(server.wait().0.success());
}

/// A directory with a mounted file system, unmounted when dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Thaws a frozen file system when dropped, because nothing on it ends before that.
struct Frozen<'a>(&'a Path);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(self.0).status();
    }
}

fn have(programs: &[&str]) -> bool {
    let there = |program: &&str| Command::new(program).arg("-V").output().is_ok();
    let can = root() && programs.iter().all(there) && Path::new("/dev/loop-control").exists();
    if !can {
        manylogs_testkit::skip(format_args!("needs root, loop devices, and {programs:?}"));
    }
    can
}

#[test]
fn of_a_server_whose_device_hangs() {
    if !have(&["mkfs.ext4", "fsfreeze", "mount"]) {
        return;
    }
    // Writes to a file on a frozen file system wait, like writes to a disk that does not answer.
    let dir = tempfile::tempdir().unwrap();
    let (below, place) = (dir.path().join("below.img"), dir.path().join("mnt"));
    fs::File::create(&below).unwrap().set_len(256 << 20).unwrap();
    fs::create_dir(&place).unwrap();
    ok(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&below));
    ok(Command::new("mount").args(["-o", "loop"]).arg(&below).arg(&place));
    let mounted = Mounted(place.clone());
    let disk = place.join("disk.img");
    ok(Command::new(MANYLOGS).arg("format").arg(&disk).args(["--size", "64M"]));
    let path = dir.path().join("nbd.sock");
    let mut command = Command::new(MANYLOGS);
    command.arg("serve").arg(&disk).args(["--nbd", &format!("unix:{}", path.display())]);
    let server = Server::start(&mut command);
    let mut client = Client::connect(&path, PATIENCE);
    assert_eq!(client.ask(FUA, WRITE, 0, 4096, &[1; 4096]), 0);
    ok(Command::new("fsfreeze").arg("--freeze").arg(&place));
    let frozen = Frozen(&place);
    let (request, cookie) = client.request(FUA, WRITE, 8192, 4096, &[2; 4096]);
    client.stream.write_all(&request).unwrap();
    let disk = disk.to_str().unwrap();
    stop(disk, &[TIMEOUT, "--force"], 1, "1 requests are under way");
    // A second order is answered with the reason at once.
    stop(disk, &[TIMEOUT, "--force"], 1, "1 requests are under way");
    run(&["status", disk], 0, "stopping");
    drop(frozen);
    assert_eq!(client.answer(), (cookie, 0));
    let (status, said) = server.wait();
    assert!(status.success(), "{said}");
    run(&["check", disk], 0, "");
    drop(mounted);
}

#[test]
fn of_a_server_whose_volume_is_read_only() {
    if !have(&["mount"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=8M", "tmpfs"]).arg(dir.path()));
    let mounted = Mounted(dir.path().to_owned());
    let disk = dir.path().join("disk.img");
    let format = ["--size", "256M", "--sparse"];
    ok(Command::new(MANYLOGS).arg("format").arg(&disk).args(format));
    let path = dir.path().join("nbd.sock");
    let mut command = Command::new(MANYLOGS);
    command.arg("serve").arg(&disk).args(["--nbd", &format!("unix:{}", path.display())]);
    let server = Server::start(&mut command);
    let mut client = Client::connect(&path, PATIENCE);
    let refused = (0..64).any(|i| client.ask(FUA, WRITE, i << 20, 1 << 20, &[1; 1 << 20]) != 0);
    assert!(refused, "there is room for 8 MiB");
    // Writes home may fail; once records cannot be appended either, the volume is read-only.
    let refused = (0..4096).any(|i| client.ask(FUA, WRITE, i << 12, 4096, &[1; 4096]) != 0);
    assert!(refused, "there is room for less");
    run(&["status", disk.to_str().unwrap()], 0, "read-only");
    stop(disk.to_str().unwrap(), &["--timeout=20", "--force"], 1, "not closed in order");
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    drop(mounted);
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn of_a_server_whose_writers_starve() {
    let image = Image::formatted(&["--size", "64M", "--log", "512K", "--group", "16M"]);
    run(&["set", image.path(), "checkpoint-rate=10K", "checkpoint=full"], 0, "checkpoint-rate");
    let server = serve(&image);
    let mut client = client(&image);
    // More than the logs have room for: later writes wait for a slow checkpoint.
    let mut together = Vec::new();
    for i in 0..2000_u64 {
        let at = i * 7919 % 12_000 * 4096;
        together.extend(client.request(FUA, WRITE, at, 4096, &[3; 4096]).0);
    }
    together.extend(client.request(0, FLUSH, 0, 0, &[]).0);
    let mut sending = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || sending.write_all(&together));
    assert_eq!(client.answer().1, 0);
    let began = Instant::now();
    let stop = Command::new(MANYLOGS)
        .args(["stop", image.path(), "--force", "--timeout=20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stop = Killed(stop);
    // The answers are fetched, so that the server waits for the volume only.
    let mut answers = Vec::new();
    let _ = client.stream.read_to_end(&mut answers);
    let status = stop.0.wait().unwrap();
    let mut said = String::new();
    stop.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    stop.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(began.elapsed() < BOUND, "{:?}: {said}", began.elapsed());
    let told = said.contains("closed") || said.contains("requests are under way");
    assert!(told && status.code().is_some_and(|code| code <= 1), "{status}: {said}");
    let _ = sender.join().unwrap();
    drop(server);
    let check = Command::new(MANYLOGS).args(["check", image.path()]).output().unwrap();
    assert!(check.status.success(), "{}", text(&check));
}
