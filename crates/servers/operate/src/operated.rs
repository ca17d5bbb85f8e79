//! A server as its operator sees it, on the server's thread.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use manylogs::{PhaseProbe, Volume, VolumeError};
use manylogs_block::{Handle, Nanos, Sectors, Time};
use manylogs_plant::{self as plant, Bug};

use crate::control::{Answer, Order, OrderError};
use crate::emulation::{self, Emulated};
use crate::log::{Level, line};
use crate::meter::{Asked, Meter};
use crate::status::{CheckpointStatus, DiskStatus, Status, seconds};
use crate::system::ServedSystem;
use crate::under_way::{Token, UnderWay};
use crate::volume_status::volume_status;

/// Interval at which a server that is stopping logs what it waits for.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// The served device and what stands behind it.
#[derive(Debug)]
pub struct Subject {
    /// Name of the device.
    pub name: String,
    /// Size of what clients see.
    pub capacity: Sectors,
    /// The volume; `None` if the device is served as it is.
    pub volume: Option<Volume>,
    /// A system served instead of the volume, or on top of it.
    pub system: Option<Rc<dyn ServedSystem>>,
    /// The emulated drive, if any.
    pub drive: Option<Emulated>,
    /// The recognised model of the disk, in words.
    pub recognised: Option<String>,
    /// Counts the writes of the volume by purpose.
    pub probe: PhaseProbe,
}

impl Subject {
    /// The ID of the volume, or of the system if there is no volume.
    #[must_use]
    pub fn id(&self) -> Option<[u8; 16]> {
        let volume = self.volume.as_ref().map(Volume::id);
        volume.or_else(|| self.system.as_ref().map(|system| system.id()))
    }
}

/// A server as its operator sees it: what it serves, its clients' requests, and whether it is
/// stopping.
#[derive(Debug)]
pub struct Operated {
    subject: Subject,
    runtime: Handle,
    started: Time,
    meter: Meter,
    under_way: Rc<UnderWay>,
    /// When the server began to stop.
    stopping: Cell<Option<Time>>,
}

/// A request of a client, until it is answered.
#[derive(Debug)]
pub struct Counted {
    operated: Rc<Operated>,
    asked: Asked,
    began: Time,
    token: Token,
}

impl Counted {
    /// Counts the request as answered now, with an error if it `failed`.
    pub fn end(self, failed: bool) {
        let took = self.operated.runtime.now().since(self.began);
        self.operated.meter.note(self.asked, failed, took);
        drop(self.token);
    }
}

impl Operated {
    /// Starts the view of a server that begins now, with the clock and the tasks of `runtime`.
    #[must_use]
    pub fn start(runtime: Handle, subject: Subject) -> Rc<Self> {
        let started = runtime.now();
        let operated = Rc::new(Self {
            subject,
            started,
            runtime,
            meter: Meter::new(started),
            under_way: Rc::default(),
            stopping: Cell::default(),
        });
        operated.each(Nanos::from_secs(1), |operated, now| operated.meter.tick(now));
        operated
    }

    /// The served device and what stands behind it.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The requests that are not answered yet.
    #[must_use]
    pub const fn under_way(&self) -> &Rc<UnderWay> {
        &self.under_way
    }

    /// Counts a request of a client that begins now.
    #[must_use]
    pub fn count(self: &Rc<Self>, asked: Asked) -> Counted {
        let began = self.runtime.now();
        Counted { operated: Rc::clone(self), asked, began, token: self.under_way.enter(began) }
    }

    /// Marks the server as stopping, and logs regularly what it still waits for.
    pub fn stop(self: &Rc<Self>) {
        if self.is_stopping() {
            return;
        }
        self.stopping.set(Some(self.runtime.now()));
        self.each(PATIENCE, |operated, _| {
            let device = Some(operated.subject.name.as_ref());
            line(Level::Warning, device, &operated.waits_for(), &[]);
        });
    }

