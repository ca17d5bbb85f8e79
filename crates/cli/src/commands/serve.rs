//! `manylogs serve`.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use manylogs_serve::control::{Answer, ControlError, ControlSocket, Order, OrderError};
use manylogs_serve::log::{Level, line, set_format};
use manylogs_serve::{
    Emulation, Engine, EngineOptions, Port, RESTART_PATIENCE, ServeError, StackOptions, notify,
    protect,
};
use manylogs_storage::OpenMode;

use super::front_end::FrontEnd;
use super::volume::{human, id_text, stack_failure};
use super::{beside, nbdkit};
use crate::args::serve::{OnOff, ServeArgs};
use crate::failure::Failure;
use crate::output::print;

/// Why the server is to end, and who hears whether it does.
enum Wanted {
    Signal,
    Stop {
        force: bool,
        answer: SyncSender<Answer>,
    },
    /// Somebody else took the device away.
    Gone,
}

/// Why the server ends.
enum End {
    Signal,
    Stop(SyncSender<Answer>),
    Gone,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    set_format(args.log_format.into());
    if let Some(address) = args.nbd.nbd.as_ref().filter(|_| nbdkit::is_wanted(&args.nbd)) {
        return nbdkit::run(args, address);
    }
    FrontEnd::check(args)?;
    let metrics = beside::metrics_listener(args)?;
    // Before any thread is there: they inherit it.
    if let Err(refused) = protect() {
        let message = format!("{refused}: do not mount the device on a machine short of memory");
        line(Level::Warning, None, &message, &[]);
    }
    let (wants, wanted) = sync_channel(8);
    let (signals, taken) = (wants.clone(), wants.clone());
    ctrlc::set_handler(move || {
        let _ = signals.try_send(Wanted::Signal);
    })
    .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    let path = &args.volume.device;
    beside::start(path, metrics)?;
    let options = options(args)?;
    let listener = super::nbd::listen(&args.nbd)?;
    let engine = Engine::start(options, listener).map_err(serve_failure)?;
    say_what_is_served(path, &engine);
    let obey = obey(&engine, wants);
    let control = ControlSocket::listen(path, obey).map_err(|error| {
        Failure::failed(format!("{}: cannot make the control socket: {error}", path.display()))
    })?;
    let served = FrontEnd::start(args, &engine, move || {
        let _ = taken.send(Wanted::Gone);
    })?;
    print(&format!("{}\n", served.name()))?;
    io::stdout().flush().map_err(Failure::failed)?;
    notify("READY=1");
    let end = wait(&wanted, &served, path);
    // Whoever else wants it to end hears that it does.
    drop(wanted);
    notify("STOPPING=1");
    let left = leave(path, engine, served, end);
    // Until here it tells what it waits for.
    drop(control);
    left
}

pub(super) fn options(args: &ServeArgs) -> Result<EngineOptions, Failure> {
    let emulation = match &args.emulate {
        Some(name) => Some(Emulation {
            profile: super::drive(name)?,
            fit: !args.no_fit,
            write_cache: args.write_cache.map(|cache| cache == OnOff::On),
        }),
        None => None,
    };
    Ok(EngineOptions {
        stack: StackOptions {
            backend: args.volume.backend.into(),
            patience: RESTART_PATIENCE,
            ..StackOptions::new(&args.volume.device, OpenMode::Exclusive)
        },
        table: args.volume.table.as_ref().map(|table| table.0.clone()),
        give_up_table: args.volume.give_up_table,
        raw: args.raw,
        emulation,
    })
}

fn say_what_is_served(path: &Path, engine: &Engine) {
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
                format!(
                    "volume {id}, {size}; recovered {} extents from {} records in {}",
                    report.mapped_extents,
                    report.records,
                    super::volume::span(report.duration),
                )
            }
        }
        _ => format!("{size}, without a volume"),
    };
    line(Level::Info, Some(path), &message, &fields);
}

/// Most orders are the engine's; whether the server may end is decided here.
fn obey(engine: &Engine, wants: SyncSender<Wanted>) -> Arc<manylogs_serve::control::Obey> {
    let port = engine.port();
    Arc::new(move |order| {
        let Order::Stop { force } = order else { return port.order(order) };
        let (answer, answered) = sync_channel(1);
        let stopping = || already_stopping(&port);
        wants.send(Wanted::Stop { force, answer }).map_err(|_| stopping())?;
        answered.recv().unwrap_or_else(|_| Err(stopping()))
    })
}

/// What a server that stops waits for.
fn already_stopping(port: &Port) -> OrderError {
    let status = port.order(Order::Status).ok();
    let told = status.and_then(|status| status["stopping"].as_str().map(str::to_owned));
    OrderError::new(told.as_deref().unwrap_or("stopping: its users are being told"))
}

/// Resolves when the server may end: nobody uses the device, or it is forced to.
fn wait(wanted: &Receiver<Wanted>, served: &FrontEnd, path: &Path) -> End {
    let mut refused = false;
    loop {
        let want = wanted.recv().unwrap_or(Wanted::Signal);
        let users = served.users().join(", ");
        let message = format!("{} is in use: {users}", served.name());
        match want {
            Wanted::Stop { force, answer } if force || users.is_empty() => {
                return End::Stop(answer);
            }
            Wanted::Stop { answer, .. } => {
                let refused = OrderError::new(format!("{message} (--force stops all the same)"));
                let _ = answer.send(Err(refused));
            }
            Wanted::Gone => return End::Gone,
            Wanted::Signal if users.is_empty() || refused || served.users_come_back() => {
                return End::Signal;
            }
            Wanted::Signal => {
                let message = format!("{message}; unmount it, or send the signal again");
                line(Level::Warning, Some(path), &message, &[("users", users.into())]);
                refused = true;
            }
        }
    }
}

fn leave(path: &Path, engine: Engine, served: FrontEnd, end: End) -> Result<(), Failure> {
    let name = served.name();
    if let Err(error) = served.end() {
        line(Level::Warning, Some(path), &error, &[]);
    }
    engine.port().stop();
    let left = engine.join();
    let gone = matches!(end, End::Gone);
    if let End::Stop(answer) = end {
        let said = match &left {
            Ok(left) => Ok(serde_json::json!({ "at_risk_bytes": left.at_risk_bytes })),
            Err(error) => Err(OrderError::new(error)),
        };
        let _ = answer.send(said);
        // The thread that passes it on goes with this process.
        thread::sleep(Duration::from_millis(50));
    }
    let left = left.map_err(serve_failure)?;
    let message = format!("closed, {} stay logged", human(left.at_risk_bytes));
    line(Level::Info, Some(path), &message, &[("at_risk_bytes", left.at_risk_bytes.into())]);
    if gone {
        Err(Failure::failed(format!("{name} was taken away by another program")))
    } else {
        Ok(())
    }
}

/// What the exit code says of an order that was not carried out.
pub(crate) fn control_failure(error: ControlError) -> Failure {
    match &error {
        ControlError::NotServed { .. } => Failure::input(error),
        ControlError::Refused(reason) if reason.contains("is in use") => {
            Failure::Busy(error.to_string())
        }
        _ => Failure::failed(error),
    }
}

pub(super) fn serve_failure(error: ServeError) -> Failure {
    match error {
        ServeError::Stack(error) => stack_failure(error),
        error @ (ServeError::Table { .. } | ServeError::Emulation(_)) => Failure::input(error),
        error => Failure::failed(error),
    }
}
