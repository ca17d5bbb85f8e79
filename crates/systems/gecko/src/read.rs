//! Reads: each part is read from the place of its newest version.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, Payload, completion};
use manylogs_engine::{Source, begin_read};
use manylogs_logstore::Mapped;
use manylogs_logstore::store::Place;

use crate::state::Inner;

impl Inner {
    /// Reads the newest version of `extent`. Sectors that were never written read as zeroes.
    pub(crate) fn read(self: &Rc<Self>, extent: Extent) -> Completion {
        let mut state = self.engine.state.borrow_mut();
        let lookup: Vec<_> = state.store.map().lookup(extent).collect();
        let begun = |(part, mapped): (Extent, Option<Mapped<Place>>)| {
            let source = match mapped {
                Some(at) => begin_read(&**self, &mut state, part, at.value),
                None => Source::Here(Payload::zeroes(part.len)),
            };
            (part, source)
        };
        let sources: Vec<(Extent, Source)> = lookup.into_iter().map(begun).collect();
        drop(state);
        if let [(_, Source::Here(content))] = sources.as_slice() {
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
                match source.content(&*chain, part, part).await {
                    Ok(found) => content.append(found),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            completer.complete(result.map(|()| content));
        });
        answer
    }
}
