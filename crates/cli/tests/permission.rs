//! Commands run by an unprivileged user: their messages and exit codes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::served::{Image, MANYLOGS, root, says};

const NOBODY: u32 = 65534;
const INPUT: i32 = 2;
const PERMISSION: i32 = 6;

/// A volume of the user `nobody`, a volume of another user, and a copy of the program that `nobody`
/// can run.
struct Place {
    own: Image,
    foreign: Image,
    program: PathBuf,
}

/// The value of `XDG_RUNTIME_DIR` for the user `nobody`.
enum Runtime {
    Unset,
    Own,
    Foreign,
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn directory(path: &Path, mode: u32, owner: u32) {
    fs::create_dir(path).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    set_mode(path, mode);
}

impl Place {
    /// Prints why and returns `None` if the tests do not run as root, or if the user `nobody` has a
    /// directory in /run.
    fn new() -> Option<Self> {
        if !root() || Path::new("/run/user/65534").exists() {
            manylogs_testkit::skip("needs root, to become nobody, and nobody without a session");
            return None;
        }
        let formatted = || Image::formatted(&["--size", "256M", "--sparse"]);
        let (own, foreign) = (formatted(), formatted());
        let program = own.beside("manylogs");
        // Copied by `cp`: a copy written by this process could not be run while another test's
        // child has it open.
        assert!(Command::new("cp").arg(MANYLOGS).arg(&program).status().unwrap().success());
        set_mode(own.dir(), 0o755);
        set_mode(foreign.dir(), 0o755);
        chown(own.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        set_mode(Path::new(foreign.path()), 0o600);
        directory(&own.beside("runtime"), 0o700, NOBODY);
        directory(&own.beside("closed"), 0o700, 0);
        Some(Self { own, foreign, program })
    }

    /// Runs the command as the user `nobody`; checks its exit code and that its output contains
    /// `what`.
    fn says(&self, runtime: &Runtime, args: &[&str], code: i32, what: &str) -> String {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.own.dir()).uid(NOBODY).gid(NOBODY);
        match runtime {
            Runtime::Unset => command.env_remove("XDG_RUNTIME_DIR"),
            Runtime::Own => command.env("XDG_RUNTIME_DIR", self.own.beside("runtime")),
            Runtime::Foreign => command.env("XDG_RUNTIME_DIR", self.own.beside("closed")),
        };
        eprintln!("nobody: manylogs {args:?}");
        says(&command.output().unwrap(), code, what)
    }
}

#[test]
fn a_lack_of_permission_has_an_exit_code_of_its_own() {
    let Some(place) = Place::new() else { return };
    let (own, foreign) = (place.own.path(), place.foreign.path());
    let traces = place.own.beside("t.csv");
    fs::write(&traces, "time_us,op,offset,bytes\n0,R,0,4096\n").unwrap();
    let toml = place.own.beside("s.toml");
    fs::write(&toml, format!("traces = [{traces:?}]\ndrives = ['exos-x20']\npolicies = ['mlb']\n"))
        .unwrap();
    set_mode(&traces, 0o600);
    let (traces, toml) = (traces.to_str().unwrap(), toml.to_str().unwrap());
    let refused: [(&[&str], &str); 15] = [
        (&["format", "new.img", "--size", "64M"], "Permission denied"),
        (&["trace", "stat", traces], "Permission denied"),
        (&["replay", traces], "Permission denied"),
        (&["advise", traces], "Permission denied"),
        (&["sweep", toml], "Permission denied"),
        (&["drive", "show", "closed/drive.toml"], "Permission denied"),
        (&["man", "closed/man"], "Permission denied"),
        (&["status", foreign], "no permission to open"),
        (&["check", foreign], "no permission to open"),
        (&["set", foreign], "no permission to open"),
        (&["drain", foreign], "no permission to open"),
        (&["serve", foreign, "--file"], "no permission to open"),
        (&["record", "/dev/null", "-o", "no.trace"], "cannot write no.trace: Permission denied"),
        (&["serve", own, "--nbd", "unix:no.sock"], "cannot listen at no.sock: Permission denied"),
        (&["completions", "bash", "extra"], "unexpected argument"),
    ];
    let (wrong, refused) = refused.split_last().unwrap();
    for (args, what) in refused {
        place.says(&Runtime::Own, args, PERMISSION, what);
    }
    // A wrong command line is still reported as such.
    place.says(&Runtime::Own, wrong.0, INPUT, wrong.1);
}

#[test]
fn recording_without_root_is_a_lack_of_permission() {
    let Some(place) = Place::new() else { return };
    let disks = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let mut disks = disks.map(|disk| Path::new("/dev").join(disk.file_name()));
    let Some(disk) = disks.find(|disk| disk.exists()) else {
        return manylogs_testkit::skip("no disk here");
    };
    let trace = place.own.beside("runtime/t.trace");
    let args = ["record", disk.to_str().unwrap(), "--seconds", "1", "-o", trace.to_str().unwrap()];
    let tracing = Path::new("/sys/kernel/tracing");
    if fs::metadata(tracing).is_ok_and(|found| found.permissions().mode() & 0o7 == 0) {
        place.says(&Runtime::Own, &args, PERMISSION, "recording needs root: run it with sudo");
        assert!(!trace.exists());
    } else {
        manylogs_testkit::skip("no tracefs here that is closed to others");
    }
}

#[test]
fn a_user_without_a_runtime_directory_can_look_and_is_told_what_to_set() {
    let Some(place) = Place::new() else { return };
    let own = place.own.path();
    place.says(&Runtime::Unset, &["status", own], 0, "state           closed");
    place.says(&Runtime::Unset, &["check", own], 0, "nothing is wrong");
    place.says(&Runtime::Unset, &["set", own], 0, "latency=");
    place.says(&Runtime::Unset, &["list"], 0, "");
    for command in ["stop", "top", "metrics"] {
        place.says(&Runtime::Unset, &[command, own], INPUT, "set XDG_RUNTIME_DIR");
        place.says(&Runtime::Own, &[command, own], INPUT, "no server has");
    }
    for args in [&["drain", own][..], &["serve", own, "--file"]] {
        place.says(&Runtime::Unset, args, INPUT, "set XDG_RUNTIME_DIR to a directory of yours");
    }
    assert!(!place.own.beside("runtime/manylogs").exists(), "looking made a directory");
    place.says(&Runtime::Own, &["drain", own], 0, "written home");
}

#[test]
fn a_runtime_directory_of_another_user_is_named() {
    let Some(place) = Place::new() else { return };
    let (own, closed) = (place.own.path(), place.own.beside("closed"));
    let closed = closed.to_str().unwrap();
    for args in [&["status", own][..], &["stop", own], &["list"], &["serve", own, "--file"]] {
        place.says(&Runtime::Foreign, args, PERMISSION, closed);
    }
}

#[test]
fn a_mount_by_a_user_without_rights_says_so() {
    let Some(place) = Place::new() else { return };
    let target = place.own.beside("mnt");
    directory(&target, 0o755, NOBODY);
    let target = target.to_str().unwrap();
    // First the image of another user, then FUSE.
    let foreign = ["fs", "mount", place.foreign.path(), target];
    let said = place.says(&Runtime::Own, &foreign, PERMISSION, "no permission to open");
    assert_eq!(said.matches("manylogs: ").count(), 1, "{said}");
    let is_open = fs::metadata("/dev/fuse").is_ok_and(|found| found.permissions().mode() & 6 == 6);
    if is_open {
        return;
    }
    place.says(&Runtime::Own, &["fs", "mount", place.own.path(), target], PERMISSION, "/dev/fuse");
}
