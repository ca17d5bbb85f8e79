//! Waiting requests by class.

use manylogs_block::{Completer, Extent, Geometry, Lba, Request, Sectors, Time, to_usize};

use crate::Class;
use crate::answer::{Answer, Pieces};
use crate::limits::Backlog;
use crate::line::Line;
use manylogs_plant::{self as plant, Bug};

/// Pieces of streams of reads end at multiples of this length. They are short, because a drive
/// reads ahead.
const READ_PIECE: Sectors = Sectors(128);
/// Pieces of writes are longer, so that the drive has the next piece in time. A drive reads ahead,
/// but cannot write ahead. On an array with parity pieces of writes are whole stripes.
const WRITE_PIECE: Sectors = Sectors(1024);

/// Where pieces of requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Usual length of a piece.
    len: Sectors,
    /// Pieces end where an address and this are a multiple of the length together.
    first: Sectors,
}

/// Number of pieces of a stream of reads in `len`, at least one.
pub(crate) fn pieces_of(len: Sectors) -> usize {
    to_usize(len.0 / READ_PIECE.0).max(1)
}

/// A waiting request.
pub(crate) struct Waiting {
    /// Order of arrival.
    pub(crate) sequence: u64,
    pub(crate) class: Class,
    pub(crate) request: Request,
    pub(crate) arrived: Time,
    answer: Waits,
    /// Number of sectors that have gone to the device.
    sent: Sectors,
    cut: Cut,
}

enum Waits {
    For(Completer),
    InPieces(std::rc::Rc<Pieces>),
    /// Placeholder while the answer is taken out.
    Nobody,
}

/// A request or piece that goes to the device.
pub(crate) struct Departing {
    pub(crate) request: Request,
    pub(crate) class: Class,
    pub(crate) arrived: Time,
    pub(crate) answer: Answer,
    /// Whether this is the last piece of its request.
    pub(crate) last: bool,
}

/// All waiting requests.
#[derive(Default)]
pub(crate) struct Queues {
    next_sequence: u64,
    small: Line,
    streams: Line,
    background: Line,
    /// Number of waiting requests that write.
    writes: usize,
    /// The array that the device is, if its parity is computed from whole stripes.
    array: Option<Geometry>,
}

impl Cut {
    const READS: Self = Self { len: READ_PIECE, first: Sectors(0) };

    /// How writes are cut. A piece that ended within a stripe would make the array read the rest of
    /// the stripe before it can compute the parity.
    fn of_writes(array: Option<Geometry>) -> Self {
        let Some(array) = array.filter(|_| !plant::is(Bug::PieceEndsWithinStripe)) else {
            return Self { len: WRITE_PIECE, first: Sectors(0) };
        };
        Self { len: Sectors(WRITE_PIECE.0.next_multiple_of(array.stripe().0)), first: array.first }
    }

    /// Whether a request or its rest of this length goes in several pieces: the first and the last
    /// are not made too short.
    const fn divides(self, len: Sectors) -> bool {
        len.0 > self.len.0 + self.len.0 / 2
    }

    /// The end of a piece that begins at `start`.
    const fn end_from(self, start: Lba) -> Lba {
        let end = (start.0 + self.first.0 + 1).next_multiple_of(self.len.0) - self.first.0;
        if end - start.0 < self.len.0 / 2 { Lba(end + self.len.0) } else { Lba(end) }
    }
}

impl Waiting {
    pub(crate) fn writes(&self) -> bool {
        writes(&self.request)
    }

    /// First sector, and the place in the order of arrival.
    pub(crate) fn key(&self) -> (Lba, u64) {
        (self.request.extent().map_or(Lba(0), |extent| extent.start), self.sequence)
    }

    /// Whether the order of the two requests matters.
    fn conflicts(&self, other: &Request) -> bool {
        let (Some(own), Some(extent)) = (self.request.extent(), other.extent()) else {
            return false;
        };
        (self.writes() || writes(other)) && own.overlaps(extent)
    }

    /// The length of a write that has not gone yet, not even in part, and would go in pieces.
    pub(crate) fn divisible_write(&self) -> Option<Sectors> {
        let len = self.request.extent().filter(|_| self.writes())?.len;
        (self.sent == Sectors(0) && self.cut.divides(len)).then_some(len)
    }

    /// The piece that goes next, or the whole rest unless `in_pieces`.
    pub(crate) fn next_piece(&self, in_pieces: bool) -> Option<Extent> {
        let extent = self.request.extent()?;
        let rest = Extent::between(extent.start + self.sent, extent.end());
        let divisible = matches!(self.request, Request::Read { .. } | Request::Write { .. });
        if !in_pieces || !divisible || !self.cut.divides(rest.len) {
            return Some(rest);
        }
        Some(Extent::between(rest.start, self.cut.end_from(rest.start).min(rest.end())))
    }

    pub(crate) fn take(&mut self, in_pieces: bool) -> Departing {
        let (class, arrived) = (self.class, self.arrived);
        let piece = self.next_piece(in_pieces);
        let whole = self.sent == Sectors(0) && piece == self.request.extent();
        if whole {
            let request = std::mem::replace(&mut self.request, Request::Flush);
            let Waits::For(completer) = std::mem::replace(&mut self.answer, Waits::Nobody) else {
                unreachable!("nothing of it has gone")
            };
            let answer = Answer::Whole(completer);
            return Departing { request, class, arrived, answer, last: true };
        }
        let (Some(piece), Some(extent)) = (piece, self.request.extent()) else {
            unreachable!("what has no extent is whole")
        };
        let last = piece.end() == extent.end();
        let request = part_of(&self.request, extent, piece);
        if !plant::is(Bug::PieceSentTwice) || self.sent > Sectors(0) {
            self.sent = Sectors(piece.end().0 - extent.start.0);
        }
        let answer = self.pieces().next(last);
        Departing { request, class, arrived, answer, last }
    }

