//! Reads: from home, from the logs, from memory, or nothing but zeroes.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, IoError, IoResult, Payload, Sectors, completion};
use manylogs_logstore::LogId;
use manylogs_logstore::store::{self, LogRead};

use crate::phase::Reader;
use crate::state::{Inner, State};

/// Two home parts that are at most this far apart are read as one: to pass over the sectors
/// between them costs less than a command of its own.
const HOME_GAP: Sectors = Sectors(128);

/// Source of a part of a read.
enum Source {
    /// The `index`-th home read, from sector `skip` of it.
    Home { index: usize, skip: Sectors },
    /// A log, with the location of the version.
    Log { read: LogRead, found: Completion },
    /// At hand.
    Here(Payload),
    /// Nowhere: the logged copy was found damaged.
    Lost,
}

struct Part {
    extent: Extent,
    source: Source,
}

impl Inner {
    /// Entry point of client reads.
    pub(crate) fn read(self: &Rc<Self>, extent: Extent) -> Completion {
        let mut state = self.state.borrow_mut();
        state.last_activity = self.runtime.now();
        if !state.store.map.overlaps(extent) {
            let mut homes = self.layout.home(extent);
            if let (Some(home), None) = (homes.next(), homes.next()) {
                state.head = home.end();
                drop(state);
                return self.device.read(Reader::Client, home).holding(Rc::clone(&self.activity));
            }
        } else {
            state.counters.redirected_reads += 1;
        }
        drop(state);
        self.read_parts(extent)
    }

    fn read_parts(self: &Rc<Self>, extent: Extent) -> Completion {
        let (parts, homes) = self.plan_read(extent);
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        let activity = Rc::clone(&self.activity);
        self.runtime.spawn(async move {
            let result = inner.assemble(parts, homes).await;
            drop(activity);
            completer.complete(result);
        });
        completion
    }

    /// Starts every device read and pins the logs they point into.
    fn plan_read(&self, extent: Extent) -> (Vec<Part>, Vec<Vec<Completion>>) {
        let mut state = self.state.borrow_mut();
        let lookup: Vec<_> = state.store.map.lookup(extent).collect();
        let mut parts = Vec::with_capacity(lookup.len());
        let mut spans: Vec<Extent> = Vec::new();
        for (part, mapped) in lookup {
            let source = match mapped.map(|mapped| mapped.value) {
                None => {
                    match spans.last_mut() {
                        Some(span) if part.start.0 - span.end().0 <= HOME_GAP.0 => {
                            *span = Extent::between(span.start, part.end());
                        }
                        _ => spans.push(part),
                    }
                    let index = spans.len() - 1;
                    Source::Home { index, skip: Sectors(part.start.0 - spans[index].start.0) }
                }
                Some(place) => match state.store.begin(part, place) {
                    store::Source::Here(content) => Source::Here(content),
                    store::Source::Lost => Source::Lost,
                    store::Source::Log(read) => {
                        let found = self.device.read(Reader::Client, read.extent);
                        Source::Log { read, found }
                    }
                },
            };
            parts.push(Part { extent: part, source });
        }
        let homes = spans.into_iter().map(|span| self.read_home(&mut state, span)).collect();
        (parts, homes)
    }

    /// Reads the units that cover `wanted`, an extent within the log, and pins the log.
    pub(crate) fn read_log(
        &self,
        state: &mut State,
        log: LogId,
        wanted: Extent,
        reader: Reader,
    ) -> (LogRead, Completion) {
        let read = state.store.begin_read(log, wanted);
        (read, self.device.read(reader, read.extent))
    }

    fn read_home(&self, state: &mut State, span: Extent) -> Vec<Completion> {
        let mut reads = Vec::with_capacity(1);
        for home in self.layout.home(span) {
            state.head = home.end();
            reads.push(self.device.read(Reader::Client, home));
        }
        reads
    }

    async fn assemble(&self, parts: Vec<Part>, homes: Vec<Vec<Completion>>) -> IoResult {
        let mut first_error = None;
        let mut contents = Vec::with_capacity(homes.len());
        for home in homes {
            let mut content = Payload::default();
            for read in home {
                match read.await {
                    Ok(payload) => content.append(payload),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            contents.push(content);
        }
        let mut out = Payload::default();
        for part in parts {
            let content = match part.source {
                Source::Here(payload) => Ok(payload),
                Source::Lost => Err(IoError::Checksum { extent: part.extent }),
                Source::Home { index, skip } if first_error.is_none() => {
                    Ok(contents[index].slice(skip, part.extent.len))
                }
                Source::Home { .. } => continue,
                Source::Log { read, found } => {
                    let checked = self.check_logged(&read, found.await, part.extent);
                    checked.map(|payload| payload.slice(read.skip, part.extent.len))
                }
            };
            match content {
                Ok(payload) => out.append(payload),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(out), Err)
    }

    /// Verifies what was read from a log and unpins it.
    pub(crate) fn check_logged(&self, read: &LogRead, found: IoResult, home: Extent) -> IoResult {
        let result = self.state.borrow_mut().store.end_read(read, found, home);
        // A log that only this read held may have begun anew.
        self.offer_room();
        result
    }
}
