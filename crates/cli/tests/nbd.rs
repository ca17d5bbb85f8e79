//! A volume over NBD, used by foreign clients: libnbd's tools, qemu's, and a client that does
//! everything wrong. Debian: nbdkit libnbd-bin python3-libnbd qemu-utils.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::client::{Client, FLUSH, FUA, READ, TRIM, WRITE, ZERO};
use common::served::{MANYLOGS, ok, plugin, says, text};
use manylogs_operate::control::{Order, connect};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Debian's bindings work with Debian's Python.
const PYTHON: &str = "/usr/bin/python3";
const PATIENCE: Duration = Duration::from_secs(60);
const BUSY: i32 = 5;
const INPUT: i32 = 2;
const FAILED: i32 = 1;

/// The server that speaks NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The engine's own thread.
    Us,
    /// nbdkit, with our plugin.
    Nbdkit,
}

/// The available servers to test with `tools`; prints which ones are skipped.
fn servers(tools: &[&str]) -> Vec<By> {
    if !have(tools) {
        return Vec::new();
    }
    if !have(&["nbdkit"]) {
        return vec![By::Us];
    }
    vec![By::Us, By::Nbdkit]
}

/// Whether `tools` are installed; else prints that the test is skipped.
fn have(tools: &[&str]) -> bool {
    for tool in tools {
        let found = match *tool {
            "python3-libnbd" => works(Command::new(PYTHON).args(["-c", "import nbd"])),
            tool => works(Command::new(tool).arg("--version")),
        };
        if !found {
            manylogs_testkit::skip(format_args!("no {tool} here"));
            return false;
        }
    }
    true
}

fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A volume of 64 MiB in a file, and a place for a socket.
struct Place {
    dir: TempDir,
    by: By,
}

impl Place {
    fn new(by: By) -> Self {
        let place = Self { dir: TempDir::new().unwrap(), by };
        ok(Command::new(MANYLOGS).arg("format").arg(place.disk()).args(["--size", "64M"]));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn disk(&self) -> PathBuf {
        self.path("disk.img")
    }

    fn socket(&self) -> PathBuf {
        self.path("nbd.sock")
    }

    fn serve_command(&self) -> Command {
        let mut command = Command::new(MANYLOGS);
        command.arg("serve").arg(self.disk());
        command.arg("--nbd").arg(format!("unix:{}", self.socket().display()));
        self.with_server(command)
    }

    fn with_server(&self, mut command: Command) -> Command {
        if self.by == By::Nbdkit {
            command.arg("--nbdkit-plugin").arg(plugin());
        }
        command
    }

    fn serve(&self) -> Server {
        Server::start(&mut self.serve_command(), &self.disk())
    }

    /// A file of 8 MiB with different content in every block.
    fn pattern(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let words = (0..1u64 << 20).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// A running `manylogs serve`, ended in order when dropped.
struct Server {
    child: Child,
    uri: String,
    /// The process that has the volume open: nbdkit, if that is the server.
    pid: Pid,
}

impl Server {
    fn start(command: &mut Command, disk: &Path) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut uri = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut uri).unwrap();
        assert!(uri.starts_with("nbd"), "{command:?} said {uri:?}");
        let status = connect(disk).unwrap().ask(&Order::Status).unwrap();
        let pid = Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap();
        Self { child, uri: uri.trim().to_owned(), pid }
    }

    fn python(&self, script: &str) -> String {
        let begin = "import nbd, sys\n\
                     def connect():\n\
                     \x20   h = nbd.NBD(); h.add_meta_context('base:allocation')\n\
                     \x20   h.connect_uri(sys.argv[1]); return h\n\
                     h = connect()\n";
        ok(Command::new(PYTHON).args(["-c", &format!("{begin}{script}"), &self.uri]))
    }

    /// Kills the server, so that nothing is closed.
    fn kill(mut self) {
        kill_process(self.pid, Signal::KILL).unwrap();
        let status = self.child.wait().unwrap();
        let of_child = self.pid == Pid::from_child(&self.child);
        assert_eq!(status.code(), (!of_child).then_some(FAILED));
    }

    fn end(mut self) {
        self.terminate();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn terminate(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.terminate();
            let _ = self.child.wait();
        }
    }
}

#[test]
fn the_export_says_what_it_can() {
    for by in servers(&["nbdinfo"]) {
        let place = Place::new(by);
        let server = place.serve();
        let info = ok(Command::new("nbdinfo").arg(&server.uri));
        for yes in [
            "fast_zero",
            "flush",
            "fua",
            "multi_conn",
            "trim",
            "zero",
            "structured",
            "base:allocation",
        ] {
            let says = info.lines().any(|line| line.contains(yes) && !line.contains("false"));
            assert!(says, "{yes}: {info}");
        }
        let size = ok(Command::new("nbdinfo").args(["--size", &server.uri]));
        let status = connect(&place.disk()).unwrap().ask(&Order::Status).unwrap();
        assert_eq!(size.trim(), status["capacity_bytes"].to_string());
        let mode = fs::metadata(place.socket()).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o077, 0);
    }
}

