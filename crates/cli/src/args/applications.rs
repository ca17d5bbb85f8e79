//! The arguments of `manylogs fs applications`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use manylogs_block::{Nanos, Sectors};
use manylogs_lab::mlfs::applications::MANYLOGS_ODUR;
use manylogs_mlfs::JournalMode;
use manylogs_workload::programs::Program;

use super::fs::{journal, mode};
use super::serve::OnOff;
use super::suggest::DRIVES;
use crate::args::link::LinkArgs;

/// A figure of the Manylogs paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApplicationsFigure {
    /// The file server.
    #[value(name = "4a")]
    FileServers,
    /// The mail server.
    #[value(name = "4b")]
    MailServers,
    /// The database.
    #[value(name = "5")]
    Databases,
}

/// A mode of the journal, and whether the logs of programs need durability and no place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppMode {
    pub(crate) journal: JournalMode,
    pub(crate) odur: bool,
}

fn app_mode(text: &str) -> Result<AppMode, String> {
    if text == MANYLOGS_ODUR {
        return Ok(AppMode { journal: JournalMode::Manylogs, odur: true });
    }
    let journal = mode(text).map_err(|error| format!("{error}, or {MANYLOGS_ODUR}"))?;
    Ok(AppMode { journal, odur: false })
}

#[derive(Debug, Args)]
pub(crate) struct FsApplicationsArgs {
    /// Figures of the Manylogs paper, with its programs and numbers of instances.
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "app",
        default_value = "4a,4b,5"
    )]
    pub(crate) figure: Vec<ApplicationsFigure>,
    /// Programs, instead of figures. Of their files these have the attribute in manylogs+odur:
    /// the journal of mongodb, pg_wal of postgres, the -wal of sqlite, the wal of etcd, and the
    /// redo log of innodb.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Program::NAMES)
              .try_map(|name| name.parse::<Program>()))]
    pub(crate) app: Vec<Program>,
    /// Modes of the journal: ordered, data, adaptive-jbd2, adaptive, manylogs, and manylogs+odur,
    /// in which the logs of databases stay in the logs, as with --durable.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = app_mode,
          default_value = "ordered,data,adaptive-jbd2,manylogs,manylogs+odur")]
    pub(crate) mode: Vec<AppMode>,
    /// How often the program runs, each time with files of its own; the paper's numbers when not
    /// given: 2, 4, 8, and of databases 1, 2, 4.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) instances: Vec<u32>,
    /// Clients of each database, which wait until what they wrote is durable; when not given 16 of
    /// mongodb and etcd, 4 of postgres and innodb.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: Option<u32>,
    /// How often mongodb flushes, as 33ms,1ms.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "33ms,1ms",
          value_parser = flush)]
    pub(crate) flush: Vec<Nanos>,
    /// Requests of 1 MiB that the reader has under way.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) stream_depth: Vec<u32>,
    /// Drives: names (see `manylogs drive list`) or profile files.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "cheetah-15k5",
          value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) drive: Vec<String>,
    /// One log of 10 MiB in so many bytes, as for `fs adopt`.
    #[arg(long, value_name = "BYTES", value_parser = crate::units::size)]
    pub(crate) log_every: Option<Sectors>,
    /// The longest write that goes to a log; 32K when not given.
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size)]
    pub(crate) threshold: Option<Sectors>,
    /// So many operations a second at most make data durable, of all instances together (of
    /// programs that sync nothing: so many requests).
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub(crate) carry: Option<f64>,
    /// Judge each mode beside manylogs+odur: the faster of the two is measured again, with as many
    /// durable operations a second as the slower one serves. The exit code is 1 if a mode is better
    /// by 2 % in bandwidth or latency.
    #[arg(long)]
    pub(crate) judge: bool,
    /// Size of ext4's own journal, in whole MiB.
    #[arg(long, value_name = "SIZE", value_parser = journal, default_value = "1G")]
    pub(crate) journal: Sectors,
    /// Content of files that the host keeps in memory.
    #[arg(long, value_name = "SIZE", value_parser = crate::units::size, default_value = "8G")]
    pub(crate) memory: Sectors,
    /// Whether writes may wait in the drive's cache.
    #[arg(long, value_enum, value_name = "on|off", default_value = "off")]
    pub(crate) drive_cache: OnOff,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Decides everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Simulated seconds that are measured.
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Write all figures to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Cases measured at the same time; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) threads: Option<u64>,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=1e6).contains(&rate) => Ok(rate),
        _ => Err("expected a number from 0.1 to 1000000".to_owned()),
    }
}

fn flush(text: &str) -> Result<Nanos, String> {
    match crate::units::duration(text) {
        Ok(span) if span >= Nanos::from_micros(100) && span <= Nanos::from_secs(60) => Ok(span),
        _ => Err("expected a time from 100us to 60s".to_owned()),
    }
}
