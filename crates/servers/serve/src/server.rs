//! Carries out requests of clients and orders of operators on the engine's thread.

use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use manylogs::VolumeError;
use manylogs_block::{
    BlockDevice, Extent, Extents, Handle, IoResult, Request, SECTOR_BYTES, Sectors, Signal,
};
use manylogs_operate::control::{Answer, Order, OrderError};
use manylogs_operate::status::{NbdStatus, Status};
use manylogs_operate::{Asked, Operated, Subject};
use manylogs_plant::{self as plant, Bug};

use crate::engine::{Left, ServeError};
use crate::nbd::{BYTES_MAX, CONNECTIONS_MAX, NbdClients, NbdServer};
use crate::port::{Inbox, Message, Reply};

/// Longest extent of one question about extents: the engine answers no other request meanwhile.
const EXTENTS_MAX: Sectors = Sectors((256 << 20) / SECTOR_BYTES);

/// The served device.
pub(crate) struct Exported {
    pub(crate) device: Rc<dyn BlockDevice>,
    /// The device as operators see it. Its volume or system, if any, is `device` or lies below it.
    pub(crate) subject: Subject,
}

/// State of the engine's thread.
pub(crate) struct Server {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) operated: Rc<Operated>,
    pub(crate) runtime: Handle,
    /// Figures of the NBD clients, if there is an NBD server.
    pub(crate) nbd: Option<NbdClients>,
}

impl Server {
    pub(crate) fn new(runtime: Handle, exported: Exported, nbd: Option<NbdClients>) -> Self {
        let operated = Operated::start(runtime.clone(), exported.subject);
        Self { device: exported.device, operated, runtime, nbd }
    }

    /// Serves until a message says to stop, and then leaves the volume in order.
    pub(crate) async fn serve(
        self: Rc<Self>,
        inbox: Inbox,
        nbd: Option<Rc<NbdServer>>,
    ) -> Result<Left, ServeError> {
        let stop = Signal::default();
        let told = stop.wait();
        let server = Rc::clone(&self);
        self.runtime.spawn(async move { server.take_messages(&inbox, &stop).await });
        // Later requests are refused, those under way are answered.
        told.await;
        self.operated.stop();
        if let Some(nbd) = &nbd {
            nbd.refuse();
        }
        if !plant::is(Bug::StopDropsRequests) {
            self.operated.under_way().none().await;
        }
        if let Some(nbd) = &nbd {
            nbd.close().await;
        }
        self.leave().await
    }

    /// Handles messages. Never ends: a stopping server still answers status orders.
    async fn take_messages(self: &Rc<Self>, inbox: &Inbox, stop: &Signal) {
        loop {
            for message in inbox.take().await {
                let stopping = self.operated.is_stopping();
                match message {
                    Message::Stop => {
                        self.operated.stop();
                        stop.notify();
                    }
                    Message::Order(Order::Status, reply) => reply.send(self.told()),
                    Message::Order(_, reply) if stopping => {
                        reply.send(Err(OrderError::new(self.operated.waits_for())));
                    }
                    // Dropping the reply answers that the engine is gone.
                    Message::Io(..) | Message::Extents(..) if stopping => {}
                    Message::Io(request, reply) => self.submit(request, reply),
                    Message::Extents(within, reply) => {
                        let known = self.extents(within);
                        self.runtime.spawn(async move { reply.send(known.await) });
                    }
                    Message::Order(order, reply) => {
                        let operated = Rc::clone(&self.operated);
                        self.runtime.spawn(async move { reply.send(operated.obey(order).await) });
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
        let counted = self.operated.count(Asked::of(&request));
        let completion = self.device.submit(request);
        async move {
            let result = completion.await;
            counted.end(result.is_err());
            result
        }
    }

    /// The kinds of extents in `within`, or in its beginning, as far as the device knows them
    /// without reading.
    pub(crate) fn extents(
        &self,
        within: Extent,
    ) -> impl Future<Output = IoResult<Extents>> + use<> {
        let token = self.operated.under_way().enter(self.runtime.now());
        let len = within.len.min(EXTENTS_MAX);
        let known = self.device.extents(Extent { len, ..within });
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
        let Subject { system, volume, .. } = self.operated.subject();
        let closed = match (system, volume) {
            (Some(system), _) => system.close().await,
            (None, None) => self.device.submit(Request::Flush).await.map(drop),
            (None, Some(_)) => Ok(()),
        };
        closed.map_err(|error| ServeError::Close(VolumeError::Io(error)))?;
        let Some(volume) = volume else { return Ok(Left::default()) };
        volume.close().await.map_err(ServeError::Close)?;
        Ok(Left {
            at_risk_bytes: volume.stats().logged_at_risk_bytes,
            zeroed_bytes: volume.zeroed_bytes(),
        })
    }

    fn told(&self) -> Answer {
        serde_json::to_value(self.status()).map_err(OrderError::new)
    }

    pub(crate) fn status(&self) -> Status {
        Status { nbd: self.nbd.as_ref().map(nbd_status), ..self.operated.status() }
    }
}

fn nbd_status(clients: &NbdClients) -> NbdStatus {
    NbdStatus {
        connections: clients.connections.load(Ordering::SeqCst) as u64,
        connections_max: CONNECTIONS_MAX as u64,
        held_bytes: clients.held_bytes.get() as u64,
        held_bytes_max: BYTES_MAX as u64,
    }
}