#[test]
fn what_is_copied_in_comes_out_again() {
    for by in servers(&["nbdcopy", "qemu-img", "qemu-io"]) {
        let place = Place::new(by);
        let (pattern, back) = (place.pattern("pattern"), place.path("back"));
        let server = place.serve();
        ok(Command::new("nbdcopy").args(["--flush"]).arg(&pattern).arg(&server.uri));
        let fua = "write -f -P 0x5a 16M 8k";
        ok(Command::new("qemu-io").args(["-f", "raw", "-c", fua, &server.uri]));
        let unaligned = "write -f -P 0x6b 17825893 5";
        ok(Command::new("qemu-io").args(["-f", "raw", "-c", unaligned, &server.uri]));
        server.end();
        let server = place.serve();
        ok(Command::new("nbdcopy").arg(&server.uri).arg(&back));
        let (wrote, read) = (fs::read(&pattern).unwrap(), fs::read(&back).unwrap());
        assert!(read.starts_with(&wrote));
        assert_eq!(read[16 << 20..][..8192], [0x5a; 8192]);
        assert_eq!(read[17_825_892..][..7], [0, 0x6b, 0x6b, 0x6b, 0x6b, 0x6b, 0]);
        let same = ["compare", "-f", "raw", "-F", "raw", back.to_str().unwrap(), &server.uri];
        ok(Command::new("qemu-img").args(same));
        let other = place.path("other");
        fs::write(&other, vec![0x77; 1 << 20]).unwrap();
        let convert = ["convert", "-n", "-f", "raw", "-O", "raw", other.to_str().unwrap()];
        ok(Command::new("qemu-img").args(convert).arg(&server.uri));
        let read = ["-f", "raw", "-c", "read -P 0x77 0 1M", &server.uri];
        let said = ok(Command::new("qemu-io").args(read));
        assert!(!said.contains("failed"), "{said}");
    }
}

/// Discards and zeroes, and the block status after both.
const DISCARDS: &str = "MiB = 1 << 20\n\
     def status(offset, count):\n\
     \x20   found = []\n\
     \x20   h.block_status(count, offset, lambda c, o, e, err: found.extend(e))\n\
     \x20   return found\n\
     h.pwrite(b'x' * MiB, 0); h.pwrite(b'y' * 65536, 2 * MiB, nbd.CMD_FLAG_FUA)\n\
     h.trim(65536, 65536, nbd.CMD_FLAG_FUA)\n\
     assert h.pread(65536, 65536) == bytes(65536)\n\
     assert h.pread(65536, 0) == b'x' * 65536\n\
     assert h.pread(65536, 131072) == b'x' * 65536\n\
     assert status(0, 3 * 65536)[:5:] == [65536, 0, 65536, 3, 65536], status(0, 3 * 65536)\n\
     h.zero(4096, 2 * MiB, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_FUA)\n\
     h.zero(4096, 2 * MiB + 8192, nbd.CMD_FLAG_NO_HOLE)\n\
     want = bytes(4096) + b'y' * 4096 + bytes(4096) + b'y' * 4096\n\
     assert h.pread(16384, 2 * MiB) == want\n\
     assert status(2 * MiB, 4096) == [4096, 3], status(2 * MiB, 4096)\n\
     h.pwrite(b'z' * 512, 65536 + 512)\n\
     assert h.pread(1536, 65536) == bytes(512) + b'z' * 512 + bytes(512)\n";

