//! The thread that owns a volume and answers everybody.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use manylogs::{PhaseProbe, RecoveryReport, Volume, VolumeError};
use manylogs_block::{
    BlockDevice, Capabilities, Extent, Handle, IoError, IoResult, Nanos, Nvram, Request, Signal,
    Time,
};
use manylogs_disk::EmulatedDrive;
use manylogs_storage::MappedNvram;
use thiserror::Error;

use crate::control::{Answer, Order};
use crate::emulation::Emulation;
use crate::meter::{Asked, Meter};
use crate::nbd::NbdServer;
use crate::port::{Inbox, Message, Port, Reply, port};
use crate::stack::{Stack, StackError, StackOptions};
use crate::status::CheckpointStatus;

/// What an engine serves.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The device.
    pub stack: StackOptions,
    /// The file of the mapping table, if it is not in the logs.
    pub table: Option<PathBuf>,
    /// Open with an empty table in the place of one that is lost.
    pub give_up_table: bool,
    /// Serve the device as it is, without a volume.
    pub raw: bool,
    /// A drive to stand for.
    pub emulation: Option<Emulation>,
}

/// Why an engine did not start, or did not end in order.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The device or the volume cannot be opened.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The table's memory cannot be mapped.
    #[error("cannot map the table {}: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The drive cannot be emulated over the device.
    #[error("cannot emulate the drive: {0}")]
    Emulation(String),
    /// There is no thread to be had, or it died.
    #[error("the engine's thread: {0}")]
    Thread(String),
    /// The volume was not closed in order: it is as a crash leaves it.
    #[error("the volume was not closed in order, the next opening recovers it: {0}")]
    Close(VolumeError),
}

/// What is known once an engine runs.
#[derive(Clone, Debug)]
pub struct About {
    /// What is exported.
    pub capabilities: Capabilities,
    /// The volume's id, if one is served.
    pub volume: Option<[u8; 16]>,
    /// What recovery found, if a volume is served.
    pub recovery: Option<RecoveryReport>,
}

/// How an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Home bytes whose newest version stays in a log.
    pub at_risk_bytes: u64,
}

/// A running engine.
#[derive(Debug)]
pub struct Engine {
    port: Port,
    about: About,
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<Result<Left, ServeError>>,
}

impl Engine {
    /// Opens the device, recovers the volume and serves it, all in a thread of its own. NBD clients
    /// that come to `listener`, if one is given, are served by that thread.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(options: EngineOptions, listener: Option<OwnedFd>) -> Result<Self, ServeError> {
        let (port, inbox) = port();
        let (ready, started) = sync_channel(1);
        let connections = Arc::<AtomicUsize>::default();
        let nbd = listener.map(|listener| NbdOptions { listener, count: Arc::clone(&connections) });
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || run(&options, nbd, inbox, &ready))
            .map_err(|error| ServeError::Thread(error.to_string()))?;
        match started.recv() {
            Ok(about) => Ok(Self { port, about, connections, thread }),
            Err(_) => match join(thread) {
                Err(error) => Err(error),
                Ok(_) => Err(ServeError::Thread("ended before it had begun".to_owned())),
            },
        }
    }

    /// The way to it.
    #[must_use]
    pub fn port(&self) -> Port {
        self.port.clone()
    }

    /// NBD clients that are connected to it.
    #[must_use]
    pub fn connections(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.connections)
    }

    /// What it serves.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// Waits until it has ended, by [`Port::stop`] or by [`Order::Stop`].
    ///
    /// # Errors
    /// If the volume was not closed in order.
    pub fn join(self) -> Result<Left, ServeError> {
        join(self.thread)
    }
}

fn join(thread: JoinHandle<Result<Left, ServeError>>) -> Result<Left, ServeError> {
    thread.join().unwrap_or_else(|_| Err(ServeError::Thread("it panicked".to_owned())))
}

/// Where NBD clients come to, and where they are counted.
struct NbdOptions {
    listener: OwnedFd,
    count: Arc<AtomicUsize>,
}

fn run(
    options: &EngineOptions,
    nbd: Option<NbdOptions>,
    inbox: Inbox,
    ready: &SyncSender<About>,
) -> Result<Left, ServeError> {
    let mut stack = Stack::open(&options.stack)?;
    let drive = options.emulation.as_ref().map(|drive| drive.put_over(&mut stack)).transpose()?;
    let probe = PhaseProbe::default();
    let (volume, recovery) = if options.raw {
        (None, None)
    } else {
        stack.lock()?;
        let open = manylogs::OpenOptions {
            probe: probe.clone(),
            ..Stack::options(table(options)?, options.give_up_table)
        };
        let (volume, report) = stack.open_volume(open)?;
        (Some(volume), Some(report))
    };
    let exported: Rc<dyn BlockDevice> = match &volume {
        Some(volume) => Rc::new(volume.clone()),
        None => Rc::clone(&stack.device),
    };
    let about = About {
        capabilities: exported.capabilities(),
        volume: volume.as_ref().map(Volume::id),
        recovery,
    };
    let runtime = stack.runtime();
    let server = Rc::new(Server {
        device: options.stack.path.display().to_string(),
        started: runtime.now(),
        meter: Meter::new(runtime.now()),
        runtime,
        exported,
        drive: drive.zip(options.emulation.as_ref().map(|it| it.profile.model.clone())),
        volume,
        probe,
        ended: Signal::default(),
        under_way: Rc::new(()),
    });
    let nbd = nbd.map(|nbd| {
        let listener = stack.reactor.listen(nbd.listener).map_err(StackError::Runtime)?;
        Ok::<_, StackError>(NbdServer::start(&server, listener, nbd.count))
    });
    let nbd = nbd.transpose()?;
    // Whoever started it has gone already if this fails.
    let _ = ready.send(about);
    stack.run(server.serve(inbox, nbd))
}

