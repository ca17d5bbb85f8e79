//! The source of every text format: a line decoder over an input.

use manylogs_block::Time;

use crate::error::{Fault, TraceError, fault};
use crate::input::{Input, NextLine};
use crate::request::{SourceCounts, TraceRequest, TraceSource};

/// The content of one line.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// Nothing that concerns us: a comment, a header, another event.
    Nothing,
    /// One request, at a time by the format's own clock.
    Request(TraceRequest),
    /// A request that flushes first (a write with a pre-flush).
    FlushThen(TraceRequest),
    /// The requests have ended; a summary follows.
    End,
}

/// Turns lines of one format into requests.
pub(crate) trait LineDecoder {
    /// Decodes one line, without its end.
    fn decode(&mut self, line: &[u8]) -> Result<Decoded, Fault>;
}

/// The requests of a text file, in the order and on the clock of the file.
pub(crate) struct LineSource<D> {
    input: Input,
    decoder: D,
    skip_bad: bool,
    counts: SourceCounts,
    pending: Option<TraceRequest>,
    done: bool,
}

impl<D: LineDecoder> LineSource<D> {
    pub(crate) fn new(input: Input, decoder: D, skip_bad: bool) -> Self {
        let counts = SourceCounts::default();
        Self { input, decoder, skip_bad, counts, pending: None, done: false }
    }

    /// Counts the fault, or ends the trace with it.
    #[cold]
    fn bad_line(&mut self, fault: Fault) -> Option<TraceError> {
        if self.skip_bad {
            self.counts.skipped += 1;
            return None;
        }
        self.done = true;
        Some(self.input.bad_line(fault))
    }

    /// Ends the trace; a truncated one ends quietly if bad records are to be skipped.
    #[cold]
    fn bad_input(&mut self, error: TraceError) -> Option<TraceError> {
        self.done = true;
        if self.skip_bad && matches!(error, TraceError::Truncated(_)) {
            self.counts.skipped += 1;
            return None;
        }
        Some(error)
    }
}

impl<D: LineDecoder> TraceSource for LineSource<D> {
    fn next_request(&mut self) -> Option<Result<TraceRequest, TraceError>> {
        if let Some(request) = self.pending.take() {
            return Some(Ok(request));
        }
        while !self.done {
            let decoded = match self.input.next_line() {
                Ok(NextLine::Line(line)) => self.decoder.decode(line),
                Ok(NextLine::TooLong) => Err(fault("a line of at most 64 KiB", b"a longer one")),
                Ok(NextLine::End) => break,
                Err(error) => return self.bad_input(error).map(Err),
            };
            match decoded {
                Ok(Decoded::Request(request)) if is_empty_transfer(&request) => {
                    self.counts.empty += 1;
                }
                Ok(Decoded::Request(request)) => return Some(Ok(request)),
                Ok(Decoded::FlushThen(request)) => {
                    self.pending = Some(request).filter(|request| !is_empty_transfer(request));
                    return Some(Ok(TraceRequest::flush(request.at, request.device)));
                }
                Ok(Decoded::Nothing) => {}
                Ok(Decoded::End) => self.done = true,
                Err(fault) => {
                    if let Some(error) = self.bad_line(fault) {
                        return Some(Err(error));
                    }
                }
            }
        }
        None
    }

    fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }
}

/// Whether the request moves, discards or zeroes nothing at all.
pub(crate) fn is_empty_transfer(request: &TraceRequest) -> bool {
    request.extent.is_empty() && request.op != crate::TraceOp::Flush
}

/// Whether the line is blank or a comment.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii_start().first().is_none_or(|&byte| byte == b'#')
}

/// A request without force unit access, which most formats lack.
pub(crate) fn plain(
    at_ns: u64,
    op: crate::TraceOp,
    extent: manylogs_block::Extent,
    device: u32,
) -> Result<Decoded, Fault> {
    let extent = crate::text::checked(op, extent)?;
    Ok(Decoded::Request(TraceRequest { at: Time(at_ns), op, extent, fua: false, device }))
}