#[test]
fn discards_and_zeroes_read_as_zeroes_and_block_status_shows_them() {
    for by in servers(&["python3-libnbd"]) {
        let place = Place::new(by);
        place.serve().python(DISCARDS);
    }
}

#[test]
fn a_flush_on_one_connection_covers_another_and_outlives_a_kill() {
    for by in servers(&["python3-libnbd"]) {
        let place = Place::new(by);
        let server = place.serve();
        server.python(
            "g = connect()\n\
             assert h.can_multi_conn()\n\
             for i in range(200): h.pwrite(bytes([i]) * 4096, i * 65536)\n\
             g.flush()\n\
             for i in range(200): h.pwrite(bytes([i]) * 4096, i * 65536 + 4096, nbd.CMD_FLAG_FUA)\n",
        );
        server.kill();
        let server = place.serve();
        server.python(
            "for i in range(200): assert h.pread(8192, i * 65536) == bytes([i]) * 8192, i\n",
        );
    }
}

/// Writes block after block with FUA and then checks each, through kills of the server.
const LOAD: &str = "import nbd, sys, time\n\
    h = nbd.NBD(); h.connect_unix(sys.argv[1])\n\
    end = time.time() + 6; n = 0\n\
    while time.time() < end:\n\
    \x20   h.pwrite(n.to_bytes(8, 'little') * 512, n % 4000 * 4096, nbd.CMD_FLAG_FUA); n += 1\n\
    for i in range(max(0, n - 4000), n):\n\
    \x20   assert h.pread(4096, i % 4000 * 4096) == i.to_bytes(8, 'little') * 512, i\n\
    print('wrote', n)\n";

#[test]
fn a_client_that_connects_again_works_across_kills() {
    // The client's side is an nbdkit as well, which reconnects.
    if have(&["nbdkit"]) {
        servers(&["python3-libnbd"]).into_iter().for_each(work_across_kills);
    }
}

fn work_across_kills(by: By) {
    let place = Place::new(by);
    let mut server = place.serve();
    let front = place.path("front.sock");
    let client = Command::new("nbdkit")
        .args(["--foreground", "--exit-with-parent", "--unix"])
        .arg(&front)
        .args(["--filter=retry", "nbd", "retries=30", "retry-delay=1", "retry-exponential=no"])
        .arg(format!("socket={}", place.socket().display()))
        .arg("retry=30")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut client = Terminated(client);
    wait_for(|| UnixStream::connect(&front).is_ok());
    let load = Command::new(PYTHON)
        .args(["-c", LOAD])
        .arg(&front)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1600));
        server.kill();
        server = place.serve();
    }
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    client.0.kill().unwrap();
    server.end();
}

