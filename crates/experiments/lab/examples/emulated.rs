//! An emulated drive on the real clock beside the same drive in virtual time: the two must agree.
//!
//! `cargo run --release -p manylogs-lab --example emulated -- [--drive NAME|PROFILE.toml]
//! [--seconds N] [--threads] [--prefer] [FILE]`
//!
//! The content is in memory, or in FILE, an image that exists; FILE IS OVERWRITTEN. `--threads`
//! does without a ring, `--prefer` asks for real-time priority.

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, MemoryDevice, Nanos, Payload, Request, Rng, Sectors, Signal,
};
use manylogs_disk::{EmulatedDrive, LatenessReport, Options, Profile, profile};
use manylogs_lab::stats::{Latencies, LatencySummary};
use manylogs_sim::{Sim, TaskOrder};
use manylogs_storage::{Backend, FileDevice, OpenMode, OpenOptions, Reactor, prefer_this_thread};

const READ: Sectors = Sectors(2048);
const WRITE: Sectors = Sectors(8);
/// How long to spin before a timer: allows for timers that are 100 us late.
const SPIN: Nanos = Nanos::from_micros(100);

type Any = Result<(), Box<dyn Error>>;

struct Arguments {
    profile: Profile,
    span: Nanos,
    backend: Backend,
    prefer: bool,
    file: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let (mut drive, mut seconds) = ("cheetah-15k5".to_owned(), 5);
    let (mut backend, mut prefer, mut file) = (Backend::Auto, false, None);
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        match word.as_str() {
            "--drive" => drive = given.next().ok_or("--drive needs a name or a file")?,
            "--seconds" => seconds = given.next().ok_or("--seconds needs a number")?.parse()?,
            "--threads" => backend = Backend::Threads,
            "--prefer" => prefer = true,
            other if other.starts_with('-') => return Err(format!("unknown option {other}").into()),
            path => file = Some(PathBuf::from(path)),
        }
    }
    let profile = match profile::find(&drive)? {
        Some(profile) => profile,
        None => Profile::load(Path::new(&drive))?,
    };
    Ok(Arguments { profile, span: Nanos::from_secs(seconds), backend, prefer, file })
}

/// Counts of a client.
#[derive(Clone, Default)]
struct Done {
    bytes: u64,
    latencies: Latencies,
}

/// Sends requests one after the other for `span` and counts those answered.
async fn client(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    span: Nanos,
    mut next: impl FnMut() -> Request,
) -> Done {
    let (end, mut done) = (runtime.now() + span, Done::default());
    while runtime.now() < end {
        let (request, begin) = (next(), runtime.now());
        let sectors = request.extent().map_or(Sectors(0), |extent| extent.len);
        if let Err(error) = device.submit(request).await {
            eprintln!("{error}");
            return done;
        }
        done.bytes += sectors.bytes();
        done.latencies.record(runtime.now().since(begin));
    }
    done
}

fn reader(capacity: Sectors) -> impl FnMut() -> Request {
    let mut at = 0;
    move || {
        let extent = Extent::new(at, READ.0);
        at = if at + 2 * READ.0 > capacity.0 { 0 } else { at + READ.0 };
        Request::Read { extent }
    }
}

fn writer(capacity: Sectors) -> impl FnMut() -> Request {
    let mut rng = Rng::new(1);
    let content = Payload::bytes(vec![0x5a; 4096]);
    move || {
        let extent = Extent::new(rng.below(capacity.0 / WRITE.0) * WRITE.0, WRITE.0);
        Request::write_fua(extent, content.clone())
    }
}

/// Runs the reader or the writer alone, or both together.
async fn scenario(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    span: Nanos,
    (reads, writes): (bool, bool),
) -> [Done; 2] {
    let capacity = device.capabilities().capacity;
    let read = Rc::new(RefCell::new(Done::default()));
    let ended = Signal::default();
    let wait = ended.wait();
    let (slot, clock, below) = (Rc::clone(&read), runtime.clone(), Rc::clone(&device));
    runtime.spawn(async move {
        if reads {
            *slot.borrow_mut() = client(clock, below, span, reader(capacity)).await;
        }
        ended.notify();
    });
    let mut written = Done::default();
    if writes {
        written = client(runtime, device, span, writer(capacity)).await;
    }
    wait.await;
    [read.take(), written]
}

