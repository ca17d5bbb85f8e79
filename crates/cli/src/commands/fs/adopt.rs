//! `manylogs fs adopt` and `manylogs fs release`.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write as _};
use std::path::Path;
use std::rc::Rc;

use manylogs_ext4::{Error, Summary};
use manylogs_mlfs::adopt::{
    AdoptError, LogLayout, Logs, Site, Spacing, Volumes, adopt as take_over, release as give_back,
};
use manylogs_mount::fstab::{Names, fstab_lines, is_root_disk};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor};

use super::contents;
use super::known::Known;
use super::status::first_block;
use crate::args::fs::{FsAdoptArgs, FsReleaseArgs};
use crate::commands::volume::open_failure;
use crate::failure::Failure;
use crate::output::print;

pub(super) fn adopt(args: &FsAdoptArgs) -> Result<(), Failure> {
    let source = &args.source;
    if is_root_disk(source) {
        let what = "the system runs from it: MLFS is no root file system";
        return Err(Failure::input(format!("{}: {what}", source.display())));
    }
    let physical_sector = args.physical_sector;
    let options = OpenOptions { physical_sector, ..OpenOptions::new(OpenMode::Exclusive) };
    let (reactor, site) = open_with(source, &options)?;
    check_fstab(source, &args.fstab)?;
    ask(args)?;
    let mut layout = LogLayout::default();
    if let Some(every) = args.log_every {
        layout.spacing = Spacing::Bytes(every.bytes());
    }
    let adopted = reactor
        .block_on(async move { take_over(&site, &layout, &Volumes).await })
        .map_err(|error| failure(source, &error))?;
    let went_on = if adopted.went_on { "; an earlier attempt was completed" } else { "" };
    print(&format!("{} belongs to MLFS: {}{went_on}\n", source.display(), described(&adopted.logs)))
}

pub(super) fn release(args: &FsReleaseArgs) -> Result<(), Failure> {
    let source = &args.source;
    let logged = logged_bytes(source);
    if logged > 0 {
        print(&format!("{logged} bytes are in the logs alone: they go home first\n"))?;
    }
    {
        let (reactor, site) = open(source, OpenMode::Exclusive)?;
        let released = reactor.block_on(async move { give_back(&site, &Volumes).await });
        released.map_err(|error| failure(source, &error))?;
    }
    let state = Known::of(source)?.state;
    print(&format!("{} is plain ext4 again: {state}\n", source.display()))
}

/// Bytes that a release will write home; 0 if that is unknown, because the release then reports
/// why.
fn logged_bytes(source: &Path) -> u64 {
    let known = Known::of(source).ok().filter(|known| known.server.is_none());
    known.and_then(|known| known.state.logged_bytes()).unwrap_or(0)
}

/// Opens a device for adoption, with a reactor for its tasks.
pub(super) fn open(source: &Path, mode: OpenMode) -> Result<(Reactor, Site), Failure> {
    open_with(source, &OpenOptions::new(mode))
}

fn open_with(source: &Path, options: &OpenOptions) -> Result<(Reactor, Site), Failure> {
    let reactor = Reactor::new().map_err(Failure::failed)?;
    let device = FileDevice::open(&reactor, source, options);
    let device = device.map_err(|error| open_failure(&error))?;
    let site = Site::new(Rc::new(device), reactor.handle());
    Ok((reactor, site))
}

/// The number of the logs and their size, in words.
pub(super) fn described(logs: &Logs) -> String {
    let mib = logs.blocks() / 256;
    match logs.runs.len() {
        1 => format!("1 log, {mib} MiB"),
        count => format!("{count} logs, {mib} MiB together"),
    }
}

/// Refuses a disk that `/etc/fstab` mounts as ext4: that mount would fail at the system's next
/// start.
fn check_fstab(source: &Path, fstab: &Path) -> Result<(), Failure> {
    let table = match fs::read_to_string(fstab) {
        Ok(table) => table,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::at(fstab, &error)),
    };
    let summary = Summary::of(&first_block(source)?)
        .map_err(|error| failure(source, &AdoptError::FileSystem(error)))?;
    let path = fs::canonicalize(source).map_err(|error| Failure::at(source, &error))?;
    let names = Names { path, uuid: summary.uuid, label: summary.label };
    let lines = fstab_lines(&table, &names);
    if lines.is_empty() {
        return Ok(());
    }
    let mut message = format!(
        "{}: {} says that it is ext4, which would stop the next start of the system. Change",
        source.display(),
        fstab.display()
    );
    for line in lines {
        let _ = write!(
            message,
            "\n  line {}: {}\n  to:      {}",
            line.number, line.text, line.for_mlfs
        );
    }
    Err(Failure::Input(message))
}

fn ask(args: &FsAdoptArgs) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let source = args.source.display();
    if !io::stdin().is_terminal() {
        return Err(Failure::input(format!("{source}: nobody can be asked: give --yes")));
    }
    let mut err = io::stderr();
    let _ = write!(
        err,
        "Until it is released, {source} can be used by manylogs alone: the kernel and e2fsck \
         refuse it.\nTake it over? [y/N] "
    );
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::failed)?;
    if ["y", "yes"].contains(&answer.trim()) {
        return Ok(());
    }
    Err(Failure::input(format!("{source}: nothing was changed")))
}

pub(super) fn failure(source: &Path, error: &AdoptError) -> Failure {
    let message = format!("{}: {error}", source.display());
    match error {
        AdoptError::FileSystem(error) if contents::is_other(error) => contents::no_ext4(source),
        AdoptError::FileSystem(Error::Io(_) | Error::Aborted(_)) => Failure::Failed(message),
        AdoptError::FileSystem(error) if error.is_damage() => Failure::Damage(message),
        AdoptError::Damaged(_)
        | AdoptError::BitWithoutPointer
        | AdoptError::LogsMoved(_)
        | AdoptError::BitTakenAway
        | AdoptError::UsedSince
        | AdoptError::HasErrors
        | AdoptError::NoEngine => Failure::Damage(message),
        _ => Failure::Input(message),
    }
}
