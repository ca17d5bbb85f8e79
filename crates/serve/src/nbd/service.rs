//! Requests of NBD as the engine's.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use manylogs_block::{
    Extent, Hint, IoError, IoResult, Payload, Request, SECTOR_BYTES, Sectors, to_usize,
};
use manylogs_plant::{self as plant, Bug};
use manylogs_storage::Shelf;

use super::gate::Gate;
use super::negotiate::{Export, Terms};
use super::protocol::{Command, Header, REQUEST_BYTES_MAX, flag};
use crate::port::content;
use crate::range::{sectors_around, sectors_exactly};
use crate::server::Server;

/// Block status is told for so much at a time: the engine answers nobody else meanwhile.
const STATUS_BYTES_MAX: u64 = 256 << 20;
/// Block status is told of so many parts: what follows the client asks for.
const STATUS_PARTS_MAX: usize = 8192;
/// The longest change of parts of sectors, which holds all other changes up.
const PARTS_BYTES_MAX: u32 = 1 << 20;
/// What the parts of a block status are.
const DATA: u32 = 0;
const HOLE_AND_ZERO: u32 = 3;

/// The engine, as all connections use it.
pub(super) struct Service {
    pub(super) server: Rc<Server>,
    pub(super) export: Export,
    pub(super) shelf: Arc<Shelf>,
    gate: Gate,
    refusing: Cell<bool>,
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Read(Bytes),
    /// Lengths in bytes, and what is there.
    Status(Vec<(u32, u32)>),
}

/// Why a request failed: a number of NBD's, and words.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) errno: u32,
    pub(super) message: String,
}

impl Service {
    pub(super) fn new(server: Rc<Server>) -> Self {
        let export = Export {
            capabilities: server.exported.device.capabilities(),
            has_volume: server.exported.volume.is_some(),
        };
        let (shelf, gate) = (Arc::default(), Gate::default());
        Self { server, export, shelf, gate, refusing: Cell::default() }
    }

    pub(super) fn refuse(&self) {
        self.refusing.set(true);
    }

