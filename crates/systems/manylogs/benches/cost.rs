//! Costs of the mapping table: bytes of memory and instructions for each extent, and the length of
//! records compared with the data that clients wrote.
//!
//! A whole volume runs on a device that completes each request at once and keeps no data. Memory is
//! measured in a separate process for each pattern, by the volume's own account and by the growth
//! that the system sees. Valgrind counts the instructions, from the end of the filling of the table
//! on.

use std::process::{Command, ExitCode};
use std::rc::Rc;

use manylogs::{CheckpointPolicy, Volume, VolumeConfig, VolumeStats};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Hint, Lba, Nanos, Payload, Request, Rng, Sectors,
};
use manylogs_logstore::{DataSequence, ExtentMap, MapValue, Mapped};
use manylogs_sim::{NodeId, Sim, TaskOrder};

/// 20 TB; an eleventh of it is logs.
const DEVICE: Sectors = Sectors(39_063_650_304);
const EXTENTS: u64 = 10_000_000;
/// Sizes of the table for which instructions are counted. The largest can be filled under valgrind
/// only for the map alone.
const TABLES: [u64; 3] = [10_000, 1_000_000, EXTENTS];
const COUNTS: [(&str, &[u64]); 4] = [
    ("writes", &[TABLES[0], TABLES[1]]),
    ("reads", &[TABLES[0], TABLES[1]]),
    ("inserts", &TABLES),
    ("look-ups", &TABLES),
];
/// Number of requests that are counted: at most the number of extents of the smallest table.
const COUNTED: u64 = 10_000;
/// Writes that wait together, except where the size of the group is measured.
const GROUP: u64 = 16;
const GROUPS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const PATTERNS: [&str; 3] = ["random 4 KiB", "sequential 4 KiB", "random 512 B"];
const SEED: u64 = 1;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["memory", pattern, extents] => number(extents)
            .and_then(|extents| memory(pattern, extents))
            .map(|row| eprintln!("{row}")),
        [what, extents] => number(extents).and_then(|extents| count(what, extents)),
        _ => measure_all(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benchmark: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    Ok(text.parse()?)
}

fn measure_all() -> Result<(), Failure> {
    eprintln!("| {EXTENTS} extents | map | checksums too | resident |\n|---|---|---|---|");
    for pattern in PATTERNS {
        let output = Command::new(std::env::current_exe()?)
            .args(["memory", pattern, &EXTENTS.to_string()])
            .output()?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    eprintln!("\n| record of | payload | 512 B sectors | 4 KiB sectors |\n|---|---|---|---|");
    for group in GROUPS {
        let [small, large] = [Sectors(1), Sectors(8)].map(|sector| amplification(group, sector));
        let kib = group * 4;
        eprintln!("| {group} x 4 KiB | {kib} KiB | {:.3} | {:.3} |", small?, large?);
    }
    let [few, more, many] = TABLES;
    eprintln!("\n| instructions | {few} extents | {more} | {many} |\n|---|---|---|---|");
    for (what, tables) in COUNTS {
        eprint!("| {what} |");
        for extents in TABLES {
            match tables.contains(&extents) {
                true => eprint!(" {} |", instructions(what, extents)?),
                false => eprint!(" |"),
            }
        }
        eprintln!();
    }
    Ok(())
}

/// A device that keeps no data. Reads return absent content, which no checksum can refute.
struct Nowhere {
    physical_sector: Sectors,
}

impl BlockDevice for Nowhere {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            capacity: DEVICE,
            physical_sector: self.physical_sector,
            untorn: self.physical_sector,
            rotational: false,
            volatile_cache: false,
            native_fua: true,
            discard: true,
            fast_zero: true,
        }
    }

    fn submit(&self, request: Request) -> Completion {
        Completion::ready(Ok(match request {
            Request::Read { extent } => Payload::absent(extent.len),
            _ => Payload::default(),
        }))
    }
}

/// A volume on [`Nowhere`] that does nothing on its own.
struct World {
    sim: Sim,
    node: NodeId,
    volume: Volume,
}

impl World {
    fn new(physical_sector: Sectors) -> Result<Self, Failure> {
        let sim = Sim::new(SEED, TaskOrder::Fifo);
        let node = sim.node();
        let handle = sim.handle(node);
        let config = VolumeConfig {
            checkpoint: CheckpointPolicy::OnFull,
            swap: 1.0,
            watermark: 1.0,
            snapshot: Nanos(0),
            ..VolumeConfig::default()
        };
        let device = Rc::new(Nowhere { physical_sector });
        let created =
            sim.block_on(node, async move { Volume::create(handle, device, &config).await });
        Ok(Self { sim, node, volume: created? })
    }

    /// Writes extents, `group` of them at a time.
    fn write(&self, extents: impl Iterator<Item = Extent> + 'static, group: u64) {
        let write = |extent: Extent| Request::Write {
            extent,
            payload: Payload::tags(extent.start.0, extent.len),
            fua: true,
            hint: Hint::None,
        };
        self.submit(extents.map(write), group);
    }

    fn read(&self, extents: impl Iterator<Item = Extent> + 'static) {
        self.submit(extents.map(|extent| Request::Read { extent }), GROUP);
    }

