//! A tracing instance of our own in tracefs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::RecordError;
use super::device::Device;
use super::event::tracepoint;
use crate::open::BlockEvent;

const TRACEFS: &str = "/sys/kernel/tracing";
const TRACEFS_IN_DEBUGFS: &str = "/sys/kernel/debug/tracing";
/// Names of our instances begin with this, followed by the process id.
const PREFIX: &str = "manylogs-";
/// Attempts to remove a busy instance, and the pauses between them.
const REMOVAL_TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// O_NONBLOCK on all architectures with Rust's standard library on Linux, except MIPS and SPARC.
const O_NONBLOCK: i32 = 0o4000;

static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// The instance; removed from the kernel when dropped.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    pipe: Option<File>,
}

impl Instance {
    /// Makes an instance with buffers of `buffer_kib` for each CPU, mounting tracefs if need be.
    pub(super) fn create(buffer_kib: u32) -> Result<Self, RecordError> {
        let instances = tracefs()?.join("instances");
        remove_stale(&instances);
        let number = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let path = instances.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path)
            .map_err(|source| refused(&path, "make a tracing instance", source))?;
        let instance = Self { path, pipe: None };
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &buffer_kib.to_string())?;
        Ok(instance)
    }

    /// Starts tracing `event` of `device`.
    pub(super) fn start(&mut self, event: BlockEvent, device: &Device) -> Result<(), RecordError> {
        let name = tracepoint(event);
        let directory = format!("events/block/{name}");
        if !self.path.join(&directory).exists() {
            return Err(RecordError::NoTracepoint { event: name });
        }
        self.set(&format!("{directory}/filter"), &filter(device))?;
        self.set(&format!("{directory}/enable"), "1")?;
        let path = self.pipe_path();
        let mut options = OpenOptions::new();
        let pipe = options.read(true).custom_flags(O_NONBLOCK).open(&path);
        self.pipe = Some(pipe.map_err(|source| refused(&path, "open the events", source))?);
        self.set("tracing_on", "1")
    }

    /// Stops tracing; events in the buffer can still be read.
    pub(super) fn stop(&self) -> Result<(), RecordError> {
        self.set("tracing_on", "0")
    }

    /// Reads events as text, without waiting for any.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pipe.as_mut().map_or(Ok(0), |pipe| pipe.read(buffer))
    }

    pub(super) fn pipe_path(&self) -> PathBuf {
        self.path.join("trace_pipe")
    }

    /// Events lost so far for want of buffer space, over all CPUs.
    pub(super) fn lost(&self) -> u64 {
        let Ok(cpus) = self.path.join("per_cpu").read_dir() else { return 0 };
        let stats =
            cpus.flatten().filter_map(|cpu| fs::read_to_string(cpu.path().join("stats")).ok());
        stats.map(|text| lost_in(&text)).sum()
    }

    fn set(&self, file: &str, value: &str) -> Result<(), RecordError> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(|source| refused(&path, "set it", source))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Failures are ignored; a later recording removes the remains.
        let _ = self.set("tracing_on", "0");
        let _ = self.set("events/enable", "0");
        self.pipe = None;
        // Retries: a child that is just being started has the pipe open too, until it runs its
        // program.
        for _ in 0..REMOVAL_TRIES {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

/// The kernel's filter: events of other devices are not even stored.
///
/// A flush has no sectors and belongs to every partition of its disk.
fn filter(device: &Device) -> String {
    let disk = device.disk_number;
    if !device.is_partition {
        return format!("dev == {disk}");
    }
    let (start, end) = (device.start, device.start + device.sectors);
    format!("dev == {disk} && (nr_sector == 0 || (sector >= {start} && sector < {end}))")
}

/// The sum of the loss counters in a CPU's stats.
fn lost_in(stats: &str) -> u64 {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let counts = matches!(name.trim(), "overrun" | "commit overrun" | "dropped events");
        counts.then(|| value.trim().parse::<u64>().ok()).flatten()
    };
    stats.lines().filter_map(value).sum()
}

fn refused(path: &Path, action: &'static str, source: io::Error) -> RecordError {
    let path = path.to_owned();
    if source.kind() == ErrorKind::PermissionDenied {
        return RecordError::NotRoot { path };
    }
    RecordError::Tracefs { path, action, source }
}

/// Where tracefs is mounted; mounts it if it is not.
fn tracefs() -> Result<PathBuf, RecordError> {
    let mounted = |root: &str| match fs::metadata(Path::new(root).join("instances")) {
        Ok(_) => Ok(Some(PathBuf::from(root))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(RecordError::NotRoot { path: PathBuf::from(root) })
        }
        Err(_) => Ok(None),
    };
    for root in [TRACEFS, TRACEFS_IN_DEBUGFS] {
        if let Some(path) = mounted(root)? {
            return Ok(path);
        }
    }
    let output = Command::new("mount").args(["-t", "tracefs", "nodev", TRACEFS]).output();
    let reason = match output {
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("cannot run mount: {error}"),
    };
    mounted(TRACEFS)?.ok_or(RecordError::NoTracefs { reason })
}

/// Removes instances of recorders that were killed.
fn remove_stale(instances: &Path) {
    let Ok(entries) = instances.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let Some(pid) = pid.filter(|pid| pid.parse::<u32>().is_ok()) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            let _ = fs::write(entry.path().join("events/enable"), "0");
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_counters_are_added_up() {
        let stats = "entries: 0\noverrun: 3\ncommit overrun: 1\nbytes: 0\n\
                     oldest event ts: 5.0\nnow ts: 6.0\ndropped events: 2\nread events: 9\n";
        assert_eq!(lost_in(stats), 6);
    }
}
