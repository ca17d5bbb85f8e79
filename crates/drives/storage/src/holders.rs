//! Finds the process that holds a lock.

use std::fs;
use std::path::Path;

use crate::loops::FileId;
use crate::sysfs::System;

/// Longest command line that is reported.
const COMMAND_MAX: usize = 200;
/// Bit of SIGKILL among a process's pending signals.
const KILLED: u64 = 1 << 8;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pid: u32,
    /// Its command line; empty if that cannot be read.
    command: String,
    /// Whether it was killed or has ended, and the kernel still closes its files.
    pub(crate) is_ending: bool,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ending = if self.is_ending { ", which was killed and still ends" } else { "" };
        match self.command.as_str() {
            "" => write!(f, "process {}{ending}", self.pid),
            command => write!(f, "process {} ({command}){ending}", self.pid),
        }
    }
}

impl System {
    /// A process that has a lock on one of these files, preferably a running one. `None` if there
    /// is no lock, or if this user may not see the process.
    pub(crate) fn holder(&self, files: &[FileId]) -> Option<Holder> {
        let by_descriptor = self.processes().into_iter().find_map(|pid| {
            let has = files.iter().any(|file| self.has_locked(pid, *file));
            has.then(|| self.holder_of(pid))
        });
        by_descriptor.or_else(|| {
            // A lock outlives its process while the kernel finishes its last operations. The kernel
            // still lists the lock with the process.
            let locks = fs::read_to_string(self.proc.join("locks")).unwrap_or_default();
            let pid =
                files.iter().find_map(|file| locks.lines().find_map(|line| owner(line, *file)));
            pid.map(|pid| self.holder_of(pid))
        })
    }

    fn processes(&self) -> Vec<u32> {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Whether the process has a descriptor through which the file is locked.
    fn has_locked(&self, pid: u32, file: FileId) -> bool {
        let entries = fs::read_dir(self.proc.join(format!("{pid}/fdinfo")));
        entries.into_iter().flatten().flatten().any(|entry| {
            let told = fs::read_to_string(entry.path()).unwrap_or_default();
            let mut locks = told.lines().filter_map(|line| line.strip_prefix("lock:"));
            locks.any(|line| is_on(line, file))
        })
    }

    fn holder_of(&self, pid: u32) -> Holder {
        let dir = self.proc.join(pid.to_string());
        let is_ending = fs::read_to_string(dir.join("status")).map_or(true, |told| is_over(&told));
        Holder { pid, command: command(&dir), is_ending }
    }
}

/// Whether a line of locks concerns the file: `1: FLOCK  ADVISORY  WRITE 1234 fe:00:99 0 EOF`.
fn is_on(line: &str, file: FileId) -> bool {
    let (device, inode) = (file.device, file.inode);
    let name = format!("{:02x}:{:02x}:{inode}", device.major, device.minor);
    line.split_whitespace().any(|field| field == name)
}

/// The process that holds the lock on the file, according to the line.
fn owner(line: &str, file: FileId) -> Option<u32> {
    let is_waiting = line.contains("->");
    let pid = line.split_whitespace().nth(4).filter(|_| !is_waiting && is_on(line, file))?;
    pid.parse().ok().filter(|pid| *pid != 0)
}

/// Whether a process with this status was killed or has ended.
fn is_over(status: &str) -> bool {
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(str::trim)
    };
    let pending = |name| {
        field(name).and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0) & KILLED != 0
    };
    let has_ended = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    has_ended || pending("SigPnd:") || pending("ShdPnd:")
}

fn command(dir: &Path) -> String {
    let words = fs::read(dir.join("cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    let shown = words.trim().chars().map(|c| if c.is_control() { '?' } else { c });
    shown.take(COMMAND_MAX).collect()
}
