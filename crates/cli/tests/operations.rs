//! Interfaces for operators and service managers: metrics, messages, names, man pages.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::served::{Image, MANYLOGS, Server, can_serve, manylogs, plugin, root, run, says};
use tempfile::TempDir;

const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(30);

fn formatted() -> Image {
    Image::formatted(&["--size", "256M", "--sparse", "--label", "a label"])
}

fn id_of(image: &Image) -> String {
    let text = run(&["probe", image.path()], 0, "ID_FS_TYPE=manylogs\n");
    let id = text.lines().find_map(|line| line.strip_prefix("ID_FS_UUID="));
    id.unwrap().to_owned()
}

/// The value of `key` in the server's next message that has it.
fn field(server: &mut Server, key: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(server.stderr.read_line(&mut line).unwrap(), 0, "nobody says {key}");
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(found) = fields[key].as_str() {
            return found.to_owned();
        }
    }
}

/// Ends the server of `image` in order; returns its messages.
fn stop(image: &Image, server: Server) -> String {
    run(&["stop", image.path()], 0, "closed");
    let (status, said) = server.wait();
    assert!(status.success(), "{said}");
    said
}

/// Sends `request` and returns all of the answer.
fn exchange(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may close the connection before everything is sent.
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
    // A silent client delays the others only for a while.
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
    if !can_serve(false) {
        return;
    }
    let image = formatted();
    run(&["metrics", image.path()], 2, "no server has");
    let options = ["--file", "--metrics", "0", "--log-format", "json"];
    let mut server = Server::start(&mut image.serve(&options));
    let url = field(&mut server, "url");
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let file = File::options().write(true).open(&server.path).unwrap();
    file.write_all_at(&[7; 4096], 8192).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let text = run(&["metrics", image.path()], 0, "");
    check_exposition(&text);
    let of = format!("device=\"{}\",volume=\"{}\"", image.path(), id_of(&image));
    for name in [
        format!("manylogs_health{{{of},state=\"good\"}} 1\n"),
        format!("manylogs_at_risk_bytes{{{of}}} 4096\n"),
        format!("manylogs_lost_extents{{{of}}} 0\n"),
        format!("manylogs_request_latency_seconds{{{of},kind=\"write\",quantile=\"0.99\"}} 0."),
        format!("manylogs_request_bytes_total{{{of},kind=\"write\"}} 4096\n"),
        format!("manylogs_device_written_bytes_total{{{of},phase=\"append\"}} "),
        format!("manylogs_turns_total{{{of},class=\"record\"}} "),
        format!("manylogs_turns_waiting{{{of},class=\"stream\"}} 0\n"),
        format!("manylogs_turns_waited_seconds_total{{{of},for=\"record\"}} "),
    ] {
        assert!(text.contains(&name), "{name} is not in {text}");
    }
    check_http(address);
    let other = formatted();
    let taken = manylogs(&["serve", other.path(), "--file", "--metrics", address]);
    says(&taken, 5, &format!("cannot listen at 127.0.0.1 port {}", &address[10..]));
    run(&["checkpoint", image.path()], 0, "written home");
    let said = stop(&image, server);
    for line in said.lines() {
        let fields: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(fields["level"].is_string() && fields["msg"].is_string(), "{line}");
    }
    assert!(said.contains("order: checkpoint: begins"), "{said}");
    assert!(said.contains("order: checkpoint: done"), "{said}");
}

#[test]
fn a_port_in_use_is_told_before_anything_is_opened() {
    let image = formatted();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = manylogs(&["serve", image.path(), "--file", "--metrics", &port]);
    says(&output, 5, &format!("cannot listen at 127.0.0.1 port {port}"));
    let logfmt = ["serve", image.path(), "--file", "--metrics", &port, "--log-format", "logfmt"];
    run(&logfmt, 5, "level=error msg=\"cannot listen at");
    run(&["serve", image.path(), "--file", "--metrics", "host"], 2, "[HOST:]PORT");
}

