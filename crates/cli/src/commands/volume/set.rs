//! `manylogs set`: the settings of a volume, served or closed.

use manylogs::{OpenOptions, Settings, Volume, identify};
use manylogs_operate::control::Order;
use manylogs_storage::OpenMode;

use super::Session;
use crate::args::volume::SetArgs;
use crate::commands::live;
use crate::commands::serve::control_failure;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &SetArgs) -> Result<(), Failure> {
    // Checked before the device is opened, so that a typing error is reported at once.
    check(&args.changes)?;
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

/// The settings as a JSON object, with values in the syntax of the command line.
pub(crate) fn as_json(settings: &[(&'static str, String)]) -> serde_json::Value {
    settings.iter().map(|(key, value)| (*key, value.as_str())).collect()
}
