//! Records a real loop device while dd writes and reads it: needs root, losetup and tracefs.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too, stop at what they do not expect")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use manylogs_block::Extent;
use manylogs_workload::record::{RecordError, RecordOptions, record};
use manylogs_workload::{
    BlockEvent, OpenOptions, TraceOp, TraceRequest, TraceSource, open, read_info,
};

/// The tests of this file, which may run side by side.
const TESTS: usize = 4;

/// A loop device over a temporary file, detached when dropped. Its cache mode is set so that the
/// kernel sends it flushes: with another mode the kernel completes flushes by itself, and the mode
/// that the device's last user set outlives detaching.
struct Loop {
    device: PathBuf,
    /// The cache mode to restore when this is dropped.
    found_mode: String,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn attach(bytes: u64) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").ok()?;
        file.as_file().set_len(bytes).ok()?;
        let output =
            Command::new("losetup").args(["-f", "--show"]).arg(file.path()).output().ok()?;
        if !output.status.success() {
            return None;
        }
        let device = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        let mut attached = Self { device, found_mode: String::new(), _file: file };
        attached.found_mode = std::fs::read_to_string(attached.cache_mode()).unwrap();
        std::fs::write(attached.cache_mode(), "write back").unwrap();
        Some(attached)
    }

    fn cache_mode(&self) -> PathBuf {
        let name = self.device.file_name().unwrap();
        Path::new("/sys/block").join(name).join("queue/write_cache")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::fs::write(self.cache_mode(), self.found_mode.trim());
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

fn run(command: &str) {
    let status = Command::new("sh").args(["-ec", command]).status().unwrap();
    assert!(status.success(), "{command}");
}

fn requests(path: &Path) -> Vec<TraceRequest> {
    let mut source = open(path, &OpenOptions::default()).unwrap();
    std::iter::from_fn(|| source.next_request()).map(Result::unwrap).collect()
}

/// Tells when the kernel traces. The receiver has nothing if the recorder ended before.
fn begin() -> (Sender<()>, Receiver<()>) {
    channel()
}

/// Records `device` while `load` runs on it; `None` if this machine cannot.
fn recorded(device: &Path, event: BlockEvent, load: &str) -> Option<Vec<TraceRequest>> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let stop = AtomicBool::new(false);
    let options = RecordOptions { event, ..RecordOptions::default() };
    let (begun, traces) = begin();
    let summary = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let file = File::create(out.path()).unwrap();
            let begun = begun;
            record(device, &options, file, &stop, &mut |_| {
                let _ = begun.send(());
            })
        });
        if traces.recv().is_ok() {
            run(load);
        }
        stop.store(true, Ordering::Relaxed);
        recorder.join().unwrap()
    });
    match summary {
        Err(error @ (RecordError::NotRoot { .. } | RecordError::NoTracefs { .. })) => {
            manylogs_testkit::skip(error);
            return None;
        }
        other => {
            let summary = other.unwrap();
            assert_eq!((summary.lost, summary.unreadable), (0, 0), "{summary:?}");
        }
    }
    let info = read_info(out.path()).unwrap();
    assert_eq!(info.device, device.display().to_string());
    assert!(info.sectors > 0);
    let left = std::fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
    let ours = format!("manylogs-{}-", std::process::id());
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
    assert!(left.count() < TESTS, "the instance is removed (each other test may have one)");
    Some(requests(out.path()))
}

#[test]
fn every_direct_request_is_recorded_once() {
    let Some(device) = Loop::attach(64 << 20) else {
        manylogs_testkit::skip("no loop device (needs root and losetup)");
        return;
    };
    let path = device.device.display();
    let load = format!(
        "dd if=/dev/zero of={path} bs=4k count=500 seek=16 oflag=direct status=none
         dd if={path} of=/dev/null bs=44k count=100 iflag=direct status=none
         dd if=/dev/zero of={path} bs=8k count=20 oflag=direct,dsync status=none
         blkdiscard -o 1048576 -l 2097152 {path}
         blkdiscard -z -o 4194304 -l 1048576 {path}"
    );
    for event in [BlockEvent::Queue, BlockEvent::Issue] {
        let Some(requests) = recorded(&device.device, event, &load) else { return };
        let of = |op: TraceOp, sectors: u64| {
            let alike = |r: &&TraceRequest| r.op == op && r.extent.len.0 == sectors;
            requests.iter().filter(alike).count()
        };
        assert_eq!(of(TraceOp::Write, 8), 500, "{event:?}");
        assert_eq!(of(TraceOp::Write, 16), 20, "{event:?}");
        // Probing by udev and the page cache reads too, but in powers of two.
        assert_eq!(of(TraceOp::Read, 88), 100, "{event:?}");
        let discards: Vec<Extent> =
            requests.iter().filter(|r| r.op == TraceOp::Discard).map(|r| r.extent).collect();
        assert_eq!(discards, [Extent::new(2048, 4096)], "{event:?}");
        println!("{event:?}: {} requests", requests.len());
        if event == BlockEvent::Queue {
            // A loop device whose file system cannot zero a range gets writes instead.
            let zeroed = requests.iter().filter(|r| r.op == TraceOp::WriteZeroes);
            println!("{event:?}: {} write-zeroes", zeroed.count());
        }
        let flushes = requests.iter().filter(|r| r.op == TraceOp::Flush).count();
        let fua = requests.iter().filter(|r| r.fua).count();
        println!("{event:?}: {flushes} flushes, {fua} with FUA");
        assert!(flushes + fua >= 20, "each synchronous write flushes or carries FUA");
        let writes: Vec<Extent> = requests
            .iter()
            .filter(|r| r.op == TraceOp::Write && r.extent.len.0 == 8)
            .map(|r| r.extent)
            .collect();
        let expected: Vec<Extent> = (16..516).map(|block| Extent::new(block * 8, 8)).collect();
        assert_eq!(writes, expected, "in order and at their addresses");
    }
}

