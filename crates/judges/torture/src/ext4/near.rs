//! Images of file systems with their journal near the head: a file provides the room for the logs.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use manylogs::{Anchors, CheckpointPolicy, Layout, PhaseProbe, VolumeConfig};
use manylogs_block::{Extent, Lba, Nanos, Rng, to_usize};
use manylogs_near::{Placed, format, format_config};
use manylogs_sim::{DiskImage, Survival};

use super::arrays::longest_run;
use super::images::command;
use super::world::{BLOCK_SECTORS, SMALL_MIB, World};
use crate::volume::dealt::homes_on;
use crate::volume::disks::DiskImages;

/// The file whose blocks hold logs and anchors.
const FILE: &str = ".manylogs";
/// Its length on a single disk.
const FILE_BLOCKS: u64 = 2400;
/// Its length on an array, each column of which has a log.
const ARRAY_FILE_BLOCKS: u64 = 2900;
/// Blocks of each anchor: superblock, root, and a short snapshot.
pub(super) const ANCHOR_BLOCKS: u64 = 16;
/// The shortest log: no shorter one is allowed.
pub(super) const LOG_BLOCKS: u64 = 520;

/// Makes the file of unwritten blocks in an image, and returns the places of logs and anchors.
pub(super) fn add_log_file(image: &Path, dir: &Path) -> io::Result<Placed> {
    let blocks = add_file(image, dir, FILE_BLOCKS)?;
    placed_in(&blocks).ok_or_else(|| io::Error::other("the log file has too many pieces"))
}

/// As [`add_log_file`], for an array. Returns the longest run of the file's blocks.
pub(super) fn add_long_log_file(image: &Path, dir: &Path) -> io::Result<Extent> {
    let blocks = add_file(image, dir, ARRAY_FILE_BLOCKS)?;
    longest_run(&blocks).ok_or_else(|| io::Error::other("the log file has no blocks"))
}

/// Makes a file of `len` unwritten blocks in an image, and returns these.
fn add_file(image: &Path, dir: &Path, len: u64) -> io::Result<Vec<u64>> {
    let (empty, script) = (dir.join("empty"), dir.join("script"));
    File::create(&empty)?;
    let mut commands = File::create(&script)?;
    writeln!(commands, "write {} {FILE}", empty.display())?;
    writeln!(commands, "fallocate /{FILE} 0 {}", len - 1)?;
    writeln!(commands, "sif /{FILE} size {}", len * 4096)?;
    writeln!(commands, "sif /{FILE} mode 0100600")?;
    // Fixed times, so that the image is always the same.
    for field in ["atime", "ctime", "mtime", "crtime"] {
        writeln!(commands, "sif /{FILE} {field} @1700000000")?;
    }
    let made = command("debugfs")
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .arg("-w")
        .arg("-f")
        .arg(&script)
        .arg(image)
        .output()?;
    let told = command("debugfs").args(["-R", &format!("blocks /{FILE}")]).arg(image).output()?;
    let blocks = String::from_utf8_lossy(&told.stdout);
    let blocks: Vec<u64> = blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if blocks.len() as u64 != len {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(io::Error::other(format!("debugfs made {} blocks: {said}", blocks.len())));
    }
    Ok(blocks)
}

/// Places anchors at the beginning and at the end of the file, and logs between them.
fn placed_in(blocks: &[u64]) -> Option<Placed> {
    let anchor = to_usize(ANCHOR_BLOCKS);
    let (first, rest) = blocks.split_at_checked(anchor)?;
    let (rest, last) = rest.split_at_checked(rest.len().checked_sub(anchor)?)?;
    let anchors = Anchors { first: whole_run(first)?, last: whole_run(last)? };
    let mut logs = Vec::new();
    for run in rest.chunk_by(|one, next| one + 1 == *next) {
        let count = run.len() as u64 / LOG_BLOCKS;
        let len = (run.len() as u64).checked_div(count).unwrap_or(0);
        logs.extend((0..count).map(|number| extent_of(run[0] + number * len, len)));
    }
    Some(Placed { logs, anchors, columns: None })
}

fn whole_run(blocks: &[u64]) -> Option<Extent> {
    let mut runs = blocks.chunk_by(|one, next| one + 1 == *next);
    let run = runs.next()?;
    runs.next().is_none().then(|| extent_of(run[0], run.len() as u64))
}

fn extent_of(block: u64, blocks: u64) -> Extent {
    let end = Lba((block + blocks) * BLOCK_SECTORS);
    Extent::between(Lba(block * BLOCK_SECTORS), end)
}

/// The settings for histories: records go home when the logs are idle or full.
fn config(placed: &Placed) -> Result<VolumeConfig, String> {
    let config = format_config(placed).map_err(|error| error.to_string())?;
    let (checkpoint, snapshot) = (CheckpointPolicy::Idle, Nanos::from_secs(5));
    Ok(VolumeConfig { checkpoint, snapshot, ..config })
}

/// Formats an empty volume in the image.
pub(super) fn formatted(image: &DiskImage, placed: &Placed) -> Result<DiskImage, String> {
    let world = World::new(1, SMALL_MIB, image.clone());
    format_in(&world, placed)?;
    Ok(world.settled())
}

/// As [`formatted`], on an array: all caches are written, and the array knows where homes are.
pub(super) fn formatted_on(images: DiskImages, placed: &Placed) -> Result<DiskImages, String> {
    let world = World::of(1, SMALL_MIB, images);
    format_in(&world, placed)?;
    let disks = &world.disks;
    let all = |_: &mut Rng| Survival::Everything;
    let mut made = disks.after_power_cut(Survival::Everything, &mut Rng::new(1), all);
    let told = disks.device(&PhaseProbe::default()).capabilities();
    let Placed { logs, anchors, columns } = placed;
    let (capacity, physical) = (told.capacity, told.physical_sector);
    let layout = Layout::given(logs, *anchors, capacity, physical, *columns);
    let layout = layout.map_err(|error| error.to_string())?;
    made.homes = Some(homes_on(&layout, made.array));
    Ok(made)
}

fn format_in(world: &World, placed: &Placed) -> Result<(), String> {
    let config = config(placed)?;
    let device = world.disks.device(&PhaseProbe::default());
    let (runtime, placed) = (world.runtime(), placed.clone());
    let made = async move { format(runtime, device, &placed, &config).await };
    world.sim.block_on(world.user, made).map_err(|error| error.to_string())
}