#[test]
fn the_service_manager_hears_of_it_and_the_link_is_there_as_long_as_the_device() {
    if !can_serve(true) {
        return;
    }
    let image = formatted();
    let socket = UnixDatagram::bind(image.beside("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut text = [0; 100];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let dir = format!("{}/by-id/", image.dir().display());
    let options = ["--loop", "--link", &dir, "--log-format", "logfmt"];
    let server = Server::start(image.serve(&options).env("NOTIFY_SOCKET", image.beside("notify")));
    assert_eq!(told(), "READY=1");
    let link = Path::new(&dir).join(id_of(&image));
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(&server.path));
    let said = stop(&image, server);
    assert!(said.contains("level=info msg=\"volume "), "{said}");
    assert_eq!(told(), "STOPPING=1");
    assert!(fs::symlink_metadata(&link).is_err());

    let file = image.beside("file");
    fs::write(&file, "data").unwrap();
    let refused = ["serve", image.path(), "--loop", "--link", file.to_str().unwrap()];
    run(&refused, 5, "exists and is no link");
    assert_eq!(fs::read_to_string(&file).unwrap(), "data");
    // Nothing is left of the refused start: the volume can be served.
    let name = image.beside("name");
    let server = Server::start(&mut image.serve(&["--loop", "--link", name.to_str().unwrap()]));
    assert_eq!(fs::read_link(&name).unwrap(), Path::new(&server.path));
    stop(&image, server);
}

#[test]
fn metrics_and_readiness_of_an_nbd_server() {
    if !root() || Command::new("nbdkit").arg("--version").output().is_err() {
        manylogs_testkit::skip("needs root and nbdkit");
        return;
    }
    let image = formatted();
    let socket = UnixDatagram::bind(image.beside("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let nbd = format!("unix:{}", image.beside("nbd").display());
    let plugin = plugin();
    let mut options = vec!["--nbd", &nbd, "--metrics", "0", "--log-format", "json"];
    options.extend(["--nbdkit-plugin", plugin.to_str().unwrap()]);
    let mut server =
        Server::start(image.serve(&options).env("NOTIFY_SOCKET", image.beside("notify")));
    let mut text = [0; 100];
    let len = socket.recv(&mut text).unwrap();
    assert_eq!(&text[..len], b"READY=1");
    let url = field(&mut server, "url");
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    check_http(address);
    run(&["checkpoint", image.path()], 0, "written home");
    // The plugin writes in the same format.
    while !field(&mut server, "msg").contains("order: checkpoint: done") {}
    stop(&image, server);
}

#[test]
fn probe_finds_volumes_and_nothing_else() {
    let image = formatted();
    let text = run(&["probe", image.path()], 0, "ID_FS_LABEL=a_label\n");
    assert!(text.contains("ID_FS_LABEL_ENC=a\\x20label\n"), "{text}");
    assert!(text.contains(&format!("MANYLOGS_ID={}\n", id_of(&image).replace('-', ""))), "{text}");
    let status = run(&["status", image.path()], 0, "");
    assert!(status.contains(&id_of(&image)), "{status}");
    let zeroes = image.beside("zeroes");
    for len in [0, 100, 1 << 20] {
        File::create(&zeroes).unwrap().set_len(len).unwrap();
        run(&["probe", zeroes.to_str().unwrap()], 2, "no Manylogs volume");
    }
    run(&["probe", "/nowhere"], 2, "No such file");
    let file = File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(&[9], 12).unwrap();
    run(&["probe", image.path()], 7, "format version 9");
    file.write_all_at(&[3], 12).unwrap();
    file.write_all_at(b"x", 130).unwrap();
    run(&["probe", image.path()], 4, "superblock");
}

#[test]
fn probe_without_permission_says_so() {
    if !root() {
        manylogs_testkit::skip("needs root, to become nobody");
        return;
    }
    let image = formatted();
    // A copy in a directory where the user nobody can execute it.
    let program = image.beside("manylogs");
    fs::copy(MANYLOGS, &program).unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(image.dir(), mode(0o755)).unwrap();
    fs::set_permissions(image.path(), mode(0o600)).unwrap();
    let output = Command::new(&program).args(["probe", image.path()]).uid(NOBODY).output();
    says(&output.unwrap(), 6, "Permission denied");
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = run(&["--help"], 0, "Would it help my disk?");
    let list = help.lines().take_while(|line| *line != "Options:");
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn man_pages_and_completions_are_there_for_every_command() {
    let dir = TempDir::new().unwrap();
    let man = dir.path().join("share/man1");
    run(&["man", man.to_str().unwrap()], 0, "");
    let commands: Vec<String> = commands().into_iter().filter(|name| name != "help").collect();
    assert!(commands.len() > 15, "{commands:?}");
    for name in &commands {
        let page = fs::read_to_string(man.join(format!("manylogs-{name}.1"))).unwrap();
        for section in ["SYNOPSIS", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""] {
            assert!(page.contains(&format!(".SH {section}\n")), "{name}: {section}: {page}");
        }
        assert!(page.contains(name), "{page}");
    }
    assert!(man.join("manylogs.1").exists() && man.join("manylogs-trace-stat.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell], 0, "");
        for name in &commands {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    let bash = run(&["completions", "bash"], 0, "exos-x20");
    for words in ["cheetah-15k5", "nologging single-log mlb", "spc disksim", "fio2 fio3"] {
        assert!(bash.contains(words), "{words}");
    }
    run(&["completions", "csh"], 2, "possible values");
    run(&["man", "/proc/nowhere"], 2, "cannot write man pages");
}

#[test]
fn volumes_are_listed_and_a_served_one_names_its_server() {
    if !can_serve(false) {
        return;
    }
    let image = formatted();
    let server = Server::start(&mut image.serve(&["--file"]));
    let process = format!("process {}", server.child.id());
    let listed = run(&["list"], 0, image.path());
    let line = listed.lines().find(|line| line.contains(image.path())).unwrap();
    assert!(line.contains(&id_of(&image)) && line.contains(&process), "{line}");
    let listed: serde_json::Value = serde_json::from_str(&run(&["list", "--json"], 0, "")).unwrap();
    let volumes = listed["volumes"].as_array().unwrap();
    let listed = volumes.iter().find(|volume| volume["device"] == image.path()).unwrap();
    assert_eq!(listed["server_pid"], server.child.id());
    for command in ["drain", "check", "grow", "scrub"] {
        let cure = format!("by {process}: end its server first (manylogs stop {})", image.path());
        run(&[command, image.path()], 5, &cure);
    }
    let second = image.serve(&["--file"]).output().unwrap();
    says(&second, 5, "end its server first (manylogs stop");
    stop(&image, server);
    assert!(!run(&["list"], 0, "").contains(image.path()));
}

#[test]
fn the_unit_and_the_rule_use_what_is_there() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("systemd/manylogs@.service")).unwrap();
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    let help = run(&["serve", "--help"], 0, "");
    let options: Vec<_> = start.split(' ').filter(|word| word.starts_with("--")).collect();
    assert!(options.len() >= 3, "{start}");
    for option in options {
        assert!(help.contains(option), "{option}");
    }
    let rule = fs::read_to_string(packaging.join("udev/60-manylogs.rules")).unwrap();
    let image = formatted();
    let probed = run(&["probe", image.path()], 0, "");
    for name in ["ID_FS_TYPE", "MANYLOGS_ID"] {
        assert!(rule.contains(&format!("ENV{{{name}}}")), "{name}");
        assert!(probed.contains(&format!("{name}=")), "{name}");
    }
}
