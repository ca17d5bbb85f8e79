//! When a server ends, and how its users and its operator learn of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::engine::{Engine, Left, ServeError};
use crate::front_end::Shown;
use crate::port::Port;
use manylogs_operate::control::{Answer, Obey, Order, OrderError};
use manylogs_operate::log::{Level, line};

/// Time for the thread that sends the last answer.
const LAST_ANSWER: Duration = Duration::from_millis(50);

/// Why the server is asked to end, and where the answer goes.
enum Wanted {
    Signal,
    Stop {
        force: bool,
        answer: SyncSender<Answer>,
    },
    /// Another program took the device away.
    Gone,
}

/// Why the server ends.
#[derive(Debug)]
pub enum End {
    /// By a signal.
    Signal,
    /// By an order, which is answered when the volume is closed.
    Stop(SyncSender<Answer>),
    /// Another program took the device away.
    Gone,
}

/// Collects the reasons for which a server may have to end, from any thread.
#[derive(Debug)]
pub struct Ending {
    wants: SyncSender<Wanted>,
    wanted: Receiver<Wanted>,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Signal => "Signal",
            Self::Stop { .. } => "Stop",
            Self::Gone => "Gone",
        })
    }
}

impl Default for Ending {
    fn default() -> Self {
        let (wants, wanted) = sync_channel(8);
        Self { wants, wanted }
    }
}

impl Ending {
    /// To be called for each signal that asks the process to end. It never blocks.
    pub fn on_signal(&self) -> impl Fn() + Send + use<> {
        let wants = self.wants.clone();
        move || {
            let _ = wants.try_send(Wanted::Signal);
        }
    }

    /// To be called if another program takes the device away.
    pub fn on_gone(&self) -> impl FnOnce() + Send + use<> {
        let wants = self.wants.clone();
        move || {
            let _ = wants.send(Wanted::Gone);
        }
    }

    /// Carries out orders: those to stop here, all others in the engine behind `port`.
    #[must_use]
    pub fn obey(&self, port: Port) -> Arc<Obey> {
        let wants = self.wants.clone();
        Arc::new(move |order| {
            let Order::Stop { force } = order else { return port.order(order) };
            let (answer, answered) = sync_channel(1);
            let stopping = || already_stopping(&port);
            wants.send(Wanted::Stop { force, answer }).map_err(|_| stopping())?;
            answered.recv().unwrap_or_else(|_| Err(stopping()))
        })
    }

    /// Blocks until the server of the device at `path` is to end: when it is asked and `shown` is
    /// not in use, or when it is forced to. Later requests to end are answered that the server is
    /// stopping.
    #[must_use]
    pub fn wait(self, shown: &Shown, path: &Path) -> End {
        let mut refused = false;
        loop {
            let want = self.wanted.recv().unwrap_or(Wanted::Signal);
            let users = shown.users().join(", ");
            let message = format!("{} is in use: {users}", shown.name());
            match want {
                Wanted::Stop { force, answer } if force || users.is_empty() => {
                    return End::Stop(answer);
                }
                Wanted::Stop { answer, .. } => {
                    let reason = format!("{message} (--force stops all the same)");
                    let _ = answer.send(Err(OrderError::in_use(reason)));
                }
                Wanted::Gone => return End::Gone,
                Wanted::Signal if users.is_empty() || refused || shown.users_come_back() => {
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
}

/// The answer to an order that comes while the server is stopping: what it waits for.
fn already_stopping(port: &Port) -> OrderError {
    let status = port.order(Order::Status).ok();
    let told = status.and_then(|status| status["stopping"].as_str().map(str::to_owned));
    OrderError::new(told.as_deref().unwrap_or("stopping: its users are being told"))
}

impl End {
    /// Removes the front end `shown` of the device at `path`, closes the volume, and answers the
    /// order to stop if there was one.
    ///
    /// # Errors
    /// If the volume was not closed in order.
    pub fn leave(self, path: &Path, engine: Engine, shown: Shown) -> Result<Left, ServeError> {
        if let Err(error) = shown.end() {
            line(Level::Warning, Some(path), &error.to_string(), &[]);
        }
        engine.port().stop();
        let left = engine.join();
        if let Self::Stop(answer) = self {
            let said = match &left {
                Ok(left) => Ok(serde_json::json!({
                    "at_risk_bytes": left.at_risk_bytes,
                    "zeroed_bytes": left.zeroed_bytes,
                })),
                Err(error) => Err(OrderError::new(error)),
            };
            let _ = answer.send(said);
            // The thread that sends the answer ends with this process.
            thread::sleep(LAST_ANSWER);
        }
        left
    }

    /// Whether another program took the device away.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}
