//! Reading ahead what is kept in the logs. Content that was appended while the head moved about
//! lies in as many logs as the head was near: whoever reads it in order, one request at a time,
//! pays a positioning for each of its records. So while a client reads kept content in the order of
//! addresses, the pieces of the next megabytes are read together, in the order in which they lie on
//! the device, and wait in memory.
//!
//! A piece is what one write brought: its extent, and the data sequence of the version. It is
//! served only where the table has this version when the client asks, so nothing has to be told of
//! writes, moves or passes: a version's content never changes, wherever it lies.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use manylogs_block::{Extent, Lba, Nanos, Payload, Sectors, Signal, Time};
use manylogs_engine::{self as engine, Source};
use manylogs_logstore::store::{self, LogRead, Place, Store};
use manylogs_logstore::{DataSequence, Mapped};
use manylogs_plant::{self as plant, Bug};

use crate::state::{Inner, State};
use crate::volume::Volume;

/// Sectors of the first and of the longest window: 2 and 16 MiB. The longest holds several records
/// of each log where a file's records lie in a hundred logs.
const SHORTEST: Sectors = Sectors(2 << 11);
const LONGEST: Sectors = Sectors(16 << 11);
/// With less memory than this nothing is read ahead.
const LEAST: Sectors = Sectors(1 << 10);
/// A request continues a stream if it begins within this distance of the stream's end, on either
/// side: requests of one reader may overtake each other.
const NEAR: u64 = 1 << 11;
/// Clients that are followed.
const STREAMS: usize = 8;
/// Most pieces of a window, and most of them that the device has at a time.
const PIECES: usize = 1024;
const DEPTH: usize = 128;
/// A stream gives its memory to another one if nobody has read it for so long.
const ABANDONED: Nanos = Nanos::from_secs(5);

/// Who lends memory for what is read ahead: see [`Volume::read_ahead_in`].
pub trait AheadMemory: fmt::Debug {
    /// Takes so many bytes, which are given back when the answer is dropped; `None` if they cannot
    /// be spared.
    fn take(&self, bytes: u64) -> Option<Box<dyn Any>>;
}

/// What was read ahead, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The stream that was read last is the last one.
    streams: Vec<Stream>,
    /// The number of the next stream.
    next: u64,
    pieces: BTreeMap<Lba, Piece>,
    /// A piece has arrived, or could not be read.
    arrived: Signal,
}

/// A client that reads kept content in order.
#[derive(Debug)]
struct Stream {
    number: u64,
    /// The end of what it has asked for.
    asked: Lba,
    /// The end of what was read ahead.
    ahead: Lba,
    window: Sectors,
    used: Time,
}

#[derive(Debug)]
struct Piece {
    extent: Extent,
    sequence: DataSequence,
    stream: u64,
    /// Nothing while it is being read.
    content: Option<Payload>,
    /// The memory of the window that it is a part of.
    _held: Rc<dyn Any>,
}

/// What is to be read ahead.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    stream: u64,
    window: Extent,
}

/// A piece that is about to be read.
#[derive(Debug)]
struct Begun {
    extent: Extent,
    sequence: DataSequence,
    read: LogRead,
}

impl Ahead {
    /// Notes a request for kept content. Returns what to read ahead, if the request goes on where
    /// the one before it ended, and beyond what was read ahead.
    fn note(&mut self, asked: Extent, now: Time) -> Option<Wanted> {
        let follows = |stream: &Stream| stream.asked.0.abs_diff(asked.start.0) <= NEAR;
        let Some(at) = self.streams.iter().position(follows) else {
            self.begin(asked, now);
            return None;
        };
        let mut stream = self.streams.remove(at);
        stream.used = now;
        stream.asked = stream.asked.max(asked.end());
        let start = asked.start.max(stream.ahead);
        let wanted = (start < asked.end()).then(|| {
            let end = Lba(start.0 + stream.window.0).max(asked.end());
            Wanted { stream: stream.number, window: Extent::between(start, end) }
        });
        self.streams.push(stream);
        wanted
    }

    /// Notes that a stream was read ahead up to `end`. Its next window is longer.
    fn widen(&mut self, stream: u64, end: Lba) {
        if let Some(stream) = self.streams.iter_mut().find(|it| it.number == stream) {
            stream.ahead = end;
            stream.window = Sectors(2 * stream.window.0).min(LONGEST);
        }
    }

    fn begin(&mut self, asked: Extent, now: Time) {
        if self.streams.len() == STREAMS {
            let oldest = self.streams.remove(0).number;
            self.drop_pieces(oldest);
        }
        let (number, end) = (self.next, asked.end());
        self.next += 1;
        self.streams.push(Stream { number, asked: end, ahead: end, window: SHORTEST, used: now });
    }

