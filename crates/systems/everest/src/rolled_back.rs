//! Stores that come back with less than they acknowledged: their disk was put back to an old state,
//! say, or lost writes that it had called durable.
//!
//! Two can tell. A client that is open knows by its table. What no store has any more is noted on
//! the base then, with the version that is missing, so that no later opening shows anything older.
//! If a store comes back with that version after all, it counts again. And a base that is opened
//! knows by its note of what that store alone has (`noted.rs`). Then nothing is opened.

use manylogs_block::{Extent, IoError, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::call::StoreId;
use crate::header::Content;
use crate::locks::Use;
use crate::offload::{Client, Offloaded};
use crate::versions::{Range, Versions};

impl Content {
    /// What of the note of a store is not in its answer of what it holds. Ranges of a note may have
    /// been joined, and count as the newest in them: so one version of each is looked for.
    pub(crate) fn missing(&self, store: StoreId, answer: &[Range]) -> Vec<Extent> {
        let Some(note) = self.notes.iter().find(|note| note.store == store) else {
            return Vec::new();
        };
        let mut held = Versions::new();
        answer.iter().for_each(|range| held.insert(range.extent, range.version));
        let has = |one: &&Range| held.lookup(one.extent).any(|(_, version)| version >= one.version);
        note.ranges.iter().filter(|one| !has(one)).map(|one| one.extent).collect()
    }
}

impl Client {
    /// What no store has any more of what clients were told is durable, and of which the header
    /// says nothing.
    pub(crate) fn unnoted(&self) -> Vec<Range> {
        if !self.lacks.get() {
            return Vec::new();
        }
        let mut found = self.table.borrow().nowhere();
        found.retain(|one| !self.header.is_all_lost(one.extent));
        found
    }

    /// Notes durably what no store has any more. What clients are changing is left to the next
    /// attempt. What the header has no room for is known as lost as long as the client lives.
    pub(crate) async fn note_losses(&self) -> Result<(), IoError> {
        if !self.lacks.get() || plant::is(Bug::RollbackNotNoted) {
            return Ok(());
        }
        let mut unnoted = self.unnoted();
        if unnoted.is_empty() {
            self.lacks.set(false);
            return Ok(());
        }
        unnoted.truncate(self.header.content().room_for_losses([0; 16]));
        // A write that goes home meanwhile must not be hidden by the note.
        let ask = |one: Range| (one, self.locks.ask(one.extent, Use::Home));
        let mut asked: Vec<_> = unnoted.into_iter().map(ask).collect();
        asked.retain(|(_, locked)| locked.is_held());
        let lost: Vec<Range> = asked.iter().map(|(one, _)| *one).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let change = |content: &mut Content| {
            content.lose(&lost);
            content.make_room()
        };
        self.header.update(change).await.map(drop)
    }
}

impl Offloaded {
    /// How much is lost of which the base has no note, since its header is full: it reads as errors
    /// while this opening lasts, and perhaps as something older afterwards.
    #[must_use]
    pub fn unnoted_losses(&self) -> Sectors {
        Sectors(self.0.unnoted().iter().map(|one| one.extent.len.0).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noted::Note;
    use crate::versions::Version;

    const STORE: StoreId = [7; 16];

    const fn range(start: u64, len: u64, version: u64) -> Range {
        Range { extent: Extent::new(start, len), version: Version(version) }
    }

    #[test]
    fn what_a_note_says_must_be_there() {
        let mut content = Content::new(*b"fedcba9876543210", Sectors(4096));
        let held = [range(0, 8, 3), range(16, 8, 9), range(40, 4, 5), range(50, 2, 2)];
        assert_eq!(content.missing(STORE, &[]), []);
        let ranges = vec![range(0, 8, 3), range(16, 4, 8), range(40, 12, 5)];
        content.notes = vec![Note { store: STORE, ranges }];
        assert_eq!(content.missing(STORE, &held), [], "the last was joined of two");
        assert_eq!(content.missing([8; 16], &[]), []);
        let old = [range(0, 8, 2), range(16, 4, 8), range(50, 2, 2)];
        assert_eq!(content.missing(STORE, &old), [Extent::new(0, 8), Extent::new(40, 12)]);
    }
}