    fn pieces(&mut self) -> &std::rc::Rc<Pieces> {
        if let Waits::For(_) = self.answer
            && let Waits::For(completer) = std::mem::replace(&mut self.answer, Waits::Nobody)
        {
            self.answer = Waits::InPieces(Pieces::new(completer));
        }
        let Waits::InPieces(pieces) = &self.answer else { unreachable!("made above") };
        pieces
    }
}

impl Queues {
    /// Notes that the device is an array whose parity is computed from whole stripes.
    pub(crate) const fn set_array(&mut self, array: Geometry) {
        self.array = Some(array);
    }

    const fn line(&self, class: Class) -> Option<&Line> {
        match class {
            Class::Record => None,
            Class::Small => Some(&self.small),
            Class::Stream => Some(&self.streams),
            Class::Background => Some(&self.background),
        }
    }

    /// The line of a class. Records never wait, so for their class any line will do.
    const fn line_mut(&mut self, class: Class) -> &mut Line {
        match class {
            Class::Small => &mut self.small,
            Class::Record | Class::Stream => &mut self.streams,
            Class::Background => &mut self.background,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.streams.is_empty() && self.background.is_empty()
    }

    pub(crate) fn waits(&self, class: Class) -> bool {
        self.len(class) > 0
    }

    /// Number of waiting requests of `class`.
    pub(crate) fn len(&self, class: Class) -> usize {
        self.line(class).map_or(0, Line::len)
    }

    pub(crate) fn push(&mut self, class: Class, request: Request, now: Time, completer: Completer) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.writes += usize::from(writes(&request));
        let (arrived, sent) = (now, Sectors(0));
        let answer = Waits::For(completer);
        let cut = if writes(&request) { Cut::of_writes(self.array) } else { Cut::READS };
        let waiting = Waiting { sequence, class, request, arrived, answer, sent, cut };
        self.line_mut(class).push(waiting);
    }

    /// Arrival of the oldest request of `class`.
    pub(crate) fn oldest(&self, class: Class) -> Option<Time> {
        self.line(class)?.oldest().map(|waiting| waiting.arrived)
    }

    /// Waiting requests of clients at `now`.
    pub(crate) fn backlog(&self, now: Time) -> Backlog {
        let (small, streams) = (self.oldest(Class::Small), self.oldest(Class::Stream));
        let requests = self.small.len() + self.streams.len();
        let oldest = small.into_iter().chain(streams).min().unwrap_or(now);
        Backlog { requests, oldest }
    }

    /// The request of `class` that [`Queues::take`] would take from.
    pub(crate) fn next(&self, class: Class, now: Time) -> Option<&Waiting> {
        self.line(class)?.next(now)
    }

    /// Takes the next request of `class`, or a piece of it if `in_pieces`. Requests that must go
    /// before it come first in the result.
    pub(crate) fn take(&mut self, class: Class, now: Time, in_pieces: bool) -> Vec<Departing> {
        let Some(next) = self.next(class, now) else { return Vec::new() };
        let mut out = Vec::with_capacity(1);
        if self.writes > 0 {
            let (request, sequence) = (next.request.clone(), next.sequence);
            self.take_forerunners(&request, sequence, &mut out);
        }
        let departing = self.line_mut(class).take_next(now, in_pieces);
        out.extend(departing.inspect(|departing| self.note_gone(departing)));
        out
    }

    /// Takes all waiting requests that must go before `request`, which has just arrived.
    pub(crate) fn before(&mut self, request: &Request) -> Vec<Departing> {
        let mut out = Vec::new();
        if !self.is_empty() && (self.writes > 0 || writes(request)) {
            self.take_forerunners(request, self.next_sequence, &mut out);
        }
        out
    }

    /// Takes the requests that arrived before `sequence` and touch the same sectors, in order of
    /// arrival, with all requests that must go before these.
    fn take_forerunners(&mut self, request: &Request, sequence: u64, out: &mut Vec<Departing>) {
        while !plant::is(Bug::OverlapsOvertaken) {
            let lines = [&self.small, &self.streams, &self.background];
            let all = lines.into_iter().flat_map(Line::all);
            let conflicting =
                all.filter(|other| other.sequence < sequence && other.conflicts(request));
            let Some(first) = conflicting.min_by_key(|other| other.sequence) else { return };
            let (class, key) = (first.class, first.key());
            let request = first.request.clone();
            self.take_forerunners(&request, key.1, out);
            let departing = self.line_mut(class).take_whole(key);
            out.extend(departing.inspect(|departing| self.note_gone(departing)));
        }
    }

    fn note_gone(&mut self, departing: &Departing) {
        if departing.last && writes(&departing.request) {
            self.writes -= 1;
        }
    }
}

fn writes(request: &Request) -> bool {
    !matches!(request, Request::Read { .. } | Request::Flush)
}

fn part_of(request: &Request, extent: Extent, piece: Extent) -> Request {
    match request {
        Request::Read { .. } => Request::Read { extent: piece },
        Request::Write { payload, fua, hint, .. } => {
            let skip = Sectors(piece.start.0 - extent.start.0);
            let payload = payload.slice(skip, piece.len);
            Request::Write { extent: piece, payload, fua: *fua, hint: *hint }
        }
        // Discards, zeroing and flushes always go whole.
        other => other.clone(),
    }
}
