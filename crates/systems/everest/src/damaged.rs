//! Ranges that no store returns whole: nothing can bring them home. Who waits for a store to become
//! empty is told of them, and may give them up.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::begin::OffloadError;
use crate::forget::joined;
use crate::header::Content;
use crate::locks::Use;
use crate::offload::Client;
use crate::read::Again;
use crate::reclaim::PIECE;
use crate::table::Candidate;
use crate::versions::Range;

/// What cannot be read is told in units of this, or of physical sectors if they are longer.
const UNIT: Sectors = Sectors(8);

impl Client {
    /// Notes a range that cannot leave its store, if stores return a part of `whole` damaged. The
    /// range goes only together with `whole`: its physical sectors, or the range itself. `whole` is
    /// locked.
    pub(crate) async fn note_if_damaged(self: &Rc<Self>, range: Range, whole: Extent) {
        for Range { extent, .. } in self.needed_in(whole) {
            if self.is_damaged(extent).await {
                self.damaged.borrow_mut().insert(range.extent, range.version);
                return;
            }
        }
    }

    /// The parts of `whole` that are not home, without those of which a noted loss says that
    /// nobody needs them.
    fn needed_in(&self, whole: Extent) -> Vec<Range> {
        let parts = self.table.borrow().lookup(whole).into_iter();
        let needed = parts.filter_map(|(extent, known)| {
            let (version, copies) = known.filter(|(_, copies)| !copies.clean)?;
            let range = Range { extent, version };
            let is_needless = copies.is_lost() && self.header.is_all_lost(range);
            (!is_needless).then_some(range)
        });
        needed.collect()
    }

    /// Whether all stores that have the newest version of `extent` answer, and none returns it
    /// whole.
    async fn is_damaged(self: &Rc<Self>, extent: Extent) -> bool {
        let read = self.read_newest(extent).await;
        matches!(read, Err(Again::Damaged(_)))
    }

    /// The ranges that keep a store, or any if none is named, from becoming empty for ever: those
    /// that were noted as damaged, and those that a store has lost that came back with less than it
    /// had. Of what no store holds at all those ranges that the header does not note as lost. Empty
    /// as long as others can go home.
    pub(crate) fn stuck(&self, store: Option<usize>) -> Vec<Range> {
        let table = self.table.borrow();
        let is_held = |extent: Extent| match store {
            Some(store) => table.is_held_by(store, extent),
            None => (0..self.peers.len()).any(|store| table.is_held_by(store, extent)),
        };
        // What is home, or hidden by a noted loss, is forgotten without being read.
        let is_needed =
            |one: &Candidate| one.dirty && !(one.copies == 0 && self.header.is_all_lost(one.range));
        // Nobody can say any more which store had it.
        let is_nowhere = |one: &Candidate| {
            let is_held = !table.holders(one.range.extent).is_empty();
            one.copies == 0 && !is_held && !plant::is(Bug::DamageNotNoted)
        };
        let is_its = |one: &Candidate| is_held(one.range.extent) || is_nowhere(one);
        let all: Vec<Candidate> = table.candidates();
        let mut needed = all.iter().filter(|one| is_needed(one) && is_its(one));
        let is_stuck = |one: &Candidate| one.copies == 0 || self.is_noted(one);
        let stuck: Option<Vec<Range>> = needed.try_fold(Vec::new(), |mut stuck, one| {
            stuck.push(one.range);
            is_stuck(one).then_some(stuck)
        });
        stuck.filter(|_| !plant::is(Bug::DamageNotTold)).unwrap_or_default()
    }

    /// Whether the piece of a range that goes home first was noted as damaged: the rest waits for
    /// it.
    pub(crate) fn is_noted(&self, one: &Candidate) -> bool {
        let (range, damaged) = (one.range, self.damaged.borrow());
        let first = Extent { len: range.extent.len.min(PIECE), ..range.extent };
        let same = damaged.lookup(first).filter(|(_, version)| *version == range.version);
        one.dirty && same.map(|(part, _)| part.len.0).sum::<u64>() == first.len.0
    }

