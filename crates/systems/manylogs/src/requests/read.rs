//! Reads: from home, from the logs or from memory; zeroed blocks need no read.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, IoResult, Lba, Payload, Sectors, completion};
use manylogs_engine::{self as engine, Reader, read_log};
use manylogs_logstore::store::Around;

use crate::state::Inner;
use crate::volume::Volume;

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

/// What one read of a log brings.
#[derive(Debug)]
pub struct ReadAround {
    /// The extents, by address.
    pub extents: Vec<Extent>,
    /// Their contents, one behind the other.
    pub content: Completion,
}

impl Volume {
    /// Where the device has `wanted`: in a log, if that is metadata that lies there in one piece,
    /// else at home. It is advice about speed.
    #[must_use]
    pub fn lies_at(&self, wanted: Extent) -> Lba {
        let inner = self.shared();
        let store = &inner.engine.state.borrow().store;
        let in_log = store
            .metadata_at(wanted)
            .map(|(log, offset)| store.logs().region(log).start + Sectors(offset.0.into()));
        let home = || inner.layout.home(wanted).next().map_or(wanted.start, |home| home.start);
        in_log.unwrap_or_else(home)
    }

    /// Reads metadata in the order of its log: what lies around `wanted` in that part of `len` of
    /// the log that has it, in whole units as long as `wanted`, by one read. It is what the volume
    /// holds when this is called. `None`, and nothing is read, if `wanted` is not metadata that
    /// lies in a log in one piece.
    ///
    /// The first call takes time and memory that grow with the table.
    #[must_use]
    pub fn read_around(&self, wanted: Extent, len: Sectors) -> Option<ReadAround> {
        let inner = self.shared();
        let mut state = inner.engine.state.borrow_mut();
        let Around { log, span, mut parts } = state.store.around(wanted, len)?;
        state.last_activity = inner.engine.runtime.now();
        state.counters.redirected_reads += 1;
        let (read, found) = read_log(&**inner, &mut state, log, span, Reader::Client);
        drop(state);
        parts.sort_unstable_by_key(|(extent, _)| extent.start);
        let extents = parts.iter().map(|(extent, _)| *extent).collect();
        let (completer, content) = completion();
        let (inner, activity) = (Rc::clone(inner), Rc::clone(&inner.activity));
        // It has pinned the log, so it must end whatever becomes of the caller.
        inner.engine.runtime.clone().spawn(async move {
            let source = engine::Source::Log { read, found };
            let found = source.content(&*inner, span, wanted).await;
            drop(activity);
            completer.complete(found.map(|found| {
                let mut all = Payload::with_room_for(parts.len());
                for (extent, offset) in parts {
                    let skip = Sectors(u64::from(offset.0) - span.start.0);
                    all.append(found.slice(skip, extent.len));
                }
                all
            }));
        });
        Some(ReadAround { extents, content })
    }

    /// The part of `extent` around `wanted`, which lies in it, that one request to the device
    /// reads: it is at home, without the volume's own places, or in one log. Just `wanted`, if that
    /// is in several places itself.
    ///
    /// It is advice about speed: the next change of these blocks may change it.
    #[must_use]
    pub fn in_one_piece(&self, wanted: Extent, extent: Extent) -> Extent {
        let inner = self.shared();
        let parts = inner.engine.state.borrow().store.parts(extent);
        let has_wanted = |(part, _): &(Extent, _)| part.contains(wanted);
        let Some((mut found, place)) = parts.into_iter().find(has_wanted) else { return wanted };
        let holes = inner.layout.holes_in(found).filter(|_| place.is_none());
        for hole in holes.collect::<Vec<_>>() {
            if hole.overlaps(wanted) {
                return wanted;
            } else if hole.end() <= wanted.start {
                found = Extent::between(found.start.max(hole.end()), found.end());
            } else {
                found = Extent::between(found.start, found.end().min(hole.start));
            }
        }
        found
    }
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
        self.note_read(extent);
        // What is being read ahead is not read twice.
        let waits = self.engine.state.borrow().ahead.is_under_way(extent);
        let planned = (!waits).then(|| self.plan_read(extent));
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        let activity = Rc::clone(&self.activity);
        self.engine.runtime.spawn(async move {
            let (parts, homes) = match planned {
                Some(planned) => planned,
                None => {
                    inner.ahead_arrives(extent).await;
                    inner.plan_read(extent)
                }
            };
            let result = inner.assemble(parts, homes).await;
            drop(activity);
            completer.complete(result);
        });
        completion
    }

    /// Starts all device reads and pins the logs that they read. What was read ahead is in memory.
    fn plan_read(&self, extent: Extent) -> (Vec<Part>, Vec<Vec<Completion>>) {
        let mut state = self.engine.state.borrow_mut();
        let places = state.store.parts(extent);
        let mut parts = Vec::with_capacity(places.len());
        let mut spans: Vec<Extent> = Vec::new();
        for (part, place) in places {
            let source = match place {
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
                Some(place) => Source::Store(match state.ahead.content(&state.store, part) {
                    Some(content) => engine::Source::Here(content),
                    None => engine::begin_read(self, &mut state, part, place),
                }),
            };
            parts.push(Part { extent: part, source });
        }
        state.ahead.forget(extent);
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
