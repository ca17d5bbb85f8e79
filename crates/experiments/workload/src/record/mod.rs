//! Records the requests of a block device of this machine through the kernel's tracepoints.
//!
//! Works where blktrace is refused (kernel lockdown): tracefs only. Uses a tracing instance of
//! its own, so that other users of tracing are not disturbed, and removes it in the end.
//!
//! It records `block_bio_queue` (arrivals as the file system or application sent them) or
//! `block_rq_issue` (as the scheduler sent them to the drive). The kernel has mapped partitions to
//! the whole disk by then, so a partition is recorded as its range of the disk, with addresses
//! counted from its start.

mod device;
mod event;
mod tracefs;

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use manylogs_block::{Nanos, Time};

use crate::format::own::{RecordingInfo, RecordingWriter, TraceClock};
use crate::open::BlockEvent;
use crate::request::TraceRequest;
use device::Device;
use tracefs::Instance;

/// Events of different CPUs may be out of order by this time.
const HOLD_BACK: Nanos = Nanos::from_millis(100);
/// Interval at which an idle buffer is checked.
const POLL: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// The text of the tracepoints has microseconds.
const RESOLUTION_NS: u32 = 1000;

/// What to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Arrivals (the default, right for replay) or what the scheduler sends to the drive.
    pub event: BlockEvent,
    /// Stop after this time; `None` records until told to stop.
    pub duration: Option<Duration>,
    /// Kernel buffer for each CPU in KiB; a larger one bridges longer stalls of the recorder.
    pub buffer_kib: u32,
    /// The drive as it describes itself, to be noted in the recording.
    pub drive: RecordedDrive,
}

/// Facts about the drive for the recording's header. Unknown ones are empty or `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedDrive {
    /// The whole model; sysfs has 16 characters of it.
    pub model: String,
    /// The serial number.
    pub serial: String,
    /// Revolutions a minute.
    pub rpm: Option<u32>,
    /// The link, `sata` or `sas`.
    pub link: String,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            event: BlockEvent::Queue,
            duration: None,
            buffer_kib: 8192,
            drive: RecordedDrive::default(),
        }
    }
}

/// Progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordProgress {
    /// Time since it began.
    pub elapsed: Duration,
    /// Requests recorded.
    pub requests: u64,
    /// Events that the kernel lost because its buffer was full.
    pub lost: u64,
}

/// Result of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSummary {
    /// Requests recorded.
    pub requests: u64,
    /// Events that the kernel lost because its buffer was full; also noted in the recording.
    pub lost: u64,
    /// Events that could not be understood.
    pub unreadable: u64,
    /// Time from the first request to the last.
    pub span: Nanos,
}

