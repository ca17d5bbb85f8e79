//! Reads: each part comes from the tail cache, or from the place of its newest version.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, IoError, Nanos, Payload, completion};
use manylogs_engine::{Source, System, begin_read, read_begun};
use manylogs_logstore::Mapped;
use manylogs_logstore::store::{LogRead, Place};
use manylogs_plant::{self as plant, Bug};

use crate::cache::{ANSWERS_WITHIN, Flash, Hit};
use crate::state::{Inner, State};

/// Where the content of a part comes from.
enum Found {
    /// Memory or a log.
    Source(Source),
    /// The SSD of the tail cache. `read` is that of the log which has the content, too.
    Flash { read: LogRead, is_at_tail: bool, hit: Hit, found: Completion },
}

impl Inner {
    /// Reads the newest version of `extent`. Sectors that were never written read as zeroes.
    pub(crate) fn read(self: &Rc<Self>, extent: Extent) -> Completion {
        let mut state = self.engine.state.borrow_mut();
        if plant::is(Bug::CacheAskedBeforeMap)
            && let Some(content) = state.cache.find_any(extent)
        {
            return Completion::ready(Ok(content));
        }
        let lookup: Vec<_> = state.store.map().lookup(extent).collect();
        let begun = |(part, mapped): (Extent, Option<Mapped<Place>>)| {
            let source = match mapped {
                Some(at) => self.source(&mut state, part, at),
                None => Found::Source(Source::Here(Payload::zeroes(part.len))),
            };
            (part, source)
        };
        let sources: Vec<(Extent, Found)> = lookup.into_iter().map(begun).collect();
        drop(state);
        if let [(_, Found::Source(Source::Here(content)))] = sources.as_slice() {
            return Completion::ready(Ok(content.clone()));
        }
        let (completer, answer) = completion();
        let chain = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            let mut content = Payload::with_room_for(sources.len());
            let mut result = Ok(());
            for (part, source) in sources {
                // The other reads are awaited too: each keeps its segment from a reset until it
                // ends.
                match chain.content(source, part).await {
                    Ok(found) => content.append(found),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            completer.complete(result.map(|()| content));
        });
        answer
    }

    /// Where `part` is read from, of which the map has the version `at`.
    fn source(&self, state: &mut State, part: Extent, at: Mapped<Place>) -> Found {
        let Place::Log { log, offset, .. } = at.value else {
            return Found::Source(begin_read(self, state, part, at.value));
        };
        let is_at_tail = state.store.logs().device(log) == state.tail_drive();
        let found = state.cache.find(part, at.sequence);
        if let Some(content) = found {
            state.cache.counts.note(is_at_tail, true);
            return Found::Source(Source::Here(content));
        }
        if !state.cache.is_on_flash(part, at.sequence) {
            state.cache.counts.note(is_at_tail, false);
            return Found::Source(begin_read(self, state, part, at.value));
        }
        let wanted = Extent::new(offset.0.into(), part.len.0);
        let read = state.store.begin_read(log, wanted);
        // The units that cover the part, as only they can be held against checksums.
        let start = part.start.0.checked_sub(read.skip.0);
        let whole = start.map(|start| Extent::new(start, read.within.len.0));
        let flash = state.cache.flash.as_mut().zip(whole);
        match flash.and_then(|(flash, whole)| flash.read(whole, at.sequence)) {
            Some((hit, found)) => Found::Flash { read, is_at_tail, hit, found },
            None => {
                state.cache.counts.note(is_at_tail, false);
                Found::Source(read_begun(self, read))
            }
        }
    }

    /// The content of `part`. What the SSD returns is held against the checksums of the log, and
    /// comes from the log if it is something else. Meanwhile the log is not reset.
    async fn content(&self, from: Found, part: Extent) -> Result<Payload, IoError> {
        let (read, is_at_tail, hit, found) = match from {
            Found::Source(source) => return source.content(self, part, part).await,
            Found::Flash { read, is_at_tail, hit, found } => {
                let is_silent =
                    self.engine.state.borrow().cache.flash.as_ref().is_some_and(Flash::is_silent);
                let limit = match plant::is(Bug::SilentSsdAwaited) {
                    true => Nanos::from_secs(86_400),
                    // Another request waited in vain.
                    false if is_silent => Nanos(0),
                    false => ANSWERS_WITHIN,
                };
                let found = self.engine.runtime.within(limit, found).await;
                (read, is_at_tail, hit, found)
            }
        };
        let checked = {
            let mut state = self.engine.state.borrow_mut();
            if let (Some(flash), None) = (&mut state.cache.flash, &found) {
                flash.fell_silent();
            }
            let checked = match found.unwrap_or(Err(IoError::Gone)) {
                found if plant::is(Bug::FlashNotVerified) => found,
                found => state.store.check_read(&read, found, part),
            };
            if let Some(flash) = &mut state.cache.flash {
                flash.has_read(&hit, checked.is_ok());
            }
            state.cache.counts.note(is_at_tail, checked.is_ok());
            if checked.is_ok() {
                state.store.unpin_read(&read);
            }
            checked
        };
        match checked {
            Ok(content) => {
                self.offer_room();
                Ok(content.slice(read.skip, part.len))
            }
            Err(_) => read_begun(self, read).content(self, part, part).await,
        }
    }
}
