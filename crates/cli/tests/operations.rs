//! What operators and service managers use of a server: metrics, messages, names, man pages.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

const MANYLOGS: &str = env!("CARGO_BIN_EXE_manylogs");
const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(30);

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What a file over FUSE, or a loop device over that, needs; a test without it is skipped.
fn possible(loop_device: bool) -> bool {
    let losetup = Command::new("losetup").arg("--version").output().is_ok();
    let looped = losetup && Path::new("/dev/loop-control").exists();
    let possible = root() && Path::new("/dev/fuse").exists() && (looped || !loop_device);
    if !possible {
        eprintln!("skipped: needs root, /dev/fuse, loop devices and losetup");
    }
    possible
}

fn manylogs(args: &[&str]) -> Output {
    Command::new(MANYLOGS).args(args).output().unwrap()
}

fn says(output: &Output, code: i32, what: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(what), "{text:?} does not say {what:?}");
    text
}

struct Place {
    dir: TempDir,
    image: String,
}

impl Place {
    fn formatted() -> Self {
        let dir = TempDir::new().unwrap();
        let image = dir.path().join("disk.img").to_str().unwrap().to_owned();
        let label = ["--label", "a label"];
        let output =
            manylogs(&["format", &image, "--size", "256M", "--sparse", label[0], label[1]]);
        says(&output, 0, "for data");
        Self { dir, image }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn id(&self) -> String {
        let text = says(&manylogs(&["probe", &self.image]), 0, "ID_FS_TYPE=manylogs\n");
        let id = text.lines().find_map(|line| line.strip_prefix("ID_FS_UUID="));
        id.unwrap().to_owned()
    }
}

/// A server in a process of its own; ended when dropped.
struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    image: String,
    /// What it serves.
    path: String,
}

impl Server {
    fn start(place: &Place, options: &[&str], notify: Option<&Path>) -> Self {
        let mut command = Command::new(MANYLOGS);
        command.args(["serve", &place.image]).args(options);
        if let Some(notify) = notify {
            command.env("NOTIFY_SOCKET", notify);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut path = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut path).unwrap();
        if path.is_empty() {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            panic!("the server did not start: {said}");
        }
        Self { child, stderr, image: place.image.clone(), path: path.trim().to_owned() }
    }