    /// Drops what nobody has asked for in a while; false if there is nothing of the kind.
    fn drop_abandoned(&mut self, now: Time) -> bool {
        let is_old = |stream: &Stream| {
            now.since(stream.used) >= ABANDONED && !plant::is(Bug::AheadNeverAbandoned)
        };
        let old = self.streams.iter().filter(|stream| is_old(stream));
        let old: Vec<u64> = old.map(|stream| stream.number).collect();
        let before = self.pieces.len();
        self.streams.retain(|stream| !is_old(stream));
        old.into_iter().for_each(|stream| self.drop_pieces(stream));
        self.pieces.len() < before
    }

    /// Pieces that are being read stay: their memory is in use.
    fn drop_pieces(&mut self, stream: u64) {
        self.pieces.retain(|_, piece| piece.stream != stream || piece.content.is_none());
    }

    /// The piece that has all of `part`, a part of this version.
    fn at(&self, part: Extent, sequence: DataSequence) -> Option<&Piece> {
        let (_, piece) = self.pieces.range(..=part.start).next_back()?;
        let is_same = piece.sequence == sequence || plant::is(Bug::AheadOldVersion);
        (is_same && piece.extent.contains(part)).then_some(piece)
    }

    /// The content of `extent`, if all of it was read ahead and is what `store` has there.
    pub(crate) fn content(&self, store: &Store, extent: Extent) -> Option<Payload> {
        if self.pieces.is_empty() {
            return None;
        }
        let mut content = Payload::default();
        for (part, mapped) in store.map().lookup(extent) {
            let mapped = mapped.filter(|mapped| mapped.value.is_kept_content())?;
            let piece = self.at(part, mapped.sequence)?;
            let skip = Sectors(part.start.0 - piece.extent.start.0);
            content.append(piece.content.as_ref()?.slice(skip, part.len));
        }
        Some(content)
    }

    /// Whether a part of `extent` is being read ahead.
    pub(crate) fn is_under_way(&self, extent: Extent) -> bool {
        if plant::is(Bug::AheadReadTwice) {
            return false;
        }
        let reaches = |piece: &Piece| piece.content.is_none() && piece.extent.overlaps(extent);
        let before = self.pieces.range(..extent.start).next_back();
        let inside = self.pieces.range(extent.start..extent.end());
        before.into_iter().chain(inside).any(|(_, piece)| reaches(piece))
    }

    /// Forgets the pieces that a reader of `extent` in order does not need any more.
    pub(crate) fn forget(&mut self, extent: Extent) {
        let inside = self.pieces.range(..extent.end()).rev();
        let inside = inside.take_while(|(_, piece)| piece.extent.end() > extent.start);
        let is_used = |piece: &Piece| piece.extent.end() <= extent.end() && piece.content.is_some();
        let used: Vec<Lba> = inside.filter(|(_, p)| is_used(p)).map(|(at, _)| *at).collect();
        for at in used {
            self.pieces.remove(&at);
        }
    }

    /// Takes what was read of a piece in, unless the piece is another one by now, perhaps of the
    /// same version.
    fn take_in(&mut self, begun: &Begun, content: Option<Payload>) {
        let at = begun.extent.start;
        let is_it = |piece: &&mut Piece| {
            (piece.sequence, piece.extent) == (begun.sequence, begun.extent)
                || (piece.sequence == begun.sequence && plant::is(Bug::AheadShorterPiece))
        };
        let Some(piece) = self.pieces.get_mut(&at).filter(is_it) else { return };
        let is_wanted = self.streams.iter().any(|stream| stream.number == piece.stream);
        piece.content = content.filter(|_| is_wanted);
        if piece.content.is_none() {
            self.pieces.remove(&at);
        }
        self.arrived.notify();
    }
}

impl State {
    /// Begins to read what is kept in a window and was not read ahead.
    fn begin_window(&mut self, wanted: Wanted, held: &Rc<dyn Any>) -> Vec<Begun> {
        let Wanted { stream, mut window } = wanted;
        let kept = |(extent, mapped): (Extent, Option<Mapped<Place>>)| {
            Some((extent, mapped.filter(|mapped| mapped.value.is_kept_content())?))
        };
        let found = self.store.map().lookup(window).filter_map(kept);
        let is_new =
            |found: &(Extent, Mapped<Place>)| self.ahead.at(found.0, found.1.sequence).is_none();
        let found: Vec<_> = found.filter(is_new).take(PIECES).collect();
        if let Some((last, _)) = found.last().filter(|_| found.len() == PIECES) {
            window = Extent::between(window.start, last.end());
        }
        self.ahead.widen(stream, window.end());
        let mut begun = Vec::with_capacity(found.len());
        for (extent, Mapped { sequence, value }) in found {
            if let store::Source::Log(read) = self.store.begin(extent, value) {
                let (content, held) = (None, Rc::clone(held));
                let piece = Piece { extent, sequence, stream, content, _held: held };
                self.ahead.pieces.insert(extent.start, piece);
                begun.push(Begun { extent, sequence, read });
            }
        }
        begun
    }
}

