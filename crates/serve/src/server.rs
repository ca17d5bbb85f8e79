//! Carries out requests of clients and orders of operators on the engine's thread.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use manylogs::{PhaseProbe, Volume, VolumeError};
use manylogs_block::{
    BlockDevice, Extent, Extents, Handle, IoResult, Nanos, Request, SECTOR_BYTES, Sectors, Signal,
    Time,
};
use manylogs_disk::EmulatedDrive;
use manylogs_plant::{self as plant, Bug};

use crate::control::{Answer, Order, OrderError};
use crate::engine::{Left, ServeError};
use crate::log::{Level, line};
use crate::meter::{Asked, Meter};
use crate::nbd::{NbdClients, NbdServer};
use crate::port::{Inbox, Message, Reply};
use crate::status::CheckpointStatus;
use crate::under_way::UnderWay;

/// Interval at which a server that is stopping logs what it waits for.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Longest extent of one question about extents: the engine answers nobody else meanwhile.
const EXTENTS_MAX: Sectors = Sectors((256 << 20) / SECTOR_BYTES);

/// The served device.
pub(crate) struct Exported {
    /// Name of the device.
    pub(crate) name: String,
    pub(crate) device: Rc<dyn BlockDevice>,
    /// The volume that `device` is; none, if a device is served as it is.
    pub(crate) volume: Option<Volume>,
    /// What is emulated, and its name.
    pub(crate) drive: Option<(EmulatedDrive, String)>,
    pub(crate) probe: PhaseProbe,
}

/// State of the engine's thread.
pub(crate) struct Server {
    pub(crate) exported: Exported,
    pub(crate) started: Time,
    pub(crate) runtime: Handle,
    pub(crate) meter: Meter,
    pub(crate) under_way: Rc<UnderWay>,
    /// NBD server, if there is one.
    pub(crate) nbd: Option<NbdClients>,
    /// Time since which the server has been stopping.
    pub(crate) stopping: Cell<Option<Time>>,
}

impl Server {
    pub(crate) fn new(runtime: Handle, exported: Exported, nbd: Option<NbdClients>) -> Self {
        let started = runtime.now();
        Self {
            exported,
            started,
            runtime,
            meter: Meter::new(started),
            under_way: Rc::default(),
            nbd,
            stopping: Cell::default(),
        }
    }

    /// Serves until a message says to stop, and then leaves the volume in order.
    pub(crate) async fn serve(
        self: Rc<Self>,
        inbox: Inbox,
        nbd: Option<Rc<NbdServer>>,
    ) -> Result<Left, ServeError> {
        let ticking = Rc::downgrade(&self);
        self.each(Nanos::from_secs(1), move |now| {
            ticking.upgrade().map(|server| server.meter.tick(now))
        });
        let stop = Signal::default();
        let told = stop.wait();
        let server = Rc::clone(&self);
        self.runtime.spawn(async move { server.take_messages(&inbox, &stop).await });
        // Later requests are refused, those under way are answered.
        told.await;
        let waiting = Rc::downgrade(&self);
        self.each(PATIENCE, move |_| {
            waiting.upgrade().map(|server| {
                let message = server.waits_for();
                line(Level::Warning, Some(server.exported.name.as_ref()), &message, &[]);
            })
        });
        if let Some(nbd) = &nbd {
            nbd.refuse();
        }
        if !plant::is(Bug::StopDropsRequests) {
            self.under_way.none().await;
        }
        if let Some(nbd) = &nbd {
            nbd.close().await;
        }
        self.leave().await
    }

    /// Calls `what` repeatedly until it returns nothing.
    fn each(&self, span: Nanos, what: impl Fn(Time) -> Option<()> + 'static) {
        let runtime = self.runtime.clone();
        self.runtime.spawn(async move {
            loop {
                runtime.sleep(span).await;
                if what(runtime.now()).is_none() {
                    return;
                }
            }
        });
    }