    /// Says at once what no engine needs to be asked for.
    pub(super) fn check(&self, header: &Header, terms: Terms) -> Result<(), Refusal> {
        let size = self.export.capabilities.capacity.bytes();
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
            Command::WriteZeroes if header.has(flag::FAST_ZERO) && !self.notes_zeroes(header) => {
                Err(Refusal::new(UNSUPPORTED, "these zeroes would be written"))
            }
            _ => Ok(()),
        }
    }

    /// The memory that a request holds which [`Service::check`] has found to be in order: what is
    /// written, or the longest answer.
    pub(super) fn holds(&self, header: &Header) -> usize {
        match header.command {
            Command::Read | Command::Write => to_usize(header.len.into()),
            // Zeroes of parts of sectors are written.
            Command::WriteZeroes if self.exactly(header).is_none() => to_usize(header.len.into()),
            Command::BlockStatus => STATUS_PARTS_MAX * size_of::<(u32, u32)>(),
            _ => 0,
        }
    }

    /// Carries out what [`Service::check`] has found to be in order; `payload` is what is written.
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
            Command::BlockStatus => self.status(&header),
            _ if plant::is(Bug::NbdFlushSkipped) => Ok(Answer::Done),
            _ => done(self.server.perform(Request::Flush).await),
        }
    }

    async fn read(&self, header: &Header) -> Result<Answer, Refusal> {
        let extent = self.around(header)?;
        let read = content(&self.server.perform(Request::Read { extent }).await?);
        let skip = to_usize(header.offset - extent.start.0 * SECTOR_BYTES);
        Ok(Answer::Read(read.slice(skip..skip + to_usize(header.len.into()))))
    }

    async fn write(&self, header: &Header, bytes: Bytes) -> Result<Answer, Refusal> {
        let fua = header.has(flag::FUA) && !plant::is(Bug::NbdFuaIgnored);
        if let Some(extent) = self.exactly(header) {
            let payload = Payload::bytes(bytes);
            let write = Request::Write { extent, payload, fua, hint: Hint::None };
            return done(self.change(write).await);
        }
        self.change_parts(header, &bytes).await
    }

    async fn zero(&self, header: &Header) -> Result<Answer, Refusal> {
        let fua = header.has(flag::FUA) && !plant::is(Bug::NbdZeroFuaIgnored);
        if let Some(extent) = self.exactly(header) {
            return done(self.change(Request::WriteZeroes { extent, fua }).await);
        }
        if header.len > PARTS_BYTES_MAX {
            return Err(Refusal::invalid("so many zeroes only in whole sectors"));
        }
        self.change_parts(header, &Bytes::from(vec![0; to_usize(header.len.into())])).await
    }

    /// Gives up the whole sectors; nothing is promised of parts.
    async fn trim(&self, header: &Header) -> Result<Answer, Refusal> {
        let end = header.offset + u64::from(header.len);
        let (start, end) = match plant::is(Bug::NbdTrimRoundedOutwards) {
            true => (header.offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES)),
            false => (header.offset.div_ceil(SECTOR_BYTES), end / SECTOR_BYTES),
        };
        let len = end.saturating_sub(start);
        if len > 0 {
            self.change(Request::Discard { extent: Extent::new(start, len) }).await?;
        }
        if header.has(flag::FUA) && !plant::is(Bug::NbdTrimFuaIgnored) {
            self.server.perform(Request::Flush).await?;
        }
        Ok(Answer::Done)
    }

    fn status(&self, header: &Header) -> Result<Answer, Refusal> {
        let extent = self.around(header)?;
        let most = Sectors(STATUS_BYTES_MAX / SECTOR_BYTES);
        let extent = Extent { len: extent.len.min(most), ..extent };
        let (first, end) = (header.offset, header.offset + u64::from(header.len));
        let cut = |(part, zeroes): (Extent, bool)| {
            let from = (part.start.0 * SECTOR_BYTES).max(first);
            let to = (part.end().0 * SECTOR_BYTES).min(end);
            let what = if zeroes { HOLE_AND_ZERO } else { DATA };
            (u32::try_from(to - from).unwrap_or(u32::MAX), what)
        };
        let parts = self.server.zeroes(extent)?;
        let count = if header.has(flag::REQ_ONE) { 1 } else { STATUS_PARTS_MAX };
        Ok(Answer::Status(parts.into_iter().take(count).map(cut).collect()))
    }

    /// A change of whole sectors.
    async fn change(&self, request: Request) -> IoResult {
        // At once if that is possible: requests keep their order then.
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

    /// A change that begins or ends within a sector.
    async fn change_parts(&self, header: &Header, bytes: &[u8]) -> Result<Answer, Refusal> {
        let extent = self.around(header)?;
        let _alone = match plant::is(Bug::NbdPartsWithoutGate) {
            true => None,
            false => Some(self.gate.alone().await),
        };
        let old = content(&self.server.perform(Request::Read { extent }).await?);
        let mut new = self.shelf.buffer(old.len());
        new.bytes_mut().copy_from_slice(&old);
        let skip = to_usize(header.offset - extent.start.0 * SECTOR_BYTES);
        new.bytes_mut()[skip..skip + bytes.len()].copy_from_slice(bytes);
        let fua = header.has(flag::FUA) && !plant::is(Bug::NbdPartsFuaIgnored);
        let payload = Payload::bytes(new.freeze());
        let write = Request::Write { extent, payload, fua, hint: Hint::None };
        done(self.server.perform(write).await)
    }

    /// Whether zeroing is a note in the table.
    fn notes_zeroes(&self, header: &Header) -> bool {
        self.export.has_volume && self.exactly(header).is_some()
    }

    fn exactly(&self, header: &Header) -> Option<Extent> {
        sectors_exactly(self.export.capabilities.capacity, header.offset, header.len.into())
    }

    fn around(&self, header: &Header) -> Result<Extent, Refusal> {
        sectors_around(self.export.capabilities.capacity, header.offset, header.len.into())
            .ok_or_else(|| Refusal::invalid("nothing is there"))
    }
}

fn done(result: IoResult) -> Result<Answer, Refusal> {
    if !plant::is(Bug::NbdFailureHidden) {
        result?;
    }
    Ok(Answer::Done)
}

/// Error numbers as NBD has them, which are those of Linux.
const IO: u32 = 5;
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

impl From<IoError> for Refusal {
    fn from(error: IoError) -> Self {
        let errno = match &error {
            // A server that ends: clients that can connect again do.
            IoError::Gone => SHUTDOWN,
            IoError::ReadOnly { .. } => 1,
            error => match u32::try_from(crate::errno(error).raw_os_error()) {
                Ok(known @ (IO | INVALID | NO_SPACE | UNSUPPORTED)) => known,
                _ => IO,
            },
        };
        Self { errno, message: error.to_string() }
    }
}