    /// Looks again at ranges that are stuck. Returns the parts that cannot be read. With `accept`
    /// these are lost: durably, and then stores forget them. If the header has no room for all,
    /// those closest to one another are joined with what lies between, as by
    /// [`crate::Offloaded::forget`].
    ///
    /// # Errors
    /// If the header cannot be written, or the base volume is closed.
    pub(crate) async fn give_up(
        self: &Rc<Self>,
        stuck: &[Range],
        accept: bool,
    ) -> Result<Vec<Extent>, OffloadError> {
        // Several may lie in one physical sector, which is read once.
        let whole = stuck.iter().map(|range| self.whole_sectors(range.extent)).collect();
        let (whole, mut bad) = (joined(whole, usize::MAX), Vec::new());
        for whole in &whole {
            bad.extend(self.damaged_parts(*whole).await);
        }
        let most = self.header.content().room_for_losses([0; 16]).max(1);
        let extents = bad.iter().map(|one| one.extent).collect();
        // Only what may be lost is locked: no version of it is on its way to a store, or home. All
        // locks are asked for at once, so that none waits for a later request.
        let ask = |extent: Extent| (extent, self.locks.ask(extent, Use::Home));
        let asked: Vec<_> = joined(extents, most).into_iter().map(ask).collect();
        for (_, locked) in &asked {
            locked.wait().await;
        }
        if self.is_over() {
            return Err(IoError::Gone.into());
        }
        for range in stuck {
            drop(self.damaged.borrow_mut().remove(range.extent, range.version));
        }
        let (mut lost, mut spare) = (Vec::new(), most - asked.len());
        for (within, _) in &asked {
            let mut found = Vec::new();
            for &Range { extent, version } in bad.iter().filter(|one| within.overlaps(one.extent)) {
                // What was written, brought home or lost since it was read is not given up.
                let same = |one: &Range| one.version == version;
                for one in self.needed_in(extent).into_iter().filter(same) {
                    self.damaged.borrow_mut().insert(one.extent, version);
                    found.push(one.extent);
                }
            }
            // What is whole again between two of them stays, if the header has room for both.
            let parts = joined(found, 1 + spare);
            spare -= parts.len().saturating_sub(1);
            lost.extend(parts);
        }
        if accept && !lost.is_empty() {
            self.lose_for_good(&lost).await?;
        }
        Ok(lost)
    }

    /// Whether no store has the newest version of any part of `extent`: there is nothing to read.
    fn has_no_store(&self, extent: Extent) -> bool {
        let parts = self.table.borrow().lookup(extent);
        parts.iter().all(|(_, known)| known.is_some_and(|(_, copies)| copies.is_lost()))
    }

    /// The parts of `whole` that cannot be read, found by halving it. A disk may take seconds for
    /// each that it cannot read, so writes wait only while their own range is read.
    async fn damaged_parts(self: &Rc<Self>, whole: Extent) -> Vec<Range> {
        let unit = UNIT.0.max(self.base.capabilities().physical_sector.0);
        let (mut left, mut found) = (vec![whole], Vec::new());
        while let Some(extent) = left.pop() {
            for one in self.needed_in(extent) {
                let part = one.extent;
                if self.has_no_store(part) {
                    found.push(one);
                    continue;
                }
                let locked = self.locks.take(part, Use::Read).await;
                let is_damaged = part.len > PIECE || self.is_damaged(part).await;
                drop(locked);
                if !is_damaged {
                    continue;
                }
                if part.len.0 <= unit {
                    found.push(one);
                    continue;
                }
                let half = (part.len.0 / 2).next_multiple_of(unit).min(part.len.0 - 1);
                let middle = part.start + Sectors(half);
                left.push(Extent::between(part.start, middle));
                left.push(Extent::between(middle, part.end()));
            }
        }
        found
    }

    /// Notes durably that these locked ranges are lost, and makes stores forget them.
    async fn lose_for_good(self: &Rc<Self>, lost: &[Extent]) -> Result<(), OffloadError> {
        // Newer than what stores return damaged, so that no opening needs that any more.
        let version = self.next_version();
        let ranges: Vec<Range> = lost.iter().map(|&extent| Range { extent, version }).collect();
        let change = |content: &mut Content| {
            content.lose(&ranges);
            content.make_room()
        };
        if !plant::is(Bug::DamageNotNoted) && !self.header.update(change).await? {
            return Err(IoError::ReadOnly { reason: "too many ranges are lost or void" }.into());
        }
        self.count_lost(&ranges).await;
        Ok(())
    }
}