    /// What a server that stops still has to wait for, in words.
    pub(crate) fn waits_for(&self) -> String {
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

    /// Never ends: a server that stops still answers questions for its status.
    async fn take_messages(self: &Rc<Self>, inbox: &Inbox, stop: &Signal) {
        loop {
            for message in inbox.take().await {
                let stopping = self.stopping.get().is_some();
                match message {
                    Message::Stop => {
                        self.stopping.set(self.stopping.get().or(Some(self.runtime.now())));
                        stop.notify();
                    }
                    Message::Order(Order::Status, reply) => reply.send(self.told()),
                    Message::Order(_, reply) if stopping => {
                        reply.send(Err(OrderError::new(self.waits_for())));
                    }
                    // Dropping them answers that the server is gone.
                    Message::Io(..) | Message::Extents(..) if stopping => {}
                    Message::Io(request, reply) => self.submit(request, reply),
                    Message::Extents(within, reply) => {
                        let known = self.extents(within);
                        self.runtime.spawn(async move { reply.send(known.await) });
                    }
                    Message::Order(order, reply) => {
                        let server = Rc::clone(self);
                        self.runtime.spawn(async move { reply.send(server.obey(order).await) });
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
        let completion = self.exported.device.submit(request);
        let (server, token) = (Rc::clone(self), self.under_way.enter(began));
        async move {
            let result = completion.await;
            server.meter.note(asked, &result, server.runtime.now().since(began));
            drop(token);
            result
        }
    }

    /// What the device knows of `within`, or of its beginning, without reading it.
    pub(crate) fn extents(
        &self,
        within: Extent,
    ) -> impl Future<Output = IoResult<Extents>> + use<> {
        let token = self.under_way.enter(self.runtime.now());
        let len = within.len.min(EXTENTS_MAX);
        let known = self.exported.device.extents(Extent { len, ..within });
        async move {
            let known = known.await;
            drop(token);
            known
        }
    }

    async fn leave(&self) -> Result<Left, ServeError> {
        if plant::is(Bug::StopWithoutClose) {
            return Ok(Left::default());
        }
        let Some(volume) = &self.exported.volume else {
            let flushed = self.exported.device.submit(Request::Flush).await;
            return match flushed {
                Ok(_) => Ok(Left::default()),
                Err(error) => Err(ServeError::Close(VolumeError::Io(error))),
            };
        };
        volume.close().await.map_err(ServeError::Close)?;
        Ok(Left {
            at_risk_bytes: volume.stats().logged_at_risk_bytes,
            zeroed_bytes: volume.zeroed_bytes(),
        })
    }

    fn told(&self) -> Answer {
        serde_json::to_value(self.status()).map_err(OrderError::new)
    }

    async fn obey(&self, order: Order) -> Answer {
        let no_volume = || OrderError::new("the device is served without a volume");
        match order {
            Order::Status => self.told(),
            Order::Set { changes } => {
                let volume = self.exported.volume.as_ref().ok_or_else(no_volume)?;
                let mut settings = volume.settings();
                changes
                    .iter()
                    .try_for_each(|change| settings.assign(change))
                    .map_err(OrderError::new)?;
                if !changes.is_empty() {
                    volume.set(&settings).await.map_err(OrderError::new)?;
                }
                let list = settings.list();
                let list = list.iter().map(|(key, value)| (*key, value.as_str()));
                Ok(list.collect::<serde_json::Value>())
            }
            Order::Checkpoint => {
                let volume = self.exported.volume.as_ref().ok_or_else(no_volume)?;
                let report = volume.checkpoint().await.map_err(OrderError::new)?;
                serde_json::to_value(CheckpointStatus::from(report)).map_err(OrderError::new)
            }
            Order::Snapshot => {
                assert!(!plant::is(Bug::EnginePanics), "planted");
                let volume = self.exported.volume.as_ref().ok_or_else(no_volume)?;
                let written = volume.snapshot().await.map_err(OrderError::new)?;
                Ok(serde_json::json!({ "written": written }))
            }
            Order::ForgetLateness => {
                let no_drive = || OrderError::new("no drive is emulated");
                let (drive, name) = self.exported.drive.as_ref().ok_or_else(no_drive)?;
                drive.forget_lateness();
                Ok(serde_json::json!({ "drive": name }))
            }
            // The front end decides, as it knows who uses the device.
            Order::Stop { .. } => {
                Err(OrderError::new("this engine has no front end that could stop"))
            }
        }
    }
}
