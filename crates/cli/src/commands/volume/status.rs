//! `manylogs status`, and `manylogs table`.

use std::fmt::Write;
use std::fs;

use manylogs::{
    HomePace, Inspection, Layout, LeftAs, Settings, identify, inspect_with, measure_homes,
};
use manylogs_block::Nanos;
use manylogs_operate::status::{ArrayStatus, DiskStatus};
use manylogs_storage::OpenMode;
use serde_json::json;

use super::set::as_json as settings_json;
use super::{Session, human, id_text, span};
use crate::args::volume::{StatusArgs, TableArgs};
use crate::commands::drive::choose::recognised;
use crate::commands::{everest, gecko, live, write_cache};
use crate::failure::Failure;
use crate::output::print;

/// How a volume was left, in the words of `status` and `dump`.
pub(crate) const fn left_text(left: LeftAs) -> &'static str {
    match left {
        LeftAs::Open => "not closed in order: the next opening recovers it",
        LeftAs::Closed => "closed",
        LeftAs::Drained => "drained: readable without this software",
    }
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    if let Some(mut server) = live::server(&args.volume.device)? {
        return live::status(&mut server, args.json, args.forget_lateness);
    }
    if args.forget_lateness {
        let device = args.volume.device.display();
        let message = format!("no server has {device} open: there is no lateness to forget");
        return Err(Failure::input(message));
    }
    if gecko::status(&args.volume.device, args.json)? {
        return Ok(());
    }
    if everest::status(&args.volume.device, args.json)? {
        return Ok(());
    }
    let session = Session::open(&args.volume, OpenMode::ReadOnly)?;
    let (device, options) = (session.reads(), session.options());
    let found = session.run(async move { inspect_with(&device, &options).await });
    let found = found.map_err(|error| session.failure(&error))?;
    let drain = found.drain_estimate(pace(&session, &found));
    let drive = recognised(None, session.path())?.map(|(_, words)| words);
    let disk = DiskStatus::at(session.path()).map(|disk| DiskStatus { drive, ..disk });
    if args.json {
        let mut value = as_json(&found, drain);
        value["disk"] = json!(disk);
        value["array"] = json!(array(&session, &found.layout));
        let text = serde_json::to_string_pretty(&value).unwrap_or_default();
        return print(&(text + "\n"));
    }
    let used: u64 = found.logs.iter().map(|log| log.used.bytes()).sum();
    let space = found.layout.log_sectors().bytes();
    let lost = found.table.iter().filter(|mapped| mapped.lost).count();
    let mut out = format!(
        "volume          {}{}{}\n\
         state           {}\n\
         for data        {}\n\
         logs            {}, {} in use, {} of {} appended to ({:.1} %)\n\
         bytes at risk   {} in {} extents are newer in the logs than at home{}\n\
         time to drain   about {}\n",
        id_text(&found.volume),
        if found.label.is_empty() { "" } else { " " },
        found.label,
        left_text(found.left),
        human(found.layout.capacity().bytes()),
        found.layout.regions().len(),
        found.logs.len(),
        human(used),
        human(space),
        100.0 * used as f64 / space as f64,
        human(found.at_risk_bytes() - found.zeroed_bytes()),
        found.table.len(),
        match found.zeroed_bytes() {
            0 => String::new(),
            bytes => format!(", and {} are zeroes", human(bytes)),
        },
        span(drain),
    );
    if let Some(array) = array(&session, &found.layout) {
        let _ = writeln!(out, "array           {}", array.words());
    }
    let changed = changed(&found);
    if !changed.is_empty() {
        let pairs: Vec<_> = changed.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let _ = writeln!(out, "settings        {}", pairs.join(" "));
    }
    if !found.retired.is_empty() {
        let _ = writeln!(out, "retired logs    {} (after I/O errors)", found.retired.len());
    }
    if lost > 0 {
        let _ = writeln!(out, "lost            {lost} extents: reads of them fail");
    }
    if !found.recovery.damage.is_empty() {
        let damaged = found.recovery.damage.len();
        let _ = writeln!(out, "damage          {damaged} places in logs: see manylogs check");
    }
    out += &disk.map(|disk| write_cache::rows(&disk, None)).unwrap_or_default();
    print(&out)
}

/// The array that the volume was made for, if any.
pub(super) fn array(session: &Session, layout: &Layout) -> Option<ArrayStatus> {
    let today = session.device.geometry();
    let known = today == layout.columns() || (layout.is_said() && today.is_none());
    ArrayStatus::of_layout(layout, known)
}

/// How fast the device is where data would go home; `None` if it cannot be measured. Only the
/// estimate of a drain needs it.
fn pace(session: &Session, found: &Inspection) -> Option<HomePace> {
    let (runtime, device, homes) = (session.runtime(), session.reads(), found.homes_of_logged());
    session.run(async move { measure_homes(&runtime, &device, &homes).await.ok().flatten() })
}

/// The settings that differ from the defaults for logs of this size.
fn changed(found: &Inspection) -> Vec<(&'static str, String)> {
    Settings::of(&found.config).unlike(&Settings::for_log(found.config.log))
}

fn as_json(found: &Inspection, drain: Nanos) -> serde_json::Value {
    json!({
        "volume": id_text(&found.volume),
        "label": found.label,
        "state": match found.left {
            LeftAs::Open => "open",
            LeftAs::Closed => "closed",
            LeftAs::Drained => "drained",
        },
        "capacity_bytes": found.layout.capacity().bytes(),
        "logs": found.layout.regions().len(),
        "logs_in_use": found.logs.len(),
        "log_bytes": found.layout.log_sectors().bytes(),
        "log_bytes_used": found.logs.iter().map(|log| log.used.bytes()).sum::<u64>(),
        "mapped_extents": found.table.len(),
        "at_risk_bytes": found.at_risk_bytes(),
        "zeroed_bytes": found.zeroed_bytes(),
        "drain_estimate_s": drain.0 as f64 / 1e9,
        "retired_logs": found.retired.iter().map(|log| log.0).collect::<Vec<_>>(),
        "lost_extents": found.table.iter().filter(|mapped| mapped.lost).count(),
        "damaged_places": found.recovery.damage.len(),
        "settings": settings_json(&changed(found)),
    })
}

pub(crate) fn table(args: &TableArgs) -> Result<(), Failure> {
    let session = Session::open(&args.volume, OpenMode::ReadOnly)?;
    let device = session.reads();
    let identity = session.run(async move { identify(&device).await });
    let identity = identity.map_err(|error| session.failure(&error))?;
    if identity.left != LeftAs::Drained && !args.force {
        return Err(Failure::input(format!(
            "{}: the volume is not drained, so its logs hold data that the table would not show: \
             run manylogs drain first (or give --force)",
            session.path().display()
        )));
    }
    // An absolute path, because the reader of the table may have another working directory.
    let name = match &args.device_name {
        Some(name) => name.clone(),
        None => {
            fs::canonicalize(session.path()).map_err(|error| Failure::at(session.path(), &error))?
        }
    };
    let name = name.display();
    let mut out = String::new();
    for (exported, home) in identity.layout.homes() {
        let (start, len) = (exported.0, home.len.0);
        let _ = if args.dm {
            writeln!(out, "{start} {len} linear {name} {}", home.start.0)
        } else {
            writeln!(out, "sectors {start}..{} are at {} of {name}", start + len, home.start.0)
        };
    }
    print(&out)
}
