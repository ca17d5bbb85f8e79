//! Reads: from home, from the logs or from memory; zeroed blocks need no read.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, IoResult, Payload, Sectors, completion};
use manylogs_engine::{self as engine, Reader};

use crate::state::Inner;

/// Two home parts at most this far apart are read as one, because passing over the gap costs less
/// than another command.
const HOME_GAP: Sectors = Sectors(128);

/// Source of a part of a read.
enum Source {
    /// The `index`-th home read, from sector `skip` of it.
    Home { index: usize, skip: Sectors },
    /// The store.
    Store(engine::Source),
}

struct Part {
    extent: Extent,
    source: Source,
}

impl Inner {
    /// Entry point of client reads.
    pub(crate) fn read(self: &Rc<Self>, extent: Extent) -> Completion {
        let mut state = self.engine.state.borrow_mut();
        state.last_activity = self.engine.runtime.now();
        if !state.store.map().overlaps(extent) {
            let mut homes = self.layout.home(extent);
            if let (Some(home), None) = (homes.next(), homes.next()) {
                drop(state);
                self.device.set_asked(home.end());
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
        self.engine.runtime.spawn(async move {
            let result = inner.assemble(parts, homes).await;
            drop(activity);
            completer.complete(result);
        });
        completion
    }

    /// Starts all device reads and pins the logs that they read.
    fn plan_read(&self, extent: Extent) -> (Vec<Part>, Vec<Vec<Completion>>) {
        let mut state = self.engine.state.borrow_mut();
        let lookup: Vec<_> = state.store.map().lookup(extent).collect();
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
                Some(place) => Source::Store(engine::begin_read(self, &mut state, part, place)),
            };
            parts.push(Part { extent: part, source });
        }
        drop(state);
        let homes = spans.into_iter().map(|span| self.read_home(span)).collect();
        (parts, homes)
    }

    fn read_home(&self, span: Extent) -> Vec<Completion> {
        let mut reads = Vec::with_capacity(1);
        for home in self.layout.home(span) {
            self.device.set_asked(home.end());
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
                Source::Home { index, skip } if first_error.is_none() => {
                    Ok(contents[index].slice(skip, part.extent.len))
                }
                Source::Home { .. } => continue,
                Source::Store(source) => source.content(self, part.extent, part.extent).await,
            };
            match content {
                Ok(payload) => out.append(payload),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(out), Err)
    }
}