impl Volume {
    /// From now on kept content that clients read in order is read ahead, in memory that `memory`
    /// lends. Without this call nothing is. Only the first call counts.
    pub fn read_ahead_in(&self, memory: Rc<dyn AheadMemory>) {
        _ = self.inner().ahead_memory.set(memory);
    }
}

impl Inner {
    /// Notes that a client reads `extent`, and begins to read ahead if that may help.
    pub(super) fn note_read(self: &Rc<Self>, extent: Extent) {
        let Some(memory) = self.ahead_memory.get() else { return };
        let (now, mut state) = (self.engine.runtime.now(), self.engine.state.borrow_mut());
        let is_kept = |mapped: Option<Mapped<Place>>| {
            mapped.is_some_and(|mapped| mapped.value.is_kept_content())
        };
        if !state.store.map().lookup(extent).any(|(_, mapped)| is_kept(mapped)) {
            return;
        }
        let Some(mut wanted) = state.ahead.note(extent, now) else { return };
        let end = self.layout.capacity().0.min(wanted.window.end().0);
        wanted.window = Extent::between(wanted.window.start, Lba(end));
        let held = loop {
            if let Some(held) = memory.take(wanted.window.len.bytes()) {
                break held;
            } else if !state.ahead.drop_abandoned(now) {
                wanted.window.len = Sectors(wanted.window.len.0 / 2);
            }
            if wanted.window.len < LEAST {
                return;
            }
        };
        let begun = state.begin_window(wanted, &held.into());
        drop(state);
        self.engine.runtime.spawn(Rc::clone(self).read_window(begun));
    }

    /// Resolves when no part of `extent` is being read ahead.
    pub(super) async fn ahead_arrives(&self, extent: Extent) {
        loop {
            let arrived = {
                let ahead = &self.engine.state.borrow().ahead;
                if !ahead.is_under_way(extent) {
                    return;
                }
                ahead.arrived.wait()
            };
            arrived.await;
        }
    }

    /// Reads pieces in the order in which they lie on the device.
    async fn read_window(self: Rc<Self>, mut begun: Vec<Begun>) {
        let _activity = Rc::clone(&self.activity);
        begun.sort_unstable_by_key(|piece| piece.read.extent.start);
        let mut under_way = VecDeque::new();
        for piece in begun {
            let source = engine::read_begun(&*self, piece.read);
            under_way.push_back((piece, source));
            if under_way.len() == DEPTH
                && let Some((piece, source)) = under_way.pop_front()
            {
                self.end_piece(&piece, source).await;
            }
        }
        for (piece, source) in under_way {
            self.end_piece(&piece, source).await;
        }
    }

    async fn end_piece(&self, piece: &Begun, source: Source) {
        let content = source.content(self, piece.extent, piece.extent).await;
        self.engine.state.borrow_mut().ahead.take_in(piece, content.ok());
    }
}

#[cfg(test)]
mod tests {
    use manylogs_logstore::LogId;

    use super::*;

    fn begun(extent: Extent) -> Begun {
        let (log, device, skip) = (LogId(0), store::Device::default(), Sectors(0));
        let read = LogRead { log, within: extent, skip, device, extent };
        Begun { extent, sequence: DataSequence(7), read }
    }

    /// A part of a version is being read when the version, in a longer piece, is to be read too.
    fn a_short_piece_arrives_first() {
        let (short, long) = (Extent::new(0, 4), Extent::new(0, 8));
        let mut ahead = Ahead::default();
        ahead.begin(long, Time(0));
        let (extent, sequence, held) = (long, DataSequence(7), Rc::new(()));
        let piece = Piece { extent, sequence, stream: 0, content: None, _held: held };
        ahead.pieces.insert(long.start, piece);
        ahead.take_in(&begun(short), Some(Payload::zeroes(short.len)));
        assert!(ahead.is_under_way(long), "the rest of it is not here");
        ahead.take_in(&begun(long), Some(Payload::zeroes(long.len)));
        assert!(!ahead.is_under_way(long));
        assert_eq!(ahead.pieces[&long.start].content.as_ref().map(Payload::len), Some(long.len));
    }

    #[test]
    fn what_arrives_belongs_to_the_piece_that_was_read() {
        a_short_piece_arrives_first();
    }

    #[cfg(feature = "plant")]
    #[test]
    fn a_piece_with_too_little_content_is_noticed() {
        plant::plant(Some(Bug::AheadShorterPiece));
        let found = std::panic::catch_unwind(a_short_piece_arrives_first);
        plant::plant(None);
        assert!(found.is_err());
    }
}
