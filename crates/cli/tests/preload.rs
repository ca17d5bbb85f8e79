//! Programs that do not know MLFS, run with our library preloaded.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::Place;
use common::image::{can_mount, image, unmount};
use common::served::{ok, text};

/// The library. `make test` builds it with the tests, as an example of its package, and passes its
/// path; otherwise cargo builds it here.
fn library() -> PathBuf {
    if let Some(built) = std::env::var_os("MANYLOGS_PRELOAD") {
        return built.into();
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--offline", "--package", "manylogs-preload"]);
    cargo.args(["--example", "preload"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    ok(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
    Path::new(env!("CARGO_BIN_EXE_manylogs")).with_file_name("examples/libpreload.so")
}

/// Runs a program in a directory, with the library and patterns.
fn run(dir: &Path, names: &str, program: &[&str]) -> Output {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).current_dir(dir).env("LD_PRELOAD", library());
    if !names.is_empty() {
        command.env("MANYLOGS_DURABLE", names);
    }
    command.output().unwrap()
}

fn runs(dir: &Path, names: &str, program: &[&str]) {
    let output = run(dir, names, program);
    assert!(output.status.success(), "{program:?}: {}", text(&output));
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        manylogs_testkit::skip(format!("needs {program}"));
    }
    found
}

/// Whether the file has the property.
fn is_durable(file: &Path) -> bool {
    let mut value = [0; 8];
    let len = rustix::fs::getxattr(file, "user.manylogs.durable", &mut value);
    len.is_ok_and(|len| value[..len] == *b"1")
}

/// Mounts an adopted image without patterns.
fn mounted(place: &Place) -> Option<PathBuf> {
    let can = can_mount() && image(place, 128, &[]).is_some();
    can.then(|| {
        place.run(&["fs", "adopt", "disk.img", "--yes"]).succeeds();
        common::image::serve(place)
    })
}

#[test]
fn programs_open_files_whose_names_fit() {
    const NAMES: &str = "wal/*,*.db-wal";
    /// SQLite's log file exists only while the database is in use.
    const SQLITE: &str = "
import os, sqlite3
with sqlite3.connect('a.db') as base:
    base.execute('pragma journal_mode=wal')
    base.execute('create table t (a)')
    base.executemany('insert into t values (?)', [(i,) for i in range(1000)])
    base.commit()
    assert os.getxattr('a.db-wal', 'user.manylogs.durable') == b'1'
    assert not os.listxattr('a.db')
    assert base.execute('select count(*) from t').fetchone() == (1000,)
";
    let place = Place::new();
    let Some(root) = mounted(&place) else { return };
    fs::create_dir(root.join("wal")).unwrap();
    runs(&root, NAMES, &["sh", "-c", "echo content > wal/shell; echo content > plain"]);
    let dd = ["if=/dev/urandom", "bs=100000", "count=3", "conv=fsync", "status=none"];
    runs(&root, NAMES, &[&["dd", "of=wal/dd"][..], &dd].concat());
    runs(&root.join("wal"), NAMES, &["cp", "shell", "copy"]);
    runs(&root, NAMES, &["cat", "wal/shell"]);
    for (file, durable) in [
        ("wal/shell", true),
        ("plain", false),
        ("wal/dd", true),
        ("wal/copy", true),
        ("wal", false),
    ] {
        assert_eq!(is_durable(&root.join(file)), durable, "{file}");
    }
    let status = place.run(&["fs", "status", "mlfs", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.succeeds().stdout).unwrap();
    assert!(status["o_dur_live_bytes"].as_u64().unwrap() >= 300_000, "{status}");
    assert_eq!(fs::read(root.join("wal/copy")).unwrap(), b"content\n");
    fs::write(root.join("wal/early"), "content").unwrap();
    runs(&root, NAMES, &["cat", "wal/early"]);
    assert!(!is_durable(&root.join("wal/early")), "who reads it does not give it the property");
    runs(&root, "", &["sh", "-c", "echo content > wal/unnamed"]);
    assert!(!is_durable(&root.join("wal/unnamed")), "there are no patterns");
    if has("python3") {
        runs(&root, NAMES, &["python3", "-c", SQLITE]);
    }
    unmount(&place);
}

/// Opens files in a directory with the flag. The argument says whether files can have the property
/// there.
const BY_FLAG: &str = r#"
import ctypes, errno, fcntl, os, sys
O_DUR = 0x40000000
kept = sys.argv[1] == "kept"
libc = ctypes.CDLL(None, use_errno=True)
libc.fopen.restype = ctypes.c_void_p
def is_durable(name):
    try:
        return os.getxattr(name, "user.manylogs.durable") == b"1"
    except OSError:
        return False
def check(file, name, flags):
    had = fcntl.fcntl(file, fcntl.F_GETFL)
    assert bool(had & os.O_DSYNC) == (not kept), (name, oct(had))
    assert had & flags == flags, (name, oct(had))
    assert is_durable(name) == kept, name
    os.write(file, b"content")
    assert os.stat(name).st_size >= 7
WRITE = os.O_RDWR | os.O_CREAT
check(os.open("plain", WRITE | O_DUR, 0o600), "plain", os.O_RDWR)
assert os.stat("plain").st_mode & 0o777 == 0o600
check(os.open("plain", os.O_WRONLY | os.O_APPEND | O_DUR), "plain", os.O_APPEND)
assert os.stat("plain").st_size == 14, "nothing is cut"
read_only = os.open("new", WRITE | os.O_EXCL | O_DUR, 0o400)
check(read_only, "new", os.O_RDWR)
assert not os.get_inheritable(read_only), "it is closed for other programs"
try:
    os.open("new", WRITE | os.O_EXCL | O_DUR)
    assert False
except FileExistsError:
    pass
here = os.open(".", os.O_RDONLY | O_DUR)
check(os.open("at", WRITE | O_DUR, dir_fd=here), "at", os.O_RDWR)
synced = os.open("synced", WRITE | os.O_DSYNC | O_DUR)
assert fcntl.fcntl(synced, fcntl.F_GETFL) & os.O_DSYNC, "who asks for it has it anywhere"
ctypes.set_errno(77)
stream = libc.fopen(b"stream", b"w+eD")
assert ctypes.get_errno() == 77, ctypes.get_errno()
file = libc.fileno(ctypes.c_void_p(stream))
check(file, "stream", os.O_RDWR)
assert not os.get_inheritable(file)
assert libc.fopen(b"absent", b"rD") is None and ctypes.get_errno() == errno.ENOENT
assert libc.fopen(b"stream", b"wxD") is None and ctypes.get_errno() == errno.EEXIST
libc.fclose(ctypes.c_void_p(libc.fopen(b"unflagged", b"w")))
assert not is_durable("unflagged")
assert libc.creat(b"created", 0o644) >= 0 and not is_durable("created")
unnamed = os.open(".", os.O_RDWR | os.O_TMPFILE | O_DUR)
assert bool(fcntl.fcntl(unnamed, fcntl.F_GETFL) & os.O_DSYNC) == (not kept)
os.open("plain", os.O_RDONLY | O_DUR)
null = os.open("/dev/null", os.O_WRONLY | O_DUR)
os.write(null, b"content")
# Of a file of others the flag means what it means elsewhere.
os.chmod(".", 0o777)
os.open("others", WRITE, 0o666)
os.chmod("others", 0o666)
os.seteuid(65534)
others = os.open("others", os.O_RDWR | O_DUR)
assert fcntl.fcntl(others, fcntl.F_GETFL) & os.O_DSYNC
assert not is_durable("others")
"#;

#[test]
fn the_flag_of_the_paper_is_durability_without_a_place_or_at_once() {
    let place = Place::new();
    let Some(root) = mounted(&place).filter(|_| has("python3")) else { return };
    runs(&root, "", &["python3", "-c", BY_FLAG, "kept"]);
    let elsewhere = place.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    runs(&elsewhere, "", &["python3", "-c", BY_FLAG, "synced"]);
    unmount(&place);
}

#[test]
fn bad_patterns_are_told_and_change_nothing() {
    let place = Place::new();
    for (names, why) in [("*", "every file"), ("a,,b", "expected names"), ("[a]", "* and ?")] {
        let output = run(&place.path("."), names, &["cat", "/dev/null"]);
        assert!(output.status.success(), "{output:?}");
        let said = text(&output);
        let expected = said.contains("MANYLOGS_DURABLE is ignored") && said.contains(why);
        assert!(expected && said.lines().count() == 1, "{said}");
    }
}
