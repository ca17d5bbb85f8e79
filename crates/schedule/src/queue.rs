//! Requests that wait, by class.

use std::collections::{BTreeMap, VecDeque};

use manylogs_block::{Completer, Extent, Lba, Nanos, Request, Sectors, Time};

use crate::Class;
use crate::answer::{Answer, Pieces};
use manylogs_plant::{self as plant, Bug};

/// A small read that waited this long goes first, wherever it is.
pub(crate) const SMALL_DEADLINE: Nanos = Nanos::from_millis(250);
/// Streams go to the device in pieces that end at multiples of this: small ones, as a drive reads
/// on by itself.
const READ_PIECE: Sectors = Sectors(128);
/// A drive does not write on by itself: with longer pieces it is less often left without the next.
const WRITE_PIECE: Sectors = Sectors(1024);

/// A request that waits.
pub(crate) struct Waiting {
    /// Order of arrival.
    pub(crate) sequence: u64,
    pub(crate) class: Class,
    pub(crate) request: Request,
    pub(crate) arrived: Time,
    answer: Waits,
    /// Sectors that have gone to the device.
    sent: Sectors,
}

enum Waits {
    For(Completer),
    InPieces(std::rc::Rc<Pieces>),
    /// While the answer is taken.
    Nobody,
}

/// What goes to the device.
pub(crate) struct Departing {
    pub(crate) request: Request,
    pub(crate) class: Class,
    pub(crate) arrived: Time,
    pub(crate) answer: Answer,
    /// Whether nothing of the request is left.
    pub(crate) last: bool,
}

/// The requests that wait.
#[derive(Default)]
pub(crate) struct Queues {
    next_sequence: u64,
    /// Small reads by first sector, then arrival ...
    small: BTreeMap<(Lba, u64), Waiting>,
    /// ... and by arrival.
    small_by_arrival: BTreeMap<u64, Lba>,
    streams: VecDeque<Waiting>,
    background: VecDeque<Waiting>,
    /// How many of all write.
    writes: usize,
    /// Where the sweep over the small reads goes on.
    sweep: Lba,
}

impl Waiting {
    fn writes(&self) -> bool {
        writes(&self.request)
    }

    /// Whether the order of the two matters.
    fn conflicts(&self, other: &Request) -> bool {
        let (Some(own), Some(extent)) = (self.request.extent(), other.extent()) else {
            return false;
        };
        (self.writes() || writes(other)) && own.overlaps(extent)
    }

    /// What of it goes next, all of the rest unless `in_pieces`.
    fn next_piece(&self, in_pieces: bool) -> Option<Extent> {
        let extent = self.request.extent()?;
        let rest = Extent::between(extent.start + self.sent, extent.end());
        let divisible = matches!(self.request, Request::Read { .. } | Request::Write { .. });
        let piece = if self.writes() { WRITE_PIECE } else { READ_PIECE };
        // No crumbs at either end.
        if !in_pieces || !divisible || rest.len.0 <= piece.0 + piece.0 / 2 {
            return Some(rest);
        }
        let end = Lba((rest.start.0 + 1).next_multiple_of(piece.0));
        let end = if end.0 - rest.start.0 < piece.0 / 2 { end + piece } else { end };
        Some(Extent::between(rest.start, end.min(rest.end())))
    }

    fn take(&mut self, in_pieces: bool) -> Departing {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.streams.is_empty() && self.background.is_empty()
    }

    pub(crate) fn waits(&self, class: Class) -> bool {
        match class {
            Class::Record => false,
            Class::Small => !self.small.is_empty(),
            Class::Stream => !self.streams.is_empty(),
            Class::Background => !self.background.is_empty(),
        }
    }

    /// Requests of `class` that wait.
    pub(crate) fn len(&self, class: Class) -> usize {
        match class {
            Class::Record => 0,
            Class::Small => self.small.len(),
            Class::Stream => self.streams.len(),
            Class::Background => self.background.len(),
        }
    }