    /// The value of `key` in the first of its messages that has it.
    fn field(&mut self, key: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "nobody says {key}");
            let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
            if let Some(found) = fields[key].as_str() {
                return found.to_owned();
            }
        }
    }

    /// Ends it in order; what it said meanwhile.
    fn stop(mut self) -> String {
        says(&manylogs(&["stop", &self.image]), 0, "closed");
        assert!(self.child.wait().unwrap().success());
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = manylogs(&["stop", &self.image, "--force"]);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends `request` and returns all of the answer.
fn exchange(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may have heard enough before it was told everything.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Checks the text format line by line, and that each sample belongs to a family.
fn check_exposition(text: &str) {
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        assert!(name.starts_with("manylogs_") && name.starts_with(&family), "{line} in {family}");
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        assert!(labels.contains("device=\"") && labels.contains("volume=\""), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    match promtool.spawn() {
        Ok(mut child) => {
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => eprintln!("promtool is not installed"),
    }
}

fn check_http(address: &str) {
    let get = |path: &str| exchange(address, format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(get("/metrics").starts_with("HTTP/1.1 200 OK\r\n"), "{}", get("/metrics"));
    assert!(get("/").starts_with("HTTP/1.1 404 "), "{}", get("/"));
    assert!(exchange(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(exchange(address, &[0xff; 100]).starts_with("HTTP/1.1 400 "));
    exchange(address, &[b'a'; 100_000]);
    exchange(address, b"");
    // Somebody who says nothing holds up the others for a while only.
    let silent = TcpStream::connect(address).unwrap();
    let answer = get("/metrics");
    drop(silent);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    check_exposition(body);
}

#[test]
fn metrics_are_told_by_the_command_and_over_http() {
    if !possible(false) {
        return;
    }
    let place = Place::formatted();
    says(&manylogs(&["metrics", &place.image]), 2, "no server has");
    let options = ["--file", "--metrics", "0", "--log-format", "json"];
    let mut server = Server::start(&place, &options, None);
    let url = server.field("url");
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let file = File::options().write(true).open(&server.path).unwrap();
    file.write_all_at(&[7; 4096], 8192).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let text = says(&manylogs(&["metrics", &place.image]), 0, "");
    check_exposition(&text);
    let of = format!("device=\"{}\",volume=\"{}\"", place.image, place.id());
    for name in [
        format!("manylogs_health{{{of},state=\"good\"}} 1\n"),
        format!("manylogs_at_risk_bytes{{{of}}} 4096\n"),
        format!("manylogs_lost_extents{{{of}}} 0\n"),
        format!("manylogs_request_latency_seconds{{{of},kind=\"write\",quantile=\"0.99\"}} 0."),
        format!("manylogs_request_bytes_total{{{of},kind=\"write\"}} 4096\n"),
        format!("manylogs_device_written_bytes_total{{{of},phase=\"append\"}} "),
    ] {
        assert!(text.contains(&name), "{name} is not in {text}");
    }
    check_http(address);
    let other = Place::formatted();
    let taken = manylogs(&["serve", &other.image, "--file", "--metrics", address]);
    says(&taken, 5, &format!("cannot listen at 127.0.0.1 port {}", &address[10..]));
    says(&manylogs(&["checkpoint", &place.image]), 0, "written home");
    let said = server.stop();
    for line in said.lines() {
        let fields: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(fields["level"].is_string() && fields["msg"].is_string(), "{line}");
    }
    assert!(said.contains("order: checkpoint: begins"), "{said}");
    assert!(said.contains("order: checkpoint: done"), "{said}");
}

#[test]
fn a_port_in_use_is_told_before_anything_is_opened() {
    let place = Place::formatted();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = manylogs(&["serve", &place.image, "--file", "--metrics", &port]);
    says(&output, 5, &format!("cannot listen at 127.0.0.1 port {port}"));
    let logfmt = ["serve", &place.image, "--file", "--metrics", &port, "--log-format", "logfmt"];
    says(&manylogs(&logfmt), 5, "level=error msg=\"cannot listen at");
    says(&manylogs(&["serve", &place.image, "--file", "--metrics", "host"]), 2, "[HOST:]PORT");
}

#[test]
fn the_service_manager_hears_of_it_and_the_link_is_there_as_long_as_the_device() {
    if !possible(true) {
        return;
    }
    let place = Place::formatted();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut text = [0; 100];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let dir = format!("{}/by-id/", place.dir.path().display());
    let options = ["--loop", "--link", &dir, "--log-format", "logfmt"];
    let server = Server::start(&place, &options, Some(&place.path("notify")));
    assert_eq!(told(), "READY=1");
    let link = Path::new(&dir).join(place.id());
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(&server.path));
    let said = server.stop();
    assert!(said.contains("level=info msg=\"volume "), "{said}");
    assert_eq!(told(), "STOPPING=1");
    assert!(fs::symlink_metadata(&link).is_err());

    let file = place.path("file");
    fs::write(&file, "data").unwrap();
    let refused = ["serve", &place.image, "--loop", "--link", file.to_str().unwrap()];
    says(&manylogs(&refused), 5, "exists and is no link");
    assert_eq!(fs::read_to_string(&file).unwrap(), "data");
    // Nothing of it is left: the volume can be served.
    let name = place.path("name");
    let server = Server::start(&place, &["--loop", "--link", name.to_str().unwrap()], None);
    assert_eq!(fs::read_link(&name).unwrap(), Path::new(&server.path));
    server.stop();
}

#[test]
fn metrics_and_readiness_of_an_nbd_server() {
    if !root() || Command::new("nbdkit").arg("--version").output().is_err() {
        eprintln!("skipped: needs root and nbdkit");
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--offline", "--package", "manylogs-nbdkit"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    let place = Place::formatted();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let nbd = format!("unix:{}", place.path("nbd").display());
    let options = ["--nbd", &nbd, "--metrics", "0", "--log-format", "json"];
    let mut server = Server::start(&place, &options, Some(&place.path("notify")));
    let mut text = [0; 100];
    let len = socket.recv(&mut text).unwrap();
    assert_eq!(&text[..len], b"READY=1");
    let url = server.field("url");
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    check_http(address);
    says(&manylogs(&["checkpoint", &place.image]), 0, "written home");
    // The plugin writes in the same format.
    while !server.field("msg").contains("order: checkpoint: done") {}
    server.stop();
}

#[test]
fn probe_finds_volumes_and_nothing_else() {
    let place = Place::formatted();
    let text = says(&manylogs(&["probe", &place.image]), 0, "ID_FS_LABEL=a_label\n");
    assert!(text.contains("ID_FS_LABEL_ENC=a\\x20label\n"), "{text}");
    assert!(text.contains(&format!("MANYLOGS_ID={}\n", place.id().replace('-', ""))), "{text}");
    let status = says(&manylogs(&["status", &place.image]), 0, "");
    assert!(status.contains(&place.id()), "{status}");
    let zeroes = place.path("zeroes");
    for len in [0, 100, 1 << 20] {
        File::create(&zeroes).unwrap().set_len(len).unwrap();
        says(&manylogs(&["probe", zeroes.to_str().unwrap()]), 1, "no Manylogs volume");
    }
    says(&manylogs(&["probe", "/nowhere"]), 2, "No such file");
    let image = File::options().write(true).open(&place.image).unwrap();
    image.write_all_at(&[9], 12).unwrap();
    says(&manylogs(&["probe", &place.image]), 7, "format version 9");
    image.write_all_at(&[2], 12).unwrap();
    image.write_all_at(b"x", 130).unwrap();
    says(&manylogs(&["probe", &place.image]), 4, "superblock");
}

#[test]
fn probe_without_permission_says_so() {
    if !root() {
        eprintln!("skipped: needs root, to become nobody");
        return;
    }
    let place = Place::formatted();
    // Where nobody can execute it.
    let program = place.path("manylogs");
    fs::copy(MANYLOGS, &program).unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(place.dir.path(), mode(0o755)).unwrap();
    fs::set_permissions(&place.image, mode(0o600)).unwrap();
    let output = Command::new(&program).args(["probe", &place.image]).uid(NOBODY).output();
    says(&output.unwrap(), 6, "Permission denied");
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = says(&manylogs(&["--help"]), 0, "Commands:");
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = list.take_while(|line| !line.is_empty());
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn man_pages_and_completions_are_there_for_every_command() {
    let dir = TempDir::new().unwrap();
    let man = dir.path().join("share/man1");
    says(&manylogs(&["man", man.to_str().unwrap()]), 0, "");
    let commands: Vec<String> = commands().into_iter().filter(|name| name != "help").collect();
    assert!(commands.len() > 15, "{commands:?}");
    for name in &commands {
        let page = fs::read_to_string(man.join(format!("manylogs-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(name), "{page}");
    }
    assert!(man.join("manylogs.1").exists() && man.join("manylogs-trace-stat.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let script = says(&manylogs(&["completions", shell]), 0, "");
        for name in &commands {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    says(&manylogs(&["completions", "csh"]), 2, "possible values");
    says(&manylogs(&["man", "/proc/nowhere"]), 2, "cannot write man pages");
}

#[test]
fn the_unit_and_the_rule_use_what_is_there() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("systemd/manylogs@.service")).unwrap();
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    let help = says(&manylogs(&["serve", "--help"]), 0, "");
    let options: Vec<_> = start.split(' ').filter(|word| word.starts_with("--")).collect();
    assert!(options.len() >= 3, "{start}");
    for option in options {
        assert!(help.contains(option), "{option}");
    }
    let rule = fs::read_to_string(packaging.join("udev/60-manylogs.rules")).unwrap();
    let place = Place::formatted();
    let probed = says(&manylogs(&["probe", &place.image]), 0, "");
    for name in ["ID_FS_TYPE", "MANYLOGS_ID"] {
        assert!(rule.contains(&format!("ENV{{{name}}}")), "{name}");
        assert!(probed.contains(&format!("{name}=")), "{name}");
    }
}
