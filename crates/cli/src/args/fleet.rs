//! Arguments of the command that starts the Python package's fleet.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is passed on to the Python package's `manylogs-fleet`.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// The disks: a folder of traces, a pattern as 'traces/**/*.trace.zst', or a list with the
    /// columns host, disk, trace, model, serial, as CSV or Parquet (only trace must be there).
    pub(crate) inventory: String,
    /// The directory of results. The same command goes on with what is in it.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Which profile models which disk: [serial], [model] and [host] tables of names, and
    /// `default`. What it does not name is found by own profiles, the catalogue, or the class.
    #[arg(long, value_name = "MAP.toml")]
    pub(crate) drives: Option<PathBuf>,
    /// Policies to replay, by commas, the plain drive among them.
    #[arg(long, value_name = "LIST", default_value = "nologging,mlb")]
    pub(crate) policies: String,
    /// `screen` clears what surely gains nothing; `advise` judges the rest by a search.
    #[arg(long, value_enum, default_value_t = Effort::Screen)]
    pub(crate) effort: Effort,
    /// Seeds of each policy, from 1 on.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: u32,
    /// Arrivals this many times as fast as recorded, or `auto`, half as busy as the drive can be.
    #[arg(long, value_name = "FACTOR|auto", default_value = "1")]
    pub(crate) rate: String,
    /// Fit addresses beyond the drive into it.
    #[arg(long)]
    pub(crate) fit: bool,
    /// Use only this many requests of each trace.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Only print tasks, bytes, CPU-days, and hours by number of workers.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Dask's scheduler, as tls://host:8786; workers of this machine when not given.
    #[arg(long, value_name = "tcp://|tls://")]
    pub(crate) scheduler: Option<String>,
    /// Allow tcp:// to another machine: whoever reaches such a scheduler runs what he likes.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Workers of this machine; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: Option<u32>,
    /// The most memory of a worker and its replay.
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub(crate) worker_memory: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    Screen,
    Advise,
}
