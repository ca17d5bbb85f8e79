//! A store at the other end of a connection, which is made again whenever it ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Sectors, Signal, to_usize};
use manylogs_everest::net::{
    AnswerPart, Answers, Frame, FrameKind, Hello, LONGEST_READ, LiesOn, Welcome,
};
use manylogs_everest::{
    Answer, Ask, BaseId, Call, Lender, LenderError, Load, Reply, StoreId, store_name,
};
use manylogs_operate::log::{Level, line};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::{Connector, Peer};

use super::address::StoreAddress;
use super::connection::{Connection, SILENCE, Waiting};
use super::frames::{Frames, Line, LineError};
use super::names::Place;
use super::tls::{ClientSeal, Sealed};
use super::wire::Wire;

/// Time limit for connecting and exchanging greetings.
pub(super) const GREETING: Nanos = Nanos::from_secs(2);
/// Pause between two attempts.
const RETRY: Nanos = Nanos::from_millis(200);
/// The longest frame: the longest read, and its header.
const FRAME_MAX: usize = to_usize(LONGEST_READ.bytes()) + (1 << 20);
const WELCOME_MAX: usize = 4096;
const NOBODY: &str =
    "no store answers there: something else does, or a store with too many clients";

const OWN_DISK: &str = "it lies on the base volume's own disk, which would have twice the work: \
     lend another disk, or give --same-disk for a trial";

/// A store at the other end of a connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Link(Rc<State>);

struct State {
    runtime: Handle,
    connector: Connector,
    address: StoreAddress,
    place: Place,
    /// The settings by which both sides prove keys; without them nothing is encrypted.
    sealed: Option<ClientSeal>,
    base: BaseId,
    /// The disks of the base volume, on which the store must not lie.
    apart_from: OnceCell<LiesOn>,
    /// It does: it is not used, as long as that is so.
    refused: Cell<bool>,
    /// The store, once it is known.
    store: Cell<Option<StoreId>>,
    longest: Cell<Sectors>,
    told: Cell<Load>,
    /// Calls sent since the store last sent its load.
    sent_since: Cell<u64>,
    connection: RefCell<Option<Rc<Connection>>>,
    /// Why there is no connection.
    trouble: RefCell<String>,
    progress: Signal,
    /// Nobody uses the link any more.
    ended: Cell<bool>,
}

impl Link {
    /// Starts a link to the store at `place`, for a base volume. It connects at once, and again
    /// after each end.
    pub(crate) fn start(
        runtime: Handle,
        connector: Connector,
        address: StoreAddress,
        (place, sealed): (Place, Option<ClientSeal>),
        base: BaseId,
    ) -> Self {
        let link = Self(Rc::new(State {
            store: Cell::new(address.store),
            connector,
            address,
            place,
            sealed,
            base,
            apart_from: OnceCell::new(),
            refused: Cell::default(),
            longest: Cell::new(Sectors(u64::MAX)),
            told: Cell::default(),
            sent_since: Cell::default(),
            connection: RefCell::default(),
            trouble: RefCell::default(),
            progress: Signal::default(),
            ended: Cell::default(),
            runtime: runtime.clone(),
        }));
        let state = Rc::clone(&link.0);
        runtime.spawn(async move { state.run().await });
        link
    }

    /// From now on the store is not used if it lies on one of these disks.
    pub(crate) fn keep_apart_from(&self, disks: LiesOn) {
        self.0.apart_from.get_or_init(|| disks);
    }

    /// Why the store is not used although it answers, once it has answered; waits for that no
    /// longer than `patience`.
    pub(crate) async fn refusal(&self, patience: Nanos) -> Option<String> {
        // Nothing is refused where the user allows the same disk, or the store may hold data.
        self.0.apart_from.get()?;
        let _ = self.reached(patience).await;
        self.0.refused.get().then(|| self.trouble())
    }

    /// Waits until the store's name is known, because the user gave it or the store sent it.
    ///
    /// # Errors
    /// Why it is still unknown after `patience`.
    pub(crate) async fn known(&self, patience: Nanos) -> Result<(), String> {
        self.until(patience, |state| state.store.get().is_some()).await
    }

