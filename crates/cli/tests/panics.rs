//! A server that panics ends, its clients notice, and the next server has all acknowledged writes.
//! The panics are planted.

#![cfg(feature = "plant")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use common::client::{Client, FUA, READ, WRITE};
use common::served::{Image, Server, can_serve, plugin, run};
use manylogs_operate::control::{Order, connect};
use manylogs_plant::Bug;
use rustix::fs::FallocateFlags;
use rustix::process::Signal;

/// Time limit for a process to end, and for its clients to notice.
const BOUND: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the tests wait to see whether a process lives on although it should not.
const LOOK: Duration = Duration::from_secs(3);

fn image() -> Image {
    Image::formatted(&["--size", "64M"])
}

fn planted(mut command: Command, bugs: &[Bug]) -> Server {
    let names: Vec<String> = bugs.iter().map(|bug| format!("{bug:?}")).collect();
    command.env("MANYLOGS_PLANT", names.join(","));
    Server::start(&mut command)
}

/// Makes the engine of the server of `image` panic.
fn panic_in_engine(image: &Image) {
    connect(Path::new(image.path())).unwrap().ask(&Order::Snapshot).unwrap_err();
}

/// Waits for the end of a server that has panicked.
fn ended(server: Server) -> (ExitStatus, String) {
    let began = Instant::now();
    let (status, said) = server.wait();
    assert!(began.elapsed() < BOUND, "it took {:?}", began.elapsed());
    (status, said)
}

fn aborted(server: Server, thread: &str) {
    let (status, said) = ended(server);
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}: {said}");
    for words in ["panicked", thread, "planted", "the next opening recovers"] {
        assert!(said.contains(words), "{words:?} is missing in {said}");
    }
}

#[test]
fn of_a_loop_device() {
    if !can_serve(true) {
        return;
    }
    let image = image();
    let server = planted(image.serve(&["--loop"]), &[Bug::EnginePanics]);
    let file = server.file();
    file.write_all_at(&[5; 4096], 0).unwrap();
    file.sync_all().unwrap();
    let (device, began) = (server.path.clone(), Instant::now());
    panic_in_engine(&image);
    // Later requests fail at once.
    let failed = file.write_all_at(&[6; 4096], 4096).and_then(|()| file.sync_all());
    assert!(failed.is_err() && began.elapsed() < BOUND, "{failed:?}, {:?}", began.elapsed());
    drop(file);
    aborted(server, "engine");
    let server = Server::start(&mut image.serve(&["--loop"]));
    let mut found = [0; 4096];
    server.file().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; 4096]);
    run(&["stop", image.path()], 0, "closed");
    assert!(server.wait().0.success());
    let _ = Command::new("losetup").args(["--detach", &device]).output();
}

#[test]
fn of_a_file_whose_own_thread_panics() {
    if !can_serve(false) {
        return;
    }
    let image = image();
    let server = planted(image.serve(&["--file"]), &[Bug::FrontEndPanics]);
    let file = server.file();
    file.write_all_at(&[5; 4096], 0).unwrap();
    file.sync_all().unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&file, punch, 0, 4096).is_err());
    assert!(file.read_exact_at(&mut [0; 512], 0).is_err());
    drop(file);
    aborted(server, "fuse");
    let server = Server::start(&mut image.serve(&["--file"]));
    let mut found = [0; 4096];
    server.file().read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [5; 4096]);
    server.terminate();
    assert!(server.wait().0.success());
}

/// Panics a server over NBD, whether the engine's own thread or nbdkit speaks it.
fn of_nbd(image: &Image, options: &[&str]) -> (ExitStatus, String) {
    let socket = image.beside("nbd.sock");
    let address = format!("unix:{}", socket.display());
    let serve = || image.serve(&[&["--nbd", &address], options].concat());
    let server = planted(serve(), &[Bug::EnginePanics]);
    let mut client = Client::connect(&socket, PATIENCE);
    assert_eq!(client.ask(FUA, WRITE, 0, 4096, &[5; 4096]), 0);
    panic_in_engine(image);
    // The connection ends instead of hanging.
    assert_eq!(std::io::Read::read(&mut client.stream, &mut [0; 16]).unwrap_or(0), 0);
    let end = ended(server);
    let server = Server::start(&mut serve());
    let mut client = Client::connect(&socket, PATIENCE);
    assert_eq!(client.read(0, 4096), [5; 4096]);
    drop(client);
    server.terminate();
    assert!(server.wait().0.success());
    end
}

#[test]
fn of_an_nbd_export() {
    let (status, said) = of_nbd(&image(), &[]);
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}: {said}");
}

#[test]
fn of_nbdkit() {
    if Command::new("nbdkit").arg("--version").output().is_err() {
        manylogs_testkit::skip("no nbdkit here");
        return;
    }
    let plugin = plugin();
    let (status, said) = of_nbd(&image(), &["--nbdkit-plugin", plugin.to_str().unwrap()]);
    // nbdkit aborts; its parent reports a failure, so that a supervisor restarts it.
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("panicked") && said.contains("SIGABRT"), "{said}");
}

#[test]
fn a_server_that_outlives_its_panic_is_noticed() {
    let image = image();
    let socket = image.beside("nbd.sock");
    let address = format!("unix:{}", socket.display());
    let bugs = [Bug::EnginePanics, Bug::PanicOutlived];
    let mut server = planted(image.serve(&["--nbd", &address]), &bugs);
    panic_in_engine(&image);
    let began = Instant::now();
    while server.is_running() && began.elapsed() < LOOK {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.is_running(), "the bug was not planted");
}

/// The translation's planted bugs also show through the kernel's calls on the exported file.
#[test]
fn bugs_of_the_exported_file_are_noticed_through_the_kernel() {
    if !can_serve(false) {
        return;
    }
    let durable = |image: &Image| {
        let status = manylogs_operate::control::status(Path::new(image.path())).unwrap();
        let of = |name: &str| {
            status.requests.iter().find(|kind| kind.kind.name() == name).unwrap().requests
        };
        (of("durable-write"), of("flush"))
    };
    for (bug, wanted) in [
        (None, (1, 1)),
        (Some(Bug::FuseDsyncIgnored), (0, 1)),
        (Some(Bug::FuseFsyncSkipped), (1, 0)),
    ] {
        let image = image();
        let server = planted(image.serve(&["--file"]), bug.as_slice());
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DSYNC;
        let file = rustix::fs::open(&server.path, flags, rustix::fs::Mode::empty()).unwrap();
        let file = std::fs::File::from(file);
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(durable(&image), wanted, "{bug:?}");
        drop(file);
        server.terminate();
        assert!(server.wait().0.success());
    }
}

#[test]
fn reads_of_a_server_without_a_planted_bug_go_on() {
    let image = image();
    let socket = image.beside("nbd.sock");
    let address = format!("unix:{}", socket.display());
    let server = planted(image.serve(&["--nbd", &address]), &[]);
    connect(Path::new(image.path())).unwrap().ask(&Order::Snapshot).unwrap();
    assert_eq!(Client::connect(&socket, PATIENCE).ask(0, READ, 0, 4096, &[]), 0);
    server.terminate();
    assert!(server.wait().0.success());
}
