//! A drive under one load, second by second: what `manylogs drive exercise` prints.

mod kinds;
mod load;

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Handle, IoError, Nanos, Time};
use manylogs_sim::{Sim, TaskOrder};
use serde::Serialize;
use thiserror::Error;

use crate::replay::{DriveSettings, NamedPolicy, ReplayError, Stack};
use crate::smr::SmrFigures;
use crate::stats::LatencySummary;
use crate::table::bytes;

pub use kinds::{KindFigures, KindsFigures};
use kinds::{KindOf, Kinds};
use load::Load;
pub use load::LoadKind;

/// Which drive to exercise, and how.
#[derive(Clone, Debug)]
pub struct Exercise {
    /// The drive.
    pub drive: DriveSettings,
    /// The policy between the drive and the load.
    pub policy: NamedPolicy,
    /// The load.
    pub load: LoadKind,
    /// Duration in simulated time.
    pub span: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
}

/// The result, in the form of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Exercised {
    /// Version of this format.
    pub format: u32,
    /// The command line that repeats it.
    pub command: String,
    /// Name of the drive's profile.
    pub drive: String,
    /// The policy, as the user wrote it.
    pub policy: String,
    /// Name of the load.
    pub load: &'static str,
    /// Whether the drive's write cache was on.
    pub drive_write_cache: bool,
    /// The drive's link to the host: `sata` or `sas`.
    pub drive_link: &'static str,
    /// Whether the host is told that the drive takes forced unit access while its cache is on.
    pub drive_fua: bool,
    /// Latencies and rates by kind of request.
    pub kinds: KindsFigures,
    /// The figures.
    #[serde(flatten)]
    pub figures: SmrFigures,
}

