//! The engine of a lent store.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_block::{BlockDevice, SECTOR_BYTES, Sectors, Signal};
use manylogs_everest::{
    BaseId, CircularStore, Lender, Lending, Meter, Shared, StoreError, StoreOptions,
};
use manylogs_operate::control::{Answer, Order, OrderError};
use manylogs_operate::status::{HeldFor, LentStatus, Status};
use manylogs_operate::{Operated, Subject};
use manylogs_storage::VolumeLock;

use super::address::StoreAddress;
use super::kernel_load::KernelLoad;
use super::keys::{Identity, PublicKey};
use super::lent::LentServer;
use crate::engine::{About, Engine, Left, ServeError, Serving};
use crate::front_end::FrontEnd;
use crate::lies_on::lies_on;
use crate::panics::end_process_on_panic;
use crate::port::{Inbox, Message};
use crate::stack::{Stack, StackError, StackOptions};

/// Size of a log, except in small stores: cleaning moves the disk's head once for each log.
const LOG: Sectors = Sectors((16 << 20) / SECTOR_BYTES);
/// Least number of logs of a store.
const LOGS: u64 = 16;

/// A part of a disk to lend.
#[derive(Clone, Debug)]
pub struct LendOptions {
    /// The part.
    pub stack: StackOptions,
    /// Make a new store, and overwrite the content of the part.
    pub make: bool,
    /// The size that the user expects, if stated.
    pub size: Option<Sectors>,
    /// The most that is held of one base volume, in per cent of the part.
    pub each_percent: u8,
    /// What the store has of the disk's time while the disk's own clients wait, in per cent; 100 is
    /// no bound.
    pub share_percent: u8,
    /// Who is let in; whoever reaches the socket, if not given.
    pub guard: Option<Guard>,
}

/// Who is let in, and who lends. What goes to and fro is encrypted.
#[derive(Clone, Debug)]
pub struct Guard {
    /// The key of this machine.
    pub identity: Identity,
    /// The keys of clients.
    pub allowed: Vec<PublicKey>,
}

/// The address at which clients of a lent store connect. The socket is removed when this is
/// dropped.
#[derive(Debug)]
pub struct StoreFrontEnd {
    address: StoreAddress,
    connections: Arc<AtomicUsize>,
}

impl StoreFrontEnd {
    /// The front end of an engine that listens at the address; `connections` counts its clients.
    #[must_use]
    pub const fn new(address: StoreAddress, connections: Arc<AtomicUsize>) -> Self {
        Self { address, connections }
    }
}

impl FrontEnd for StoreFrontEnd {
    fn name(&self) -> String {
        self.address.absolute().to_string()
    }

    fn users(&self) -> Vec<String> {
        match self.connections.load(Ordering::SeqCst) {
            0 => Vec::new(),
            1 => vec!["1 client is connected".to_owned()],
            count => vec![format!("{count} clients are connected")],
        }
    }

    fn users_come_back(&self) -> bool {
        true
    }

    fn end(self: Box<Self>, _: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

impl Drop for StoreFrontEnd {
    fn drop(&mut self) {
        self.address.at.remove_socket();
    }
}

impl Engine {
    /// Lends a part of a disk to clients that come to `listener`, in a thread of its own.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn lend(options: LendOptions, listener: OwnedFd) -> Result<Self, ServeError> {
        end_process_on_panic();
        Self::spawn(Some(listener), move |serving| run(&options, serving))
    }
}

/// A lent store, as its operator sees it.
struct Lent {
    operated: Rc<Operated>,
    server: Rc<LentServer>,
    lending: Lending,
    shared: Shared,
}

fn run(options: &LendOptions, serving: Serving) -> Result<Left, ServeError> {
    let path = &options.stack.path;
    let failed = |error| ServeError::Store { path: path.clone(), error };
    let stack = Stack::open(&options.stack)?;
    let have = stack.device.capabilities().capacity;
    if let Some(asked) = options.size.filter(|size| *size != have) {
        return Err(ServeError::OtherSize { path: path.clone(), asked, have });
    }
    let meter = Meter::new(stack.runtime(), Rc::clone(&stack.device));
    let disk = KernelLoad::of(stack.runtime(), path, meter.clone());
    let shared = Shared::new(stack.runtime(), Rc::new(meter), Rc::new(disk));
    shared.set_percent(options.share_percent);
    let device: Rc<dyn BlockDevice> = Rc::new(shared.clone());
    let (store, _lock) = if options.make {
        let store = make(&stack, device).map_err(failed)?;
        let lock = VolumeLock::take(store.id(), path).map_err(StackError::from)?;
        (store, lock)
    } else {
        open(&stack, device, path)?
    };
    let (runtime, closed, disk) = (stack.runtime(), store.clone(), Rc::new(shared.clone()));
    let lending = stack.run(async move { Lending::open(store, Some(disk)).await });
    let lending = lending.map_err(|error| failed(error.into()))?;
    lending.bound_each(Sectors(have.0 * u64::from(options.each_percent) / 100));
    let (listener, count, inbox, ready) = serving.into_parts();
    let listener = listener.ok_or(ServeError::EndedEarly)?;
    let listener = stack.reactor.listen(listener).map_err(StackError::Runtime)?;
    let sealed = |guard: &Guard| guard.identity.of_store(guard.allowed.clone());
    let sealed = options.guard.as_ref().map(sealed).transpose();
    let sealed = sealed.map_err(ServeError::Tls)?;
    let capabilities = stack.device.capabilities();
    let subject = Subject {
        name: path.display().to_string(),
        capacity: capabilities.capacity,
        volume: None,
        drive: None,
        recognised: None,
        system: None,
        probe: manylogs::PhaseProbe::default(),
    };
    let operated = Operated::start(runtime.clone(), subject);
    let server = LentServer::start(runtime, lending.clone(), (listener, sealed), count);
    server.tell_disks(lies_on(path));
    let about = About { capabilities, volume: Some(closed.id()), recovery: None };
    // Fails only if the thread that started the engine has ended.
    let _ = ready.send(about);
    let lent = Rc::new(Lent { operated, server, lending, shared });
    stack.run(async move { lent.serve(inbox).await })
}

/// The share of `share=15%`, in per cent.
///
/// # Errors
/// If it is something else, with a sentence that says so.
pub fn share_percent(change: &str) -> Result<u8, String> {
    let digits = change.strip_prefix("share=").map(|share| share.trim_end_matches('%'));
    let percent = digits.and_then(|digits| digits.parse().ok());
    percent.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| {
        format!("{change}: of a part that is lent, share=1% to share=100% can be set, no more")
    })
}

