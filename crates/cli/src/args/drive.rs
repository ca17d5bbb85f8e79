//! Arguments of `manylogs drive`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use manylogs_disk::LinkKind;

use super::exercise::ExerciseArgs;
use super::suggest::DRIVES;

#[derive(Debug, Args)]
pub(crate) struct DriveArgs {
    #[command(subcommand)]
    pub(crate) command: DriveCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// Your own drives, and those that come with the program.
    List {
        /// List the catalogue of data sheets, too.
        #[arg(long)]
        all: bool,
    },
    /// Describe a drive by its data sheet, and keep that as a profile of your own.
    New(Box<NewArgs>),
    /// The profile as TOML that the program takes back: every number with its source, and the range
    /// of each guess.
    Show {
        /// A drive's name, or a profile file.
        #[arg(value_parser = DRIVES, hide_possible_values = true)]
        drive: String,
    },
    /// Hold a modelled drive against its profile's bars, and against service times that were
    /// measured on the real drive.
    Validate {
        /// A drive's name, or a profile file.
        #[arg(value_parser = DRIVES, hide_possible_values = true)]
        drive: String,
        /// Measured requests (DiskSim validation format).
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Draw a drive within the ranges of a profile, and print it as TOML.
    Vary {
        /// A drive's name, or a profile file. Guesses without a range get that of their class.
        #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true)]
        like: String,
        /// Decides the drive.
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Compare two drives: rates, seeks, random reads, and what a volume gains on each.
    Compare {
        /// A drive's name, or a profile file.
        #[arg(value_parser = DRIVES, hide_possible_values = true)]
        first: String,
        /// The other one.
        #[arg(value_parser = DRIVES, hide_possible_values = true)]
        second: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say which drive a disk of this machine is, and by which profile it is modelled.
    Identify {
        /// The disk or a partition of it, as /dev/sdb.
        device: PathBuf,
        /// A copy of another machine's /sys; the disk is named as there.
        #[arg(long, value_name = "DIR")]
        sys: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a drive under one load in virtual time, and print what it does second by second.
    Exercise(ExerciseArgs),
}

/// The figures of a data sheet. What is missing is asked for on a terminal, or gets a default.
#[derive(Debug, Default, Args)]
pub(crate) struct NewArgs {
    /// Name of the profile: letters, digits, dots, hyphens and underscores.
    pub(crate) name: String,
    /// Capacity as the sheet names it, as 18T (powers of 1000). Required.
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<String>,
    /// Revolutions a minute. Required.
    #[arg(long, value_name = "N")]
    pub(crate) rpm: Option<String>,
    /// Sustained rate at the outer tracks, MB/s; or as "262 MiB/s".
    #[arg(long, value_name = "MB/S")]
    pub(crate) outer: Option<String>,
    /// Sustained rate at the inner tracks, MB/s.
    #[arg(long, value_name = "MB/S")]
    pub(crate) inner: Option<String>,
    /// Average seek of reads, ms.
    #[arg(long, value_name = "MS")]
    pub(crate) seek: Option<String>,
    /// Seek to the next track, ms.
    #[arg(long, value_name = "MS")]
    pub(crate) track_to_track: Option<String>,
    /// The buffer, as 256M.
    #[arg(long, value_name = "SIZE")]
    pub(crate) cache: Option<String>,
    /// Recording surfaces: twice the platters, as a rule.
    #[arg(long, value_name = "N")]
    pub(crate) heads: Option<String>,
    /// The link to the host.
    #[arg(long, value_name = "sata|sas")]
    pub(crate) link: Option<LinkKind>,
    /// The drive has shingled tracks, and manages them itself.
    #[arg(long)]
    pub(crate) shingled: bool,
    /// Take what is not given from this drive, one that comes with the program.
    #[arg(long, value_name = "DRIVE", value_parser = DRIVES, hide_possible_values = true)]
    pub(crate) like: Option<String>,
    /// Vendor and model, in words.
    #[arg(long, value_name = "TEXT")]
    pub(crate) model: Option<String>,
    /// Serial number of a disk that this is the profile of; may be repeated.
    #[arg(long, value_name = "TEXT")]
    pub(crate) serial: Vec<String>,
    /// Write the profile to this file instead of the folder of own profiles; `-` prints it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite a profile of this name.
    #[arg(long)]
    pub(crate) force: bool,
}
