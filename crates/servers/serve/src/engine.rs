//! The engine: a thread that owns a device and its volume, and answers all front ends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use manylogs::{HomePace, PhaseProbe, RecoveryReport, VolumeError};
use manylogs_block::{BlockDevice, Capabilities, Nvram, Sectors};
use manylogs_disk::profile::ProfileError;
use manylogs_disk::{ContentTooLarge, Pace, Profile};
use manylogs_everest::{OffloadError, Offloaded, StoreError};
use manylogs_operate::{ServedSystem, Subject};
use manylogs_storage::{MappedNvram, Reactor};
use thiserror::Error;

use crate::chain::{self, ChainRefused, ServedChain};
use crate::emulation::Emulation;
use crate::nbd::{NbdClients, NbdServer};
use crate::panics::end_process_on_panic;
use crate::port::{Inbox, Port, port};
use crate::server::{Exported, Server};
use crate::stack::{Stack, StackError, StackOptions};
use crate::stores::{Borrowing, PlaceError, open_base};

/// The device that an engine serves.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The device.
    pub stack: StackOptions,
    /// The file of the mapping table, if it is not in the logs.
    pub table: Option<PathBuf>,
    /// Open with an empty table if the table is lost.
    pub give_up_table: bool,
    /// Serve the device as it is, without a volume.
    pub raw: bool,
    /// The chain of drives to serve instead of a volume; the device is its first member.
    pub chain: Option<ServedChain>,
    /// The stores that the device borrows, if it is a base volume.
    pub borrowing: Borrowing,
    /// A drive to emulate.
    pub emulation: Option<Emulation>,
    /// The recognised model of the device, if no drive is emulated.
    pub recognised: Option<Recognised>,
}

/// The recognised model of a disk.
#[derive(Clone, Debug)]
pub struct Recognised {
    /// Profile of the model.
    pub profile: Profile,
    /// Which profile, and why that one.
    pub words: String,
}

impl EngineOptions {
    /// How fast the emulated or recognised drive takes writes home. `None` for shingled drives:
    /// writes in their persistent cache have not reached their bands yet.
    fn pace(&self) -> Option<HomePace> {
        let emulated = self.emulation.as_ref().map(|drive| &drive.profile);
        let profile = emulated.or(self.recognised.as_ref().map(|drive| &drive.profile))?;
        let conventional = Some(profile).filter(|profile| profile.shingled.is_none())?;
        let pace = Pace::of(conventional);
        Some(HomePace::of_disk(pace.step, pace.bytes_per_s))
    }
}

/// Why an engine did not start, or did not end in order.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The device or the volume cannot be opened.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The chain of drives cannot be opened.
    #[error(transparent)]
    Chain(#[from] ChainRefused),
    /// The table's memory cannot be mapped.
    #[error("cannot map the table {}: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No drive of the size of the device can be modelled.
    #[error("cannot emulate the drive: {0}")]
    Drive(#[from] ProfileError),
    /// The content does not fit the emulated drive.
    #[error("cannot emulate the drive: {0}")]
    Content(#[from] ContentTooLarge),
    /// The base volume cannot be opened with these stores.
    #[error("{}: {error}", path.display())]
    Offload {
        /// The device.
        path: PathBuf,
        /// The fault.
        error: OffloadError,
    },
    /// Stores are given, but the device is no base volume.
    #[error(
        "{} is no base volume, so that it can borrow no stores: make it one (manylogs format \
         --everest), or leave --store out", path.display()
    )]
    NotABase {
        /// The device.
        path: PathBuf,
    },
    /// A store does not answer.
    #[error("store {store}: {why}")]
    StoreAway {
        /// Its name or address.
        store: String,
        /// Why it does not answer.
        why: String,
    },
    /// A store lies on the base volume's own disk.
    #[error("store {store}: {why}")]
    OwnDisk {
        /// Its address.
        store: String,
        /// Why that is refused.
        why: String,
    },
    /// A store is on another machine and has no key, or its address is not known.
    #[error("store {0}")]
    Place(#[from] PlaceError),
    /// Nothing can be encrypted.
    #[error("cannot encrypt what goes between clients and stores: {0}")]
    Tls(String),
    /// The device holds no store that can be lent.
    #[error("{}: {error}", path.display())]
    Store {
        /// The device.
        path: PathBuf,
        /// The fault.
        error: StoreError,
    },
    /// The device to lend has another size than the user stated.
    #[error(
        "{} has {} bytes, not {}: leave --size out to lend it as it is", path.display(),
        have.bytes(), asked.bytes()
    )]
    OtherSize {
        /// The device.
        path: PathBuf,
        /// The size that was asked for.
        asked: Sectors,
        /// Its size.
        have: Sectors,
    },
    /// No thread can be started for the engine.
    #[error("cannot start the engine's thread: {0}")]
    NoThread(#[source] io::Error),
    /// The engine's thread ended before it served.
    #[error("the engine's thread ended before it had begun to serve")]
    EndedEarly,
    /// The engine's thread panicked: the volume is in the state that a crash leaves.
    #[error("the engine's thread panicked: the next opening recovers the volume")]
    Panicked,
    /// The volume was not closed in order: it is in the state that a crash leaves.
    #[error("the volume was not closed in order, the next opening recovers it: {0}")]
    Close(VolumeError),
}

