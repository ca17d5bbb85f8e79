//! The parameters of the plugin, as `key=value` on nbdkit's command line.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use manylogs_block::Sectors;
use manylogs_disk::profile::{Library, Profile};
use manylogs_disk::{LinkKind, LinkSettings};
use manylogs_gecko::{ChainSettings, Cleaning, SleepSettings};
use manylogs_operate::log::{LogFormat, set_format};
use manylogs_serve::{
    Borrowing, Emulation, EngineOptions, RESTART_PATIENCE, ServedChain, StackOptions,
};
use manylogs_storage::{Backend, OpenMode};
use nbdkit::{Error, Result};
use rustix::io::Errno;

/// Text that nbdkit prints for `--help`.
pub(crate) const HELP: &str = "\
device=PATH (required)    The disk, partition or image.
backend=auto|uring|threads  How requests reach the kernel.
table=PATH                The file of the mapping table, if it is not in the logs.
give-up-table=true        Open with an empty table in the place of one that is lost.
raw=true                  The device as it is, without a volume on it.
member=PATH               A drive of the chain that the device is of; may be given several times.
cleaning=WAY              How a chain of drives makes room.
wake-budget=STARTS        Let halves of pairs sleep, with so many starts a day.
cache-memory=BYTES        Memory of a chain's tail cache.
cache=SSD                 The SSD behind that memory.
emulate=DRIVE             Stand for this drive, or for the one of a profile (NAME.toml).
fit=false                 The device is the beginning of that drive, not its whole span.
write-cache=true|false    The write cache of that drive.
drive-link=sata|sas       Its link to the host.
drive-fua=true|false      Whether the host is told that it takes forced unit access.
log-format=text|logfmt|json  How messages are written to standard error.";

static GIVEN: Mutex<Parameters> = Mutex::new(Parameters::new());

/// Parameters that were given so far.
struct Parameters {
    device: Option<PathBuf>,
    backend: Backend,
    table: Option<PathBuf>,
    give_up_table: bool,
    raw: bool,
    members: Vec<PathBuf>,
    cleaning: Option<Cleaning>,
    wake_budget: Option<u32>,
    cache_memory: u64,
    cache: Option<PathBuf>,
    emulate: Option<Profile>,
    fit: bool,
    write_cache: Option<bool>,
    link: LinkSettings,
}

impl Parameters {
    const fn new() -> Self {
        Self {
            device: None,
            backend: Backend::Auto,
            table: None,
            give_up_table: false,
            raw: false,
            members: Vec::new(),
            cleaning: None,
            wake_budget: None,
            cache_memory: 0,
            cache: None,
            emulate: None,
            fit: true,
            write_cache: None,
            link: LinkSettings { kind: None, fua: None },
        }
    }
}

/// Takes one parameter.
///
/// # Errors
/// If there is no such parameter, or `value` is invalid for it.
pub(crate) fn set(key: &str, value: &str) -> Result<()> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    match key {
        "device" => given.device = Some(absolute(value)?),
        "table" => given.table = Some(absolute(value)?),
        "backend" => given.backend = backend(value)?,
        "give-up-table" => given.give_up_table = nbdkit::parse_bool(value)?,
        "raw" => given.raw = nbdkit::parse_bool(value)?,
        "member" => given.members.push(absolute(value)?),
        "cleaning" => given.cleaning = Some(cleaning(value)?),
        "wake-budget" => given.wake_budget = Some(starts(value)?),
        "cache-memory" => given.cache_memory = bytes(value)?,
        "cache" => given.cache = Some(absolute(value)?),
        "emulate" => given.emulate = Some(drive(value)?),
        "fit" => given.fit = nbdkit::parse_bool(value)?,
        "write-cache" => given.write_cache = Some(nbdkit::parse_bool(value)?),
        "drive-link" => given.link.kind = Some(link(value)?),
        "drive-fua" => given.link.fua = Some(nbdkit::parse_bool(value)?),
        "log-format" => set_format(log_format(value)?),
        _ => return Err(invalid(format!("unknown parameter {key:?}"))),
    }
    Ok(())
}

