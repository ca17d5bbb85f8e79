//! `manylogs fs top`, `checkpoint` and `set`: the server does the work if the file system is
//! mounted, else this process.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs::{DrainOptions, Settings, Volume, VolumeError};
use manylogs_mlfs::adopt::{AdoptError, Volumes, locate, open as open_logs};
use manylogs_operate::control::{self, Control, ControlError, Order};
use manylogs_storage::{OpenMode, Reactor};

use super::adopt::{failure, open};
use super::known::Known;
use super::mounted::{is_directory, source_of};
use crate::args::fs::{FsArrangeArgs, FsCheckpointArgs, FsSetArgs, FsTopArgs};
use crate::commands::serve::control_failure;
use crate::commands::volume::{maintain, set};
use crate::commands::{live, top};
use crate::failure::Failure;
use crate::output::print;

pub(super) fn top(args: &FsTopArgs) -> Result<(), Failure> {
    top::run(&device(&args.place)?, &args.updates)
}

pub(super) fn checkpoint(args: &FsCheckpointArgs) -> Result<(), Failure> {
    let device = device(&args.place)?;
    let done = match live::server(&device)? {
        Some(mut server) => server.checkpoint().map_err(control_failure)?,
        None => {
            let (reactor, volume) = logs_of(&device)?;
            let working = volume.clone();
            let done = maintain::with_progress(&reactor, &volume, "checkpoint", async move {
                let report = working.checkpoint().await?;
                leave(&working).await?;
                Ok(report)
            });
            done.map_err(|error| of_logs(&device, error))?.into()
        }
    };
    maintain::tell(&device, &done)?;
    print(&format!("{}: {}\n", device.display(), Known::of(&device)?.state))
}

pub(super) fn arrange(args: &FsArrangeArgs) -> Result<(), Failure> {
    let device = device(&args.place)?;
    let mut server = lazy_server(&device, "metadata is arranged")?;
    let done = server.arrange().map_err(control_failure)?;
    let rest = if done.is_whole { "" } else { "; the journal is too short for the rest" };
    print(&format!(
        "{}: {} directories walked, {} blocks of metadata written anew, {:.1} s{rest}\n",
        device.display(),
        done.directories,
        done.blocks,
        done.seconds
    ))
}

/// The server of a mounted file system, for what is done to a journal in the mode lazy alone.
pub(super) fn lazy_server(device: &Path, what: &str) -> Result<Control, Failure> {
    let (at, how) = (device.display(), "manylogs fs mount --mode lazy, and not -o ro");
    let told = format!("{at}: {what} while it is mounted: {how}");
    match control::connect(device) {
        Err(ControlError::NotServed { .. }) => Err(Failure::input(told)),
        connected => connected.map_err(control_failure),
    }
}

/// Closes the volume of the logs after use: as drained, if they are empty.
async fn leave(volume: &Volume) -> Result<(), VolumeError> {
    if volume.table().is_empty() {
        volume.drain(&DrainOptions::default()).await.map(drop)
    } else {
        volume.close().await
    }
}

pub(super) fn set(args: &FsSetArgs) -> Result<(), Failure> {
    // Checked before the device is opened, so that a typing error is reported at once.
    set::check(&args.changes)?;
    let device = device(&args.place)?;
    if let Some(mut server) = live::server(&device)? {
        let changes = args.changes.clone();
        let settings = server.ask(&Order::Set { changes }).map_err(control_failure)?;
        return set::show(&settings, args.json);
    }
    let changes = !args.changes.is_empty();
    let mode = if changes { OpenMode::Exclusive } else { OpenMode::ReadOnly };
    let (reactor, site) = open(&device, mode)?;
    let (found, logs) = reactor
        .block_on(async move {
            let logs = locate(&site, &Volumes).await?.logs;
            let settings = Settings::of(&Volumes::identity(&site, &logs).await?.config);
            Ok((settings, (site, logs)))
        })
        .map_err(|error| failure(&device, &error))?;
    let mut settings = found;
    args.changes.iter().try_for_each(|pair| settings.assign(pair)).map_err(Failure::input)?;
    if changes {
        let (site, logs) = logs;
        let options = Volumes::open_options(&logs).map_err(|error| failure(&device, &error))?;
        let setting =
            async move { Volume::set_closed(Rc::clone(&site.device), &settings, &options).await };
        reactor.block_on(setting).map_err(|error| of_logs(&device, error))?;
    }
    set::show(&set::as_json(&settings.list()), args.json)
}

/// The device of a file system that is mounted on a directory, or the device itself.
pub(super) fn device(place: &Path) -> Result<PathBuf, Failure> {
    if !is_directory(place) {
        return Ok(place.to_owned());
    }
    let none = || {
        let place = place.display();
        Failure::input(format!("{place}: no file system of manylogs is mounted there"))
    };
    source_of(place)?.ok_or_else(none)
}

/// The volume of the logs of an adopted file system that is not mounted. Opening it recovers it.
fn logs_of(device: &Path) -> Result<(Reactor, Volume), Failure> {
    let (reactor, site) = open(device, OpenMode::Exclusive)?;
    let opening = async move {
        let opened = open_logs(&site, &Volumes).await?;
        let options = Volumes::open_options(&opened.logs)?;
        let volume = Volume::open(site.runtime.clone(), Rc::clone(&site.device), &options).await;
        Ok::<_, AdoptError>(volume?.0)
    };
    let volume = reactor.block_on(opening).map_err(|error| failure(device, &error))?;
    Ok((reactor, volume))
}

fn of_logs(device: &Path, error: VolumeError) -> Failure {
    failure(device, &error.into())
}
