//! The server of a lent store: accepts clients and carries out their calls.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use manylogs_block::{Handle, IoError, Nanos, Payload, Piece, Sectors, Signal, first_of, to_usize};
use manylogs_everest::net::{
    Answers, Frame, FrameError, FrameKind, Hello, LONGEST_READ, LiesOn, Welcome,
};
use manylogs_everest::{Ask, Call, Lender, Lending, Reply};
use manylogs_operate::log::{Level, line};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::{Listener, SocketStream};

use super::frames::{Frames, Line, LineError};
use super::tls::{Sealed, StoreSeal};
use super::wire::Wire;

/// Most clients at a time, and most peers that have not said who they are.
const CONNECTIONS_MAX: usize = 64;
const STRANGERS_MAX: usize = 16;
/// What calls under way and unsent answers of a client may hold before its next call is read.
const BYTES_MAX: usize = 64 << 20;
/// Most calls under way of a client.
const CALLS_MAX: usize = 4096;
/// A peer that has not sent its greeting by then is disconnected.
const GREETING: Nanos = Nanos::from_secs(10);
/// Longest greeting of a peer, in bytes.
const HELLO_MAX: usize = 4096;
/// Most bytes of a call without its content; the lineage of a base volume is the longest.
const AROUND: usize = 64 << 10;
/// Interval at which a changed load is sent to clients.
const TELL: Nanos = Nanos::from_millis(100);
/// Intervals after which an unchanged load is sent as well.
const TELL_ANYWAY: u32 = 5;
/// Pause after a connection could not be accepted.
const PAUSE: Nanos = Nanos::from_millis(100);

/// The server of a lent store's clients.
pub(crate) struct LentServer {
    runtime: Handle,
    lending: Lending,
    listener: Listener,
    /// The settings by which clients prove keys; without them everybody is served.
    sealed: Option<StoreSeal>,
    /// The disks of the store.
    lies_on: OnceCell<LiesOn>,
    connections: RefCell<Vec<Weak<Line>>>,
    strangers: Cell<usize>,
    /// The last message about a peer: a refused peer comes again and again, and is logged once.
    last_said: RefCell<String>,
    count: Arc<AtomicUsize>,
    closing: Cell<bool>,
    /// Calls that are being carried out.
    under_way: Cell<usize>,
    done: Signal,
}

/// Counts a client's calls under way.
#[derive(Default)]
struct Account {
    calls: Cell<usize>,
    bytes: Cell<usize>,
    changed: Signal,
}

impl LentServer {
    /// Serves clients that connect to `listener`; `count` is the number of connected clients.
    pub(crate) fn start(
        runtime: Handle,
        lending: Lending,
        (listener, sealed): (Listener, Option<StoreSeal>),
        count: Arc<AtomicUsize>,
    ) -> Rc<Self> {
        let this = Rc::new(Self {
            runtime,
            lending,
            listener,
            sealed,
            lies_on: OnceCell::new(),
            connections: RefCell::default(),
            strangers: Cell::default(),
            last_said: RefCell::default(),
            count,
            closing: Cell::default(),
            under_way: Cell::default(),
            done: Signal::default(),
        });
        let accepting = Rc::clone(&this);
        this.runtime.spawn(async move { accepting.accept().await });
        this
    }

    /// From now on clients are told that the store lies on these disks.
    pub(crate) fn tell_disks(&self, lies_on: LiesOn) {
        self.lies_on.get_or_init(|| lies_on);
    }

