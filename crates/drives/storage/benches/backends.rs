//! Compares both backends on one file: requests per second, and processor time per request.
//!
//!   cargo bench -p manylogs-storage [-- DIRECTORY]

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for the terminal")]

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use manylogs_block::{BlockDevice, Extent, Hint, Payload, Request, Rng, Sectors};
use manylogs_storage::{Backend, FileDevice, OpenMode, OpenOptions, Reactor, create_image};
use rustix::time::ClockId;

const IMAGE: Sectors = Sectors(256 << 11);
const BLOCK: u64 = 8;

/// A case to measure: its name, its number of requests, how many are in flight together, and a
/// function that makes them.
type Case = (&'static str, u32, u32, fn(&mut Rng) -> Request);

const CASES: [Case; 5] = [
    ("4 KiB reads, one at a time", 20_000, 1, random_read),
    ("4 KiB reads, 32 together", 60_000, 32, random_read),
    ("4 KiB writes, 32 together", 60_000, 32, random_write),
    ("4 KiB durable writes, one at a time", 500, 1, durable_write),
    ("1 MiB reads, 4 together", 2_000, 4, long_read),
];

fn main() {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let parent = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(parent).unwrap();
    let path = dir.path().join("image");
    create_image(&path, IMAGE, false).unwrap();
    fill(&path);
    for case in &CASES {
        for backend in [Backend::Uring, Backend::Threads] {
            measure(&path, backend, case);
        }
    }
}

fn open(reactor: &Reactor, path: &Path, backend: Backend) -> Rc<FileDevice> {
    let options = OpenOptions { backend, ..OpenOptions::new(OpenMode::Exclusive) };
    Rc::new(FileDevice::open(reactor, path, &options).unwrap())
}

/// Fills the file: reads of reserved space that was never written do not reach the disk.
fn fill(path: &Path) {
    let reactor = Reactor::new().unwrap();
    let device = open(&reactor, path, Backend::Auto);
    reactor.block_on(async move {
        let piece = Payload::bytes(vec![1; 1 << 20]);
        for start in (0..IMAGE.0).step_by(2048) {
            let request = Request::write_fua(Extent::new(start, 2048), piece.clone());
            device.submit(request).await.unwrap();
        }
    });
}

fn measure(path: &Path, backend: Backend, (name, requests, together, next): &Case) {
    let reactor = Reactor::new().unwrap();
    let device = open(&reactor, path, backend);
    let (requests, together, next) = (*requests, *together, *next);
    let runtime = reactor.handle();
    let (started, used) = (Instant::now(), processor_time());
    let tokens = Rc::new(());
    let all = Rc::clone(&tokens);
    for worker in 0..together {
        let (device, token) = (Rc::clone(&device), Rc::clone(&tokens));
        runtime.spawn(async move {
            let mut rng = Rng::new(worker.into());
            for _ in 0..requests / together {
                device.submit(next(&mut rng)).await.unwrap();
            }
            drop(token);
        });
    }
    drop(tokens);
    let clock = reactor.handle();
    reactor.block_on(async move {
        while Rc::strong_count(&all) > 1 {
            clock.sleep(manylogs_block::Nanos::from_micros(200)).await;
        }
    });
    let (wall, used) = (started.elapsed(), processor_time() - used);
    println!(
        "{name:<36} {backend:?}{}: {:>8.0} requests/s, {:>6.1} us of processor time each",
        if device.direct() { "" } else { " (through the page cache)" },
        f64::from(requests) / wall.as_secs_f64(),
        used.as_secs_f64() * 1e6 / f64::from(requests),
    );
}

/// Processor time of all threads, in the kernel and outside.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap()
}

fn somewhere(rng: &mut Rng, len: u64) -> Extent {
    Extent::new(rng.below(IMAGE.0 / len) * len, len)
}

fn random_read(rng: &mut Rng) -> Request {
    Request::Read { extent: somewhere(rng, BLOCK) }
}

fn long_read(rng: &mut Rng) -> Request {
    Request::Read { extent: somewhere(rng, 2048) }
}

fn random_write(rng: &mut Rng) -> Request {
    let extent = somewhere(rng, BLOCK);
    let payload = Payload::zeroes(extent.len);
    Request::Write { extent, payload, fua: false, hint: Hint::None }
}

fn durable_write(rng: &mut Rng) -> Request {
    let extent = somewhere(rng, BLOCK);
    Request::write_fua(extent, Payload::zeroes(extent.len))
}
