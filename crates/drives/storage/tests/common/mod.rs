//! Helpers of the tests: images, and mounts and loop devices that are removed when dropped.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use manylogs_block::{Extent, Payload, Request, SECTOR_BYTES, to_usize};
use manylogs_storage::{Backend, FileDevice, OpenError, OpenMode, OpenOptions, Reactor};

pub(crate) const BACKENDS: [Backend; 2] = [Backend::Uring, Backend::Threads];

pub(crate) fn options(backend: Backend) -> OpenOptions {
    OpenOptions { backend, ..OpenOptions::new(OpenMode::Exclusive) }
}

/// Opens `path`, or says that the test is skipped: not every machine allows `io_uring`.
///
/// A child that another test starts at this moment has a copy of every descriptor, with its locks,
/// until it runs its program. So a lock is waited for as long as such a child may need.
pub(crate) fn open(reactor: &Reactor, path: &Path, backend: Backend) -> Option<FileDevice> {
    let mut tries = 0;
    loop {
        match FileDevice::open(reactor, path, &options(backend)) {
            Ok(device) => return Some(device),
            Err(error @ OpenError::NoUring { .. }) => {
                manylogs_testkit::skip(error);
                return None;
            }
            Err(OpenError::Locked { .. }) if tries < LOCK_TRIES => {
                tries += 1;
                sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Number of tries to lock: 30 seconds in all, far more than a child needs on a busy machine.
const LOCK_TRIES: u32 = 3000;

/// A sparse image of `sectors` sectors.
pub(crate) fn image(dir: &Path, sectors: u64) -> PathBuf {
    let path = dir.join("image");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(sectors * SECTOR_BYTES).unwrap();
    path
}

/// Sectors that hold `first`, `first + 1`, ... in each of their words.
pub(crate) fn pattern(first: u64, sectors: u64) -> Payload {
    let words = (first..first + sectors).flat_map(|n| [n; 64]);
    Payload::bytes(words.flat_map(u64::to_le_bytes).collect::<Bytes>())
}

pub(crate) fn read(start: u64, len: u64) -> Request {
    Request::Read { extent: Extent::new(start, len) }
}

pub(crate) fn write(start: u64, payload: Payload, fua: bool) -> Request {
    let extent = Extent { len: payload.len(), ..Extent::new(start, 0) };
    Request::Write { extent, payload, fua, hint: manylogs_block::Hint::None }
}

pub(crate) fn bytes_of(payload: &Payload) -> Bytes {
    payload.to_bytes().unwrap()
}

pub(crate) fn sectors(count: u64) -> usize {
    to_usize(count * SECTOR_BYTES)
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs a program, or says that the test is skipped.
pub(crate) fn try_run(program: &str, arguments: &[&str]) -> Option<String> {
    let result = run(program, arguments);
    if result.is_none() {
        manylogs_testkit::skip(format_args!("{program} {arguments:?} does not work here"));
    }
    result
}

/// A loop device that is flushed, whatever cache mode its last user left: the mode outlives
/// detaching. When dropped, it gets back its old mode and is detached.
pub(crate) struct Loop(pub(crate) String, Option<String>);

impl Loop {
    pub(crate) fn attach(image: &Path, options: &[&str]) -> Option<Self> {
        let mut arguments = vec!["--find", "--show"];
        arguments.extend_from_slice(options);
        arguments.push(image.to_str().unwrap());
        let mut device = Self(try_run("losetup", &arguments)?, None);
        if !options.contains(&"--read-only") {
            device.1 = std::fs::read_to_string(device.write_cache()).ok();
            device.set_write_cache("write back");
        }
        Some(device)
    }

    fn write_cache(&self) -> PathBuf {
        let name = self.path().file_name().unwrap();
        Path::new("/sys/block").join(name).join("queue/write_cache")
    }

    /// Makes the kernel believe that the device has this cache mode.
    pub(crate) fn set_write_cache(&self, mode: &str) {
        std::fs::write(self.write_cache(), mode).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(found) = &self.1 {
            let _ = std::fs::write(self.write_cache(), found.trim());
        }
        run("losetup", &["--detach", &self.0]);
    }
}

/// A mounted file system, unmounted when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn tmpfs(at: &Path, size: &str) -> Option<Self> {
        let options = format!("size={size}");
        Self::new(at, &["-t", "tmpfs", "-o", &options, "tmpfs", at.to_str().unwrap()])
    }

    pub(crate) fn device(device: &str, at: &Path) -> Option<Self> {
        Self::new(at, &[device, at.to_str().unwrap()])
    }

    fn new(at: &Path, arguments: &[&str]) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        try_run("mount", arguments).map(|_| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}
