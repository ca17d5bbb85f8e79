//! `manylogs set`: the settings of a volume, served or closed.

use manylogs::{GeometryReport, OpenOptions, Settings, Volume, VolumeError, identify};
use manylogs_block::Geometry;
use manylogs_operate::control::Order;
use manylogs_serve::share_percent;
use manylogs_storage::OpenMode;

use super::Session;
use crate::args::volume::{GeometryArg, SetArgs};
use crate::commands::live;
use crate::commands::serve::control_failure;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &SetArgs) -> Result<(), Failure> {
    if args.changes.iter().any(|change| change.starts_with("share=")) {
        return set_lent(args);
    }
    // Checked before the device is opened, so that a typing error is reported at once.
    check(&args.changes)?;
    if let Some(which) = args.geometry {
        return follow_array(args, which);
    }
    if let Some(mut server) = live::server(&args.volume.device)? {
        let changes = args.changes.clone();
        let settings = server.ask(&Order::Set { changes }).map_err(control_failure)?;
        return show(&settings, args.json);
    }
    let mode = if args.changes.is_empty() { OpenMode::ReadOnly } else { OpenMode::Exclusive };
    let mut session = Session::open(&args.volume, mode)?;
    let settings = if args.changes.is_empty() {
        kept(&session)?
    } else {
        session.lock()?;
        change(&session, &args.changes)?
    };
    show(&as_json(&settings.list()), args.json)
}

/// Changes the share of a part that is lent, which its server alone knows.
fn set_lent(args: &SetArgs) -> Result<(), Failure> {
    args.changes
        .iter()
        .try_for_each(|change| share_percent(change).map(drop))
        .map_err(Failure::input)?;
    let device = &args.volume.device;
    let none = || Failure::input(format!("{}: no server lends it", device.display()));
    let mut server = live::server(device)?.ok_or_else(none)?;
    let changes = args.changes.clone();
    show(&server.ask(&Order::Set { changes }).map_err(control_failure)?, args.json)
}

/// Checks that the changes are valid settings, whatever the volume.
pub(crate) fn check(changes: &[String]) -> Result<(), Failure> {
    changes.iter().try_for_each(|pair| Settings::default().assign(pair).map_err(Failure::input))
}

/// Prints settings.
pub(crate) fn show(settings: &serde_json::Value, json: bool) -> Result<(), Failure> {
    if json {
        return print(&(serde_json::to_string_pretty(settings).unwrap_or_default() + "\n"));
    }
    let line = |(key, value): (&String, &serde_json::Value)| {
        format!("{key}={}\n", value.as_str().unwrap_or_default())
    };
    print(&settings.as_object().into_iter().flatten().map(line).collect::<String>())
}

fn kept(session: &Session) -> Result<Settings, Failure> {
    let device = session.reads();
    let identity = session.run(async move { identify(&device).await });
    let identity = identity.map_err(|error| session.failure(&error))?;
    Ok(Settings::of(&identity.config))
}

fn change(session: &Session, changes: &[String]) -> Result<Settings, Failure> {
    let mut settings = kept(session)?;
    changes.iter().try_for_each(|pair| settings.assign(pair)).map_err(Failure::input)?;
    let device = session.reads();
    let options = OpenOptions::default();
    let done = session.run(async move { Volume::set_closed(device, &settings, &options).await });
    done.map_err(|error| session.failure(&error))?;
    Ok(settings)
}

/// Makes a drained volume one for the array as it is now.
fn follow_array(args: &SetArgs, which: GeometryArg) -> Result<(), Failure> {
    let mut session = Session::open(&args.volume, OpenMode::Exclusive)?;
    session.lock()?;
    let (device, path) = (session.reads(), session.path().display());
    let before = kept(&session)?;
    let done = session.run(async move {
        match which {
            GeometryArg::Now => Volume::set_geometry(device).await,
            GeometryArg::Unsaid => Volume::forget_said_geometry(device).await,
        }
    });
    let report = done.map_err(|error| match error {
        VolumeError::NotDrained => Failure::Input(format!(
            "{path}: the logs are not empty, and would not be found in other places: empty them \
             first (manylogs drain {path})"
        )),
        error => session.failure(&error),
    })?;
    print(&told(&report, &before))
}

fn told(report: &GeometryReport, before: &Settings) -> String {
    let mut text = format!(
        "before     {}\nnow        {}, {} logs\n",
        in_words(report.before),
        in_words(report.now),
        report.logs
    );
    if let Some(unfit) = &report.unfit {
        text += &format!(
            "not so     {unfit}: the volume takes the array for one drive (format it anew to \
             change that)\n"
        );
    }
    if report.hole_opened {
        text += "not so     the write hole of data at home is open from now on\n";
    }
    let (old, new) = (before.list(), report.settings.list());
    let changed = old.iter().zip(&new).filter(|(old, new)| old != new);
    changed.for_each(|((key, old), (_, new))| {
        text += &format!("setting    {key}={new}, before {old}\n");
    });
    text
}

/// An array in words.
pub(super) fn in_words(array: Option<Geometry>) -> String {
    let Some(array) = array else { return "one drive".to_owned() };
    let of = match (array.copies, array.parity) {
        (1, 0) => String::new(),
        (1, parity) => format!(" and {parity} of parity"),
        (copies, _) => format!(" of {copies} drives each"),
    };
    format!("{} columns{of}, chunks of {} KiB", array.columns, array.chunk.bytes() >> 10)
}

/// The settings as a JSON object, with values in the syntax of the command line.
pub(crate) fn as_json(settings: &[(&'static str, String)]) -> serde_json::Value {
    settings.iter().map(|(key, value)| (*key, value.as_str())).collect()
}
