//! Measures how late the reactor's timers fire on this machine: with a ring and without, spinning
//! and not, as an ordinary thread and as a preferred one, alone and beside busy threads.
//!
//! `cargo run --release -p manylogs-storage --example timers [-- SECONDS [BUSY_THREADS]]`

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use manylogs_block::{Handle, Nanos, Rng, Sectors, to_usize};
use manylogs_storage::{
    Backend, FileDevice, OpenMode, OpenOptions, Reactor, create_image, prefer_this_thread,
};

/// Sleeps last half a millisecond to ten, like the times between the events of a disk drive.
const SHORTEST: Nanos = Nanos(500_000);
const SPREAD_NS: u64 = 9_500_000;

/// Returns how late each sleep ended, in nanoseconds, sorted.
async fn sleep_and_measure(runtime: Handle, span: Nanos) -> Vec<u64> {
    let (mut rng, mut late) = (Rng::new(1), Vec::new());
    let end = runtime.now() + span;
    while runtime.now() < end {
        let deadline = runtime.now() + SHORTEST + Nanos(rng.below(SPREAD_NS));
        runtime.sleep_until(deadline).await;
        late.push(runtime.now().since(deadline).0);
    }
    late.sort_unstable();
    late
}

type Any = Result<(), Box<dyn Error + Send + Sync>>;

fn measure(what: &str, backend: Backend, spin: Nanos, span: Nanos) -> Any {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("image");
    create_image(&path, Sectors(2048), true)?;
    let reactor = Reactor::new()?;
    reactor.spin_before_timers(spin);
    let options = OpenOptions { backend, ..OpenOptions::new(OpenMode::Exclusive) };
    let _device = FileDevice::open(&reactor, &path, &options)?;
    let late = reactor.block_on(sleep_and_measure(reactor.handle(), span));
    let at = |thousandths: u64| {
        late[to_usize(thousandths * (late.len() as u64 - 1) / 1000)] as f64 / 1e3
    };
    println!(
        "{what:<16} {:<8} {:>7} {:>7} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
        format!("{backend:?}"),
        spin.0 / 1000,
        late.len(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
    Ok(())
}

fn measure_all(load: &str, preferred: bool, span: Nanos) -> Any {
    let what = format!("{load}, {}", if preferred { "preferred" } else { "ordinary" });
    if preferred && let Err(error) = prefer_this_thread() {
        println!("{what}: {error}");
        return Ok(());
    }
    for backend in [Backend::Uring, Backend::Threads] {
        for spin in [Nanos(0), Nanos::from_micros(100)] {
            measure(&what, backend, spin, span)?;
        }
    }
    Ok(())
}

fn main() -> Any {
    let number = |index: usize, default: u64| {
        std::env::args().nth(index).map_or(Ok(default), |text| text.parse())
    };
    let (span, busy_threads) = (Nanos::from_secs(number(1, 5)?), number(2, 1)?);
    println!("late by (us)              spin us  timers    median      p99     p99.9       max");
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for load in ["idle", "busy"] {
        for preferred in [false, true] {
            // Each measurement has a thread of its own, because a preferred thread stays preferred.
            let measuring = std::thread::spawn(move || measure_all(load, preferred, span));
            measuring.join().map_err(|_| "a measurement panicked")??;
        }
        if load == "idle" {
            threads.extend((0..busy_threads).map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            }));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a busy thread panicked")?;
    }
    Ok(())
}