#[test]
fn a_partition_is_recorded_by_its_own_addresses() {
    let Some(device) = Loop::attach(64 << 20) else {
        manylogs_testkit::skip("no loop device (needs root and losetup)");
        return;
    };
    let disk = device.device.display().to_string();
    // Added by hand: works without support for partition tables in the kernel.
    let added = Command::new("addpart").args([&disk, "1", "20480", "81920"]).status();
    let partition = PathBuf::from(format!("{disk}p1"));
    let began = Instant::now();
    while !partition.exists() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    if !added.is_ok_and(|status| status.success()) || !partition.exists() {
        manylogs_testkit::skip(format_args!("no partition on {disk}"));
        return;
    }
    let path = partition.display();
    let load = format!(
        "dd if=/dev/zero of={path} bs=4k count=50 seek=16 oflag=direct,dsync status=none
         dd if=/dev/zero of={disk} bs=12k count=30 oflag=direct status=none"
    );
    let requests = recorded(&partition, BlockEvent::Queue, &load);
    let _ = Command::new("delpart").args([&disk, "1"]).status();
    let Some(requests) = requests else { return };
    let writes: Vec<Extent> =
        requests.iter().filter(|r| r.op == TraceOp::Write).map(|r| r.extent).collect();
    let expected: Vec<Extent> = (16..66).map(|block| Extent::new(block * 8, 8)).collect();
    assert_eq!(writes, expected, "nothing of the rest of the disk, and from the partition's start");
    let flushes = requests.iter().filter(|r| r.op == TraceOp::Flush || r.fua).count();
    assert!(flushes >= 50, "{flushes}");
}

#[test]
fn lost_events_are_counted() {
    const WRITES: u64 = 20_000;
    let Some(device) = Loop::attach(128 << 20) else {
        manylogs_testkit::skip("no loop device (needs root and losetup)");
        return;
    };
    let out = tempfile::NamedTempFile::new().unwrap();
    let stop = AtomicBool::new(false);
    // Room for some fifty events: far fewer than arrive between two looks at the buffer.
    let options = RecordOptions { buffer_kib: 4, ..RecordOptions::default() };
    let (begun, traces) = begin();
    let summary = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let file = File::create(out.path()).unwrap();
            let begun = begun;
            record(&device.device, &options, file, &stop, &mut |_| {
                let _ = begun.send(());
            })
        });
        if traces.recv().is_ok() {
            let path = device.device.display();
            let load = "oflag=direct status=none";
            run(&format!("dd if=/dev/zero of={path} bs=4k count={WRITES} {load}"));
        }
        stop.store(true, Ordering::Relaxed);
        recorder.join().unwrap()
    });
    let summary = match summary {
        Err(error @ (RecordError::NotRoot { .. } | RecordError::NoTracefs { .. })) => {
            manylogs_testkit::skip(error);
            return;
        }
        other => other.unwrap(),
    };
    println!("{summary:?}");
    assert!(summary.lost > 0);
    let seen = summary.requests + summary.lost;
    assert!((WRITES..WRITES + 1000).contains(&seen), "{seen} of {WRITES} writes and some reads");
    let mut source = open(out.path(), &OpenOptions::default()).unwrap();
    while let Some(request) = source.next_request() {
        request.unwrap();
    }
    assert_eq!(source.counts().lost, summary.lost, "the recording says so, too");
}

#[test]
fn a_file_is_no_block_device() {
    let stop = AtomicBool::new(true);
    let file = tempfile::NamedTempFile::new().unwrap();
    let result = record(file.path(), &RecordOptions::default(), Vec::new(), &stop, &mut |_| {});
    let message = result.unwrap_err().to_string();
    assert!(message.contains("not a block device"), "{message}");
}