const SCENARIOS: [(&str, (bool, bool)); 3] = [
    ("sequential 1 MiB reads", (true, false)),
    ("random 4 KiB FUA writes", (false, true)),
    ("both", (true, true)),
];

type Run = ([Done; 2], LatenessReport);

fn virtually(
    given: &Arguments,
    options: &Options,
    capacity: Sectors,
) -> Result<Vec<Run>, Box<dyn Error>> {
    let mut runs = Vec::new();
    for (_, which) in SCENARIOS {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let runtime = sim.handle(node);
        let content = Rc::new(MemoryDevice::new(capacity));
        let drive = EmulatedDrive::new(runtime.clone(), &given.profile, options, content)?;
        let done = scenario(runtime, Rc::new(drive.clone()), given.span, which);
        runs.push((sim.block_on(node, done), drive.lateness()));
    }
    Ok(runs)
}

fn really(
    given: &Arguments,
    options: &Options,
    reactor: &Reactor,
    content: &Rc<dyn BlockDevice>,
) -> Result<Vec<Run>, Box<dyn Error>> {
    let mut runs = Vec::new();
    for (_, which) in SCENARIOS {
        let runtime = reactor.handle();
        let content = Rc::clone(content);
        let drive = EmulatedDrive::new(runtime.clone(), &given.profile, options, content)?;
        let done = scenario(runtime, Rc::new(drive.clone()), given.span, which);
        runs.push((reactor.block_on(done), drive.lateness()));
    }
    Ok(runs)
}

fn show(what: &str, done: &Done, span: Nanos, base: Option<&Done>) {
    let LatencySummary { requests, mean, p50, p99, max, .. } = done.latencies.summary();
    let rate = done.bytes as f64 / 1e6 / span.as_secs_f64();
    let ratio = base.map_or_else(String::new, |base| {
        let mean_ratio = mean / base.latencies.summary().mean;
        format!("  mean x {mean_ratio:.4}, rate x {:.4}", done.bytes as f64 / base.bytes as f64)
    });
    let [mean, p50, p99, max] = [mean, p50, p99, max].map(|us| us / 1e3);
    println!(
        "  {what:<15} {rate:>8.2} MB/s {requests:>6} requests, ms: mean {mean:>7.3} p50 {p50:>7.3} \
         p99 {p99:>7.3} max {max:>7.3}{ratio}"
    );
}

fn main() -> Any {
    let given = arguments()?;
    let options = Options::of(&given.profile);
    let reactor = Reactor::new()?;
    reactor.spin_before_timers(SPIN);
    if given.prefer {
        prefer_this_thread()?;
    }
    let content: Rc<dyn BlockDevice> = match &given.file {
        Some(path) => {
            let open =
                OpenOptions { backend: given.backend, ..OpenOptions::new(OpenMode::Exclusive) };
            Rc::new(FileDevice::open(&reactor, path, &open)?)
        }
        None => Rc::new(MemoryDevice::new(given.profile.capacity())),
    };
    let capacity = content.capabilities().capacity;
    println!("{}, content {:.1} GB", given.profile.model, capacity.bytes() as f64 / 1e9);
    let expected = virtually(&given, &options, capacity)?;
    let found = really(&given, &options, &reactor, &content)?;
    for ((name, _), (virtual_run, real_run)) in SCENARIOS.iter().zip(expected.iter().zip(&found)) {
        println!("{name}: {}", real_run.1);
        for (what, index) in [("reads", 0), ("writes", 1)] {
            let (base, done) = (&virtual_run.0[index], &real_run.0[index]);
            if base.bytes > 0 {
                show(&format!("{what}, virtual"), base, given.span, None);
                show(&format!("{what}, real"), done, given.span, Some(base));
            }
        }
    }
    Ok(())
}
