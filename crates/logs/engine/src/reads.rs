//! Reads of a log that is cleaned, some of them ahead of their use.

use std::collections::VecDeque;

use manylogs_block::{Completion, Extent, IoError, Payload, Sectors};
use manylogs_logstore::store::{Live, LogRead, chunk_len, span_of};
use manylogs_logstore::{LogId, Space};

use crate::member::Reader;
use crate::read::{end_read, end_read_of_copies, read_log};
use crate::system::System;

/// The chunks of a log's live versions, one after the other, each with its content.
pub(crate) struct Chunks<'a, S: System> {
    system: &'a S,
    log: LogId,
    rest: &'a [Live],
    under_way: VecDeque<Reading<'a>>,
}

/// A chunk, and the read of its content if it has any.
struct Reading<'a> {
    chunk: &'a [Live],
    read: Option<(LogRead, Completion)>,
}

/// A chunk that was read: its versions, and the content of the extent `within` of the log.
pub(crate) struct Chunk<'a> {
    pub(crate) live: &'a [Live],
    pub(crate) within: Extent,
    pub(crate) content: Payload,
}

/// Length of these versions together.
pub(crate) fn len_of(live: &[Live]) -> Sectors {
    live.iter().fold(Sectors(0), |sum, live| sum + live.extent.len)
}

impl<'a, S: System> Chunks<'a, S> {
    pub(crate) const fn new(system: &'a S, log: LogId, live: &'a [Live]) -> Self {
        Self { system, log, rest: live, under_way: VecDeque::new() }
    }

    /// The next chunk; `None` after the last. Up to [`System::reads_ahead`] reads are under way
    /// meanwhile. If a chunk cannot be read, its versions are read one by one: perhaps only what is
    /// dead between them cannot.
    pub(crate) async fn next(&mut self) -> Result<Option<Chunk<'a>>, IoError> {
        loop {
            while self.under_way.len() < self.system.reads_ahead().max(1) && !self.rest.is_empty() {
                let (chunk, rest) = self.rest.split_at(chunk_len(self.rest));
                self.rest = rest;
                let reading = self.begin(chunk);
                self.under_way.push_back(reading);
            }
            let Some(Reading { chunk, read }) = self.under_way.pop_front() else { return Ok(None) };
            let (mut within, mut content) = (Extent::default(), Payload::default());
            if let Some((read, found)) = read {
                let home = Space::of(chunk[0].extent).1;
                within = read.within;
                match end_read_of_copies(self.system, &read, found.await, home).await {
                    Ok(found) => content = found,
                    Err(error) if chunk.len() == 1 || error == IoError::Gone => return Err(error),
                    Err(_) => {
                        for one in chunk.chunks(1).rev() {
                            let reading = self.begin(one);
                            self.under_way.push_front(reading);
                        }
                        continue;
                    }
                }
            }
            self.system.has_read(self.log, len_of(chunk), self.is_over());
            return Ok(Some(Chunk { live: chunk, within, content }));
        }
    }

    fn begin(&self, chunk: &'a [Live]) -> Reading<'a> {
        let read = span_of(chunk).map(|span| {
            let mut state = self.system.engine().state.borrow_mut();
            read_log(self.system, &mut state, self.log, span, Reader::System)
        });
        Reading { chunk, read }
    }

    /// The log that is read.
    pub(crate) const fn log(&self) -> LogId {
        self.log
    }

    /// Whether all chunks have been returned.
    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_empty() && self.under_way.is_empty()
    }

    /// Ends the reads under way: until then each of them keeps its log from a reset.
    pub(crate) async fn end(self) {
        for Reading { chunk, read } in self.under_way {
            if let Some((read, found)) = read {
                let home = Space::of(chunk[0].extent).1;
                // The content is not used, nor is an error.
                let _ = end_read(self.system, &read, found.await, home);
            }
        }
    }
}
