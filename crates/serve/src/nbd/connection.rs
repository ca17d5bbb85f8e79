//! One client: requests in, answers out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::{Buf, Bytes};
use manylogs_block::{Signal, to_usize};
use manylogs_storage::Stream;

use super::channel::Input;
use super::negotiate::{Terms, negotiate};
use super::protocol::{
    ALLOCATION_ID, Chunk, Command, Header, REQUEST_BYTES, REQUEST_BYTES_MAX, simple_reply,
    structured_reply,
};
use super::service::{Answer, Refusal, Service};

/// What a client may have under way: a request more waits in the socket.
const REQUESTS_MAX: usize = 256;
const BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX as usize;
/// Pieces that are written in one call.
const SLICES: usize = 64;

/// A connected client.
pub(super) struct Connection {
    stream: Rc<Stream>,
    terms: Cell<Terms>,
    /// Answers that the kernel has not taken yet.
    outbox: RefCell<VecDeque<Bytes>>,
    /// Requests under way, and the bytes that they hold.
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// The client sends no more.
    ended: Cell<bool>,
    /// The client takes no more: what is answered is for nobody.
    deaf: Cell<bool>,
    /// There is something to write, or room for another request.
    changed: Signal,
    /// Tells the server when all is said.
    said_all: Signal,
}

impl Connection {
    pub(super) fn new(stream: Stream, said_all: Signal) -> Self {
        Self {
            stream: Rc::new(stream),
            terms: Cell::default(),
            outbox: RefCell::default(),
            requests: Cell::default(),
            bytes: Cell::default(),
            ended: Cell::default(),
            deaf: Cell::default(),
            changed: Signal::default(),
            said_all,
        }
    }

    /// Whether nothing that was answered is still here.
    pub(super) fn has_said_all(&self) -> bool {
        self.requests.get() == 0 && self.outbox.borrow().is_empty()
    }

    /// Ends it.
    pub(super) fn shut_down(&self) {
        self.stream.shut_down();
    }

    /// Serves the client until it leaves and has its answers.
    ///
    /// # Errors
    /// The connection's.
    pub(super) async fn serve(self: &Rc<Self>, service: &Rc<Service>) -> io::Result<()> {
        let mut input = Input::new(Rc::clone(&self.stream));
        let Some(terms) = negotiate(&mut input, &self.stream, &service.export).await? else {
            return Ok(());
        };
        self.terms.set(terms);
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
            self.room().await;
            let checked = service.check(&header, self.terms.get());
            let writes = header.command == Command::Write;
            if let Err(refusal) = checked {
                if writes {
                    input.skip(header.len.into()).await?;
                }
                self.answer(&header, Err(refusal));
                continue;
            }
            let len = to_usize(header.len.into());
            let payload = match writes {
                true => input.bytes(&service.shelf, len).await?,
                false => Bytes::new(),
            };
            let held = if writes || header.command == Command::Read { len } else { 0 };
            self.requests.set(self.requests.get() + 1);
            self.bytes.set(self.bytes.get() + held);
            let (this, service) = (Rc::clone(self), Rc::clone(service));
            service.server.runtime.clone().spawn(async move {
                let answer = service.carry_out(header, payload).await;
                this.requests.set(this.requests.get() - 1);
                this.bytes.set(this.bytes.get() - held);
                this.answer(&header, answer);
            });
        }
    }

    /// Waits until the client may have another request under way.
    async fn room(&self) {
        loop {
            let changed = self.changed.wait();
            let waiting: usize = self.outbox.borrow().len();
            let some = self.requests.get() + waiting / 2 < REQUESTS_MAX;
            if self.deaf.get() || (some && self.bytes.get() <= BYTES_MAX) {
                return;
            }
            changed.await;
        }
    }

    fn answer(&self, header: &Header, answer: Result<Answer, Refusal>) {
        if self.deaf.get() {
            return;
        }
        let (cookie, structured) = (header.cookie, self.terms.get().structured);
        let mut outbox = self.outbox.borrow_mut();
        match answer {
            Ok(Answer::Done) => outbox.push_back(simple_reply(cookie, 0).into()),
            Ok(Answer::Read(content)) => {
                outbox.push_back(match structured {
                    true => {
                        let at = header.offset.to_be_bytes();
                        structured_reply(cookie, Chunk::Data, &at, header.len).into()
                    }
                    false => simple_reply(cookie, 0).into(),
                });
                outbox.push_back(content);
            }
            Ok(Answer::Status(parts)) => {
                let mut data = ALLOCATION_ID.to_be_bytes().to_vec();
                data.extend(
                    parts
                        .iter()
                        .flat_map(|(len, what)| [len.to_be_bytes(), what.to_be_bytes()].concat()),
                );
                outbox.push_back(structured_reply(cookie, Chunk::BlockStatus, &data, 0).into());
            }
            Err(Refusal { errno, .. }) if !structured => {
                outbox.push_back(simple_reply(cookie, errno).into());
            }
            Err(Refusal { errno, message }) => {
                let mut data = errno.to_be_bytes().to_vec();
                let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
                data.extend(len.to_be_bytes());
                data.extend(&message.as_bytes()[..len.into()]);
                outbox.push_back(structured_reply(cookie, Chunk::Error, &data, 0).into());
            }
        }
        drop(outbox);
        self.changed.notify();
    }

    /// Writes answers until the client has left and has all of them.
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
        let pieces: Vec<Bytes> = self.outbox.borrow().iter().take(SLICES).cloned().collect();
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut written = self.stream.write_vectored(&slices).await?;
        let mut outbox = self.outbox.borrow_mut();
        while let Some(piece) = outbox.front_mut() {
            let len = piece.len().min(written);
            piece.advance(len);
            written -= len;
            if !piece.is_empty() {
                break;
            }
            outbox.pop_front();
        }
        drop(outbox);
        self.changed.notify();
        Ok(())
    }
}
