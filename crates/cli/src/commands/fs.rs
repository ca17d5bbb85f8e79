//! `manylogs fs`: file systems of our own.

mod adopt;
mod applications;
mod background;
mod check;
mod contents;
mod durable;
mod interfere;
mod journal;
mod keeping;
mod known;
pub(crate) mod listed;
mod marks;
mod mounted;
mod operate;
mod replayed;
mod scrub;
mod shown;
mod status;
mod trees;

use std::path::Path;

use clap::ValueEnum;
use manylogs_mlfs::{JournalMode, MountError};
use manylogs_mount::{Between, MountOptions, MountServerError};
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::DiskStatus;
use manylogs_serve::Emulation;

use crate::args::fs::{FsArgs, FsCommand, FsMountArgs};
use crate::args::serve::CacheArg;
use crate::commands::volume::open_failure;
use crate::commands::{md, write_cache};
use crate::failure::Failure;
use crate::output::print;

/// The mount option with the meaning of `--write-cache`.
const WRITE_CACHE: &str = "write_cache=";

pub(crate) fn run(args: &FsArgs) -> Result<(), Failure> {
    match &args.command {
        FsCommand::Mount(args) if args.background => background::mount(args),
        FsCommand::Mount(args) => mount(args),
        FsCommand::Unmount(args) => mounted::unmount(&args.target),
        FsCommand::Adopt(args) => adopt::adopt(args),
        FsCommand::Release(args) => adopt::release(args),
        FsCommand::Status(args) => status::run(args),
        FsCommand::Check(args) => check::run(args),
        FsCommand::Top(args) => operate::top(args),
        FsCommand::Checkpoint(args) => operate::checkpoint(args),
        FsCommand::Arrange(args) => operate::arrange(args),
        FsCommand::Scrub(args) => scrub::run(args),
        FsCommand::Journal(args) => journal::run(args),
        FsCommand::Set(args) => operate::set(args),
        FsCommand::Interfere(args) => interfere::run(args),
        FsCommand::Applications(args) => applications::run(args),
        FsCommand::Trees(args) => trees::run(args),
        FsCommand::Keeping(args) => keeping::run(args),
    }
}

fn mount(args: &FsMountArgs) -> Result<(), Failure> {
    let options = options(args)?;
    for ignored in options.ignored() {
        line(Level::Warning, None, &ignored.to_string(), &[]);
    }
    mounted::take_over(&args.source, &args.target)?;
    if !args.target.is_dir() {
        return Err(Failure::input(format!("{}: not a directory", args.target.display())));
    }
    let target = args.target.clone();
    ctrlc::set_handler(move || interrupted(&target)).map_err(Failure::failed)?;
    let (emulates, write_cache) = (options.between.is_some(), write_cache(args)?);
    let cache = write_cache::hold(&args.source, write_cache, emulates)?;
    if !emulates {
        write_cache::say(&args.source, DiskStatus::at(&args.source).as_ref());
        md::say(&args.source);
    }
    let (source, target) = (args.source.display(), args.target.display());
    // Logs the state in the words of `status`, `check` and `list`. Errors are left to the mount.
    if let Ok(found) = known::Known::of(&args.source) {
        line(Level::Info, None, &format!("{source}: {}", found.state), &[]);
    }
    let shown = replayed::Shown::new(options.replay.clone());
    let said = move || {
        drop(shown);
        // A lost terminal does not end the file system.
        let _ = print(&format!("{source} is mounted on {target}\n"));
    };
    let served = manylogs_mount::serve(&args.source, &args.target, options, said)
        .map_err(|error| failure(&args.source, &error));
    // Restored last: synced data are durable with the cache on or off.
    cache.release();
    served
}

/// The value of `--write-cache`, or else of the last `-o write_cache=`.
fn write_cache(args: &FsMountArgs) -> Result<CacheArg, Failure> {
    let options = args.options.iter().flat_map(|list| list.split(','));
    let mut found = CacheArg::Keep;
    for word in options.filter_map(|option| option.strip_prefix(WRITE_CACHE)) {
        found = CacheArg::from_str(word, false).map_err(|_| {
            Failure::input(format!("mount option {WRITE_CACHE}{word}: expected on, off or keep"))
        })?;
    }
    Ok(args.write_cache.unwrap_or(found))
}

/// The mount options: first those of the `-o` lists, then the command line's other options.
fn options(args: &FsMountArgs) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::default();
    let mut drive = args.emulate.clone();
    for option in args.options.iter().flat_map(|list| list.split(',')) {
        match option.strip_prefix("emulate=") {
            Some(name) => drive = Some(name.to_owned()),
            None if option.starts_with(WRITE_CACHE) => {}
            None => options.add(option).map_err(Failure::input)?,
        }
    }
    for list in &args.durable {
        options.keep_named(list, ',').map_err(Failure::input)?;
    }
    options.durable_dsync |= args.durable_dsync;
    if let Some(size) = &args.memory {
        options.bound_memory(size).map_err(Failure::input)?;
    }
    options.mode = args.mode.map(JournalMode::from).or(options.mode);
    let profile = drive.map(|name| super::drive(&name)).transpose()?;
    let write_cache = write_cache(args)?.wish();
    let (link, notes) = super::link::emulated(args.link, profile.as_ref(), write_cache)?;
    for note in notes {
        line(Level::Warning, None, &format!("{}: {note}", args.source.display()), &[]);
    }
    let fit = !args.no_fit;
    options.between = profile.map(|profile| {
        let emulation = Emulation { profile, fit, write_cache, link };
        let between: Between = Box::new(move |reactor, device| {
            emulation.over(reactor, device).map_err(|error| error.to_string())
        });
        between
    });
    Ok(options)
}

/// Ends the mount, unless it is in use.
fn interrupted(target: &Path) {
    if let Err(error) = manylogs_fuse::unmount_from(target, false) {
        let message = format!("{}: still mounted: {error}", target.display());
        line(Level::Warning, None, &message, &[]);
    }
}

fn failure(source: &Path, error: &MountServerError) -> Failure {
    let message = format!("{}: {error}", source.display());
    match error {
        MountServerError::Open(error) => open_failure(error),
        MountServerError::Mount { source: why, .. } => Failure::of_io(why, message),
        MountServerError::Between(_) => Failure::Input(message),
        MountServerError::FileSystem(error) => refused(source, error, message),
        _ => Failure::Failed(message),
    }
}

/// The failure if the file system on `source` cannot be mounted.
fn refused(source: &Path, error: &MountError, message: String) -> Failure {
    match error {
        MountError::FileSystem(error) if contents::is_other(error) => contents::no_ext4(source),
        MountError::FileSystem(manylogs_ext4::Error::Refused(_))
        | MountError::Adopted(_)
        | MountError::NotAdopted(_) => Failure::Input(message),
        MountError::Marks(error) => adopt::failure(source, error),
        damage if damage.is_damage() => Failure::Damage(message),
        _ => Failure::Failed(message),
    }
}