/// Description of a running engine.
#[derive(Clone, Debug)]
pub struct About {
    /// The export.
    pub capabilities: Capabilities,
    /// The ID of the volume, or of the system served instead.
    pub volume: Option<[u8; 16]>,
    /// Report of the recovery, if a volume is served.
    pub recovery: Option<RecoveryReport>,
}

/// What an engine leaves when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Home bytes whose newest version stays in a log.
    pub at_risk_bytes: u64,
    /// Of those, zeroed or discarded bytes: no data of clients.
    pub zeroed_bytes: u64,
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
    /// From then on a panic of any thread ends the process by `SIGABRT`: clients see the end, and a
    /// supervisor starts the next server.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(options: EngineOptions, listener: Option<OwnedFd>) -> Result<Self, ServeError> {
        end_process_on_panic();
        Self::spawn(listener, move |serving| run(&options, serving))
    }

    /// Starts the thread, which runs `run`.
    pub(crate) fn spawn(
        listener: Option<OwnedFd>,
        run: impl FnOnce(Serving) -> Result<Left, ServeError> + Send + 'static,
    ) -> Result<Self, ServeError> {
        let (port, inbox) = port();
        let (ready, started) = sync_channel(1);
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || run(Serving { listener, count, inbox, ready }))
            .map_err(ServeError::NoThread)?;
        match started.recv() {
            Ok(about) => Ok(Self { port, about, connections, thread }),
            Err(_) => match join(thread) {
                Err(error) => Err(error),
                Ok(_) => Err(ServeError::EndedEarly),
            },
        }
    }

    /// The port to send requests to.
    #[must_use]
    pub fn port(&self) -> Port {
        self.port.clone()
    }

    /// Number of NBD clients connected to the engine.
    #[must_use]
    pub fn connections(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.connections)
    }

    /// The served device.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// Waits until the engine has ended, by [`Port::stop`] or by
    /// [`manylogs_operate::control::Order::Stop`].
    ///
    /// # Errors
    /// If the volume was not closed in order.
    pub fn join(self) -> Result<Left, ServeError> {
        join(self.thread)
    }
}

fn join(thread: JoinHandle<Result<Left, ServeError>>) -> Result<Left, ServeError> {
    thread.join().unwrap_or(Err(ServeError::Panicked))
}

/// What the engine's thread gets from the thread that starts it.
pub(crate) struct Serving {
    /// Listener for NBD clients.
    listener: Option<OwnedFd>,
    /// Counters of NBD clients.
    count: Arc<AtomicUsize>,
    inbox: Inbox,
    ready: SyncSender<About>,
}