/// Why an exercise has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExerciseError {
    /// The policy does not go with the drive.
    #[error(transparent)]
    Policy(#[from] ReplayError),
    /// A request failed.
    #[error("a request failed: {0}")]
    Io(#[from] IoError),
}

/// What the clients share.
struct Shared {
    until: Time,
    load: RefCell<Load>,
    kinds: RefCell<Kinds>,
    failed: Cell<Option<IoError>>,
}

/// Runs an exercise.
///
/// # Errors
/// If the policy does not go with the drive, or a request fails.
pub fn exercise(of: &Exercise) -> Result<(KindsFigures, SmrFigures), ExerciseError> {
    let sim = Sim::new(of.seed, TaskOrder::Fifo);
    let mut stack = Stack::named(&sim, &of.drive, &of.policy, of.seed)?;
    stack.measure(of.span);
    let device = stack.top();
    let (began, capacity) = (sim.now(), device.capabilities().capacity);
    let shared = Rc::new(Shared {
        until: began + of.span,
        load: RefCell::new(Load::new(of.load, capacity, of.seed)),
        kinds: RefCell::default(),
        failed: Cell::new(None),
    });
    for client in 0..of.load.clients() {
        let runtime = stack.runtime();
        runtime.spawn(act(client, stack.runtime(), Rc::clone(&device), Rc::clone(&shared)));
    }
    let clock = stack.runtime();
    let until = shared.until;
    sim.block_on(stack.host(), async move { clock.sleep_until(until).await });
    if let Some(error) = shared.failed.take() {
        return Err(error.into());
    }
    let kinds = shared.kinds.borrow().figures(of.span);
    Ok((kinds, stack.smr_figures().unwrap_or_default()))
}

/// Acts as one client: sends one request after the other.
async fn act(client: u32, runtime: Handle, device: Rc<dyn BlockDevice>, shared: Rc<Shared>) {
    while runtime.now() < shared.until {
        let request = shared.load.borrow_mut().next(client);
        let (kind, asked) = (KindOf::request(&request), runtime.now());
        if let Err(error) = device.submit(request).await {
            shared.failed.set(Some(error));
            return;
        }
        if let Some(kind) = kind {
            shared.kinds.borrow_mut().ended(kind, runtime.now().since(asked));
        }
    }
}

/// The figures for people.
#[must_use]
pub fn text(done: &Exercised) -> String {
    let figures = &done.figures;
    let mut out = format!("{} on {} ({})\n\n", done.load, done.drive, done.policy);
    let _ = writeln!(out, "{:>8}  {:>9}  {:>11}  {:>12}", "second", "MiB/s", "p99", "cache used");
    for shown in rows(figures) {
        let _ = writeln!(
            out,
            "{:>8}  {:>9.2}  {:>8.1} ms  {:>12}",
            shown.second,
            shown.mib_s,
            shown.p99_ms,
            bytes(shown.cache_used_bytes)
        );
    }
    for (name, kind) in done.kinds.named().into_iter().filter(|(_, kind)| kind.mib_s > 0.0) {
        let ms = |us: f64| us / 1e3;
        let LatencySummary { p50, p99, max, .. } = kind.latency_us;
        let _ = writeln!(
            out,
            "{name:<15} {:>9.2} MiB/s  p50 {:>8.1} ms  p99 {:>8.1} ms  slowest {:>8.1} ms",
            kind.mib_s,
            ms(p50),
            ms(p99),
            ms(max)
        );
    }
    let _ = writeln!(out, "\nseconds without progress: {}", figures.seconds_without_progress);
    let _ = writeln!(out, "slowest request: {:.1} ms", figures.slowest_ms);
    if figures.cache_bytes > 0 {
        translated(figures, &mut out);
    }
    out
}

fn translated(figures: &SmrFigures, out: &mut String) {
    let _ = writeln!(
        out,
        "written to the persistent cache ({}): {}; past it: {}",
        bytes(figures.cache_bytes),
        bytes(figures.cached_bytes),
        bytes(figures.streamed_bytes)
    );
    if let Some(second) = figures.cache_full_second {
        let _ = writeln!(out, "the cache had no room from second {second} on");
    }
    let clean = figures.band_clean_s;
    let _ = writeln!(
        out,
        "bands cleaned: {} (p5 {:.2} s, p50 {:.2} s, p95 {:.2} s), left: {}",
        figures.bands_cleaned, clean.p5, clean.p50, clean.p95, figures.dirty_bands
    );
    if figures.log_swaps > 0 {
        let _ = writeln!(out, "logs swapped: {}", figures.log_swaps);
    }
}

/// Means over a part of the run.
struct Row {
    second: u64,
    mib_s: f64,
    p99_ms: f64,
    cache_used_bytes: u64,
}

/// At most twenty rows, each with the mean rate, the highest p99, and the cache's use at the end.
fn rows(figures: &SmrFigures) -> Vec<Row> {
    let points = figures.seconds.len();
    let each = points.div_ceil(20).max(1);
    (0..points)
        .step_by(each)
        .map(|from| {
            let to = (from + each).min(points);
            Row {
                second: figures.seconds[from],
                mib_s: figures.mib_s[from..to].iter().sum::<f64>() / (to - from) as f64,
                p99_ms: figures.p99_ms[from..to].iter().copied().fold(0.0, f64::max),
                cache_used_bytes: figures.cache_used_bytes[to - 1],
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use manylogs::{ScatteredTimes, measure_scattered};
    use manylogs_block::{MemoryDevice, Sectors};

    use super::*;

    /// The times that `format` measures on a new drive.
    fn measured(drive: &str, write_cache: bool) -> ScatteredTimes {
        let profile = manylogs_disk::profile::find(drive).unwrap().unwrap();
        let settings = DriveSettings::new(Arc::new(profile), write_cache);
        let sim = Sim::new(3, TaskOrder::Fifo);
        let policy = NamedPolicy::parse("nologging").unwrap();
        let stack = Stack::named(&sim, &settings, &policy, 3).unwrap();
        let (runtime, device) = (stack.runtime(), stack.top());
        let found =
            sim.block_on(stack.host(), async move { measure_scattered(&runtime, &device).await });
        found.unwrap().unwrap()
    }

    #[test]
    fn shingled_drives_are_recognised_by_scattered_writes() {
        for write_cache in [false, true] {
            let found = measured("st8000as0002", write_cache);
            assert!(found.looks_shingled(), "{write_cache} {found:?}");
            for drive in ["exos-x20", "cheetah-15k5"] {
                let found = measured(drive, write_cache);
                assert!(!found.looks_shingled(), "{drive} {write_cache} {found:?}");
            }
        }
        // With a write cache, because without one this drive cleans a band after each write.
        let found = measured("wd40nmzw", true);
        assert!(found.looks_shingled(), "{found:?}");
    }

    #[test]
    fn what_has_no_heads_is_not_measured() {
        let sim = Sim::new(3, TaskOrder::Fifo);
        let node = sim.node();
        let runtime = sim.handle(node);
        let device: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(1 << 20)));
        let found = sim.block_on(node, async move { measure_scattered(&runtime, &device).await });
        assert_eq!(found, Ok(None));
    }
}