/// Why a recording cannot be made; each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Tracing needs privileges.
    #[error("recording needs root: run it with sudo ({}: permission denied)", path.display())]
    NotRoot {
        /// The file that could not be accessed.
        path: PathBuf,
    },
    /// tracefs is not there and cannot be mounted.
    #[error(
        "no tracefs at /sys/kernel/tracing ({reason}): mount it with \
         `mount -t tracefs nodev /sys/kernel/tracing`; in a container, record on the host"
    )]
    NoTracefs {
        /// Why mounting it failed.
        reason: String,
    },
    /// The kernel lacks the tracepoint.
    #[error(
        "this kernel has no tracepoint block/{event}: it needs CONFIG_BLK_DEV_IO_TRACE or \
         CONFIG_FTRACE"
    )]
    NoTracepoint {
        /// The tracepoint.
        event: &'static str,
    },
    /// The path is not a block device.
    #[error(
        "{}: not a block device ({reason}): name a disk or partition as `lsblk -p` lists them",
        path.display()
    )]
    NotBlockDevice {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// tracefs refuses an operation.
    #[error("{}: cannot {action}: {source}", path.display())]
    Tracefs {
        /// The control file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write the recording: {0}; free some space or choose another place")]
    Output(#[source] io::Error),
}

/// Records the requests of `device` to `out` as a recording of our own format.
///
/// Ends after the time in `options`, or when `stop` becomes true. The tracing instance is
/// removed in any case. `progress` is called as soon as the kernel traces, and then about twice a
/// second.
///
/// # Errors
///
/// If privileges, tracefs or the tracepoint are missing, `device` is not a block device, or
/// `out` cannot be written.
pub fn record(
    device: &Path,
    options: &RecordOptions,
    out: impl Write,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(RecordProgress),
) -> Result<RecordSummary, RecordError> {
    let device = Device::find(device)?;
    let mut instance = Instance::create(options.buffer_kib)?;
    let writer = RecordingWriter::new(out, &info(&device, options)).map_err(RecordError::Output)?;
    let mut recording = Recording {
        held: Vec::new(),
        first: None,
        last: Time(0),
        writer,
        lines: event::Lines::new(options.event, device.start),
    };
    instance.start(options.event, &device)?;
    let started = Instant::now();
    progress(RecordProgress { elapsed: Duration::ZERO, requests: 0, lost: 0 });
    let mut reported = started;
    while !stop.load(Ordering::Relaxed)
        && options.duration.is_none_or(|duration| started.elapsed() < duration)
    {
        if !recording.drain(&mut instance)? {
            std::thread::sleep(POLL);
        }
        if reported.elapsed() >= PROGRESS_EVERY {
            reported = Instant::now();
            let (requests, lost) = (recording.requests(), recording.lines.lost());
            progress(RecordProgress { elapsed: started.elapsed(), requests, lost });
        }
    }
    instance.stop()?;
    while recording.drain(&mut instance)? {}
    recording.finish(instance.lost())
}

fn info(device: &Device, options: &RecordOptions) -> RecordingInfo {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let drive = &options.drive;
    let model = if drive.model.is_empty() { &device.model } else { &drive.model };
    RecordingInfo {
        device: device.name.clone(),
        model: model.clone(),
        serial: drive.serial.clone(),
        rpm: drive.rpm,
        link: drive.link.clone(),
        sectors: device.sectors,
        rotational: device.rotational,
        started_unix_ns: u64::try_from(now.as_nanos()).unwrap_or(0),
        resolution_ns: RESOLUTION_NS,
        clock: TraceClock::Monotonic,
        event: Some(options.event),
    }
}

/// A recording in the making.
struct Recording<W: Write> {
    /// Requests held back because an earlier one may still come.
    held: Vec<TraceRequest>,
    first: Option<Time>,
    last: Time,
    writer: RecordingWriter<W>,
    lines: event::Lines,
}

impl<W: Write> Recording<W> {
    /// Reads the events in the kernel's buffer; false if it was empty.
    fn drain(&mut self, instance: &mut Instance) -> Result<bool, RecordError> {
        let mut buffer = [0; 64 << 10];
        let mut any = false;
        // Bounded, so that a busy device cannot keep the caller from its stop flag.
        for _ in 0..256 {
            match instance.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    any = true;
                    self.lines.add(&buffer[..count], &mut self.held);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let (path, action) = (instance.pipe_path(), "read the events");
                    return Err(RecordError::Tracefs { path, action, source });
                }
            }
        }
        self.held.sort_by_key(|request| request.at);
        let newest = self.held.last().map_or(Time(0), |request| request.at);
        let ripe = self.held.partition_point(|held| newest.since(held.at) > HOLD_BACK);
        self.write(ripe)?;
        Ok(any)
    }

    /// Writes the first `count` requests held.
    fn write(&mut self, count: usize) -> Result<(), RecordError> {
        for mut request in self.held.drain(..count) {
            let first = *self.first.get_or_insert(request.at);
            request.at = Time(request.at.since(first).0);
            self.last = self.last.max(request.at);
            self.writer.push(&request).map_err(RecordError::Output)?;
        }
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.writer.records() + self.held.len() as u64
    }

    fn finish(mut self, lost: u64) -> Result<RecordSummary, RecordError> {
        self.write(self.held.len())?;
        self.writer.add_lost(lost);
        let requests = self.writer.records();
        let unreadable = self.lines.unreadable();
        self.writer.finish().map_err(RecordError::Output)?;
        Ok(RecordSummary { requests, lost, unreadable, span: self.last.since(Time(0)) })
    }
}
