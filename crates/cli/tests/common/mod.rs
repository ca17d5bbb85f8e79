//! Runs the command and checks its output.

#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../servers/serve/src/tests/client.rs"]
pub(crate) mod client;
pub(crate) mod image;
pub(crate) mod served;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory of its own for each test, with traces in it.
#[derive(Debug)]
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A small valid trace of `requests` requests: reads and writes over the first gigabytes.
    pub(crate) fn trace(&self, name: &str, requests: u64) -> PathBuf {
        self.file(name, csv(requests))
    }

    /// Runs the command here.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        let output = self.command(args).output().unwrap();
        Outcome::of(&output)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manylogs"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }
}

/// Plain CSV with named columns.
pub(crate) fn csv(requests: u64) -> String {
    let mut text = String::from("time_us,op,offset,bytes\n");
    for i in 0..requests {
        let (op, offset) =
            if i % 3 == 0 { ("W", (i * 7_919 % 250_000) * 4096) } else { ("R", i * 65_536) };
        let bytes = if op == "W" { 4096 } else { 65_536 };
        text += &format!("{},{op},{offset},{bytes}\n", i * 20_000);
    }
    text
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts a failure with `code` that mentions all of `words`.
    pub(crate) fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing in {:?}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    /// Asserts success.
    pub(crate) fn succeeds(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
