//! Stores that come back with less than they acknowledged: their disk was put back to an old state,
//! say, or lost writes that it had called durable.
//!
//! Two can tell. A client that is open knows by its table. What no store has any more is noted on
//! the base then, with the version that is missing, so that no later opening shows anything older.
//! If a store comes back with that version after all, it counts again. And a base that is opened
//! knows by its note of what that store alone has (`noted.rs`). Then nothing is opened.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::call::{Ask, StoreId};
use crate::header::Content;
use crate::locks::{Locked, Use};
use crate::offload::{Client, Offloaded};
use crate::table::{Copies, Table};
use crate::versions::{Range, Version, Versions};

impl Content {
    /// What of the note of a store is not in its answer of what it holds. Ranges of a note may have
    /// been joined, and count as the newest in them: so one version of each is looked for.
    pub(crate) fn missing(&self, store: StoreId, answer: &[Range]) -> Vec<Extent> {
        let Some(note) = self.note_of(store) else { return Vec::new() };
        // What is void is home, whether the store has it or not.
        let held = Versions::of(answer.iter().copied().chain(self.voids_of(store)));
        let has = |one: &&Range| held.lookup(one.extent).any(|(_, version)| version >= one.version);
        note.ranges.iter().filter(|one| !has(one)).map(|one| one.extent).collect()
    }
}

impl Table {
    /// Whether nobody has the newest version of some range any more.
    pub(crate) fn has_losses(&self) -> bool {
        self.newest().any(|(_, copies)| copies.is_lost())
    }

    /// The ranges whose newest version nobody has any more, in order of address.
    fn nowhere(&self) -> impl Iterator<Item = Range> + '_ {
        self.newest().filter(|(_, copies)| copies.is_lost()).map(|(range, _)| range)
    }

    /// What of a store's answer nobody else has any more, in the version that is missing.
    pub(crate) fn returned(&self, answer: &[Range]) -> Vec<Range> {
        let mut found = Vec::new();
        for &Range { extent, version } in answer {
            let is_missing =
                |(newest, copies): (Version, Copies)| copies.is_lost() && newest == version;
            let parts = self.lookup(extent).into_iter();
            let back = parts.filter(|(_, known)| known.is_some_and(is_missing));
            found.extend(back.map(|(extent, _)| Range { extent, version }));
        }
        found
    }
}

impl Client {
    /// What no store has any more of what clients were told is durable, and of which the header
    /// says nothing.
    pub(crate) fn unnoted(&self) -> Vec<Range> {
        if !self.lacks.get() {
            return Vec::new();
        }
        let noted = Versions::of(self.header.content().lost.iter().copied());
        let is_noted = |one: &Range| {
            let parts = noted.lookup(one.extent).filter(|(_, version)| *version >= one.version);
            parts.map(|(part, _)| part.len.0).sum::<u64>() == one.extent.len.0
        };
        self.table.borrow().nowhere().filter(|one| !is_noted(one)).collect()
    }

    /// Notes durably what no store has any more. What clients are changing is left to the next
    /// attempt. What the header has no room for is known as lost as long as the client lives.
    pub(crate) async fn note_losses(&self) -> Result<(), IoError> {
        let found = self.lost_now();
        if found.is_empty() { Ok(()) } else { self.lose_noted(&found, false).await.map(drop) }
    }

    /// As [`Client::note_losses`] before a session begins, when all notes of what stores alone have
    /// must go: in one change, so that a power cut forgets neither.
    pub(crate) async fn drop_notes_for_losses(&self) -> Result<(), IoError> {
        let found = self.lost_now();
        if !found.is_empty() && self.lose_noted(&found, true).await? {
            return Ok(());
        }
        self.header.drop_notes().await
    }

    /// What is to be noted, and can be: locked, so that no write goes home meanwhile, which the
    /// note would hide.
    fn lost_now(&self) -> Vec<(Range, Locked)> {
        let room = self.header.content().room_for_missing();
        if !self.lacks.get() || room == 0 || plant::is(Bug::RollbackNotNoted) {
            return Vec::new();
        }
        let mut unnoted = self.unnoted();
        self.lacks.set(!unnoted.is_empty());
        unnoted.truncate(room);
        let ask = |one: Range| (one, self.locks.ask(one.extent, Use::Home));
        let mut asked: Vec<_> = unnoted.into_iter().map(ask).collect();
        asked.retain(|(_, locked)| locked.is_held());
        asked
    }

    async fn lose_noted(
        &self,
        found: &[(Range, Locked)],
        drops_notes: bool,
    ) -> Result<bool, IoError> {
        let lost: Vec<Range> = found.iter().map(|(one, _)| *one).collect();
        let change = |content: &mut Content| {
            if drops_notes {
                content.notes.clear();
            }
            content.lose(&lost);
            content.make_room()
        };
        let done = self.header.update(change).await?;
        if done && drops_notes {
            self.header.noted.set(false);
        }
        Ok(done)
    }

    /// Asks each store something while a range is lost. A store that was started anew has no
    /// session, and tells in the next one what it holds: its right disk may be back.
    pub(crate) async fn look_for_missing(self: &Rc<Self>) {
        let Some(lost) = self.table.borrow().nowhere().next() else { return };
        let extent = Extent { len: Sectors(1), ..lost.extent };
        let live = |store: &usize| self.peers[*store].is_live();
        let ask = |store: usize| self.call(store, Ask::Read { extent });
        let asked: Vec<_> = (0..self.peers.len()).filter(live).map(ask).collect();
        for answer in asked {
            drop(answer.await);
        }
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
