//! How long a chain takes to open after a crash:
//! `cargo run --example chain_recovery [-- [--no-summaries] [MIB ...]]`.
//!
//! Three modelled drives are filled by random writes of 4 KiB, until the raw capacity was written
//! one and a half times. Then the process of the chain is killed, and it is opened again, in
//! virtual time. Two sizes or more give a line, which is extended to 20 TB.

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, MemoryDevice, Payload, Request, Rng, Sectors,
};
use manylogs_disk::{EmulatedDrive, profile};
use manylogs_gecko::{Chain, ChainFigures, ChainOptions, ChainSettings, Cleaning};
use manylogs_lab::replay::DriveSettings;
use manylogs_sim::{Sim, TaskOrder};

/// Other profiles cannot be made so small.
const DRIVE: &str = "cheetah-15k5";
const DRIVES: u64 = 3;
/// Sizes of each drive in MiB when none are given. So large that of each chain as many segments
/// are kept empty as of the largest one, and most segments are neither empty nor new.
const SIZES_MIB: [u64; 3] = [4096, 6144, 8192];
const SEGMENT: Sectors = Sectors(16 << 11);
const BLOCK: Sectors = Sectors(8);
/// Share of the raw capacity that is exported, in per cent.
const EXPORT: u64 = 48;
/// Bytes of the chain that the line is extended to.
const LARGE: f64 = 20e12;
/// Writes between two flushes.
const AT_ONCE: u64 = 4_096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut summaries = true;
    let mut sizes = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--no-summaries" => summaries = false,
            size => sizes.push(size.parse::<u64>()?),
        }
    }
    let sizes = if sizes.is_empty() { SIZES_MIB.to_vec() } else { sizes };
    let gives_line = sizes.iter().any(|size| Some(size) != sizes.first());
    let mut points = Vec::new();
    for size in sizes {
        let Opened { raw, seconds, figures } = recovery(Sectors(size << 11), summaries)?;
        let (told, read) = (figures.summarized, figures.scanned);
        println!(
            "{DRIVE}: {:.2} GB raw: {seconds:.2} s; {told} summaries, {read} segments read",
            raw / 1e9
        );
        points.push((raw, seconds));
    }
    if !gives_line {
        return Ok(());
    }
    let (slope, start) = line(&points);
    let large = start + slope * LARGE;
    println!("{DRIVE}: {start:.2} s and {:.4} s for each GB; 20 TB: {large:.0} s", slope * 1e9);
    Ok(())
}

/// An opening after a crash.
struct Opened {
    /// Raw capacity in bytes.
    raw: f64,
    seconds: f64,
    figures: ChainFigures,
}

/// Opens a chain of drives of this size after a crash.
fn recovery(size: Sectors, summaries: bool) -> Result<Opened, Box<dyn Error>> {
    let profile = profile::find(DRIVE)?.ok_or("no such drive")?.fitted(size)?;
    let settings = DriveSettings::new(Arc::new(profile), false);
    let sim = Sim::new(1, TaskOrder::Fifo);
    let (node, first, second) = (sim.node(), sim.node(), sim.node());
    let mut drives: Vec<Rc<dyn BlockDevice>> = Vec::new();
    for number in 0..DRIVES {
        let content = Rc::new(MemoryDevice::new(settings.profile.capacity()));
        let options = settings.options(number);
        let drive = EmulatedDrive::new(sim.handle(node), &settings.profile, &options, content)?;
        drives.push(Rc::new(drive));
    }
    let raw = Sectors(settings.profile.capacity().0 * DRIVES);
    sim.block_on(first, fill(sim.handle(first), drives.clone(), raw, summaries))?;
    sim.kill(first);
    let runtime = sim.handle(second);
    let (took, figures) = sim.block_on(second, async move {
        let began = runtime.now();
        let chain = Chain::open(runtime.clone(), drives, ChainSettings::default()).await?;
        let took = runtime.now().since(began);
        let figures = chain.figures();
        chain.close().await?;
        Ok::<_, Box<dyn Error>>((took, figures))
    })?;
    Ok(Opened { raw: raw.bytes() as f64, seconds: took.as_secs_f64(), figures })
}

async fn fill(
    runtime: Handle,
    drives: Vec<Rc<dyn BlockDevice>>,
    raw: Sectors,
    summaries: bool,
) -> Result<(), Box<dyn Error>> {
    let export = Some(Sectors(raw.0 * EXPORT / 100 / 8 * 8));
    let options = ChainOptions { segment: SEGMENT, export, mirror: false, summaries };
    let settings = ChainSettings { cleaning: Cleaning::Auto, ..ChainSettings::default() };
    let chain = Chain::create(runtime, drives, options, settings).await?;
    let (mut rng, mut tag) = (Rng::new(7), 0);
    let blocks = chain.capabilities().capacity.0 / BLOCK.0;
    while 2 * chain.written().0 < 3 * raw.0 {
        let mut under_way = Vec::new();
        for _ in 0..AT_ONCE {
            let extent = Extent::new(rng.below(blocks) * BLOCK.0, BLOCK.0);
            tag += BLOCK.0;
            let (payload, fua, hint) = (Payload::tags(tag, BLOCK), false, Hint::None);
            under_way.push(chain.submit(Request::Write { extent, payload, fua, hint }));
        }
        for write in under_way {
            write.await?;
        }
        chain.submit(Request::Flush).await?;
    }
    Ok(())
}

/// The slope and the start of the line that fits the points best.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let slope = over / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    (slope, y - slope * x)
}
