//! The connection of one client: reads its requests and writes the answers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::{Buf, Bytes};
use manylogs_block::{Nanos, Signal, to_usize};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::SocketStream;

use super::ledger::{Held, Ledger};
use super::negotiate::{Terms, negotiate};
use super::protocol::{
    ALLOCATION_ID, Chunk, Command, Header, REQUEST_BYTES, simple_reply, structured_reply,
};
use super::service::{Answer, Refusal, Service};
use crate::channel::Input;

/// Most pieces written in one call.
const SLICES: usize = 64;
/// A client that has not finished its negotiation after this time is disconnected, because it takes
/// one of [`super::CONNECTIONS_MAX`] places.
const NEGOTIATION: Nanos = Nanos::from_secs(30);

/// A connected client.
pub(super) struct Connection {
    stream: Rc<SocketStream>,
    terms: Cell<Terms>,
    /// Answers that the kernel has not taken yet.
    outbox: RefCell<VecDeque<Piece>>,
    /// Requests under way.
    requests: Cell<usize>,
    /// Counts the memory of requests under way and of unsent answers.
    ledger: Rc<Ledger>,
    /// Whether the client has changed anything; only a planted bug uses this.
    has_changed: Cell<bool>,
    /// Negotiation has ended, and requests may come.
    negotiated: Cell<bool>,
    /// The client sends no more.
    ended: Cell<bool>,
    /// The client takes no more answers.
    deaf: Cell<bool>,
    /// There is something to write, or room for another request.
    changed: Signal,
    /// Notified when the last answer was written.
    said_all: Signal,
}

/// A part of an answer.
struct Piece {
    bytes: Bytes,
    /// Set for the last part of an answer: the answer's memory, counted until the kernel has all of
    /// it.
    _held: Option<Held>,
}

impl Connection {
    pub(super) fn new(stream: SocketStream, said_all: Signal, service: &Service) -> Self {
        let changed = Signal::default();
        Self {
            stream: Rc::new(stream),
            terms: Cell::default(),
            outbox: RefCell::default(),
            requests: Cell::default(),
            ledger: Rc::new(Ledger::new(changed.clone(), Rc::clone(&service.server))),
            has_changed: Cell::default(),
            negotiated: Cell::default(),
            ended: Cell::default(),
            deaf: Cell::default(),
            changed,
            said_all,
        }
    }

    /// Whether all answers were written.
    pub(super) fn has_said_all(&self) -> bool {
        self.requests.get() == 0 && self.outbox.borrow().is_empty()
    }

    /// Ends the connection.
    pub(super) fn shut_down(&self) {
        self.stream.shut_down();
    }

    /// Serves the client until it leaves and all its answers are sent.
    ///
    /// # Errors
    /// The connection's.
    pub(super) async fn serve(self: &Rc<Self>, service: &Rc<Service>) -> io::Result<()> {
        let mut input = Input::new(Rc::clone(&self.stream));
        let (runtime, slow) = (service.server.runtime.clone(), Rc::downgrade(self));
        service.server.runtime.spawn(async move {
            runtime.sleep(NEGOTIATION).await;
            if let Some(slow) = slow.upgrade().filter(|slow| !slow.negotiated.get()) {
                slow.shut_down();
            }
        });
        let Some(terms) = negotiate(&mut input, &self.stream, &service.capabilities).await? else {
            return Ok(());
        };
        self.terms.set(terms);
        self.negotiated.set(true);
        let (writing, written) = (Rc::clone(self), Signal::default());
        let (heard, told) = (written.wait(), written);
        service.server.runtime.spawn(async move {
            if writing.write().await.is_err() {
                writing.deaf.set(true);
                writing.outbox.take();
                // The reader ends too.
                writing.stream.shut_down();
                writing.changed.notify();
            }
            told.notify();
        });
        let read = self.read(&mut input, service).await;
        self.ended.set(true);
        self.changed.notify();
        heard.await;
        read
    }

