//! `manylogs interfere`.

use std::path::PathBuf;

use clap::Args;
use manylogs_block::{Nanos, Sectors};
use manylogs_disk::{LinkKind, QueuePolicy};
use manylogs_lab::interfere::{Place, StreamKind, SyncMode, SyncRate};

use super::arrays::ArrayArgs;
use super::lab::DEFAULT_DRIVE;
use super::suggest::{DRIVES, POLICIES};
use crate::units::{Unexpected, duration, expect, rate_bytes, size};

/// Options that take lists (values separated by commas) multiply: each combination is a case.
#[derive(Debug, Args)]
pub(crate) struct InterfereArgs {
    /// Drives: names (see `manylogs drive list`) or profile files.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = DEFAULT_DRIVE,
          value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Vec<String>,
    #[command(flatten)]
    pub(crate) arrays: ArrayArgs,
    /// The policies to compare; options follow a colon, as in mlb:latency=20ms,hold=60ms.
    #[arg(long, value_name = "LIST", default_value = "nologging,mlb", value_parser = POLICIES,
          hide_possible_values = true)]
    pub(crate) policy: Vec<String>,
    /// What the streams do: read, write, random (reads anywhere in 7 % of the disk); none: there is
    /// no stream, and the syncs are alone.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "read")]
    pub(crate) stream: Vec<StreamKind>,
    /// Requests that each stream keeps in flight.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) stream_depth: Vec<u32>,
    /// Size of a stream's requests (1M; 4K for random ones).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(crate) stream_size: Vec<Sectors>,
    /// What each stream asks for in a second, as 80M; as much as there is when not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = rate_bytes)]
    pub(crate) stream_rate: Vec<u64>,
    /// With --stream-rate: how much it asks for at a time (4M). Then it pauses until so much is due
    /// again.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size,
          requires = "stream_rate")]
    pub(crate) stream_burst: Vec<Sectors>,
    /// How many streams there are.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) streams: Vec<u32>,
    /// Where the streams begin: outer, inner.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "outer")]
    pub(crate) at: Vec<Place>,
    /// Syncs a second, of all clients together; closed: each client syncs again at once.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16",
          value_parser = syncs)]
    pub(crate) syncs: Vec<SyncRate>,
    /// Clients that share the syncs. At a rate one syncs at even intervals, each of several at a
    /// random moment of each of its intervals.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) sync_clients: u32,
    /// Random writes of 4 KiB before a sync.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) writes_per_sync: Vec<u32>,
    /// Random writes go to the addresses of this column of the array alone. Columns count from 0.
    #[arg(long, value_name = "N", requires = "array")]
    pub(crate) sync_column: Option<u16>,
    /// Bring home what was logged when a measurement has ended, and count that time as well.
    #[arg(long)]
    pub(crate) checkpoint: bool,
    /// fua (each write is durable), flush (writes, then a flush), journal (as ext4: writes, a
    /// journal write, a flush, the commit block, a flush), read (reads instead of writes).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "flush")]
    pub(crate) sync_mode: Vec<SyncMode>,
    /// Whether writes may wait in the drive's cache: on, off.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "off",
          value_parser = switch)]
    pub(crate) drive_cache: Vec<bool>,
    /// Links of the drives to the host: sata (a flush waits for what is in flight, and goes alone),
    /// sas (also Fibre Channel: a flush is queued); the profile's when not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) drive_link: Vec<LinkKind>,
    /// Whether the host is told that the drive takes forced unit access (FUA) while its write
    /// cache is on; else such a write is a write and a flush: on, off; the profile's when not
    /// given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = switch)]
    pub(crate) drive_fua: Vec<bool>,
    /// Ages from which the drive's queue serves a command first, as 20ms; the profile's when not
    /// given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = duration)]
    pub(crate) age_limit: Vec<Nanos>,
    /// Order of the drive's queue: fcfs, elevator, sptf; the profile's when not given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = queue)]
    pub(crate) queue: Vec<QueuePolicy>,
    /// Whether the drive serves commands with priority first: on, off.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "off",
          value_parser = switch)]
    pub(crate) priority: Vec<bool>,
    /// Seeds: each decides everything random in a case.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    pub(crate) seed: Vec<u64>,
    /// Simulated seconds that are measured.
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the pictures and the table to this HTML file.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Cases measured at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
}

fn syncs(text: &str) -> Result<SyncRate, Unexpected> {
    if text == "closed" {
        return Ok(SyncRate::Closed);
    }
    let rate = text.parse::<f64>().ok().filter(|rate| (0.0..=100_000.0).contains(rate));
    expect(rate.map(SyncRate::PerSecond), text, "syncs a second from 0 to 100000, or closed")
}

fn switch(text: &str) -> Result<bool, Unexpected> {
    let on = match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    expect(on, text, "on or off")
}

fn queue(text: &str) -> Result<QueuePolicy, Unexpected> {
    expect(QueuePolicy::from_name(text), text, "an order (there are: fcfs, elevator, sptf)")
}