    fn submit(&self, mut requests: impl Iterator<Item = Request> + 'static, group: u64) {
        let volume = self.volume.clone();
        self.sim.block_on(self.node, async move {
            loop {
                let together = (0..group).map_while(|_| requests.next());
                let waiting: Vec<Completion> =
                    together.map(|request| volume.submit(request)).collect();
                if waiting.is_empty() {
                    return;
                }
                for completion in waiting {
                    assert!(completion.await.is_ok(), "this device has no errors");
                }
            }
        });
    }

    /// The volume's statistics after `extents` more have been written.
    fn filled(&self, pattern: &str, extents: u64) -> Result<VolumeStats, Failure> {
        self.write(addresses(pattern, self.capacity())?.take(usize::try_from(extents)?), GROUP);
        Ok(self.volume.stats())
    }

    fn capacity(&self) -> u64 {
        self.volume.capabilities().capacity.0
    }
}

/// An endless sequence of addresses of a pattern, the same in each run.
fn addresses(pattern: &str, capacity: u64) -> Result<Box<dyn Iterator<Item = Extent>>, Failure> {
    let mut rng = Rng::new(SEED);
    let mut random = move |len: u64| Extent::new(rng.below(capacity / len) * len, len);
    match pattern {
        "random 4 KiB" => Ok(Box::new(std::iter::repeat_with(move || random(8)))),
        "random 512 B" => Ok(Box::new(std::iter::repeat_with(move || random(1)))),
        "sequential 4 KiB" => {
            Ok(Box::new((0..).map(|i| Extent { start: Lba(i * 8), len: Sectors(8) })))
        }
        _ => Err(format!("no pattern {pattern}").into()),
    }
}

/// Bytes for each extent, as a row of the result.
fn memory(pattern: &str, extents: u64) -> Result<String, Failure> {
    let world = World::new(Sectors(1))?;
    let before = resident_bytes();
    let stats = world.filled(pattern, extents)?;
    let resident = resident_bytes().saturating_sub(before);
    let each = |bytes: u64| bytes as f64 / stats.mapped_extents as f64;
    let (map, all) = (stats.map_bytes, stats.mapping_table_bytes);
    Ok(format!("| {pattern} | {:.1} | {:.1} | {:.1} |", each(map), each(all), each(resident)))
}

/// Length of records divided by the length of their payload, if `group` writes of 4 KiB wait
/// together.
fn amplification(group: u64, physical_sector: Sectors) -> Result<f64, Failure> {
    const ROUNDS: u64 = 100;
    let world = World::new(physical_sector)?;
    let extents = addresses(PATTERNS[0], world.capacity())?;
    world.write(extents.take(usize::try_from(group * ROUNDS)?), group);
    let stats = world.volume.stats();
    assert_eq!(stats.records, ROUNDS, "each group is one record");
    Ok(stats.record_bytes as f64 / stats.logged_bytes as f64)
}

/// Builds a table and then runs the requests that are counted.
fn count(what: &str, extents: u64) -> Result<(), Failure> {
    let old = |what: &str| ["reads", "look-ups"].contains(&what);
    let skipped = if old(what) { 0 } else { usize::try_from(extents)? };
    let chosen = addresses(PATTERNS[0], DEVICE.0 / 2)?.skip(skipped);
    let chosen: Vec<Extent> = chosen.take(usize::try_from(COUNTED)?).collect();
    let filling = addresses(PATTERNS[0], DEVICE.0 / 2)?.take(usize::try_from(extents)?);
    match what {
        "writes" | "reads" => {
            let world = World::new(Sectors(8))?;
            world.write(filling, GROUP);
            match what {
                "reads" => counted_part(|| world.read(chosen.into_iter())),
                _ => counted_part(|| world.write(chosen.into_iter(), GROUP)),
            }
        }
        _ => {
            let mut map = ExtentMap::new();
            insert_all(&mut map, filling);
            match what {
                "look-ups" => counted_part(|| look_up_all(&map, chosen.into_iter())),
                _ => counted_part(|| insert_all(&mut map, chosen.into_iter())),
            }
        }
    }
    Ok(())
}

/// A place in a log, in a word as large as the volume's.
#[derive(Clone, Copy, PartialEq)]
struct At(u64);

impl MapValue for At {
    fn advance(self, by: Sectors) -> Self {
        Self(self.0 + by.0)
    }

    fn pack(self) -> [u64; 2] {
        [self.0, 0]
    }

    fn unpack([at, _]: [u64; 2]) -> Self {
        Self(at)
    }
}

fn insert_all(map: &mut ExtentMap<At>, extents: impl Iterator<Item = Extent>) {
    let first = map.len() as u64;
    for (n, extent) in (first..).zip(extents) {
        let mapped = Mapped { sequence: DataSequence(n), value: At(n << 16) };
        map.insert(extent, mapped, |_, _| ());
    }
}

fn look_up_all(map: &ExtentMap<At>, extents: impl Iterator<Item = Extent>) {
    for extent in extents {
        assert!(map.lookup(extent).all(|(_, mapped)| mapped.is_some()), "what was mapped is");
    }
}

/// The part in which valgrind counts instructions.
#[inline(never)]
fn counted_part(part: impl FnOnce()) {
    part();
}

/// Instructions for one request on a table of `extents` extents.
fn instructions(what: &str, extents: u64) -> Result<u64, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*counted_part*")
        .arg(std::env::current_exe()?)
        .args([what, &extents.to_string()])
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = count.ok_or_else(|| format!("valgrind said: {said}"))?;
    Ok(count.trim().parse::<u64>()? / COUNTED)
}

/// Bytes of memory that this process uses, as Linux counts them.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