    /// Waits until the store has answered.
    ///
    /// # Errors
    /// Why it has not after `patience`.
    pub(crate) async fn reached(&self, patience: Nanos) -> Result<(), String> {
        self.until(patience, |state| state.connection.borrow().is_some()).await
    }

    async fn until(&self, patience: Nanos, is_so: impl Fn(&State) -> bool) -> Result<(), String> {
        let deadline = self.0.runtime.now() + patience;
        loop {
            let progress = self.0.progress.wait();
            if is_so(&self.0) {
                return Ok(());
            }
            let left = deadline.since(self.0.runtime.now());
            if self.0.refused.get() {
                return Err(self.trouble());
            }
            if self.0.runtime.within(left, progress).await.is_none() {
                return Err(self.trouble());
            }
        }
    }

    /// Ends the connection, and makes no other.
    pub(crate) fn end(&self) {
        self.0.ended.set(true);
        if let Some(connection) = &*self.0.connection.borrow() {
            connection.line.end();
        }
    }

    /// Why there is no connection, in words; empty if there is one.
    pub(crate) fn trouble(&self) -> String {
        self.0.trouble.borrow().clone()
    }
}

impl State {
    async fn run(self: Rc<Self>) {
        while !self.ended.get() {
            let ended = self.connect().await;
            if self.ended.get() {
                return;
            }
            self.say(ended.to_string());
            self.runtime.sleep(RETRY).await;
        }
    }

    /// Makes a connection, and uses it until it ends; returns why it ended, or why there was none.
    async fn connect(self: &Rc<Self>) -> LineError {
        let peer = match self.place.find(&self.runtime).await {
            Ok(peer) => peer,
            Err(error) => return io::Error::other(error).into(),
        };
        match self.runtime.within(GREETING, self.greet(&peer)).await {
            Some(Ok((line, frames))) => {
                if !self.ended.get() {
                    return self.serve(line, frames).await;
                }
                // The link was ended while it was connecting.
                line.end();
                io::Error::from(io::ErrorKind::ConnectionAborted).into()
            }
            Some(Err(error)) => error,
            None => LineError::Silent(GREETING),
        }
    }

    /// Notes why there is no connection, and logs the reason if it is new.
    fn say(&self, trouble: String) {
        if *self.trouble.borrow() != trouble {
            let message = format!("store {}: {trouble}", self.address);
            line(Level::Warning, None, &message, &[]);
            self.trouble.replace(trouble);
            self.progress.notify();
        }
    }

