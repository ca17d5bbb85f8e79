//! Translates requests of NBD into requests to the engine.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use manylogs_block::{
    Capabilities, Extent, ExtentKind, Hint, IoError, IoResult, Payload, Request, SECTOR_BYTES,
    to_usize,
};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::Shelf;

use super::gate::Gate;
use super::negotiate::Terms;
use super::protocol::{ANSWER_HEAD_BYTES_MAX, Command, Header, REQUEST_BYTES_MAX, flag};
use crate::errno::nbd_errno;
use crate::port::content;
use crate::server::Server;
use crate::translate::{Around, Call, Operation, Untranslatable};

/// Most parts in an answer to block status; the client asks again for the rest.
const STATUS_PARTS_MAX: usize = 8192;
/// The longest change with parts of sectors, which blocks all other changes.
const PARTS_BYTES_MAX: u32 = 1 << 20;

/// The way of all connections to the engine.
pub(super) struct Service {
    pub(super) server: Rc<Server>,
    pub(super) capabilities: Capabilities,
    pub(super) shelf: Arc<Shelf>,
    gate: Gate,
    refusing: Cell<bool>,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Read(Bytes),
    /// Consecutive parts: length in bytes, and status flags.
    Status(Vec<(u32, u32)>),
}

/// Why a request failed: NBD's error number, and a message.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) errno: u32,
    pub(super) message: String,
}

impl Service {
    pub(super) fn new(server: Rc<Server>) -> Self {
        let capabilities = server.device.capabilities();
        let (shelf, gate) = (Arc::default(), Gate::default());
        Self { server, capabilities, shelf, gate, refusing: Cell::default() }
    }

    pub(super) fn refuse(&self) {
        self.refusing.set(true);
    }