    async fn read(self: &Rc<Self>, input: &mut Input, service: &Rc<Service>) -> io::Result<()> {
        loop {
            let header = match Header::parse(&input.array::<REQUEST_BYTES>().await?) {
                Some(Header { command: Command::Disconnect, .. }) => return Ok(()),
                Some(header) => header,
                None => return Err(io::ErrorKind::InvalidData.into()),
            };
            let checked = service.check(&header, self.terms.get());
            let bytes = if checked.is_ok() { service.holds(&header) } else { 0 };
            self.room(bytes).await;
            if self.deaf.get() && !plant::is(Bug::NbdGoneClientUnlimited) {
                // Thousands of requests may have been read from the socket already.
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let held = self.ledger.enter(bytes);
            let writes = header.command == Command::Write;
            if let Err(refusal) = checked {
                if writes {
                    input.skip(header.len.into()).await?;
                }
                self.answer(&header, Err(refusal), held);
                continue;
            }
            let len = to_usize(header.len.into());
            let payload = match writes {
                true => input.bytes(&service.shelf, len).await?,
                false => Bytes::new(),
            };
            if plant::is(Bug::NbdFlushOwnConnection) {
                if header.command == Command::Flush && !self.has_changed.get() {
                    self.answer(&header, Ok(Answer::Done), held);
                    continue;
                }
                self.has_changed.set(writes || self.has_changed.get());
            }
            self.requests.set(self.requests.get() + 1);
            let (this, service) = (Rc::clone(self), Rc::clone(service));
            service.server.runtime.clone().spawn(async move {
                if plant::is(Bug::NbdDisconnectDropsRequests) && this.ended.get() {
                    this.requests.set(this.requests.get() - 1);
                    this.changed.notify();
                    return;
                }
                let answer = service.carry_out(header, payload).await;
                this.requests.set(this.requests.get() - 1);
                this.answer(&header, answer, held);
            });
        }
    }

    /// Waits until the client may have another request under way, which holds `bytes`.
    async fn room(&self, bytes: usize) {
        loop {
            let changed = self.changed.wait();
            if self.deaf.get() || self.ledger.has_room(bytes) {
                return;
            }
            changed.await;
        }
    }

    fn answer(&self, header: &Header, answer: Result<Answer, Refusal>, held: Held) {
        if self.deaf.get() {
            return;
        }
        let parts = parts(header, answer, self.terms.get().structured);
        let mut held = held.answered(parts.iter().map(Bytes::len).sum());
        let count = parts.len();
        let mut outbox = self.outbox.borrow_mut();
        for (i, bytes) in parts.into_iter().enumerate() {
            outbox.push_back(Piece { bytes, _held: held.take_if(|_| i + 1 == count) });
        }
        drop(outbox);
        self.changed.notify();
    }

    /// Writes answers until the client has left and all of them are written.
    async fn write(&self) -> io::Result<()> {
        loop {
            let changed = self.changed.wait();
            if !self.outbox.borrow().is_empty() {
                self.write_some().await?;
            } else if self.ended.get() && self.requests.get() == 0 {
                return Ok(());
            } else {
                if self.requests.get() == 0 {
                    self.said_all.notify();
                }
                changed.await;
            }
        }
    }

    async fn write_some(&self) -> io::Result<()> {
        // Clones: answers may be added while this waits.
        let pieces: Vec<Bytes> =
            self.outbox.borrow().iter().take(SLICES).map(|piece| piece.bytes.clone()).collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut written = self.stream.write_vectored(&slices).await?;
        let mut outbox = self.outbox.borrow_mut();
        while let Some(piece) = outbox.front_mut() {
            let len = piece.bytes.len().min(written);
            piece.bytes.advance(len);
            written -= len;
            if !piece.bytes.is_empty() {
                break;
            }
            outbox.pop_front();
        }
        drop(outbox);
        self.changed.notify();
        Ok(())
    }
}

/// The bytes of an answer.
fn parts(header: &Header, answer: Result<Answer, Refusal>, structured: bool) -> Vec<Bytes> {
    let cookie = header.cookie;
    match answer {
        Ok(Answer::Done) => vec![simple_reply(cookie, 0).into()],
        Ok(Answer::Read(content)) => {
            let begin = match structured {
                true => {
                    let at = header.offset.to_be_bytes();
                    structured_reply(cookie, Chunk::Data, &at, header.len).into()
                }
                false => simple_reply(cookie, 0).into(),
            };
            vec![begin, content]
        }
        Ok(Answer::Status(parts)) => {
            let mut data = ALLOCATION_ID.to_be_bytes().to_vec();
            data.extend(
                parts
                    .iter()
                    .flat_map(|(len, what)| [len.to_be_bytes(), what.to_be_bytes()].concat()),
            );
            vec![structured_reply(cookie, Chunk::BlockStatus, &data, 0).into()]
        }
        Err(Refusal { errno, .. }) if !structured => vec![simple_reply(cookie, errno).into()],
        Err(Refusal { errno, message }) => {
            let mut data = errno.to_be_bytes().to_vec();
            let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
            data.extend(len.to_be_bytes());
            data.extend(&message.as_bytes()[..len.into()]);
            vec![structured_reply(cookie, Chunk::Error, &data, 0).into()]
        }
    }
}
