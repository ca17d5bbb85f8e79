//! The commands, one module each.

pub(crate) mod advise;
mod arrays;
pub(crate) mod chain;
pub(crate) mod drive;
pub(crate) mod episodes;
pub(crate) mod everest;
mod exercise;
pub(crate) mod fleet;
mod forget;
pub(crate) mod fs;
pub(crate) mod gecko;
pub(crate) mod interfere;
mod kept;
pub(crate) mod lend;
mod link;
pub(crate) mod list;
pub(crate) mod live;
mod load;
pub(crate) mod manual;
pub(crate) mod md;
mod measured;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod reproduce;
pub(crate) mod serve;
pub(crate) mod stop;
pub(crate) mod sweep;
pub(crate) mod top;
pub(crate) mod torture;
pub(crate) mod trace;
mod validate;
pub(crate) mod volume;
pub(crate) mod write_cache;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use manylogs_disk::profile::{self, Library, Profile};
use manylogs_lab::load::Blame;
use manylogs_lab::prepare::WindowChoice;
use manylogs_workload::transform::Window;
use manylogs_workload::{BlockEvent, Devices, Format, OpenOptions, TimeUnit, TraceError};

use crate::args::{EventArg, OpenArgs, TimeUnitArg, WindowArg};
use crate::failure::Failure;

/// Least similarity of a name that is suggested.
const ALIKE: f64 = 0.6;

/// The drive that `name` means: a profile's name, a file that describes a drive, or a disk.
fn drive(name: &str) -> Result<Profile, Failure> {
    let path = Path::new(name);
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return drive::choose::of_disk(path);
    }
    let library = Library::of_user();
    let found = library.find_or_load(name).map_err(|error| drive::profile_failure(&error))?;
    if let Some(found) = found {
        return Ok(found);
    }
    let known = profile::drives();
    let own: Vec<String> = library.files().into_iter().map(|(name, _)| name).collect();
    let catalogued = profile::catalogue().unwrap_or_default().iter().map(|sheet| &*sheet.name);
    let nearest = known
        .iter()
        .copied()
        .chain(own.iter().map(String::as_str))
        .chain(catalogued)
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .filter(|(alike, _)| *alike > ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = nearest.map_or_else(String::new, |(_, n)| format!(" (did you mean `{n}`?)"));
    Err(Failure::input(format!(
        "unknown drive `{name}`{hint}; there are: {}, and more (`manylogs drive list --all`); or \
         give a profile file (NAME.toml)",
        own.iter().map(String::as_str).chain(known).collect::<Vec<_>>().join(", ")
    )))
}

impl OpenArgs {
    /// The options for commands without a drive, where a device is always one of the trace's.
    fn options_without_drive(&self) -> Result<OpenOptions, Failure> {
        if self.device.starts_with('/') {
            return Err(Failure::input(format!(
                "--device: expected one of the trace's devices, by its number from 0 on \
                 (`manylogs trace stat` counts them), or all; found {}, a path: a disk of this \
                 machine is something to replay on",
                self.device
            )));
        }
        self.options()
    }

    /// The options of trace readers.
    fn options(&self) -> Result<OpenOptions, Failure> {
        let format = self.format.as_deref().map(str::parse::<Format>).transpose();
        let devices = match self.device.as_str() {
            "all" => Devices::OneAfterAnother,
            path if path.starts_with('/') => Devices::OneAfterAnother,
            number => Devices::Only(number.parse().map_err(|_| {
                Failure::input(format!(
                    "--device: expected a number, all or a disk, found {number:?}"
                ))
            })?),
        };
        Ok(OpenOptions {
            format: format.map_err(Failure::input)?,
            time_unit: self.time_unit.map(|unit| match unit {
                TimeUnitArg::S => TimeUnit::Seconds,
                TimeUnitArg::Ms => TimeUnit::Milliseconds,
                TimeUnitArg::Us => TimeUnit::Microseconds,
                TimeUnitArg::Ns => TimeUnit::Nanoseconds,
            }),
            skip_bad: self.skip_bad,
            devices,
            event: match self.event {
                EventArg::Queue => BlockEvent::Queue,
                EventArg::Issue => BlockEvent::Issue,
            },
            ..OpenOptions::default()
        })
    }
}

impl From<WindowArg> for WindowChoice {
    fn from(arg: WindowArg) -> Self {
        match arg {
            WindowArg::At { start, len } => {
                Self::At(Window { start: manylogs_block::Time(start.0), len })
            }
            WindowArg::BusiestReads(len) => Self::BusiestReads(len),
            WindowArg::BusiestWrites(len) => Self::BusiestWrites(len),
            WindowArg::Random(len) => Self::Random(len),
        }
    }
}

/// The command line, quoted for a shell.
fn command_line(args: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+".contains(c);
    let quoted = args.enumerate().map(|(index, arg)| match index {
        0 => "manylogs".to_owned(),
        _ if !arg.is_empty() && arg.chars().all(plain) => arg,
        _ => format!("'{}'", arg.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The failure for a trace that cannot be read: bad input, unless the user lacks the permission.
fn trace_failure(error: &TraceError) -> Failure {
    Failure::of_blame(Blame::of_trace(error), error)
}
