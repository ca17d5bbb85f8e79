//! A served volume under a real kernel: what is stored, what survives a killed server, and what
//! the commands on a running server say.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use tempfile::TempDir;

const MANYLOGS: &str = env!("CARGO_BIN_EXE_manylogs");
const SECTOR: u64 = 512;

/// What loop devices over FUSE need; a test without it is skipped.
fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    let there = Path::new("/dev/fuse").exists() && Path::new("/dev/loop-control").exists();
    let losetup = Command::new("losetup").arg("--version").output().is_ok();
    if !(root && there && losetup) {
        eprintln!("skipped: needs root, /dev/fuse, loop devices and losetup");
    }
    root && there && losetup
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-V").output().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

struct Place {
    dir: TempDir,
    image: PathBuf,
}

impl Place {
    fn formatted(size: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("disk.img");
        let place = Self { dir, image };
        place.run(&["format", place.image(), "--size", size, "--sparse"], 0, "for data");
        place
    }

    fn image(&self) -> &str {
        self.image.to_str().unwrap()
    }

    fn run(&self, args: &[&str], code: i32, says: &str) -> String {
        let output = Command::new(MANYLOGS).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "manylogs {args:?} said: {text}");
        assert!(text.contains(says), "manylogs {args:?} said {text:?}, not {says:?}");
        text
    }
}

/// A server in a process of its own; killed if the test fails.
struct Server {
    child: Child,
    stderr: ChildStderr,
    /// What it serves: a device or a file.
    path: PathBuf,
}

impl Server {
    fn start(image: &Path, options: &[&str]) -> Self {
        let mut child = Command::new(MANYLOGS)
            .arg("serve")
            .arg(image)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            panic!("the server did not start: {said}");
        }
        Self { child, stderr, path: PathBuf::from(line.trim()) }
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    /// Kills it, and takes away what the kernel keeps of it.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        detach(&self.path);
    }

    fn signal(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for its end; what it said meanwhile.
    fn wait(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            detach(&self.path);
        }
    }
}

fn detach(device: &Path) {
    if device.starts_with("/dev") {
        Command::new("losetup").arg("--detach").arg(device).status().unwrap();
    }
}

/// A block that tells where it is and which write it was.
fn block(at: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|word| (at * 1_000_003 + version * 512 + word).to_le_bytes()).collect()
}

