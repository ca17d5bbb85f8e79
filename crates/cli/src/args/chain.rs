//! `manylogs chain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_block::{Nanos, Sectors};

use super::suggest::DRIVES;
use crate::units::{Unexpected, duration, expect, size};

/// Gates that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gates {
    /// Random writes on an empty chain.
    Fresh,
    /// The same beside random readers of what other drives hold.
    Readers,
    /// Random writes beside reads of what was written last.
    Tail,
    /// After the raw capacity was written three times.
    Steady,
    /// Random writes while a full drive leaves the chain.
    Leaving,
    /// Two drives, of which the first is cleaned while half of it is valid, against a log over
    /// RAID-0.
    Cleaning,
    /// Pairs whose halves sleep, for `--span` (24h in the gate) at a tenth of a drive's bandwidth.
    Sleep,
}

/// Each line is a gate: the share of a drive's sequential bandwidth that a chain of three such
/// drives should give to its clients, and what it gives. All in virtual time.
#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    /// Drives: names (see `manylogs drive list`) or profile files. Each chain has three of one.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "cheetah-15k5,exos-x20", value_parser = DRIVES,
          hide_possible_values = true)]
    pub(crate) drive: Vec<String>,
    /// Whether the drives' caches are on: on, off.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "off",
          value_parser = switch)]
    pub(crate) drive_cache: Vec<bool>,
    /// Size of each drive, made smaller with its zones in proportion.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "2G")]
    pub(crate) capacity: Sectors,
    /// Length of a segment: what is cleaned at a time.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64M")]
    pub(crate) segment: Sectors,
    /// The gates to measure; those of the steady state take minutes.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "fresh,readers"
    )]
    pub(crate) gates: Vec<Gates>,
    /// Only gates with this in their name, such as "90/10".
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    pub(crate) only: String,
    /// Memory of the tail cache, in the gate of `tail` that has one.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) cache: Sectors,
    /// Chains keep summaries of closed segments: see `format --gecko`.
    #[arg(long)]
    pub(crate) summaries: bool,
    /// Seeds: each decides everything random in a case.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    pub(crate) seed: Vec<u64>,
    /// How halves that sleep are cleaned around: the ways of `serve --cleaning`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "mtt")]
    pub(crate) cleaning: Vec<manylogs_gecko::Cleaning>,
    /// Simulated time that is measured; in the steady state at least until the raw capacity was
    /// written once more.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "4s")]
    pub(crate) span: Nanos,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Cases measured at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
}

fn switch(text: &str) -> Result<bool, Unexpected> {
    let on = match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    expect(on, text, "on or off")
}
