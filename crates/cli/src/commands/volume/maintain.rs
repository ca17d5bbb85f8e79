//! `manylogs checkpoint`, `drain`, `scrub` and `grow`.

use std::future::Future;
use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use manylogs::{DrainOptions, OpenOptions, RecoveryReport, Volume};
use manylogs_block::Nanos;
use manylogs_operate::status::CheckpointStatus;
use manylogs_storage::{OpenMode, Reactor};

use super::{Session, human, id_text, span};
use crate::args::volume::{CheckpointArgs, DrainArgs, VolumeArgs};
use crate::commands::gecko;
use crate::commands::lend::refuse_if_borrowing;
use crate::commands::live;
use crate::commands::serve::control_failure;
use crate::failure::Failure;
use crate::output::print;

const REDRAW: Nanos = Nanos::from_millis(200);
const STYLE: &str = "{prefix:<10} {wide_bar} {percent:>3} % {eta:>4} left";

fn opened(args: &VolumeArgs) -> Result<(Session, Volume, RecoveryReport), Failure> {
    let mut session = Session::open(args, OpenMode::Exclusive)?;
    let (volume, report) = session.open_volume()?;
    Ok((session, volume, report))
}

/// A progress bar; hidden unless standard error is a terminal.
pub(crate) fn bar(what: &'static str, len: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style).with_prefix(what)
}

/// Runs `work` and meanwhile shows the progress of the checkpoint.
pub(crate) fn with_progress<T: 'static>(
    reactor: &Reactor,
    volume: &Volume,
    what: &'static str,
    work: impl Future<Output = T> + 'static,
) -> T {
    let bar = bar(what, volume.layout().capacity().0);
    let (runtime, shown, watched) = (reactor.handle(), bar.clone(), volume.clone());
    reactor.handle().spawn(async move {
        while !shown.is_finished() {
            shown.set_position(watched.stats().checkpoint_at);
            runtime.sleep(REDRAW).await;
        }
    });
    let result = reactor.block_on(work);
    bar.finish_and_clear();
    result
}

/// `manylogs checkpoint`: the server does it if the volume is served.
pub(crate) fn checkpoint(args: &CheckpointArgs) -> Result<(), Failure> {
    let device = &args.volume.device;
    let done = match live::server(device)? {
        Some(mut server) => server.checkpoint().map_err(control_failure)?,
        None => {
            let (session, volume, _) = opened(&args.volume)?;
            let working = volume.clone();
            let done = with_progress(session.reactor(), &volume, "checkpoint", async move {
                let report = working.checkpoint().await?;
                working.close().await?;
                Ok(report)
            });
            done.map_err(|error| session.failure(&error))?.into()
        }
    };
    tell(device, &done)
}

/// Prints the result of a checkpoint. It is a failure if extents stay in the logs.
pub(crate) fn tell(device: &Path, done: &CheckpointStatus) -> Result<(), Failure> {
    print(&format!(
        "{} written home in {} writes, {}\n",
        human(done.home_bytes),
        done.home_writes,
        span(Nanos::from_secs_f64(done.seconds))
    ))?;
    if done.lost_extents + done.kept_extents > 0 {
        return Err(Failure::Loss(format!(
            "{}: {} extents are lost (their logged copies are damaged), {} could not be written \
             home and stay logged",
            device.display(),
            done.lost_extents,
            done.kept_extents
        )));
    }
    if done.unread_extents > 0 {
        return Err(Failure::Failed(format!(
            "{}: {} extents could not be read from the logs: they stay logged, and nothing is \
             given up; look at the device and try again, `check` tells more",
            device.display(),
            done.unread_extents
        )));
    }
    Ok(())
}

pub(crate) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let mut session = Session::open(&args.volume, OpenMode::Exclusive)?;
    // With a new ID a copy may be drained while the original is open.
    if !args.new_id {
        session.lock()?;
    }
    let opening = OpenOptions { to_drain: true, ..session.options() };
    let (volume, _) = session.open_with_options(opening)?;
    refuse_if_borrowing(&session, &volume)?;
    let options = DrainOptions { wipe: args.wipe };
    let working = volume.clone();
    let done =
        with_progress(
            session.reactor(),
            &volume,
            "drain",
            async move { working.drain(&options).await },
        );
    let report = done.map_err(|error| session.failure(&error))?;
    if args.new_id {
        let (runtime, device) = (session.runtime(), session.reads());
        let renewed = session.run(async move { Volume::renew_id(runtime, device).await });
        let id = renewed.map_err(|error| session.failure(&error))?;
        print(&format!("volume {}\n", id_text(&id)))?;
    }
    let wiped = match report.wiped_bytes {
        0 => String::new(),
        bytes => format!(", {} of logs overwritten", human(bytes)),
    };
    print(&format!(
        "{} extents, {} written home{wiped}; `manylogs table --dm {}` shows where the data is\n",
        report.extents,
        human(report.home_bytes),
        session.path().display()
    ))
}

pub(crate) fn scrub(args: &CheckpointArgs) -> Result<(), Failure> {
    let bar = bar("scrub", 0);
    if gecko::scrub::run(&args.volume.device, &bar)? {
        return Ok(());
    }
    let (session, volume, _) = opened(&args.volume)?;
    let (working, shown) = (volume, bar.clone());
    let done = session.run(async move {
        let progress = |done, total| {
            shown.set_length(total);
            shown.set_position(done);
        };
        let report = working.scrub(progress).await?;
        working.close().await?;
        Ok(report)
    });
    bar.finish_and_clear();
    let report = done.map_err(|error| session.failure(&error))?;
    let mut out = format!(
        "{} logged extents read, {}; {} damaged, {} lost before\n",
        report.extents,
        human(report.sectors.bytes()),
        report.damaged.len(),
        report.lost.len()
    );
    for extent in &report.damaged {
        out += &format!("damaged: exported sectors {}+{}\n", extent.start.0, extent.len.0);
    }
    for extent in &report.lost {
        out += &format!("lost: exported sectors {}+{}\n", extent.start.0, extent.len.0);
    }
    print(&out)?;
    if report.damaged.is_empty() && report.lost.is_empty() {
        return Ok(());
    }
    let cure = if report.damaged.is_empty() { "" } else { ", or manylogs check --repair" };
    Err(Failure::Loss(format!(
        "{}: logged copies are damaged: overwrite or discard those blocks{cure}",
        session.path().display()
    )))
}

pub(crate) fn grow(args: &CheckpointArgs) -> Result<(), Failure> {
    let mut session = Session::open(&args.volume, OpenMode::Exclusive)?;
    session.lock()?;
    let device = session.reads();
    let grown = session.run(async move { Volume::grow(device).await });
    let report = grown.map_err(|error| session.failure(&error))?;
    print(&format!(
        "for data {}, was {}; {} logs, were {}\n",
        human(report.after.bytes()),
        human(report.before.bytes()),
        report.logs_after,
        report.logs_before
    ))
}