#[test]
fn what_is_written_and_flushed_survives_a_killed_server() {
    if !possible() {
        return;
    }
    let place = Place::formatted("512M");
    for round in 0..4 {
        let server = Server::start(&place.image, &["--loop"]);
        let file = server.file();
        for i in 0..50u64 {
            // Of the round before, but for what this one has overwritten.
            let (at, mut found) = (i * 7919 % 100_000 * 4096, vec![0; 4096]);
            if round > 0 {
                file.read_exact_at(&mut found, at).unwrap();
                assert!(found == block(at, round - 1), "round {round}, block {i}");
            }
            file.write_all_at(&block(at, round), at).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        server.kill();
    }
    place.run(&["check", place.image()], 0, "");
}

#[test]
fn a_file_system_on_a_served_volume_is_whole_after_a_clean_stop() {
    if !possible() || !has("mkfs.ext4") || !has("e2fsck") {
        return;
    }
    let place = Place::formatted("512M");
    let server = Server::start(&place.image, &["--loop"]);
    let ok = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    ok(Command::new("mkfs.ext4").arg("-q").arg(&server.path));
    let mount = place.dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    ok(Command::new("mount").arg(&server.path).arg(&mount));
    for i in 0..200u64 {
        fs::write(mount.join(format!("{i}")), block(i, i)).unwrap();
    }
    // In use: neither an order nor the first signal ends it.
    place.run(&["stop", place.image()], 5, "is in use: mounted on");
    server.signal();
    place.run(&["status", place.image()], 0, "% of writes");
    place.run(&["status", place.image(), "--json"], 0, "\"health\": \"good\"");
    place.run(&["top", place.image(), "--count", "1"], 0, "writes because");
    place.run(&["checkpoint", place.image()], 0, "written home");
    place.run(&["set", place.image(), "threshold=64K", "logging=off"], 0, "logging=off");
    place.run(&["set", place.image(), "treshold=64K"], 2, "threshold");
    place.run(&["serve", place.image(), "--loop"], 5, "locked");
    ok(Command::new("umount").arg(&mount));
    place.run(&["stop", place.image()], 0, "closed");
    let (status, said) = server.wait();
    assert!(status.success() && said.contains("unmount it"), "{said}");
    place.run(&["status", place.image()], 0, "closed");

    place.run(&["set", place.image()], 0, "threshold=64K");
    let server = Server::start(&place.image, &["--loop"]);
    place.run(&["set", place.image()], 0, "logging=off");
    ok(Command::new("e2fsck").arg("-fn").arg(&server.path).stdout(Stdio::null()));
    ok(Command::new("mount").arg(&server.path).arg(&mount));
    for i in 0..200u64 {
        assert!(fs::read(mount.join(format!("{i}"))).unwrap() == block(i, i), "file {i}");
    }
    ok(Command::new("umount").arg(&mount));
    server.signal();
    assert!(server.wait().0.success());
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeroes_also_after_a_kill() {
    if !possible() || !has("blkdiscard") {
        return;
    }
    let place = Place::formatted("256M");
    let server = Server::start(&place.image, &["--loop"]);
    let file = server.file();
    for i in 0..64u64 {
        file.write_all_at(&block(i, 1), i * 4096).unwrap();
    }
    file.sync_all().unwrap();
    let range = |what: &[&str], offset: u64, len: u64| {
        let mut command = Command::new("blkdiscard");
        command.args(what).args(["-o", &offset.to_string(), "-l", &len.to_string()]);
        assert!(command.arg(&server.path).status().unwrap().success());
    };
    range(&[], 16 * 4096, 8 * 4096);
    range(&["-z"], 40 * 4096, 8 * 4096);
    file.sync_all().unwrap();
    drop(file);
    server.kill();
    let server = Server::start(&place.image, &["--loop"]);
    let file = server.file();
    for i in 0..64u64 {
        let mut found = vec![1; 4096];
        file.read_exact_at(&mut found, i * 4096).unwrap();
        let zeroed = (16..24).contains(&i) || (40..48).contains(&i);
        assert!(found == if zeroed { vec![0; 4096] } else { block(i, 1) }, "block {i}");
    }
    drop(file);
    server.signal();
    assert!(server.wait().0.success());
}

#[test]
fn the_exported_file_takes_whole_sectors_and_keeps_its_size() {
    if !possible() {
        return;
    }
    let place = Place::formatted("64M");
    let server = Server::start(&place.image, &["--file"]);
    let file = server.file();
    file.write_all_at(&[7; 512], 3 * SECTOR).unwrap();
    let mut found = [0; 700];
    file.read_exact_at(&mut found, 3 * SECTOR - 100).unwrap();
    assert!(found[..100] == [0; 100] && found[100..612] == [7; 512] && found[612..] == [0; 88]);
    let refused = |error: std::io::Error| error.raw_os_error().unwrap();
    let einval = rustix::io::Errno::INVAL.raw_os_error();
    assert_eq!(refused(file.write_all_at(&[1; 100], 5).unwrap_err()), einval);
    let len = file.metadata().unwrap().len();
    assert_eq!(refused(file.write_all_at(&[1; 1024], len - 512).unwrap_err()), einval);
    assert!(file.set_len(len * 2).is_err());
    assert_eq!(file.read_at(&mut found, len).unwrap(), 0);
    assert_eq!(file.metadata().unwrap().len(), len);
    drop(file);
    place.run(&["status", place.image(), "--forget-lateness"], 1, "no drive is emulated");
    place.run(&["stop", place.image()], 0, "closed");
    assert!(server.wait().0.success());
}

#[test]
fn an_emulated_drive_keeps_what_is_written_and_tells_how_late_it_is() {
    if !possible() {
        return;
    }
    let place = Place::formatted("256M");
    let options = ["--loop", "--emulate", "cheetah-15k5"];
    let server = Server::start(&place.image, &options);
    let file = server.file();
    file.write_all_at(&block(1, 1), 4096).unwrap();
    file.sync_all().unwrap();
    drop(file);
    place.run(&["status", place.image()], 0, "later than the model by");
    // What went before a run need not count: the status before it does, the next does not.
    let asked = ["status", place.image(), "--json"];
    let requests = |args: &[&str]| {
        let status: serde_json::Value = serde_json::from_str(&place.run(args, 0, "{")).unwrap();
        status["emulation"]["lateness"]["requests"].as_u64().unwrap()
    };
    assert!(requests(&[&asked[..], &["--forget-lateness"]].concat()) > 0);
    assert_eq!(requests(&asked), 0);
    place.run(&["stop", place.image()], 0, "closed");
    assert!(server.wait().0.success());
    place.run(&["status", place.image(), "--forget-lateness"], 2, "no server has");
    // The same drive without a volume on it shows the volume's own structures.
    let server = Server::start(&place.image, &["--file", "--raw", "--emulate", "cheetah-15k5"]);
    let mut magic = [0; 8];
    server.file().read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"MANYLOGS");
    place.run(&["checkpoint", place.image()], 1, "without a volume");
    server.signal();
    assert!(server.wait().0.success());
}

#[test]
fn bad_input_gets_a_clear_message() {
    let place = Place::formatted("64M");
    place.run(&["serve", place.image()], 2, "--loop");
    let ublk = ["serve", place.image(), "--ublk"];
    if cfg!(not(feature = "ublk")) {
        place.run(&ublk, 1, "built without ublk");
    } else if !Path::new("/dev/ublk-control").exists() {
        place.run(&ublk, 1, "modprobe ublk_drv");
    }
    place.run(&["serve", place.image(), "--ublk", "--loop"], 2, "cannot be used with");
    place.run(&["serve", place.image(), "--loop", "--write-back"], 2, "cannot be used with");
    place.run(&["serve", place.image(), "--write-back"], 2, "--ublk");
    place.run(&["stop", place.image()], 2, "no server has");
    place.run(&["top", place.image()], 2, "no server has");
    place.run(&["stop", "/nowhere.img"], 1, "No such file");
    let emulate = ["serve", place.image(), "--loop", "--emulate", "floppy"];
    place.run(&emulate, 2, "unknown drive");
    let plain = place.dir.path().join("plain.img");
    File::create(&plain).unwrap().set_len(1 << 26).unwrap();
    place.run(&["serve", plain.to_str().unwrap(), "--loop"], 2, "no Manylogs volume");
}
