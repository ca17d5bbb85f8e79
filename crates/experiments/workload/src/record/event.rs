//! Lines of a trace pipe as requests.
//!
//! `comm-pid [cpu] flags seconds: block_bio_queue: 8,0 WS 2048 + 8 [comm]`, or
//! `...: block_rq_issue: 8,0 WS 4096 () 2048 + 8 none,0,0 [comm]`.

use manylogs_block::{Lba, Time};

use crate::error::{Fault, fault};
use crate::format::blkparse;
use crate::format::rwbs::Rwbs;
use crate::lines::Decoded;
use crate::open::{BlockEvent, TimeUnit};
use crate::request::TraceRequest;
use crate::text::{self, blanks};

/// Longest line: a longer one is garbage.
const MAX_PARTIAL_BYTES: usize = 64 << 10;

/// The tracepoint of an event.
pub(super) const fn tracepoint(event: BlockEvent) -> &'static str {
    match event {
        BlockEvent::Queue => "block_bio_queue",
        BlockEvent::Issue => "block_rq_issue",
    }
}

/// Splits the bytes of a trace pipe into lines and decodes them.
pub(super) struct Lines {
    event: BlockEvent,
    /// Addresses count from here.
    start: u64,
    partial: Vec<u8>,
    lost: u64,
    unreadable: u64,
}

impl Lines {
    pub(super) const fn new(event: BlockEvent, start: u64) -> Self {
        Self { event, start, partial: Vec::new(), lost: 0, unreadable: 0 }
    }

    /// Number of events that the kernel reported as lost.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of lines not understood.
    pub(super) const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Decodes `bytes`, the next bytes of the pipe, into `requests`.
    pub(super) fn add(&mut self, bytes: &[u8], requests: &mut Vec<TraceRequest>) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if self.partial.is_empty() {
                self.line(line, requests);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, requests);
                whole.clear();
                self.partial = whole;
            }
        }
        if self.partial.len() + rest.len() <= MAX_PARTIAL_BYTES {
            self.partial.extend_from_slice(rest);
        }
    }

    fn line(&mut self, line: &[u8], requests: &mut Vec<TraceRequest>) {
        if let Some(lost) = lost_events(line) {
            self.lost = self.lost.saturating_add(lost);
            return;
        }
        match self.decode(line) {
            Ok(Decoded::Request(request)) => requests.push(self.placed(request)),
            Ok(Decoded::FlushThen(request)) => {
                requests.push(TraceRequest::flush(request.at, 0));
                requests.push(self.placed(request));
            }
            Ok(Decoded::Nothing | Decoded::End) => {}
            Err(_) => self.unreadable += 1,
        }
    }

    /// The request at its address within the recorded device.
    fn placed(&self, mut request: TraceRequest) -> TraceRequest {
        if !request.extent.is_empty() {
            request.extent.start = Lba(request.extent.start.0.saturating_sub(self.start));
        }
        request
    }

    fn decode(&self, line: &[u8]) -> Result<Decoded, Fault> {
        let Some((before, event)) = split_event(line, tracepoint(self.event)) else {
            return Ok(Decoded::Nothing);
        };
        const TIME: &str = "seconds before the tracepoint's name";
        let at = blanks(before).last().ok_or_else(|| fault(TIME, before))?;
        let at = Time(text::time(at, TimeUnit::Seconds, TIME)?);
        let mut fields = blanks(event);
        blkparse::device(fields.field("major,minor")?)?;
        let rwbs = Rwbs::parse(fields.field("the operation's letters")?);
        if self.event == BlockEvent::Issue {
            // The bytes and the driver's command in parentheses, which may hold blanks.
            fields.field("a length in bytes")?;
            let close = memchr::memmem::find(event, b") ").map_or(0, |close| close + 2);
            fields = blanks(&event[close..]);
        }
        blkparse::decode_event(rwbs, at, 0, &mut fields)
    }
}

/// The parts of a line before and after `: name: `. A thread's name is too short to contain that.
fn split_event<'a>(line: &'a [u8], name: &str) -> Option<(&'a [u8], &'a [u8])> {
    let place = memchr::memmem::find(line, name.as_bytes())?;
    let before = line[..place].strip_suffix(b": ")?;
    let event = line[place + name.len()..].strip_prefix(b": ")?;
    Some((before, event))
}

/// The number in `CPU:3 [LOST 123 EVENTS]`.
fn lost_events(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"CPU:")?;
    let place = memchr::memmem::find(rest, b"[LOST ")?;
    let count = blanks(&rest[place + 6..]).next()?;
    text::number(count, "a count").ok().or(Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::TraceOp;
    use manylogs_block::Extent;

    fn decode(event: BlockEvent, start: u64, text: &str) -> (Vec<TraceRequest>, Lines) {
        let mut lines = Lines::new(event, start);
        let mut requests = Vec::new();
        // In small pieces, as a pipe may deliver them.
        for piece in text.as_bytes().chunks(7) {
            lines.add(piece, &mut requests);
        }
        (requests, lines)
    }

    #[test]
    fn queue_events_become_requests() {
        let text = "\
              dd-77      [001] .....  12.000001: block_bio_queue: 7,0 WS 2064 + 8 [dd]\n\
CPU:1 [LOST 12 EVENTS]\n\
   kworker/1:2-9       [001] ..... 12.5: block_bio_queue: 7,0 FWFS 2048 + 16 [kworker/1:2]\n\
   a b: c-9       [000] ..... 13.0: block_bio_queue: 7,0 FWS 0 + 0 [a b: c]\n\
   x-9       [000] ..... 13.0: block_bio_queue: 7,0 DS 4096 + 2048 [x]\n\
   x-9       [000] ..... 13.0: block_bio_queue: 7,0 RA nonsense + 2048 [x]\n";
        let (requests, lines) = decode(BlockEvent::Queue, 2048, text);
        let ops: Vec<_> = requests.iter().map(|request| (request.op, request.fua)).collect();
        let expected = [
            (TraceOp::Write, false),
            (TraceOp::Flush, false),
            (TraceOp::Write, true),
            (TraceOp::Flush, false),
            (TraceOp::Discard, false),
        ];
        assert_eq!(ops, expected);
        assert_eq!(requests[0].extent, Extent::new(16, 8), "addresses count from the partition");
        assert_eq!(requests[0].at, Time(12_000_001_000));
        assert_eq!((lines.lost(), lines.unreadable()), (12, 1));
    }

    #[test]
    fn issue_events_become_requests() {
        let text = "\
  dd-77 [001] .N... 12.1: block_rq_issue: 8,16 WS 4096 () 2064 + 8 none,0,0 [dd]\n\
  dd-77 [001] .N... 12.2: block_rq_issue: 8,16 FF 0 () 18446744073709551615 + 0 none,0,0 [dd]\n";
        let (requests, lines) = decode(BlockEvent::Issue, 0, text);
        assert_eq!(requests[0].extent, Extent::new(2064, 8));
        assert_eq!(requests[1].op, TraceOp::Flush);
        assert_eq!(lines.unreadable(), 0);
    }
}
