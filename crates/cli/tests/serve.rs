//! A served volume under a real kernel: stored data, data after a killed server, and commands on a
//! running server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use common::served::{Image, Server, can_serve, run};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::ReadWriteFlags;

const SECTOR: u64 = 512;

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-V").output().is_ok();
    if !found {
        manylogs_testkit::skip(format_args!("{program} is not installed"));
    }
    found
}

fn formatted(size: &str) -> Image {
    Image::formatted(&["--size", size, "--sparse"])
}

/// The content of a block, which depends on its address and on its version.
fn block(at: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|word| (at * 1_000_003 + version * 512 + word).to_le_bytes()).collect()
}

#[test]
fn what_is_written_and_flushed_survives_a_killed_server() {
    if !can_serve(true) {
        return;
    }
    let image = formatted("512M");
    for round in 0..4 {
        let server = Server::start(&mut image.serve(&["--loop"]));
        let file = server.file();
        for i in 0..50u64 {
            // Blocks of the round before must be there, except those that this round has
            // overwritten.
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
    run(&["check", image.path()], 0, "");
}

#[test]
fn a_file_system_on_a_served_volume_is_whole_after_a_clean_stop() {
    if !can_serve(true) || !has("mkfs.ext4") || !has("e2fsck") {
        return;
    }
    let image = formatted("512M");
    let server = Server::start(&mut image.serve(&["--loop"]));
    let ok = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    ok(Command::new("mkfs.ext4").arg("-q").arg(&server.path));
    let mount = image.beside("mnt");
    fs::create_dir(&mount).unwrap();
    ok(Command::new("mount").arg(&server.path).arg(&mount));
    for i in 0..200u64 {
        fs::write(mount.join(format!("{i}")), block(i, i)).unwrap();
    }
    // The device is in use: neither an order nor the first signal ends the server.
    run(&["stop", image.path()], 5, "is in use: mounted on");
    server.terminate();
    run(&["status", image.path()], 0, "% of writes");
    run(&["status", image.path(), "--json"], 0, "\"health\": \"good\"");
    run(&["top", image.path(), "--count", "1"], 0, "the volume writes, as");
    run(&["checkpoint", image.path()], 0, "written home");
    run(&["set", image.path(), "threshold=64K", "logging=off"], 0, "logging=off");
    run(&["set", image.path(), "treshold=64K"], 2, "threshold");
    run(&["serve", image.path(), "--loop"], 5, "end its server first");
    ok(Command::new("umount").arg(&mount));
    run(&["stop", image.path()], 0, "closed");
    let (status, said) = server.wait();
    assert!(status.success() && said.contains("unmount it"), "{said}");
    run(&["status", image.path()], 0, "closed");

    run(&["set", image.path()], 0, "threshold=64K");
    let server = Server::start(&mut image.serve(&["--loop"]));
    run(&["set", image.path()], 0, "logging=off");
    ok(Command::new("e2fsck").arg("-fn").arg(&server.path).stdout(Stdio::null()));
    ok(Command::new("mount").arg(&server.path).arg(&mount));
    for i in 0..200u64 {
        assert!(fs::read(mount.join(format!("{i}"))).unwrap() == block(i, i), "file {i}");
    }
    ok(Command::new("umount").arg(&mount));
    server.terminate();
    assert!(server.wait().0.success());
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeroes_also_after_a_kill() {
    if !can_serve(true) || !has("blkdiscard") {
        return;
    }
    let image = formatted("256M");
    let server = Server::start(&mut image.serve(&["--loop"]));
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
    let server = Server::start(&mut image.serve(&["--loop"]));
    let file = server.file();
    for i in 0..64u64 {
        let mut found = vec![1; 4096];
        file.read_exact_at(&mut found, i * 4096).unwrap();
        let zeroed = (16..24).contains(&i) || (40..48).contains(&i);
        assert!(found == if zeroed { vec![0; 4096] } else { block(i, 1) }, "block {i}");
    }
    drop(file);
    server.terminate();
    assert!(server.wait().0.success());
}

#[test]
fn the_exported_file_takes_whole_sectors_and_keeps_its_size() {
    if !can_serve(true) {
        return;
    }
    let image = formatted("64M");
    let server = Server::start(&mut image.serve(&["--file"]));
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
    run(&["status", image.path(), "--forget-lateness"], 2, "no drive is emulated");
    run(&["stop", image.path()], 0, "closed");
    assert!(server.wait().0.success());
}

/// Opens the exported file with further flags, such as `O_DSYNC`.
fn opened(path: &str, flags: OFlags) -> File {
    let flags = OFlags::RDWR | flags;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap().into()
}

#[test]
fn writes_with_o_dsync_or_o_sync_survive_a_killed_server_without_a_flush() {
    if !can_serve(false) {
        return;
    }
    let image = formatted("64M");
    // Writes in the buffer must not become durable by themselves.
    run(&["set", image.path(), "buffer=16M", "buffer-age=10min"], 0, "buffer-age=10min");
    let server = Server::start(&mut image.serve(&["--file"]));
    let (plain, dsync) = (server.file(), opened(&server.path, OFlags::DSYNC));
    let sync = opened(&server.path, OFlags::SYNC);
    plain.write_all_at(&[1; 65_536], 0).unwrap();
    plain.sync_data().unwrap();
    plain.write_all_at(&[2; 4096], 0).unwrap();
    dsync.write_all_at(&[3; 4096], 4096).unwrap();
    sync.write_all_at(&[4; 4096], 8192).unwrap();
    let slices = [std::io::IoSlice::new(&[5; 4096])];
    let written = rustix::io::pwritev2(&plain, &slices, 12_288, ReadWriteFlags::DSYNC).unwrap();
    assert_eq!(written, 4096);
    rustix::io::pwritev2(&plain, &slices, 16_384, ReadWriteFlags::SYNC).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&dsync, punch, 20_480, 4096).unwrap();
    rustix::fs::fallocate(&plain, punch, 24_576, 4096).unwrap();
    let status = manylogs_operate::control::status(image.path().as_ref()).unwrap();
    let counted =
        |kind: &str| status.requests.iter().find(|it| it.kind.name() == kind).unwrap().requests;
    assert_eq!((counted("durable-write"), counted("write"), counted("flush")), (4, 2, 1));
    let block = |index: usize, content: &[u8]| content[index * 4096];
    let mut found = vec![0; 65_536];
    plain.read_exact_at(&mut found, 0).unwrap();
    let before: Vec<u8> = (0..8).map(|index| block(index, &found)).collect();
    assert_eq!(before, [2, 3, 4, 5, 5, 0, 0, 1]);
    drop((plain, dsync, sync));
    server.kill();
    let server = Server::start(&mut image.serve(&["--file"]));
    server.file().read_exact_at(&mut found, 0).unwrap();
    let after: Vec<u8> = (0..8).map(|index| block(index, &found)).collect();
    // The first write and the last hole were not asked to be durable: old or new content is legal.
    assert!([1, 2].contains(&after[0]) && [0, 1].contains(&after[6]), "{after:?}");
    assert_eq!(after[1..6], [3, 4, 5, 5, 0]);
    assert_eq!(after[7], 1);
    server.terminate();
    assert!(server.wait().0.success());
}

#[test]
fn an_emulated_drive_keeps_what_is_written_and_tells_how_late_it_is() {
    if !can_serve(true) {
        return;
    }
    let image = formatted("256M");
    let options = ["--loop", "--emulate", "cheetah-15k5"];
    let server = Server::start(&mut image.serve(&options));
    let file = server.file();
    file.write_all_at(&block(1, 1), 4096).unwrap();
    file.sync_all().unwrap();
    drop(file);
    run(&["status", image.path()], 0, "later than the model by");
    // Requests before a run can be left out: a status counts them, and the next one after
    // `--forget-lateness` does not.
    let asked = ["status", image.path(), "--json"];
    let requests = |args: &[&str]| {
        let status: serde_json::Value = serde_json::from_str(&run(args, 0, "{")).unwrap();
        status["emulation"]["lateness"]["requests"].as_u64().unwrap()
    };
    assert!(requests(&[&asked[..], &["--forget-lateness"]].concat()) > 0);
    assert_eq!(requests(&asked), 0);
    run(&["stop", image.path()], 0, "closed");
    assert!(server.wait().0.success());
    run(&["status", image.path(), "--forget-lateness"], 2, "no server has");
    // The same drive without a volume on it shows the volume's own structures.
    let server = Server::start(&mut image.serve(&["--file", "--raw", "--emulate", "cheetah-15k5"]));
    let mut magic = [0; 8];
    server.file().read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"MANYLOGS");
    run(&["checkpoint", image.path()], 2, "without a volume");
    server.terminate();
    assert!(server.wait().0.success());
}

#[test]
fn bad_input_gets_a_clear_message() {
    let image = formatted("64M");
    run(&["serve", image.path()], 2, "--loop");
    let ublk = ["serve", image.path(), "--ublk"];
    if cfg!(not(feature = "ublk")) {
        run(&ublk, 1, "built without ublk");
    } else if !std::path::Path::new("/dev/ublk-control").exists() {
        run(&ublk, 1, "modprobe ublk_drv");
    }
    run(&["serve", image.path(), "--ublk", "--loop"], 2, "cannot be used with");
    run(&["serve", image.path(), "--loop", "--write-back"], 2, "cannot be used with");
    run(&["serve", image.path(), "--write-back"], 2, "--ublk");
    run(&["stop", image.path()], 2, "no server has");
    run(&["top", image.path()], 2, "no server has");
    run(&["stop", "/nowhere.img"], 2, "does not exist");
    let emulate = ["serve", image.path(), "--loop", "--emulate", "floppy"];
    run(&emulate, 2, "unknown drive");
    let plain = image.beside("plain.img");
    File::create(&plain).unwrap().set_len(1 << 26).unwrap();
    run(&["serve", plain.to_str().unwrap(), "--loop"], 2, "no Manylogs volume");
}