    /// Whether the server is stopping.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.get().is_some()
    }

    /// Calls `what` at intervals of `span` as long as the server exists.
    fn each(self: &Rc<Self>, span: Nanos, what: impl Fn(&Self, Time) + 'static) {
        let (runtime, operated) = (self.runtime.clone(), Rc::downgrade(self));
        self.runtime.spawn(async move {
            loop {
                runtime.sleep(span).await;
                let Some(operated) = operated.upgrade() else { return };
                what(&operated, runtime.now());
            }
        });
    }

    /// What a stopping server still waits for, in words.
    #[must_use]
    pub fn waits_for(&self) -> String {
        let now = self.runtime.now();
        match (self.under_way.len(), self.under_way.oldest()) {
            (count, Some(began)) => {
                let seconds = now.since(began).0 / 1_000_000_000;
                format!(
                    "stopping: {count} requests are under way, the oldest for {seconds} s: the \
                     device does not answer, or writes wait for room in the logs"
                )
            }
            _ => "stopping: the volume is being closed".to_owned(),
        }
    }

    /// The status now. The server itself adds clients over NBD and the file system.
    #[must_use]
    pub fn status(&self) -> Status {
        let (now, subject) = (self.runtime.now(), &self.subject);
        let drive = subject.drive.as_ref();
        let volume = subject.volume.as_ref();
        let mut status = Status {
            device: subject.name.clone(),
            pid: std::process::id(),
            uptime_s: seconds(now.since(self.started)),
            capacity_bytes: subject.capacity.bytes(),
            requests: self.meter.status(now),
            under_way: self.under_way.len() as u64,
            oldest_under_way_s: self.under_way.oldest().map_or(0.0, |at| seconds(now.since(at))),
            stopping: self.is_stopping().then(|| self.waits_for()),
            nbd: None,
            emulation: drive.map(emulation::status),
            disk: DiskStatus::of_served(Path::new(&subject.name), drive, &subject.recognised),
            volume: volume.map(|volume| volume_status(volume, &subject.probe)),
            chain: None,
            offload: None,
            lent: None,
            file_system: None,
        };
        if let Some(system) = &subject.system {
            system.tell(&mut status);
        }
        status
    }

    /// Carries out an order of the operator.
    ///
    /// # Errors
    /// Why the order was not carried out. It refuses [`Order::Stop`], which the server handles
    /// because it knows the users of the device.
    pub async fn obey(&self, order: Order) -> Answer {
        match order {
            Order::Status => serde_json::to_value(self.status()).map_err(OrderError::new),
            Order::Set { changes } => {
                let volume = self.volume()?;
                let mut settings = volume.settings();
                changes
                    .iter()
                    .try_for_each(|change| settings.assign(change))
                    .map_err(OrderError::bad_input)?;
                if !changes.is_empty() {
                    volume.set(&settings).await.map_err(|error| match error {
                        VolumeError::Config(_) => OrderError::bad_input(error),
                        _ => OrderError::new(error),
                    })?;
                }
                let list = settings.list();
                let list = list.iter().map(|(key, value)| (*key, value.as_str()));
                Ok(list.collect::<serde_json::Value>())
            }
            Order::Checkpoint => {
                let report = self.volume()?.checkpoint().await.map_err(OrderError::new)?;
                serde_json::to_value(CheckpointStatus::from(report)).map_err(OrderError::new)
            }
            Order::Arrange => Err(OrderError::bad_input(
                "metadata is arranged in a file system that is mounted in the mode lazy",
            )),
            Order::Scrub => Err(OrderError::bad_input(
                "a journal is scrubbed in a file system that is mounted in the mode lazy",
            )),
            Order::Snapshot => {
                assert!(!plant::is(Bug::EnginePanics), "planted");
                let written = self.volume()?.snapshot().await.map_err(OrderError::new)?;
                Ok(serde_json::json!({ "written": written }))
            }
            Order::AddStore { .. }
            | Order::EvacuateStore { .. }
            | Order::RemoveStore { .. }
            | Order::ForgetStore { .. } => {
                let none =
                    || OrderError::bad_input("no base volume is served: it borrows no stores");
                self.subject.system.as_ref().ok_or_else(none)?.obey(order).await
            }
            Order::ReplaceMember { .. } | Order::AddMember { .. } | Order::RemoveMember { .. } => {
                let none = || OrderError::bad_input("no chain of drives is served");
                self.subject.system.as_ref().ok_or_else(none)?.obey(order).await
            }
            Order::ForgetLateness => {
                let no_drive = || OrderError::bad_input("no drive is emulated");
                let emulated = self.subject.drive.as_ref().ok_or_else(no_drive)?;
                emulated.drive.forget_lateness();
                Ok(serde_json::json!({ "drive": emulated.name }))
            }
            Order::Stop { .. } => {
                Err(OrderError::new("this engine has no front end that could stop"))
            }
        }
    }

    fn volume(&self) -> Result<&Volume, OrderError> {
        let served = self.subject.system.as_ref();
        let none = || match served {
            Some(system) => OrderError::bad_input(format!(
                "the device is served as {}: there is no volume that this could be done to",
                system.kind()
            )),
            None => OrderError::bad_input("the device is served without a volume"),
        };
        self.subject.volume.as_ref().ok_or_else(none)
    }
}