impl Serving {
    /// Listener, counter of clients, inbox, and the channel on which to report that serving has
    /// begun.
    pub(crate) fn into_parts(
        self,
    ) -> (Option<OwnedFd>, Arc<AtomicUsize>, Inbox, SyncSender<About>) {
        (self.listener, self.count, self.inbox, self.ready)
    }

    /// Serves `exported` on `reactor` until it is told to stop.
    pub(crate) fn serve(
        self,
        reactor: &Reactor,
        exported: Exported,
        recovery: Option<RecoveryReport>,
    ) -> Result<Left, ServeError> {
        let about = About {
            capabilities: exported.device.capabilities(),
            volume: exported.subject.id(),
            recovery,
        };
        let clients = self.listener.as_ref().map(|_| NbdClients::counted_in(self.count));
        let server = Rc::new(Server::new(reactor.handle(), exported, clients));
        let nbd = self.listener.map(|listener| {
            let listener = reactor.listen(listener).map_err(StackError::Runtime)?;
            Ok::<_, StackError>(NbdServer::start(&server, listener))
        });
        let nbd = nbd.transpose()?;
        // Fails only if the thread that started the engine has ended.
        let _ = self.ready.send(about);
        reactor.block_on(server.serve(self.inbox, nbd))
    }
}

fn run(options: &EngineOptions, serving: Serving) -> Result<Left, ServeError> {
    if let Some(chain) = &options.chain {
        return chain::run(options, chain, serving);
    }
    let mut stack = Stack::open(&options.stack)?;
    let drive = options.emulation.as_ref().map(|drive| drive.put_over(&mut stack)).transpose()?;
    let probe = PhaseProbe::default();
    let (volume, recovery) = if options.raw || is_plain_base(&stack)? {
        (None, None)
    } else {
        stack.lock()?;
        let open = manylogs::OpenOptions {
            probe: probe.clone(),
            pace: options.pace(),
            ..Stack::options(table(options)?, options.give_up_table)
        };
        let (volume, report) = stack.open_volume(open)?;
        (Some(volume), Some(report))
    };
    let device: Rc<dyn BlockDevice> = match &volume {
        Some(volume) => Rc::new(volume.clone()),
        None => Rc::clone(&stack.device),
    };
    let place = (options.stack.path.as_path(), options.raw);
    let base = open_base(&stack.reactor, &device, &options.borrowing, place)?;
    let (device, system): (_, Option<Rc<dyn ServedSystem>>) = match base {
        Some(base) => (base.device(), Some(Rc::new(base))),
        None => (device, None),
    };
    let subject = Subject {
        name: options.stack.path.display().to_string(),
        capacity: device.capabilities().capacity,
        drive,
        recognised: options.recognised.as_ref().map(|drive| drive.words.clone()),
        volume,
        system,
        probe,
    };
    serving.serve(&stack.reactor, Exported { device, subject }, recovery)
}

fn table(options: &EngineOptions) -> Result<Option<Rc<dyn Nvram>>, ServeError> {
    let Some(path) = &options.table else { return Ok(None) };
    let mapped = MappedNvram::open(path);
    let mapped = mapped.map_err(|source| ServeError::Table { path: path.clone(), source })?;
    Ok(Some(Rc::new(mapped)))
}

/// Whether a base volume is on the disk itself, not in a volume on it.
fn is_plain_base(stack: &Stack) -> Result<bool, ServeError> {
    let reads = Rc::clone(&stack.reads);
    let volume = stack.run(async move { manylogs::identify(&reads).await });
    if !matches!(volume, Err(VolumeError::NotAVolume)) {
        // Seen from the disk, content of a volume may look like a base volume.
        return Ok(false);
    }
    let (runtime, device) = (stack.runtime(), Rc::clone(&stack.reads));
    let label = stack.run(async move { Offloaded::identify(&runtime, device).await });
    let path = stack.path().to_owned();
    label.map(|label| label.is_some()).map_err(|error| ServeError::Offload { path, error })
}
