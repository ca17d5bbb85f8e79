//! The one engine of the process: started once nbdkit has forked, closed in order when it ends.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use manylogs_block::Capabilities;
use manylogs_operate::control::{Answer, ControlSocket, Order, OrderError};
use manylogs_operate::log::{Level, line};
use manylogs_serve::{Engine, Port, ServeError, protect};
use nbdkit::{Error, Result};
use rustix::io::Errno;

use crate::config;

static SERVICE: Mutex<State> = Mutex::new(State::Idle);
/// Connections that are open.
static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
/// Grace period for sending the answer to `stop`.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// Grace period before remaining clients are disconnected.
const GRACE: Duration = Duration::from_secs(1);

enum State {
    /// The service has not started, or a signal ended it.
    Idle,
    Running(Box<Service>),
    /// An operator's order has ended the service, and the answer may still be on its way.
    Stopped {
        in_order: bool,
    },
}

struct Service {
    engine: Engine,
    _control: ControlSocket,
}

/// An open connection's way to the engine.
pub(crate) struct Access {
    pub(crate) port: Port,
    pub(crate) capabilities: Capabilities,
}

impl Drop for Access {
    fn drop(&mut self) {
        CONNECTIONS.fetch_sub(1, Ordering::SeqCst);
    }
}

fn state() -> MutexGuard<'static, State> {
    SERVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the engine. nbdkit calls this after its fork, because threads do not survive one.
///
/// # Errors
/// If the device or the volume cannot be opened, or there can be no control socket, without which
/// the server could not be stopped.
pub(crate) fn start() -> Result<()> {
    if let Err(refused) = protect() {
        let message = format!("{refused}: do not mount the device on a machine short of memory");
        line(Level::Warning, None, &message, &[]);
    }
    let options = config::options()?;
    let engine = Engine::start(options.clone(), None).map_err(|error| failed(&error))?;
    say_what_was_recovered(&options.stack.path, &engine);
    let obey = {
        let port = engine.port();
        Arc::new(move |order| obey(&port, order))
    };
    let control = match ControlSocket::listen(&options.stack.path, obey) {
        Ok(control) => control,
        Err(error) => {
            engine.port().stop();
            let _ = engine.join();
            let message = format!("cannot make the control socket: {error}");
            return Err(Error::new(Errno::IO.raw_os_error(), message));
        }
    };
    *state() = State::Running(Box::new(Service { engine, _control: control }));
    Ok(())
}

fn say_what_was_recovered(path: &Path, engine: &Engine) {
    if let Some(report) = engine.about().recovery.as_ref().filter(|report| !report.was_closed) {
        let (extents, records) = (report.mapped_extents, report.records);
        let message = format!("recovered {extents} extents from {records} records");
        let fields = [("recovered_extents", extents.into()), ("records", records.into())];
        line(Level::Info, Some(path), &message, &fields);
    }
}

/// Counts a connection and gives it the way to the engine.
///
/// # Errors
/// If the engine is gone.
pub(crate) fn access() -> Result<Access> {
    let state = state();
    let State::Running(service) = &*state else {
        return Err(Error::new(Errno::SHUTDOWN.raw_os_error(), "the server is stopping"));
    };
    CONNECTIONS.fetch_add(1, Ordering::SeqCst);
    Ok(Access { port: service.engine.port(), capabilities: service.engine.about().capabilities })
}

/// Closes the volume, unless an operator's order has done so; called when nbdkit ends.
pub(crate) fn end() {
    let state = std::mem::replace(&mut *state(), State::Idle);
    match state {
        State::Idle => {}
        // The thread that sends the answer ends with this process, so it gets a moment.
        State::Stopped { in_order } => {
            thread::sleep(LAST_WORDS);
            if !in_order {
                exit(in_order);
            }
        }
        State::Running(service) => {
            if let Err(error) = close(*service) {
                line(Level::Error, None, &error.to_string(), &[]);
                exit(false);
            }
        }
    }
}

/// Ends the process: nbdkit takes no result from the plugin's end, and would report success.
#[expect(clippy::exit, reason = "the only way to report it")]
fn exit(in_order: bool) -> ! {
    std::process::exit(i32::from(!in_order));
}

fn close(service: Service) -> std::result::Result<u64, ServeError> {
    service.engine.port().stop();
    service.engine.join().map(|left| left.at_risk_bytes)
}

/// Passes orders to the engine, except `Stop`, which is decided here.
fn obey(port: &Port, order: Order) -> Answer {
    let Order::Stop { force } = order else { return port.order(order) };
    // Held while the volume is closed, so that no client connects and nbdkit does not end before.
    let mut state = state();
    let connections = CONNECTIONS.load(Ordering::SeqCst);
    if connections > 0 && !force {
        return Err(OrderError::in_use(format!(
            "the export is in use: {connections} NBD connections (--force stops all the same)"
        )));
    }
    let stopped = State::Stopped { in_order: true };
    let State::Running(service) = std::mem::replace(&mut *state, stopped) else {
        return Err(OrderError::new("the server is stopping"));
    };
    let closed = close(*service);
    let in_order = closed.is_ok();
    *state = State::Stopped { in_order };
    thread::spawn(move || {
        nbdkit::shutdown();
        thread::sleep(GRACE);
        exit(in_order);
    });
    match closed {
        Ok(at_risk_bytes) => Ok(serde_json::json!({ "at_risk_bytes": at_risk_bytes })),
        Err(error) => Err(OrderError::new(error)),
    }
}

fn failed(error: &ServeError) -> Error {
    Error::new(Errno::IO.raw_os_error(), error.to_string())
}
