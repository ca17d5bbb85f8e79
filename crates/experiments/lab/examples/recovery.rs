//! How long recovery takes: from the logs alone and from a snapshot, on modelled drives in virtual
//! time and, if a path is given, in an image on a real disk.
//!
//! `cargo run --release -p manylogs-lab --example recovery [-- IMAGE]`

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs::{CreateOptions, OpenOptions, Volume, VolumeConfig};
use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, MemoryDevice, Payload, Request, Rng, Sectors,
};
use manylogs_disk::{EmulatedDrive, Options, profile};
use manylogs_sim::{Sim, TaskOrder};
use manylogs_storage::{FileDevice, OpenMode, Reactor, create_image};

/// 1 GB of logged data in 4 KiB writes.
const WRITES: u64 = 1_000_000_000 / 4096;
/// Writes in flight together: the most that share a record.
const IN_FLIGHT: u64 = 8;
const BLOCK: Sectors = Sectors(8);
const IMAGE: Sectors = Sectors(4 << 21);

type Any = Result<(), Box<dyn Error>>;

/// Prints the cost of one recovery.
fn row(what: &str, way: &str, report: &manylogs::RecoveryReport) {
    println!(
        "{what:<34} {way:<14} {:>9.2} s  {:>8.1} MB read  {:>7} logs  {:>8} records  {:>8} extents",
        report.duration.0 as f64 / 1e9,
        report.read_bytes as f64 / 1e6,
        report.scanned_logs,
        report.records,
        report.mapped_extents
    );
}

/// Small durable writes at random places, `near` sectors apart at most from a reader that moves
/// through the device, so that they spread over the logs as the head does.
async fn fill(runtime: Handle, volume: Volume, writes: u64, readers: u64) {
    let capacity = volume.layout().capacity().0;
    let left = Rc::new(std::cell::Cell::new(writes));
    let running = Rc::new(std::cell::Cell::new(IN_FLIGHT));
    for client in 0..IN_FLIGHT {
        let (volume, left) = (volume.clone(), Rc::clone(&left));
        let running = Rc::clone(&running);
        runtime.spawn(async move {
            let mut rng = Rng::new(client);
            while left.get() > 0 {
                let number = left.get();
                left.set(number - 1);
                if readers > 0 && number.is_multiple_of(readers) {
                    let start = rng.below(capacity / 8 - 1) * 8;
                    let extent = Extent { start: manylogs_block::Lba(start), len: BLOCK };
                    let _ = volume.submit(Request::Read { extent }).await;
                }
                let start = rng.below(capacity / 8) * 8;
                let extent = Extent { start: manylogs_block::Lba(start), len: BLOCK };
                let payload = Payload::bytes(vec![1; 4096]);
                let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
                if let Err(error) = volume.submit(write).await {
                    eprintln!("write at {start}: {error}");
                }
            }
            running.set(running.get() - 1);
        });
    }
    while running.get() > 0 {
        runtime.sleep(manylogs_block::Nanos::from_millis(50)).await;
    }
}

/// Fills a volume, leaves it as a crash does, and recovers it from the logs alone; then closes it
/// in order and opens it from its snapshot.
async fn measure(
    runtime: Handle,
    device: Rc<dyn BlockDevice>,
    what: String,
    config: VolumeConfig,
    (writes, readers): (u64, u64),
) -> Result<(), manylogs::VolumeError> {
    let config = VolumeConfig {
        checkpoint: manylogs::CheckpointPolicy::OnFull,
        snapshot: manylogs_block::Nanos(0),
        swap: 1.0,
        ..config
    };
    let options = CreateOptions::default();
    let volume =
        Volume::create_with(runtime.clone(), Rc::clone(&device), &config, &options).await?;
    fill(runtime.clone(), volume.clone(), writes, readers).await;
    drop(volume);
    let alone =
        OpenOptions { ignore_snapshot: true, config: Some(config), ..OpenOptions::default() };
    let opened = Volume::open(runtime.clone(), Rc::clone(&device), &alone).await?;
    row(&what, "logs alone", &opened.1);
    opened.0.close().await?;
    let clean = OpenOptions { config: Some(config), ..OpenOptions::default() };
    let (_, report) = Volume::open(runtime, device, &clean).await?;
    row(&what, "snapshot", &report);
    Ok(())
}

fn on_model(name: &str, config: Option<VolumeConfig>, load: (u64, u64), label: &str) -> Any {
    let found = profile::find(name)?.ok_or("no such drive")?;
    let sim = Sim::new(1, TaskOrder::Fifo);
    let (node, host) = (sim.node(), sim.node());
    let options = Options { write_cache: false, ..Options::of(&found) };
    let capacity = found.capacity();
    let content = Rc::new(MemoryDevice::new(capacity));
    let runtime = sim.handle(host);
    let device = Rc::new(EmulatedDrive::new(sim.handle(node), &found, &options, content)?);
    let config = config.unwrap_or_else(|| VolumeConfig::for_device(capacity));
    let what = format!("{name}, {label}");
    sim.block_on(host, measure(runtime, device, what, config, load))?;
    Ok(())
}

fn on_disk(path: &Path) -> Any {
    create_image(path, IMAGE, false)?;
    let result = (|| -> Any {
        let reactor = Reactor::new()?;
        let options = manylogs_storage::OpenOptions::new(OpenMode::Exclusive);
        let device: Rc<dyn BlockDevice> = Rc::new(FileDevice::open(&reactor, path, &options)?);
        let group = manylogs::LogPlacement::EveryGroup(Sectors(30 << 11));
        let config = VolumeConfig { placement: group, ..VolumeConfig::for_device(IMAGE) };
        let what = "this machine's disk, 1 GB".to_owned();
        reactor.block_on(measure(reactor.handle(), device, what, config, (WRITES, 0)))?;
        Ok(())
    })();
    std::fs::remove_file(path)?;
    result
}

fn main() -> Any {
    on_model("cheetah-15k5", None, (WRITES, 0), "1 GB logged")?;
    on_model("exos-x20", None, (20_000, 2), "20 TB, defaults")?;
    on_model("exos-x20", Some(VolumeConfig::default()), (20_000, 2), "20 TB, a log in 100 MB")?;
    match std::env::args_os().nth(1).map(PathBuf::from) {
        Some(path) => on_disk(&path),
        None => Ok(()),
    }
}
