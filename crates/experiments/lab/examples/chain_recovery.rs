//! How long a chain takes to open after a crash: `cargo run --example chain_recovery`.
//!
//! Three modelled drives are filled by random writes of 4 KiB, until the raw capacity was written.
//! Then the process of the chain is killed, and it is opened again, in virtual time. Three sizes
//! give a line, which is extended to 20 TB.

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, MemoryDevice, Payload, Request, Rng, Sectors,
};
use manylogs_disk::{EmulatedDrive, profile};
use manylogs_gecko::{Chain, ChainOptions, ChainSettings, Cleaning};
use manylogs_lab::replay::DriveSettings;
use manylogs_sim::{Sim, TaskOrder};

/// Other profiles cannot be made so small.
const DRIVE: &str = "cheetah-15k5";
const DRIVES: u64 = 3;
/// Bytes of each drive.
const SIZES: [u64; 3] = [64 << 20, 128 << 20, 256 << 20];
const SEGMENT: Sectors = Sectors(4 << 11);
const BLOCK: Sectors = Sectors(8);
/// Share of the raw capacity that is exported, in per cent.
const EXPORT: u64 = 48;
/// Bytes of the chain that the line is extended to.
const LARGE: f64 = 20e12;
/// Writes between two flushes.
const AT_ONCE: u64 = 4_096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut points = Vec::new();
    for size in SIZES {
        let (raw, seconds) = recovery(Sectors::from_bytes_ceil(size))?;
        println!("{DRIVE}: {:.0} MB raw: {seconds:.2} s", raw / 1e6);
        points.push((raw, seconds));
    }
    let (slope, start) = line(&points);
    let large = start + slope * LARGE;
    println!("{DRIVE}: {:.3} s for each GB; 20 TB: {large:.0} s", slope * 1e9);
    Ok(())
}

/// The raw capacity of a chain in bytes, and the time of opening it after a crash.
fn recovery(size: Sectors) -> Result<(f64, f64), Box<dyn Error>> {
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
    sim.block_on(first, fill(sim.handle(first), drives.clone(), raw))?;
    sim.kill(first);
    let runtime = sim.handle(second);
    let took = sim.block_on(second, async move {
        let began = runtime.now();
        let chain = Chain::open(runtime.clone(), drives, ChainSettings::default()).await?;
        let took = runtime.now().since(began);
        chain.close().await?;
        Ok::<_, Box<dyn Error>>(took)
    })?;
    Ok((raw.bytes() as f64, took.as_secs_f64()))
}

async fn fill(
    runtime: Handle,
    drives: Vec<Rc<dyn BlockDevice>>,
    raw: Sectors,
) -> Result<(), Box<dyn Error>> {
    let export = Some(Sectors(raw.0 * EXPORT / 100 / 8 * 8));
    let options = ChainOptions { segment: SEGMENT, export, mirror: false, summaries: true };
    let settings = ChainSettings { cleaning: Cleaning::Auto, ..ChainSettings::default() };
    let chain = Chain::create(runtime, drives, options, settings).await?;
    let (mut rng, mut tag) = (Rng::new(7), 0);
    let blocks = chain.capabilities().capacity.0 / BLOCK.0;
    while chain.written() < raw {
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