fn make(stack: &Stack, device: Rc<dyn BlockDevice>) -> Result<CircularStore, StoreError> {
    let capacity = device.capabilities().capacity;
    // A multiple of 4096 bytes; a small store has smaller logs.
    let log = Sectors((capacity.0 / LOGS).min(LOG.0) & !7);
    let (runtime, table) = (stack.runtime(), StoreOptions::table_for(capacity));
    let made = CircularStore::create(runtime, vec![device], StoreOptions { log, table });
    stack.run(made)
}

/// Opens the store, unless a store of its name is open already.
fn open(
    stack: &Stack,
    device: Rc<dyn BlockDevice>,
    path: &Path,
) -> Result<(CircularStore, VolumeLock), ServeError> {
    let failed = |error| ServeError::Store { path: path.to_owned(), error };
    let reads = Rc::clone(&stack.reads);
    let id = stack.run(async move { CircularStore::identify(&reads).await }).map_err(failed)?;
    let lock = VolumeLock::take(id, path).map_err(StackError::from)?;
    let opened = stack.run(CircularStore::open(stack.runtime(), vec![device]));
    Ok((opened.map_err(failed)?, lock))
}

impl Lent {
    /// Serves until a message says to stop, and then leaves the store in order.
    async fn serve(self: Rc<Self>, inbox: Inbox) -> Result<Left, ServeError> {
        let stop = Signal::default();
        let (told, lent) = (stop.wait(), Rc::clone(&self));
        let runtime = self.server.runtime();
        runtime.spawn(async move { lent.take_messages(&inbox, &stop).await });
        told.await;
        // The last requests do not wait for their turn.
        self.shared.set_percent(100);
        self.operated.stop();
        self.server.close().await.map_err(|error| ServeError::Close(error.into()))?;
        Ok(Left::default())
    }

    /// Handles messages. Never ends: a stopping server still answers status orders.
    async fn take_messages(self: &Rc<Self>, inbox: &Inbox, stop: &Signal) {
        loop {
            for message in inbox.take().await {
                match message {
                    Message::Stop => stop.notify(),
                    Message::Order(Order::Status, reply) => reply.send(self.told()),
                    Message::Order(Order::Set { changes }, reply) => {
                        reply.send(self.set(&changes));
                    }
                    Message::Order(order, reply) => {
                        let operated = Rc::clone(&self.operated);
                        let obeyed = async move { reply.send(operated.obey(order).await) };
                        self.server.runtime().spawn(obeyed);
                    }
                    // Only clients of the store read and write here.
                    Message::Io(..) | Message::Extents(..) => {}
                }
            }
        }
    }

    /// Changes what can be changed while a part is lent. Answers with how it is then.
    fn set(&self, changes: &[String]) -> Answer {
        for change in changes {
            let share = share_percent(change).map_err(OrderError::bad_input)?;
            self.shared.set_percent(share);
        }
        Ok(serde_json::json!({ "share": format!("{}%", self.shared.percent()) }))
    }

    fn told(&self) -> Answer {
        let (used, clients) = self.server.used();
        let held_for = |(base, held): &(BaseId, Sectors)| HeldFor {
            base: manylogs_everest::store_name(base),
            held_bytes: held.bytes(),
        };
        let held_for = self.lending.clients().iter().map(held_for).collect();
        let lent = LentStatus {
            store: manylogs_everest::store_name(&self.lending.id()),
            used_bytes: used.bytes(),
            clients,
            each_bytes: self.lending.most_each().bytes(),
            share_percent: self.shared.percent().into(),
            connections: self.server.connections() as u64,
            held_for,
        };
        let status = Status { lent: Some(lent), ..self.operated.status() };
        serde_json::to_value(status).map_err(OrderError::new)
    }
}
