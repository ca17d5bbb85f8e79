//! `manylogs set`: the settings of a closed volume.

use std::rc::Rc;

use manylogs::{Settings, Volume, identify};
use manylogs_storage::OpenMode;

use super::Session;
use crate::args::volume::SetArgs;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &SetArgs) -> Result<(), Failure> {
    // Before the device is touched: a typing error is told at once.
    args.changes
        .iter()
        .try_for_each(|pair| Settings::default().assign(pair).map_err(Failure::input))?;
    let mode = if args.changes.is_empty() { OpenMode::ReadOnly } else { OpenMode::Exclusive };
    let mut session = Session::open(&args.volume, mode)?;
    let settings = if args.changes.is_empty() {
        kept(&session)?
    } else {
        session.lock()?;
        change(&session, &args.changes)?
    };
    if args.json {
        let text = serde_json::to_string_pretty(&as_json(&settings.list())).unwrap_or_default();
        return print(&(text + "\n"));
    }
    print(&settings.to_string())
}

fn kept(session: &Session) -> Result<Settings, Failure> {
    let device = Rc::clone(&session.device);
    let identity = session.run(async move { identify(&device).await });
    let identity = identity.map_err(|error| session.failure(&error))?;
    Ok(Settings::of(&identity.config))
}

fn change(session: &Session, changes: &[String]) -> Result<Settings, Failure> {
    let mut settings = kept(session)?;
    changes.iter().try_for_each(|pair| settings.assign(pair)).map_err(Failure::input)?;
    let device = Rc::clone(&session.device);
    let done = session.run(async move { Volume::set_closed(device, &settings).await });
    done.map_err(|error| session.failure(&error))?;
    Ok(settings)
}

/// An object of them, with the values as they are written on the command line.
pub(crate) fn as_json(settings: &[(&'static str, String)]) -> serde_json::Value {
    settings.iter().map(|(key, value)| (*key, value.as_str())).collect()
}