fn table(options: &EngineOptions) -> Result<Option<Rc<dyn Nvram>>, ServeError> {
    let Some(path) = &options.table else { return Ok(None) };
    let mapped = MappedNvram::open(path);
    let mapped = mapped.map_err(|source| ServeError::Table { path: path.clone(), source })?;
    Ok(Some(Rc::new(mapped)))
}

/// What the engine's thread works on.
pub(crate) struct Server {
    pub(crate) device: String,
    pub(crate) started: Time,
    pub(crate) runtime: Handle,
    pub(crate) exported: Rc<dyn BlockDevice>,
    /// What is emulated, and its name.
    pub(crate) drive: Option<(EmulatedDrive, String)>,
    pub(crate) volume: Option<Volume>,
    pub(crate) meter: Meter,
    pub(crate) probe: PhaseProbe,
    /// A request was answered.
    pub(crate) ended: Signal,
    /// Held by each request under way.
    pub(crate) under_way: Rc<()>,
}

impl Server {
    async fn serve(
        self: Rc<Self>,
        inbox: Inbox,
        nbd: Option<Rc<NbdServer>>,
    ) -> Result<Left, ServeError> {
        let (ticking, second) = (Rc::downgrade(&self), Nanos::from_secs(1));
        let runtime = self.runtime.clone();
        self.runtime.spawn(async move {
            loop {
                runtime.sleep(second).await;
                let Some(server) = ticking.upgrade() else { return };
                server.meter.tick(runtime.now());
            }
        });
        loop {
            for message in inbox.take().await {
                match message {
                    Message::Io(request, reply) => self.submit(request, reply),
                    Message::Map(extent, reply) => reply.send(self.zeroes(extent)),
                    Message::Order(order, reply) => {
                        let server = Rc::clone(&self);
                        self.runtime.spawn(async move { reply.send(server.obey(order).await) });
                    }
                    Message::Stop => {
                        // Later requests are refused, those under way are answered.
                        drop(inbox);
                        if let Some(nbd) = nbd {
                            nbd.refuse();
                            self.idle().await;
                            nbd.close().await;
                        }
                        self.idle().await;
                        return self.leave().await;
                    }
                }
            }
        }
    }

    fn submit(self: &Rc<Self>, request: Request, reply: Reply) {
        let performed = self.perform(request);
        self.runtime.spawn(async move { reply.send(performed.await) });
    }

    /// Starts `request` at once, and counts it.
    pub(crate) fn perform(
        self: &Rc<Self>,
        request: Request,
    ) -> impl Future<Output = IoResult> + use<> {
        let (asked, began) = (Asked::of(&request), self.runtime.now());
        let completion = self.exported.submit(request);
        let (server, token) = (Rc::clone(self), Rc::clone(&self.under_way));
        async move {
            let result = completion.await;
            server.meter.note(asked, &result, server.runtime.now().since(began));
            drop(token);
            server.ended.notify();
            result
        }
    }

    pub(crate) fn zeroes(&self, extent: Extent) -> Result<Vec<(Extent, bool)>, IoError> {
        let capabilities = self.exported.capabilities();
        capabilities.check(&Request::Read { extent })?;
        Ok(match &self.volume {
            Some(volume) => volume.zeroes(extent),
            None => vec![(extent, false)],
        })
    }

    /// Waits until no request is under way.
    async fn idle(&self) {
        loop {
            let ended = self.ended.wait();
            if Rc::strong_count(&self.under_way) == 1 {
                return;
            }
            ended.await;
        }
    }

    async fn leave(&self) -> Result<Left, ServeError> {
        let Some(volume) = &self.volume else {
            let flushed = self.exported.submit(Request::Flush).await;
            return match flushed {
                Ok(_) => Ok(Left { at_risk_bytes: 0 }),
                Err(error) => Err(ServeError::Close(VolumeError::Io(error))),
            };
        };
        volume.close().await.map_err(ServeError::Close)?;
        Ok(Left { at_risk_bytes: volume.stats().logged_at_risk_bytes })
    }

    async fn obey(&self, order: Order) -> Answer {
        let no_volume = || "the device is served without a volume".to_owned();
        match order {
            Order::Status => serde_json::to_value(self.status()).map_err(|error| error.to_string()),
            Order::Set { changes } => {
                let volume = self.volume.as_ref().ok_or_else(no_volume)?;
                let mut settings = volume.settings();
                changes.iter().try_for_each(|change| settings.assign(change)).map_err(in_words)?;
                if !changes.is_empty() {
                    volume.set(&settings).await.map_err(in_words)?;
                }
                let list = settings.list();
                let list = list.iter().map(|(key, value)| (*key, value.as_str()));
                Ok(list.collect::<serde_json::Value>())
            }
            Order::Checkpoint => {
                let volume = self.volume.as_ref().ok_or_else(no_volume)?;
                let report = volume.checkpoint().await.map_err(in_words)?;
                serde_json::to_value(CheckpointStatus::from(report)).map_err(in_words)
            }
            Order::Snapshot => {
                let volume = self.volume.as_ref().ok_or_else(no_volume)?;
                let written = volume.snapshot().await.map_err(in_words)?;
                Ok(serde_json::json!({ "written": written }))
            }
            Order::ForgetLateness => {
                let (drive, name) = self.drive.as_ref().ok_or("no drive is emulated")?;
                drive.forget_lateness();
                Ok(serde_json::json!({ "drive": name }))
            }
            // The front end decides, as it knows who uses the device.
            Order::Stop { .. } => Err("this engine has no front end that could stop".to_owned()),
        }
    }
}

/// What went wrong, for the operator.
fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