    async fn accept(self: Rc<Self>) {
        loop {
            match self.listener.accept().await {
                Ok(stream) if !self.closing.get() && self.has_room() => self.welcome(stream),
                // Dropping the stream closes the connection at once: the client tries again.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return,
                Err(error) => {
                    let message = format!("cannot let a client in: {error}");
                    line(Level::Warning, None, &message, &[]);
                    self.runtime.sleep(PAUSE).await;
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        let clients = self.count.load(Ordering::SeqCst);
        clients < CONNECTIONS_MAX && self.strangers.get() < STRANGERS_MAX
    }

    fn welcome(self: &Rc<Self>, stream: SocketStream) {
        let this = Rc::clone(self);
        self.strangers.set(self.strangers.get() + 1);
        self.runtime.spawn(async move {
            let greeted = this.runtime.within(GREETING, this.greet(stream)).await;
            this.strangers.set(this.strangers.get() - 1);
            let why = match greeted.unwrap_or(Err(LineError::Silent(GREETING))) {
                Ok((of, frames)) => this.serve(of, frames).await,
                Err(error) => Some(error),
            };
            if let Some(why) = why {
                this.say(format!("a client was disconnected: {why}"));
            }
        });
    }

    fn say(&self, message: String) {
        if *self.last_said.borrow() != message {
            line(Level::Warning, None, &message, &[]);
            self.last_said.replace(message);
        }
    }

    /// Lets a peer prove its key, if keys are named, and reads its greeting.
    async fn greet(self: &Rc<Self>, stream: SocketStream) -> Result<(Rc<Line>, Frames), LineError> {
        let wire = match &self.sealed {
            Some(seal) => Wire::Sealed(Box::new(Sealed::accept(stream, seal).await?)),
            None => Wire::Plain(stream),
        };
        let (of, mut frames) = Line::start(&self.runtime, wire);
        Hello::decode(&frames.next(HELLO_MAX).await?)?;
        Ok((of, frames))
    }

    /// Serves a client until its connection ends; why it did, unless the client left.
    async fn serve(self: &Rc<Self>, of: Rc<Line>, frames: Frames) -> Option<LineError> {
        {
            let mut connections = self.connections.borrow_mut();
            connections.retain(|connection| connection.strong_count() > 0);
            connections.push(Rc::downgrade(&of));
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        let ended = self.calls(&of, frames).await;
        of.end();
        self.count.fetch_sub(1, Ordering::SeqCst);
        ended.err().filter(|error| matches!(error, LineError::Frame(_)))
    }

    async fn calls(self: &Rc<Self>, of: &Rc<Line>, mut frames: Frames) -> Result<(), LineError> {
        let longest_write = self.lending.longest_write();
        let (store, lies_on) = (self.lending.id(), self.lies_on.get().cloned().unwrap_or_default());
        of.send(Welcome { store, longest_write, lies_on }.encode());
        let (telling, told) = (Rc::clone(self), Rc::clone(of));
        self.runtime.spawn(async move { telling.tell_load(&told).await });
        let (most, account) = (to_usize(longest_write.bytes()) + AROUND, Rc::<Account>::default());
        loop {
            self.room(of, &account).await;
            let frame = frames.next(most).await?;
            let bytes = frame.body.iter().map(bytes::Bytes::len).sum();
            let call = Call::decode(&frame)?;
            if self.closing.get() {
                return Ok(());
            }
            self.carry_out(of, &account, (frame.number, bytes), call)?;
        }
    }

    /// Waits until a client may have another call under way.
    async fn room(&self, of: &Line, account: &Account) {
        loop {
            let (changed, written) = (account.changed.wait(), of.changed.wait());
            let held = account.bytes.get() + of.held_bytes();
            if of.is_over() || (held < BYTES_MAX && account.calls.get() < CALLS_MAX) {
                return;
            }
            first_of(changed, written).await;
        }
    }

    /// Begins a call; calls begin in the order of their arrival.
    fn carry_out(
        self: &Rc<Self>,
        of: &Rc<Line>,
        account: &Rc<Account>,
        (number, bytes): (u64, usize),
        call: Call,
    ) -> Result<(), FrameError> {
        let early = plant::is(Bug::LentAnsweredEarly) && matches!(call.ask, Ask::Write { .. });
        let bytes = match &call.ask {
            Ask::Read { extent } if extent.len > LONGEST_READ => {
                return Err(FrameError::Malformed("a read of more than is read at once"));
            }
            // The answer will hold the content.
            Ask::Read { extent } => bytes + to_usize(extent.len.bytes()),
            Ask::Write { content: Some(content), .. } if !has_bytes(content) => {
                return Err(FrameError::Malformed("content that no disk can keep"));
            }
            _ => bytes,
        };
        account.calls.set(account.calls.get() + 1);
        account.bytes.set(account.bytes.get() + bytes);
        self.under_way.set(self.under_way.get() + 1);
        let answer = self.lending.call(call);
        let (this, of, account) = (Rc::clone(self), Rc::clone(of), Rc::clone(account));
        if early {
            this.send(&of, Ok(Reply::Done), number);
        }
        self.runtime.spawn(async move {
            let answer = answer.await;
            if !early {
                this.send(&of, answer, number);
            }
            account.calls.set(account.calls.get() - 1);
            account.bytes.set(account.bytes.get() - bytes);
            account.changed.notify();
            this.under_way.set(this.under_way.get() - 1);
            this.done.notify();
        });
        Ok(())
    }

    fn send(&self, of: &Line, answer: Result<Reply, manylogs_everest::LenderError>, number: u64) {
        let load = self.lending.load();
        Answers::encode(&answer, number, load).into_iter().for_each(|frame| of.send(frame));
    }

    /// Regularly tells a client how busy the disk is, which also shows that the store is alive.
    async fn tell_load(&self, of: &Line) {
        let (mut last, mut silent) = (None, 0);
        while !of.is_over() {
            let load = self.lending.load();
            silent += 1;
            // Frames not written yet carry the load as well.
            if (last != Some(load) || silent >= TELL_ANYWAY) && of.held_bytes() < AROUND {
                of.send(Frame { load, ..Frame::new(FrameKind::Load, Vec::new()) });
                (last, silent) = (Some(load), 0);
            }
            self.runtime.sleep(TELL).await;
        }
    }

    /// Accepts no more clients, waits for the calls that have begun, and closes the store.
    pub(crate) async fn close(&self) -> Result<(), IoError> {
        self.closing.set(true);
        self.listener.shut_down();
        loop {
            let done = self.done.wait();
            if self.under_way.get() == 0 {
                break;
            }
            done.await;
        }
        let closed = self.lending.store().close().await;
        for connection in self.connections.take().iter().filter_map(Weak::upgrade) {
            connection.end();
        }
        closed
    }

    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Number of connected clients.
    pub(crate) fn connections(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Sectors that the store holds, and for how many base volumes.
    pub(crate) fn used(&self) -> (Sectors, u64) {
        let clients = self.lending.clients();
        let sectors = clients.iter().map(|(_, held)| held.0).sum();
        (Sectors(sectors), clients.len() as u64)
    }
}

/// Whether the payload consists of bytes or zeroes, which a disk can store; tags cannot be stored.
fn has_bytes(payload: &Payload) -> bool {
    payload.pieces().iter().all(|piece| matches!(piece, Piece::Bytes(_) | Piece::Zeroes(_)))
}