#[test]
fn with_tls_only_those_who_have_a_key_are_let_in() {
    if !servers(&["nbdinfo"]).contains(&By::Nbdkit) {
        return;
    }
    // The command does not ask for nbdkit, but TLS needs it.
    let place = Place::new(By::Us);
    let (keys, others) = (place.path("keys"), place.path("others"));
    fs::write(&keys, format!("alice:{}\n", "5a".repeat(32))).unwrap();
    fs::write(&others, format!("alice:{}\n", "5b".repeat(32))).unwrap();
    let mut serve = place.serve_command();
    serve.arg("--tls-psk").arg(&keys).arg("--nbdkit-plugin").arg(plugin());
    let server = Server::start(&mut serve, &place.disk());
    assert!(server.uri.starts_with("nbds+unix:///?socket="), "{}", server.uri);
    let uri = |keys: &Path| {
        let uri = server.uri.replace(":///", "://alice@/");
        format!("{uri}&tls-psk-file={}", keys.display())
    };
    let info = ok(Command::new("nbdinfo").arg(uri(&keys)));
    assert!(info.contains("with TLS"), "{info}");
    let plain = server.uri.replace("nbds", "nbd");
    assert!(!works(Command::new("nbdinfo").arg(plain)));
    assert!(!works(Command::new("nbdinfo").arg(uri(&others))));
    server.end();
}

/// A child that does not outlive the test.
struct Terminated(Child);

impl Drop for Terminated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn requests_that_cannot_be_are_refused_and_the_connection_lives_on() {
    for by in servers(&[]) {
        let place = Place::new(by);
        let server = place.serve();
        let status = connect(&place.disk()).unwrap().ask(&Order::Status).unwrap();
        let size = status["capacity_bytes"].as_u64().unwrap();
        let mut client = Client::connect(&place.socket(), PATIENCE);
        let block = vec![1; 4096];
        let refused: [(u16, u16, u64, u32, &[u8]); 11] = [
            (0, READ, size, 4096, &[]),
            (0, READ, size - 512, 4096, &[]),
            (0, READ, u64::MAX - 100, 4096, &[]),
            (0, READ, 0, 65 << 20, &[]),
            (0, WRITE, size - 512, 4096, &block),
            (0, TRIM, size, 4096, &[]),
            (0, ZERO, 512, u32::MAX, &[]),
            (0x100, READ, 0, 4096, &[]),
            (0x100, WRITE, 0, 4096, &block),
            (0, 77, 0, 4096, &[]),
            (0, READ, 0, 0, &[]),
        ];
        for (flags, command, offset, len, data) in refused {
            let error = client.ask(flags, command, offset, len, data);
            assert_ne!(error, 0, "command {command} flags {flags:#x} {len} at {offset}");
            assert_eq!(client.ask(0, READ, 0, 4096, &[]), 0);
        }
        assert_ne!(client.ask(0, WRITE, 0, 65 << 20, &vec![1; 65 << 20]), 0);
        // Fast zeroing works, except for parts of sectors.
        assert_eq!(client.ask(16, ZERO, 512, 512, &[]), 0);
        if place.by == By::Us {
            assert_eq!(client.ask(16, ZERO, 700, 512, &[]), 95);
        }
        // Access to parts of sectors is legal, although slow.
        assert_eq!(client.ask(1, WRITE, 1000, 100, &[9; 100]), 0);
        assert_eq!(client.ask(0, READ, 999, 3, &[]), 0);
        assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);
        drop(client);
        server.end();
    }
}

#[test]
fn an_operator_reaches_the_server_and_ends_it_in_order() {
    for by in servers(&[]) {
        let place = Place::new(by);
        let mut server = place.serve();
        let mut client = Client::connect(&place.socket(), PATIENCE);
        assert_eq!(client.ask(1, WRITE, 4096, 4096, &[5; 4096]), 0);
        let mut operator = connect(&place.disk()).unwrap();
        let moved = operator.ask(&Order::Checkpoint).unwrap();
        assert_eq!(moved["home_bytes"].as_u64(), Some(4096));
        let output = Command::new(MANYLOGS).arg("stop").arg(place.disk()).output().unwrap();
        assert_eq!(output.status.code(), Some(BUSY), "{}", text(&output));
        let output = Command::new(MANYLOGS).args(["stop", "--force"]).arg(place.disk()).output();
        assert!(output.as_ref().unwrap().status.success(), "{}", text(&output.unwrap()));
        assert!(server.child.wait().unwrap().success());
        assert!(!place.socket().exists());
        let check = ok(Command::new(MANYLOGS).arg("check").arg(place.disk()));
        assert!(!check.contains("not closed in order"), "{check}");
    }
}