    /// Connects, exchanges greetings, and checks which store it is.
    async fn greet(&self, peer: &Peer) -> Result<(Rc<Line>, Frames), LineError> {
        let stream = self.connector.connect(peer).await?;
        let wire = match &self.sealed {
            Some(seal) => Wire::Sealed(Box::new(Sealed::connect(stream, seal).await?)),
            None => Wire::Plain(stream),
        };
        let (line, mut frames) = Line::start(&self.runtime, wire);
        line.send(Hello { base: self.base }.encode());
        let first = frames.next(WELCOME_MAX).await.map_err(|error| match error {
            LineError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                LineError::Io(io::Error::other(NOBODY))
            }
            error => error,
        });
        let welcome = Welcome::decode(&first?)?;
        self.is_right(welcome.store)?;
        self.is_apart(&welcome.lies_on)?;
        self.longest.set(welcome.longest_write);
        self.store.set(Some(welcome.store));
        Ok((line, frames))
    }

    fn is_apart(&self, found: &LiesOn) -> Result<(), LineError> {
        let shares = |apart: &LiesOn| apart.shares_a_disk_with(found);
        let shares = self.apart_from.get().is_some_and(shares) && !plant::is(Bug::OwnDiskLent);
        self.refused.set(shares);
        match shares {
            true => Err(io::Error::other(OWN_DISK).into()),
            false => Ok(()),
        }
    }

    fn is_right(&self, found: StoreId) -> Result<(), LineError> {
        let expected = self.store.get().unwrap_or(found);
        if found == expected || plant::is(Bug::OtherStoreTaken) {
            return Ok(());
        }
        let (found, expected) = (store_name(&found), store_name(&expected));
        let message = format!("store {found} answers there, not {expected}");
        Err(io::Error::other(message).into())
    }

    /// Uses a connection until it ends; returns why it ended.
    async fn serve(self: &Rc<Self>, of: Rc<Line>, mut frames: Frames) -> LineError {
        let connection = Rc::new(Connection {
            line: Rc::clone(&of),
            calls: RefCell::default(),
            sent: Cell::default(),
            heard: Cell::new(self.runtime.now()),
        });
        if !self.trouble.take().is_empty() {
            let message = format!("store {}: it is there again", self.address);
            line(Level::Info, None, &message, &[]);
        }
        self.connection.replace(Some(Rc::clone(&connection)));
        self.progress.notify();
        let watching = self.runtime.clone();
        let watched = Rc::clone(&connection);
        self.runtime.spawn(async move { watched.watch(&watching).await });
        let mut answers = Answers::default();
        let ended = loop {
            let taken = match frames.next(FRAME_MAX).await {
                Ok(frame) => self.take(&connection, &mut answers, &frame),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                break error;
            }
        };
        let silent = connection.silence(self.runtime.now()) > SILENCE;
        of.end();
        drop(frames);
        self.connection.replace(None);
        for call in connection.calls.take().into_values() {
            if plant::is(Bug::LostCallsUnanswered) {
                continue;
            }
            call.answer(match plant::is(Bug::LostCallsDone) {
                true => Ok(Reply::Done),
                false => Err(LenderError::Unreachable),
            });
        }
        self.progress.notify();
        if silent { LineError::Silent(SILENCE) } else { ended }
    }

    fn take(
        &self,
        connection: &Connection,
        answers: &mut Answers,
        frame: &Frame,
    ) -> Result<(), LineError> {
        connection.heard.set(self.runtime.now());
        self.told.set(frame.load);
        self.sent_since.set(0);
        if frame.kind == FrameKind::Load {
            return Ok(());
        }
        if let AnswerPart::Whole(answer) = answers.take(frame)? {
            // A number that is not waited for belongs to no call of ours and is ignored.
            let call = connection.calls.borrow_mut().remove(&frame.number);
            if let Some(call) = call {
                call.answer(answer);
                self.progress.notify();
            }
        }
        Ok(())
    }

    fn send(&self, call: &Call) -> Option<Waiting> {
        let connection = self.connection.borrow().clone()?;
        if connection.line.is_over() {
            return None;
        }
        let number = connection.sent.get();
        connection.sent.set(number + 1);
        let waiting = Waiting::since(self.runtime.now());
        connection.calls.borrow_mut().insert(number, waiting.clone());
        connection.line.send(call.encode(number));
        self.sent_since.set(self.sent_since.get() + 1);
        Some(waiting)
    }
}

impl Lender for Link {
    fn id(&self) -> StoreId {
        self.0.store.get().unwrap_or_default()
    }

    fn longest_write(&self) -> Sectors {
        self.0.longest.get()
    }

    fn call(&self, call: Call) -> Answer<Reply> {
        let Some(waiting) = self.0.send(&call) else {
            return Box::pin(std::future::ready(Err(LenderError::Unreachable)));
        };
        Box::pin(async move {
            match waiting.wait().await {
                // It is unknown whether the call was carried out.
                Ok(reply) if !answers(&call.ask, &reply) => Err(LenderError::Unreachable),
                answer => answer,
            }
        })
    }

    /// The load that the store last sent, plus the calls sent since.
    fn load(&self) -> Load {
        let (told, since) = (self.0.told.get(), self.0.sent_since.get());
        let each = told.wait.0 / told.in_flight.max(1);
        // At least 1 ns per call, so that another store that is equally idle is chosen.
        let wait = Nanos(told.wait.0 + since * each.max(1));
        Load { in_flight: told.in_flight + since, wait }
    }

    fn place(&self) -> String {
        let StoreAddress { at, .. } = &self.0.address;
        StoreAddress { at: at.clone(), store: None, key: None }.to_string()
    }

    fn progress(&self) -> &Signal {
        &self.0.progress
    }
}

/// Whether the reply fits the kind of call.
const fn answers(ask: &Ask, reply: &Reply) -> bool {
    match ask {
        Ask::Claim { .. } => matches!(reply, Reply::Held(_)),
        Ask::Read { .. } => matches!(reply, Reply::Found(_)),
        Ask::Write { .. } | Ask::Delete { .. } => matches!(reply, Reply::Done),
    }
}
