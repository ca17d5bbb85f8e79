//! Logs of stores whose blocks have no home forget the checksums and extents of dead versions.
//!
//! A version is dead for this purpose as soon as the table names another one, although recovery may
//! need it until the other one is durable: it is never named again, so that its content is neither
//! answered nor moved, and recovery has the checksums of the log's records.

use manylogs_block::{Extent, Sectors};
use manylogs_plant::{self as plant, Bug};

use super::{Place, Store};
use crate::{Log, LogId, RECORD_PAYLOAD_MAX};

/// Longer entries are listed until their log begins anew, since to look up all that lies in one
/// takes too long. They hold no content, as no record takes that much.
const LOOKED_UP: Sectors = RECORD_PAYLOAD_MAX;

impl Store {
    /// Forgets what is dead in `log`, if that is worth its time. Does nothing if the store's logs
    /// keep all: see [`super::Logs::with_inverse`].
    pub(super) fn forget_dead(&mut self, log: LogId) {
        if !self.logs.forget_dead() || !self.logs.get(log).is_some_and(Log::forgets) {
            return;
        }
        let Some(mut named) = self.named_in(log) else { return };
        let mut parts: Vec<Extent> = Vec::new();
        named.retain(|named| {
            let mut is_named = named.len > LOOKED_UP;
            let looked_up = if is_named { Extent::default() } else { *named };
            for (part, mapped) in self.map.lookup(looked_up) {
                let place = mapped.map(|mapped| mapped.value);
                if let Some(place) = place.filter(|place| place.log() == Some(log)) {
                    is_named = true;
                    if let Place::Log { offset, .. } = place {
                        parts.push(Extent::new(offset.0.into(), part.len.0));
                    }
                }
            }
            is_named && !plant::is(Bug::LiveExtentForgotten)
        });
        parts.sort_unstable_by_key(|part| part.start);
        if plant::is(Bug::LiveChecksumForgotten) {
            parts.pop();
        }
        self.logs.adjust(log, |log| log.forget_all_but(&named, &parts));
    }
}