#[test]
fn a_signal_closes_the_volume_although_a_client_is_connected() {
    for by in servers(&[]) {
        let place = Place::new(by);
        let server = place.serve();
        let mut client = Client::connect(&place.socket(), PATIENCE);
        assert_eq!(client.ask(0, WRITE, 4096, 4096, &[5; 4096]), 0);
        server.end();
        let check = ok(Command::new(MANYLOGS).arg("check").arg(place.disk()));
        assert!(!check.contains("not closed in order"), "{check}");
    }
}

#[test]
fn a_server_that_cannot_start_says_why() {
    servers(&[]).into_iter().for_each(cannot_start);
}

fn cannot_start(by: By) {
    let place = Place::new(by);
    let serve = |address: &str, more: &[&str]| {
        let mut command = Command::new(MANYLOGS);
        command.arg("serve").arg(place.disk()).args(["--nbd", address]).args(more);
        let named = more.contains(&"--nbdkit-plugin");
        let mut command = if named { command } else { place.with_server(command) };
        command.output().unwrap()
    };
    says(&serve("/run/m.sock", &[]), INPUT, "expected unix:PATH");
    says(&serve("tcp:127.0.0.1:1", &[]), INPUT, "--nbd-insecure");
    says(&serve("unix:/nowhere/m.sock", &[]), INPUT, "cannot listen");
    says(&serve("unix:/tmp/m.sock", &["--nbdkit-plugin", "/nowhere"]), INPUT, "no plugin");
    says(&serve(&format!("unix:{}", place.disk().display()), &[]), BUSY, "no socket");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    says(&serve(&format!("tcp:127.0.0.1:{port}"), &["--nbd-insecure"]), BUSY, "cannot listen");
    drop(taken);
    // A stale socket is replaced.
    drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
    let server = place.serve();
    says(&serve(&format!("unix:{}", place.path("x").display()), &[]), BUSY, "");
    let other = Place::new(by);
    let mut command = Command::new(MANYLOGS);
    command.arg("serve").arg(other.disk());
    command.arg("--nbd").arg(format!("unix:{}", place.socket().display()));
    says(&command.output().unwrap(), BUSY, "a server listens there");
    server.end();
    if by == By::Nbdkit {
        let mut command = place.serve_command();
        says(&command.env("PATH", "/nowhere").output().unwrap(), FAILED, "apt install nbdkit");
    }
    let tcp = format!("tcp:127.0.0.1:{port}");
    let mut command = Command::new(MANYLOGS);
    command.arg("serve").arg(place.disk()).args(["--nbd", &tcp, "--nbd-insecure", "--raw"]);
    let server = Server::start(&mut place.with_server(command), &place.disk());
    assert_eq!(server.uri, format!("nbd://127.0.0.1:{port}/"));
    server.end();
}

