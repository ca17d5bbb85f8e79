//! Admission of clients' changes: each waits until there is room for it, in order of arrival.

use std::rc::Rc;

use manylogs_block::{Completer, Completion, Extent, IoError, Payload, Sectors, completion};
use manylogs_logstore::EntryKind;
use manylogs_logstore::store::Batch;
use manylogs_plant::{self as plant, Bug};

use crate::state::{Inner, ORDER, State};

/// A change that a client asks for. A long write is split into several.
#[derive(Debug)]
pub(crate) struct Asked {
    extent: Extent,
    /// `None` for zeroes.
    content: Option<Payload>,
    /// Whether the client is answered only when the change is durable.
    fua: bool,
    /// The client that waits for the answer; only the last part of a request has it.
    client: Option<Completer>,
}

impl Asked {
    fn batch(&self) -> Batch {
        let kind = if self.content.is_some() { EntryKind::Data } else { EntryKind::Zeroes };
        let batch = Batch::of(kind, self.extent, self.content.clone());
        let in_order = !plant::is(Bug::ChangesInNoOrder);
        Batch { after: in_order.then_some(ORDER), ..batch }
    }
}

impl Inner {
    /// Makes `content` the newest version of `extent`; `None` writes zeroes.
    pub(crate) fn change(
        self: &Rc<Self>,
        extent: Extent,
        content: Option<Payload>,
        fua: bool,
    ) -> Completion {
        let mut state = self.engine.state.borrow_mut();
        if self.engine.is_closed() {
            return Completion::ready(Err(IoError::Gone));
        }
        if let Err(error) = state.store.writable() {
            return Completion::ready(Err(error));
        }
        let (client, answer) = completion();
        self.split(&mut state, extent, content, fua, client);
        self.admit(&mut state);
        answer
    }

    /// Queues the parts of a change.
    fn split(
        &self,
        state: &mut State,
        extent: Extent,
        content: Option<Payload>,
        fua: bool,
        client: Completer,
    ) {
        let longest = if content.is_some() { self.geometry.piece() } else { extent.len };
        let mut client = Some(client);
        let mut at = Sectors(0);
        while at < extent.len {
            let len = longest.min(extent.len - at);
            let part = Extent { start: extent.start + at, len };
            let content = content.as_ref().map(|content| content.slice(at, len));
            at += len;
            let is_last = at == extent.len;
            let client = if is_last { client.take() } else { None };
            state.waiting.push_back(Asked { extent: part, content, fua, client });
        }
    }

    /// Admits the waiting changes that there is room for.
    pub(crate) fn admit(&self, state: &mut State) {
        let mut any = false;
        while let Some(first) = state.waiting.front() {
            let (batch, fua) = (first.batch(), first.fua);
            if let Err(error) = state.store.writable() {
                refuse(state, &error);
                break;
            }
            let room = state.store.room_of(&batch);
            let may = self.has_buffer(state, fua) && self.keeps_pace(state);
            if !may || !state.store.fits(room + self.spared) {
                if !state.store.logs().may_ever_take((room + self.spared).log) {
                    let reason = "too few segments of the chain are in use";
                    refuse(state, &IoError::ReadOnly { reason });
                    break;
                }
                state.counters.waited += u64::from(!any);
                self.engine.wanted.notify();
                break;
            }
            any = true;
            let Some(asked) = state.waiting.pop_front() else { break };
            self.let_in(state, asked, batch);
        }
        if any {
            self.engine.commit.notify();
        }
    }

    fn let_in(&self, state: &mut State, asked: Asked, batch: Batch) {
        let len = batch.payload_sectors();
        state.queued += len;
        state.counters.written += len;
        let room = state.store.room_of(&batch);
        if asked.fua && !plant::is(Bug::ChainAnswersEarly) {
            // No client waits for the parts before the last one, but they must be written now too.
            state.put(batch, room, asked.client);
            state.store.force_all();
            return;
        }
        state.put(batch, room, None);
        self.keep_young(state);
        if let Some(client) = asked.client {
            client.complete(Ok(Payload::default()));
        }
    }

    /// Whether there is memory for a write that is answered before it is durable.
    fn has_buffer(&self, state: &State, fua: bool) -> bool {
        fua || state.store.entries().volatile_sectors < self.settings.buffer.0
    }
}

/// Answers all waiting changes with the error.
fn refuse(state: &mut State, error: &IoError) {
    for asked in std::mem::take(&mut state.waiting) {
        if let Some(client) = asked.client {
            client.complete(Err(error.clone()));
        }
    }
}