    /// Checks a request as far as possible without the engine.
    pub(super) fn check(&self, header: &Header, terms: Terms) -> Result<(), Refusal> {
        let size = self.capabilities.capacity.bytes();
        let end = header.offset.checked_add(header.len.into());
        let fits = header.len > 0 && end.is_some_and(|end| end <= size);
        let moves = matches!(header.command, Command::Read | Command::Write);
        if self.refusing.get() {
            return Err(Refusal::new(SHUTDOWN, "the server is stopping"));
        }
        if header.flags & !header.command.flags() != 0 {
            return Err(Refusal::invalid("a flag that means nothing here"));
        }
        match header.command {
            Command::Flush => Ok(()),
            Command::BlockStatus if !terms.allocation => {
                Err(Refusal::invalid("nobody asked for a meta context"))
            }
            Command::Other(code) => Err(Refusal::invalid(&format!("no command {code}"))),
            Command::Write if !fits => Err(Refusal::new(NO_SPACE, "beyond the end of the export")),
            _ if !fits => Err(Refusal::invalid("beyond the end of the export, or nothing")),
            _ if moves && header.len > REQUEST_BYTES_MAX => {
                Err(Refusal::new(OVERFLOW, "more than 32 MiB"))
            }
            // Zeroing parts of sectors has to read, modify and write, which is not fast.
            Command::WriteZeroes if header.has(flag::FAST_ZERO) && !self.is_whole(header) => {
                Err(Refusal::new(UNSUPPORTED, "fast zeroing takes whole sectors"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes that a valid request (see [`Service::check`]) holds: the data to write, or the longest
    /// answer.
    pub(super) fn holds(&self, header: &Header) -> usize {
        match header.command {
            Command::Write => to_usize(header.len.into()),
            Command::Read => to_usize(header.len.into()) + ANSWER_HEAD_BYTES_MAX,
            // Zeroes over parts of sectors are written as data.
            Command::WriteZeroes if !self.is_whole(header) => to_usize(header.len.into()),
            Command::BlockStatus => STATUS_PARTS_MAX * size_of::<(u32, u32)>(),
            _ => 0,
        }
    }

    /// Carries out a valid request (see [`Service::check`]); `payload` is the data to write.
    pub(super) async fn carry_out(
        self: Rc<Self>,
        header: Header,
        payload: Bytes,
    ) -> Result<Answer, Refusal> {
        match header.command {
            Command::Read => self.read(&header).await,
            Command::Write => self.write(&header, payload).await,
            Command::WriteZeroes => self.zero(&header).await,
            Command::Trim => self.trim(&header).await,
            Command::BlockStatus => self.status(&header).await,
            _ if plant::is(Bug::NbdFlushSkipped) => Ok(Answer::Done),
            _ => done(self.server.perform(Request::Flush).await),
        }
    }

    async fn read(&self, header: &Header) -> Result<Answer, Refusal> {
        let around = self.around(header)?;
        let sectors = self.server.perform(Request::Read { extent: around.extent }).await?;
        Ok(Answer::Read(around.cut(&sectors)?))
    }

    async fn write(&self, header: &Header, bytes: Bytes) -> Result<Answer, Refusal> {
        let write = header.call(Operation::Write, Bug::NbdFuaIgnored);
        if write.whole(self.capabilities.capacity).is_none() {
            return self.change_parts(header, &bytes).await;
        }
        let request = write.request(self.capabilities.capacity, |_| Ok(Payload::bytes(bytes)))?;
        done(self.change(request).await)
    }

    async fn zero(&self, header: &Header) -> Result<Answer, Refusal> {
        let zeroes = header.call(Operation::WriteZeroes, Bug::NbdZeroFuaIgnored);
        if let Ok(request) = zeroes.without_content(self.capabilities.capacity) {
            return done(self.change(request).await);
        }
        if header.len > PARTS_BYTES_MAX {
            return Err(Refusal::invalid("so many zeroes only in whole sectors"));
        }
        self.change_parts(header, &Bytes::from(vec![0; to_usize(header.len.into())])).await
    }

    /// Discards the whole sectors in the range, and leaves parts of sectors alone.
    async fn trim(&self, header: &Header) -> Result<Answer, Refusal> {
        let call = header.call(Operation::Discard, Bug::NbdTrimFuaIgnored);
        let extent = match plant::is(Bug::NbdTrimRoundedOutwards) {
            true => self.around(header)?.extent,
            false => call.inside(),
        };
        if extent.is_empty() {
            return Ok(Answer::Done);
        }
        done(self.change(Request::Discard { extent, fua: call.fua }).await)
    }

    async fn status(&self, header: &Header) -> Result<Answer, Refusal> {
        let extent = self.around(header)?.extent;
        let (first, end) = (header.offset, header.offset + u64::from(header.len));
        let cut = |(part, kind): (Extent, ExtentKind)| {
            let from = (part.start.0 * SECTOR_BYTES).max(first);
            let to = (part.end().0 * SECTOR_BYTES).min(end);
            (u32::try_from(to - from).unwrap_or(u32::MAX), block_status(kind))
        };
        let parts = self.server.extents(extent).await?;
        let count = if header.has(flag::REQ_ONE) { 1 } else { STATUS_PARTS_MAX };
        Ok(Answer::Status(parts.iter().take(count).map(cut).collect()))
    }

    /// Makes a change of whole sectors.
    async fn change(&self, request: Request) -> IoResult {
        // Without waiting if possible, so that requests keep their order.
        let _shared = match self.gate.try_share() {
            Some(shared) => Some(shared),
            None if plant::is(Bug::NbdWholeWithoutGate) => None,
            None => Some(self.gate.share().await),
        };
        let performed = self.server.perform(request);
        if plant::is(Bug::NbdAnsweredEarly) {
            self.server.runtime.spawn(async move { drop(performed.await) });
            return Ok(Payload::default());
        }
        performed.await
    }

    /// Makes a change that begins or ends within a sector.
    async fn change_parts(&self, header: &Header, bytes: &[u8]) -> Result<Answer, Refusal> {
        let around = self.around(header)?;
        let extent = around.extent;
        let _alone = match plant::is(Bug::NbdPartsWithoutGate) {
            true => None,
            false => Some(self.gate.alone().await),
        };
        let old = content(&self.server.perform(Request::Read { extent }).await?);
        let mut new = self.shelf.buffer(old.len());
        new.bytes_mut().copy_from_slice(&old);
        around.put(new.bytes_mut(), bytes);
        let fua = header.call(Operation::Write, Bug::NbdPartsFuaIgnored).fua;
        let payload = Payload::bytes(new.freeze());
        let write = Request::Write { extent, payload, fua, hint: Hint::None };
        done(self.server.perform(write).await)
    }

    fn is_whole(&self, header: &Header) -> bool {
        header.range().whole(self.capabilities.capacity).is_some()
    }

    fn around(&self, header: &Header) -> Result<Around, Refusal> {
        let around = header.range().around(self.capabilities.capacity);
        around.ok_or_else(|| Refusal::invalid("nothing is there"))
    }
}

impl Header {
    /// The request's range of bytes, as a read.
    const fn range(&self) -> Call {
        Call::new(Operation::Read, self.offset, self.len as u64)
    }

    /// The request as a protocol-independent call; drops FUA if the bug `ignores_fua` is planted.
    fn call(&self, operation: Operation, ignores_fua: Bug) -> Call {
        Call {
            operation,
            fua: self.has(flag::FUA) && !plant::is(ignores_fua),
            if_fast: self.has(flag::FAST_ZERO),
            ..self.range()
        }
    }
}

/// Status flags of sectors of this kind: hole (1), reads as zeroes (2).
const fn block_status(kind: ExtentKind) -> u32 {
    match kind {
        ExtentKind::Data | ExtentKind::Logged => 0,
        ExtentKind::Zero => 2,
        ExtentKind::Hole => 3,
    }
}

fn done(result: IoResult) -> Result<Answer, Refusal> {
    if !plant::is(Bug::NbdFailureHidden) {
        result?;
    }
    Ok(Answer::Done)
}

/// Error numbers of NBD, equal to those of Linux.
const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const OVERFLOW: u32 = 75;
const UNSUPPORTED: u32 = 95;
const SHUTDOWN: u32 = 108;

impl Refusal {
    fn new(errno: u32, message: &str) -> Self {
        Self { errno, message: message.to_owned() }
    }

    fn invalid(message: &str) -> Self {
        Self::new(INVALID, message)
    }
}

impl From<Untranslatable> for Refusal {
    fn from(refused: Untranslatable) -> Self {
        Self::new(refused.errno().raw_os_error().unsigned_abs(), &refused.to_string())
    }
}

impl From<IoError> for Refusal {
    fn from(error: IoError) -> Self {
        let errno = nbd_errno(&error).raw_os_error().unsigned_abs();
        Self { errno, message: error.to_string() }
    }
}
