//! Volumes in images, and servers of them in processes of their own.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

pub(crate) const MANYLOGS: &str = env!("CARGO_BIN_EXE_manylogs");

pub(crate) fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a file over FUSE, or a loop device over that, can be made; else prints that the test is
/// skipped.
pub(crate) fn can_serve(loop_device: bool) -> bool {
    let losetup = Command::new("losetup").arg("--version").output().is_ok();
    let looped = losetup && Path::new("/dev/loop-control").exists();
    let can = root() && Path::new("/dev/fuse").exists() && (looped || !loop_device);
    if !can {
        manylogs_testkit::skip("needs root, /dev/fuse, loop devices and losetup");
    }
    can
}

/// The plugin of nbdkit, in which bugs can be planted.
///
/// `make test` builds it with the tests, as an example of its package, and passes its path.
/// Otherwise cargo builds it here, with all its dependencies once more, because the features
/// differ.
pub(crate) fn plugin() -> PathBuf {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(built) = std::env::var_os("MANYLOGS_NBDKIT_PLUGIN") {
            return built.into();
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--offline", "--package", "manylogs-nbdkit"]);
        cargo.args(["--example", "plugin", "--features", "plant"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        ok(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        Path::new(MANYLOGS).with_file_name("examples/libplugin.so")
    };
    PLUGIN.get_or_init(build).clone()
}

/// All output of a program.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?} said: {}", text(&output));
    text(&output)
}

/// Checks an exit code and that the output contains `what`; returns the output.
pub(crate) fn says(output: &Output, code: i32, what: &str) -> String {
    let text = text(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(what), "{text:?} does not say {what:?}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

pub(crate) fn manylogs(args: &[&str]) -> Output {
    Command::new(MANYLOGS).args(args).output().unwrap()
}

/// Runs manylogs; checks its exit code and that its output contains `what`.
pub(crate) fn run(args: &[&str], code: i32, what: &str) -> String {
    eprintln!("manylogs {args:?}");
    says(&manylogs(args), code, what)
}

/// An image with a volume on it, in a directory of its own.
pub(crate) struct Image {
    dir: TempDir,
    path: PathBuf,
}

impl Image {
    /// Creates an image, formatted with `options`.
    pub(crate) fn formatted(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("disk.img");
        run(&[&["format", super::text(&path)], options].concat(), 0, "for data");
        Self { dir, path }
    }

    pub(crate) fn path(&self) -> &str {
        super::text(&self.path)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the same directory.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    /// The command that serves the image.
    pub(crate) fn serve(&self, options: &[&str]) -> Command {
        let mut command = Command::new(MANYLOGS);
        command.arg("serve").arg(&self.path).args(options);
        command
    }
}

/// A server; killed if the test fails.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) stderr: BufReader<ChildStderr>,
    /// What it serves: a device, a file, or an address.
    pub(crate) path: String,
}

impl Server {
    /// Starts `command`, and waits until it prints the path.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut path = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut path).unwrap();
        if path.is_empty() {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            panic!("the server did not start: {said}");
        }
        Self { child, stderr, path: path.trim().to_owned() }
    }

    pub(crate) fn file(&self) -> File {
        File::options().read(true).write(true).open(&self.path).unwrap()
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the server's end; returns its status and messages.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }

    /// Kills the server, and removes what the kernel keeps of it.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            if self.path.starts_with("/dev") {
                let _ = Command::new("losetup").args(["--detach", &self.path]).status();
            }
        }
    }
}
