//! `manylogs serve`.

mod failure;
mod front_end;
mod nbdkit;
mod options;

use std::io::{self, Write};
use std::path::PathBuf;

use manylogs_operate::control::{ControlSocket, Order};
use manylogs_operate::log::{Level, line, set_format};
use manylogs_operate::status::{ArrayStatus, DiskStatus};
use manylogs_serve::{Ending, Engine, notify, protect};
use serde_json::from_value;

use super::gecko;
use super::md;
use super::volume::{human, id_text, in_use, stay_logged};
use super::write_cache;
use crate::args::serve::ServeArgs;
use crate::failure::Failure;
use crate::output::print;

pub(crate) use failure::{
    control_failure, key_failure, listen_failure, offload_failure, serve_failure, store_failure,
    ublk_failure,
};

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    set_format(args.log_format.into());
    let args = &gecko::resolved(args)?;
    if let Some(address) = args.nbd.nbd.as_ref().filter(|_| args.nbd.wants_nbdkit()) {
        return nbdkit::run(args, address);
    }
    front_end::check(args)?;
    let metrics = options::metrics_listener(args)?;
    // Called before any thread is started, because threads inherit the protection.
    if let Err(refused) = protect() {
        let message = format!("{refused}: do not mount the device on a machine short of memory");
        line(Level::Warning, None, &message, &[]);
    }
    let ending = Ending::default();
    on_signal(ending.on_signal())?;
    let path = &args.volume.device;
    options::start_beside(path, metrics)?;
    let options = options::engine(args)?;
    let listener = match &args.nbd.nbd {
        Some(address) => {
            options::check_security(&args.nbd, address)?;
            Some(address.bind().map_err(listen_failure)?)
        }
        None => None,
    };
    let engine =
        Engine::start(options, listener).map_err(|error| in_use(path, serve_failure(error)))?;
    say_what_is_served(args, &engine);
    let disks = options::disks(args);
    // This process has the disks alone now.
    let hold = |disk: &PathBuf| write_cache::hold(disk, args.write_cache, args.emulate.is_some());
    let caches = match disks.iter().map(hold).collect::<Result<Vec<_>, _>>() {
        Ok(caches) => caches,
        Err(refused) => {
            engine.port().stop();
            engine.join().map_err(serve_failure)?;
            return Err(refused);
        }
    };
    let status = engine.port().order(Order::Status).unwrap_or_default();
    // A missing part of the status gives `None`.
    let disk: Option<DiskStatus> = from_value(status["disk"].clone()).ok();
    write_cache::say(path, disk.as_ref());
    if let Ok(array) = from_value::<ArrayStatus>(status["volume"]["array"].clone()) {
        let message =
            format!("the array has {}; for whole stripes: {}", array.words(), array.mkfs());
        line(Level::Info, Some(path), &message, &[]);
    }
    disks.iter().for_each(|disk| md::say(disk));
    let control = controls(&disks, &ending, &engine)?;
    let shown = front_end::show(args, &engine, ending.on_gone())?;
    let name = shown.name();
    print(&format!("{name}\n"))?;
    io::stdout().flush().map_err(Failure::failed)?;
    notify("READY=1");
    let end = ending.wait(&shown, path);
    notify("STOPPING=1");
    let gone = end.is_gone();
    let left = end.leave(path, engine, shown);
    // Until here the socket answers what the server waits for.
    drop(control);
    // Restored last: acknowledged writes are durable with the cache on or off.
    caches.into_iter().for_each(write_cache::Held::release);
    let left = left.map_err(serve_failure)?;
    let message = match &args.chain {
        Some(_) => "closed".to_owned(),
        None => format!("closed, {}", stay_logged(left.at_risk_bytes, left.zeroed_bytes)),
    };
    line(Level::Info, Some(path), &message, &[("at_risk_bytes", left.at_risk_bytes.into())]);
    if gone {
        return Err(Failure::failed(format!("{name} was taken away by another program")));
    }
    Ok(())
}

/// Calls `handler` for each signal that asks the process to end.
pub(crate) fn on_signal(handler: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let set = ctrlc::set_handler(handler);
    set.map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))
}

/// Makes a control socket for each disk, so that an operator may name any member of a chain.
fn controls(
    disks: &[PathBuf],
    ending: &Ending,
    engine: &Engine,
) -> Result<Vec<ControlSocket>, Failure> {
    let control = |disk: &PathBuf| {
        ControlSocket::listen(disk, ending.obey(engine.port())).map_err(|error| {
            let message = format!("{}: cannot make the control socket: {error}", disk.display());
            Failure::of_io(&error, message)
        })
    };
    disks.iter().map(control).collect()
}

fn say_what_is_served(args: &ServeArgs, engine: &Engine) {
    let path = &args.volume.device;
    let about = engine.about();
    let size = human(about.capabilities.capacity.bytes());
    let mut fields = vec![("bytes", about.capabilities.capacity.bytes().into())];
    let message = match (&about.volume, &about.recovery) {
        (Some(id), Some(report)) => {
            let id = id_text(id);
            fields.push(("volume", id.as_str().into()));
            if report.was_closed {
                format!("volume {id}, {size}")
            } else {
                fields.push(("recovered_extents", report.mapped_extents.into()));
                fields.push(("records", report.records.into()));
                fields.push(("seconds", (report.duration.0 as f64 / 1e9).into()));
                fields.push(("mended_rows", report.mended_rows.into()));
                let rows = match report.mended_rows {
                    0 => String::new(),
                    rows => format!(", and wrote {rows} rows of the array home once more"),
                };
                format!(
                    "volume {id}, {size}; recovered {} extents from {} records in {}{rows}",
                    report.mapped_extents,
                    report.records,
                    super::volume::span(report.duration),
                )
            }
        }
        _ => match &args.chain {
            Some(chain) => {
                let id = id_text(&chain.id);
                fields.push(("chain", id.as_str().into()));
                format!("chain {id} of {} drives, {size}", chain.members.len())
            }
            None => format!("{size}, without a volume"),
        },
    };
    line(Level::Info, Some(path), &message, &fields);
}