/// The options of the engine, from the parameters given.
///
/// # Errors
/// If no device was given, or parameters were that do not fit the device.
pub(crate) fn options() -> Result<EngineOptions> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = &given.device else {
        return Err(invalid("give device=PATH".to_owned()));
    };
    if given.emulate.is_none() && given.link != LinkSettings::default() {
        return Err(invalid("drive-link and drive-fua are settings of emulate=DRIVE".to_owned()));
    }
    if given.raw && (given.table.is_some() || given.give_up_table) {
        return Err(invalid("raw=true: a device without a volume has no table".to_owned()));
    }
    Ok(EngineOptions {
        stack: StackOptions {
            backend: given.backend,
            patience: RESTART_PATIENCE,
            ..StackOptions::new(device, OpenMode::Exclusive)
        },
        table: given.table.clone(),
        give_up_table: given.give_up_table,
        raw: given.raw,
        chain: chain(device, &given)?,
        borrowing: Borrowing::default(),
        recognised: None,
        emulation: given.emulate.clone().map(|profile| Emulation {
            profile,
            fit: given.fit,
            write_cache: given.write_cache,
            link: given.link,
        }),
    })
}

/// The chain of drives that the device belongs to, if any.
fn chain(device: &Path, given: &Parameters) -> Result<Option<ServedChain>> {
    if given.raw {
        return Ok(None);
    }
    let cleaning = given.cleaning.unwrap_or_default();
    let cache = Sectors::from_bytes_ceil(given.cache_memory);
    let sleep = given
        .wake_budget
        .map(|wakes_a_day| SleepSettings { wakes_a_day, ..SleepSettings::default() });
    let settings = ChainSettings { cleaning, cache, sleep, ..ChainSettings::default() };
    let found = ServedChain::of(device, &given.members, settings);
    let found = found.map_err(|error| invalid(error.to_string()))?;
    Ok(found.map(|chain| ServedChain { cache: given.cache.clone(), ..chain }))
}

fn starts(text: &str) -> Result<u32> {
    let starts = text.parse().ok().filter(|starts| *starts > 0);
    starts.ok_or_else(|| invalid(format!("wake-budget={text}: expected a number from 1 on")))
}

fn bytes(text: &str) -> Result<u64> {
    text.parse().map_err(|_| invalid(format!("{text:?}: expected a number of bytes")))
}

/// Makes a path absolute, because nbdkit changes its directory when it goes to the background.
fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| invalid(format!("{path:?}: {error}")))
}

fn drive(name: &str) -> Result<Profile> {
    let found = Library::of_user().find(name).map_err(|error| invalid(error.to_string()))?;
    match found {
        Some(profile) => Ok(profile),
        None => Profile::load(&absolute(name)?).map_err(|error| invalid(error.to_string())),
    }
}

fn link(name: &str) -> Result<LinkKind> {
    name.parse().map_err(|error| invalid(format!("drive-link: {error}")))
}

fn cleaning(name: &str) -> Result<Cleaning> {
    name.parse().map_err(|error| invalid(format!("cleaning: {error}")))
}

fn backend(name: &str) -> Result<Backend> {
    match name {
        "auto" => Ok(Backend::Auto),
        "uring" => Ok(Backend::Uring),
        "threads" => Ok(Backend::Threads),
        _ => Err(invalid(format!("backend={name}: expected auto, uring or threads"))),
    }
}

fn log_format(name: &str) -> Result<LogFormat> {
    match name {
        "text" => Ok(LogFormat::Text),
        "logfmt" => Ok(LogFormat::Logfmt),
        "json" => Ok(LogFormat::Json),
        _ => Err(invalid(format!("log-format={name}: expected text, logfmt or json"))),
    }
}

fn invalid(message: String) -> Error {
    Error::new(Errno::INVAL.raw_os_error(), message)
}
