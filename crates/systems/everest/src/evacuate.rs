//! Emptying stores that leave while the base is busy: what they hold goes to other stores, as a
//! newer version with the same content. While the base is not busy it goes home, like everything
//! else.

use std::rc::Rc;

use manylogs_block::{Extent, IoError};
use manylogs_plant::{self as plant, Bug};

use crate::call::Ask;
use crate::locks::{Locked, Use};
use crate::offload::Client;
use crate::read::Newest;
use crate::table::{Candidate, Holder};
use crate::versions::Range;

/// What goes to other stores of the ranges of a pass.
pub(crate) struct Evacuation<'a> {
    left: std::slice::Iter<'a, Candidate>,
    has_moved: bool,
}

impl<'a> Evacuation<'a> {
    pub(crate) fn new(pass: &'a [Candidate]) -> Self {
        Self { left: pass.iter(), has_moved: false }
    }

    /// Whether the pass has no more to move: it has gone through all of its ranges, or it has moved
    /// some, and stores that leave hold nothing any more.
    pub(crate) fn is_over(&self, client: &Client) -> bool {
        match client.is_evacuating() {
            true => self.is_whole(),
            false => self.has_moved,
        }
    }

    /// Whether it has gone through all ranges of the pass.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.as_slice().is_empty()
    }

    /// Moves up to `together` ranges. False if that changed nothing.
    pub(crate) async fn go_on(&mut self, client: &Rc<Client>, together: usize) -> bool {
        if !client.is_evacuating() || !client.has_takers() {
            return false;
        }
        let leaving = client.leaving();
        let on = |one: &&Candidate| one.dirty && client.holds(leaving, one.range.extent);
        let ranges: Vec<Candidate> =
            self.left.by_ref().filter(on).take(together).copied().collect();
        let moved = client.move_away(&ranges).await;
        self.has_moved |= moved;
        moved
    }
}

impl Client {
    /// Whether stores that leave may still hold something.
    fn is_evacuating(&self) -> bool {
        self.holds(self.leaving(), Extent::new(0, u64::MAX))
    }

    /// Whether one of these stores, a bit for each, may hold something of `extent`.
    pub(crate) fn holds(&self, stores: u32, extent: Extent) -> bool {
        let table = self.table.borrow();
        let holds = |store: usize| stores >> store & 1 == 1 && table.is_held_by(store, extent);
        stores != 0 && (0..self.peers.len()).any(holds)
    }

    /// Moves ranges from stores that leave to others. False if those hold all that they held.
    async fn move_away(self: &Rc<Self>, ranges: &[Candidate]) -> bool {
        let moving = |one: &Candidate| {
            let (client, extent) = (Rc::clone(self), one.range.extent);
            // A write to stores like those of clients, so that none comes between.
            let locked = self.locks.ask(extent, Use::Offload);
            self.answer(async move { client.move_one(extent, locked).await })
        };
        let moving: Vec<_> = ranges.iter().map(moving).collect();
        let mut some = false;
        for moved in moving {
            some |= moved.await == Ok(true);
        }
        some
    }

    /// Writes the newest version of a range anew to stores that stay, and makes those that leave
    /// forget theirs. What is home already is left to reclaiming, which asks the base for nothing
    /// then.
    async fn move_one(self: Rc<Self>, extent: Extent, locked: Locked) -> Result<bool, IoError> {
        locked.wait().await;
        let (parts, mut some) = (self.table.borrow().lookup(extent), false);
        for (part, known) in parts {
            let Some((version, _)) = known.filter(|(_, copies)| copies.is_away()) else {
                continue;
            };
            let leaving = self.leaving();
            let mut old = self.table.borrow().holders(part);
            old.retain(|one| leaving >> one.store & 1 == 1);
            if old.iter().any(|one| one.version >= version) {
                let newest = match self.read_newest(part).await {
                    Ok(newest) => newest,
                    Err(again) => {
                        // Left to a later pass.
                        self.note_unread(part, again);
                        self.note_if_damaged(Range { extent: part, version }, part).await;
                        continue;
                    }
                };
                if plant::is(Bug::EvacuatedEarly) {
                    some |= self.forget_at(&old).await;
                }
                let content = Some(Newest::joined(&newest)).filter(|content| !content.is_zero());
                if !self.offload(part, content.as_ref()).await {
                    continue;
                }
                // The move counted it a second time.
                self.held.set(self.held.get().saturating_sub(part.len.0));
                self.count(|figures| figures.moved += 1);
            }
            // A newer version, or one with the same content, is durable in enough stores that stay,
            // and hides from an opening whatever these versions hid.
            some |= self.forget_at(&old).await;
        }
        drop(locked);
        Ok(some)
    }

    /// Makes stores forget these versions. False if none of them did.
    async fn forget_at(self: &Rc<Self>, old: &[Holder]) -> bool {
        let forget = |one: &Holder| {
            let Range { extent, version } = one.range();
            self.call(one.store, Ask::Delete { extent, version })
        };
        let asked: Vec<_> = old.iter().map(forget).collect();
        let mut some = false;
        for (one, asked) in old.iter().zip(asked) {
            if asked.await.is_ok() {
                self.table.borrow_mut().forgotten(one.store, one.range());
                some = true;
            }
        }
        some
    }
}