    pub(crate) fn push(&mut self, class: Class, request: Request, now: Time, completer: Completer) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.writes += usize::from(writes(&request));
        let start = request.extent().map_or(Lba(0), |extent| extent.start);
        let (arrived, sent) = (now, Sectors(0));
        let answer = Waits::For(completer);
        let waiting = Waiting { sequence, class, request, arrived, answer, sent };
        match class {
            Class::Small => {
                self.small.insert((start, sequence), waiting);
                self.small_by_arrival.insert(sequence, start);
            }
            Class::Record | Class::Stream => self.streams.push_back(waiting),
            Class::Background => self.background.push_back(waiting),
        }
    }

    /// When the oldest request of `class` arrived.
    pub(crate) fn oldest(&self, class: Class) -> Option<Time> {
        match class {
            Class::Record => None,
            Class::Small => {
                let (&sequence, &start) = self.small_by_arrival.first_key_value()?;
                self.small.get(&(start, sequence)).map(|waiting| waiting.arrived)
            }
            Class::Stream => self.streams.front().map(|waiting| waiting.arrived),
            Class::Background => self.background.front().map(|waiting| waiting.arrived),
        }
    }

    /// Whether what [`Queues::take`] would take writes.
    pub(crate) fn next_writes(&self, class: Class) -> bool {
        let front = match class {
            Class::Stream => self.streams.front(),
            Class::Background => self.background.front(),
            Class::Record | Class::Small => None,
        };
        front.is_some_and(Waiting::writes)
    }

    /// The sectors that [`Queues::take`] would take.
    pub(crate) fn next_len(&self, class: Class) -> Sectors {
        let front = match class {
            Class::Stream => self.streams.front(),
            Class::Background => self.background.front(),
            Class::Record | Class::Small => None,
        };
        let piece = front.and_then(|waiting| waiting.next_piece(true));
        piece.map_or(Sectors(0), |piece| piece.len)
    }

    /// What goes next of `class`: of small reads the next one of an upward sweep or one that is
    /// overdue, else the oldest, in pieces unless all may go. What must go before it comes before
    /// it.
    pub(crate) fn take(&mut self, class: Class, now: Time, in_pieces: bool) -> Vec<Departing> {
        let key = match class {
            Class::Small => self.small_key(now),
            _ => None,
        };
        let front = match class {
            Class::Small => key.and_then(|key| self.small.get(&key)),
            Class::Stream => self.streams.front(),
            Class::Background => self.background.front(),
            Class::Record => None,
        };
        let Some(front) = front else { return Vec::new() };
        let mut out = Vec::with_capacity(1);
        if self.writes > 0 {
            let (request, sequence) = (front.request.clone(), front.sequence);
            self.take_forerunners(&request, sequence, &mut out);
        }
        if let Some(departing) = self.take_one(class, key, in_pieces) {
            out.push(departing);
        }
        out
    }

    /// Everything that waits and must go before `request`, which has just arrived.
    pub(crate) fn before(&mut self, request: &Request) -> Vec<Departing> {
        let mut out = Vec::new();
        if !self.is_empty() && (self.writes > 0 || writes(request)) {
            self.take_forerunners(request, self.next_sequence, &mut out);
        }
        out
    }

    /// Takes what arrived before `sequence` and touches the same sectors, in order of arrival, and
    /// what must go before that.
    fn take_forerunners(&mut self, request: &Request, sequence: u64, out: &mut Vec<Departing>) {
        while !plant::is(Bug::OverlapsOvertaken) {
            let all = self.small.values().chain(&self.streams).chain(&self.background);
            let conflicting =
                all.filter(|other| other.sequence < sequence && other.conflicts(request));
            let Some(first) = conflicting.min_by_key(|other| other.sequence) else { return };
            let (class, earlier) = (first.class, first.sequence);
            let (request, start) = (first.request.clone(), first.request.extent());
            self.take_forerunners(&request, earlier, out);
            let key = start.map(|extent| (extent.start, earlier));
            match class {
                Class::Small => out.extend(self.take_one(class, key, false)),
                _ => out.extend(self.take_from_line(class, earlier)),
            }
        }
    }

    fn take_from_line(&mut self, class: Class, sequence: u64) -> Option<Departing> {
        let line =
            if class == Class::Background { &mut self.background } else { &mut self.streams };
        let at = line.iter().position(|waiting| waiting.sequence == sequence)?;
        let mut waiting = line.remove(at)?;
        self.writes -= usize::from(waiting.writes());
        Some(waiting.take(false))
    }

    fn take_one(
        &mut self,
        class: Class,
        key: Option<(Lba, u64)>,
        in_pieces: bool,
    ) -> Option<Departing> {
        if class == Class::Small {
            let key = key?;
            let mut waiting = self.small.remove(&key)?;
            self.small_by_arrival.remove(&key.1);
            self.sweep = key.0;
            return Some(waiting.take(false));
        }
        let line =
            if class == Class::Background { &mut self.background } else { &mut self.streams };
        let front = line.front_mut()?;
        let writes = front.writes();
        let departing = front.take(in_pieces);
        if departing.last {
            line.pop_front();
            self.writes -= usize::from(writes);
        }
        Some(departing)
    }

    fn small_key(&self, now: Time) -> Option<(Lba, u64)> {
        let (&sequence, &start) = self.small_by_arrival.first_key_value()?;
        let oldest = self.small.get(&(start, sequence))?;
        if now.since(oldest.arrived) >= SMALL_DEADLINE {
            return Some((start, sequence));
        }
        let ahead = self.small.range((self.sweep, 0)..).next();
        ahead.or_else(|| self.small.first_key_value()).map(|(key, _)| *key)
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
        // Others always go whole.
        other => other.clone(),
    }
}