/// The resident memory of a process.
fn resident_mib(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn flags_reach_the_engine() {
    for by in servers(&[]) {
        let place = Place::new(by);
        let server = place.serve();
        let mut client = Client::connect(&place.socket(), PATIENCE);
        let asked = [
            (0, WRITE, "write"),
            (FUA, WRITE, "durable-write"),
            (0, FLUSH, "flush"),
            (0, ZERO, "write-zeroes"),
            (0, TRIM, "discard"),
            (FUA, TRIM, "discard"),
        ];
        for (flags, command, kind) in asked {
            let counted = || {
                let status = connect(&place.disk()).unwrap().status().unwrap();
                status.requests.iter().find(|it| it.kind.name() == kind).unwrap().requests
            };
            let before = counted();
            let len = if command == FLUSH { 0 } else { 4096 };
            let data = if command == WRITE { vec![1; 4096] } else { Vec::new() };
            assert_eq!(client.ask(flags, command, 0, len, &data), 0);
            assert_eq!(counted(), before + 1, "{kind} by {by:?}");
        }
        drop(client);
        server.end();
    }
}

#[test]
fn what_is_durable_when_it_is_answered_outlives_a_kill() {
    for by in servers(&[]) {
        let place = Place::new(by);
        let server = place.serve();
        let mut client = Client::connect(&place.socket(), PATIENCE);
        assert_eq!(client.ask(FUA, WRITE, 0, 1 << 16, &[7; 1 << 16]), 0);
        assert_eq!(client.ask(FUA, ZERO, 4096, 4096, &[]), 0);
        assert_eq!(client.ask(FUA, TRIM, 12_288, 4096, &[]), 0);
        assert_eq!(client.ask(FUA, WRITE, 20_480, 4096, &[8; 4096]), 0);
        assert_eq!(client.ask(FUA, WRITE, 30_000, 10, &[9; 10]), 0);
        server.kill();
        let server = place.serve();
        let mut client = Client::connect(&place.socket(), PATIENCE);
        let mut wanted = vec![7; 1 << 16];
        wanted[4096..8192].fill(0);
        wanted[12_288..16_384].fill(0);
        wanted[20_480..24_576].fill(8);
        wanted[30_000..30_010].fill(9);
        assert!(client.read(0, 1 << 16) == wanted, "by {by:?}");
        drop(client);
        server.end();
    }
}

#[test]
fn nonsense_and_deaf_clients_harm_nobody_else() {
    let place = Place::new(By::Us);
    let server = place.serve();
    let mut good = Client::connect(&place.socket(), PATIENCE);
    // Noise at each stage ends only its own connection: in the greeting, among the options, among
    // the requests.
    let mut words = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..60 {
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        if round % 3 > 0 {
            stream.write_all(&3u32.to_be_bytes()).unwrap();
        }
        if round % 3 == 2 {
            stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        }
        let noise: Vec<u8> = (0..200 + round * 40)
            .flat_map(|_| {
                words = words.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
                words.to_be_bytes()
            })
            .collect();
        // The server may hang up before all is sent.
        let _ = stream.write_all(&noise);
        drop(stream);
        assert_eq!(good.ask(0, READ, 0, 4096, &[]), 0);
    }
    // A client asks for more than the kernel buffers for it, and never fetches the answers.
    let mut deaf = Client::connect(&place.socket(), PATIENCE);
    let mut together = Vec::new();
    for _ in 0..3000 {
        together.extend(deaf.request(0, READ, 0, 1 << 20, &[]).0);
    }
    deaf.stream.write_all(&together).unwrap();
    // Connections take turns, so those reads have had time to be carried out, unless the limit
    // holds them back.
    for i in 0..2000 {
        assert_eq!(good.ask(1, WRITE, i % 1000 * 4096, 4096, &[5; 4096]), 0);
    }
    // 64 MiB for a client, doubled because memory is kept in larger pieces, plus the rest of the
    // server.
    let resident = resident_mib(server.pid);
    assert!(resident < 256, "{resident} MiB for a client that fetches nothing");
    let status = connect(&place.disk()).unwrap().status().unwrap();
    let nbd = status.nbd.unwrap();
    assert!(nbd.held_bytes > 0 && nbd.held_bytes <= nbd.held_bytes_max, "{nbd:?}");
    assert_eq!((nbd.connections, nbd.connections_max), (2, 64));
    assert_eq!(good.ask(1, WRITE, 4096, 4096, &[5; 4096]), 0);
    server.end();
    let check = ok(Command::new(MANYLOGS).arg("check").arg(place.disk()));
    assert!(!check.contains("not closed in order"), "{check}");
}
