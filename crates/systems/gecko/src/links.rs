//! Links are added to a chain in use, and removed from it.
//!
//! *Adding.* What the new drives held is made blank, and the root covers their segments. Then the
//! labels name the link, those of its own drives first. Only then segments of it are used.
//!
//! *Removing.* The labels say that the link leaves, so that any later opening goes on with it. No
//! segment of it is taken any more. Cleaning makes room elsewhere first. Then no record goes there,
//! and what lives there is moved as any cleaning moves it. When all of that is durable elsewhere,
//! and nothing reads there, the root is written to links that stay, and the labels forget the link.
//!
//! *A drive that failed.* What cannot be read cannot be moved. The caller may accept that it is
//! lost: see the module `loss`.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Sectors, narrow};
use manylogs_engine::{Phase, update_root, write_root};
use manylogs_logstore::LogId;
use manylogs_logstore::store::Device;
use manylogs_plant::{self as plant, Bug};

use crate::chain::Chain;
use crate::keeper::NotChanged;
use crate::limit::Geometry;
use crate::ondisk::root_slots;
use crate::roster::{Change, LINKS, LINKS_LEAST};
use crate::state::{Inner, State};

mod add;
mod error;
mod loss;
pub use error::LinkError;
pub use loss::{Loss, OnLoss};

/// A link of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Its place, counted from 0.
    pub link: usize,
    /// Its current drives, by their numbers among those with which the chain was opened.
    pub given: Vec<usize>,
    /// How far it is, if it leaves.
    pub leaving: Option<Leaving>,
    /// Whether its drive is gone. The chain goes on without it: only reads of what it holds fail.
    pub is_lost: bool,
    /// Why it was not emptied further, if it leaves and that stopped.
    pub stopped: Option<LinkError>,
}

/// How far a link is that leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Segments that still hold something.
    pub segments: u64,
    /// What clients can read there.
    pub live: Sectors,
}

impl Chain {
    /// The links of the chain, in the order of their places.
    #[must_use]
    pub fn links(&self) -> Vec<LinkState> {
        let (keeper, roster) = (&self.0.keeper, self.0.keeper.roster());
        let leaving = |link: usize| {
            (roster.leaving.map(usize::from) == Some(link)).then(|| self.0.left_on(link))
        };
        let state = |link| {
            let leaving = leaving(link);
            LinkState {
                link,
                given: keeper.current(link).iter().map(|drive| drive.given).collect(),
                is_lost: keeper.lost() == Some(link),
                stopped: leaving.and_then(|_| self.0.stopped.borrow().clone()),
                leaving,
            }
        };
        roster.in_use().map(state).collect()
    }

    /// Adds a link of these drives behind the others, and overwrites what they hold: one drive, or
    /// two if links are mirrored. [`LinkState::given`] names them by the numbers that come with
    /// them. The export stays as it is. When this returns, all labels name the link, durably. A
    /// crash before that leaves the chain with the link or without it. Returns its place.
    ///
    /// # Errors
    /// See [`LinkError`]. The chain is as before.
    pub async fn add_link(
        &self,
        drives: Vec<(Rc<dyn BlockDevice>, usize)>,
    ) -> Result<usize, LinkError> {
        let _turn = self.0.turn()?;
        self.0.add_link(drives).await
    }

    /// Empties a link, and lets it leave the chain. The chain is used meanwhile. When this returns,
    /// no label of the others names the link, durably. After a crash before that, the next opening
    /// goes on, with the link.
    ///
    /// If something there cannot be read, and `on_loss` accepts it, that is lost: the ranges are
    /// returned. Reads of them fail, also after a crash, until they are written. Before this
    /// returns, a crash leaves a chain that needs the link's drive; without it, it is refused.
    ///
    /// # Errors
    /// See [`LinkError`]. If the chain was closed or stopped taking writes, or something cannot be
    /// read, the link still leaves: ask again.
    pub async fn remove_link(&self, link: usize, on_loss: OnLoss) -> Result<Loss, LinkError> {
        let _turn = self.0.turn()?;
        self.0.may_leave(link)?;
        self.0.look_for_loss(link, on_loss).await;
        self.0.keeper.change(Change::Evacuate { link: narrow(link) }).await?;
        self.0.leave(link, on_loss).await
    }
}

/// One link is added or removed at a time.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_changing.set(false);
    }
}

pub(crate) fn device(link: usize) -> Device {
    Device(narrow(link))
}

impl Inner {
    fn turn(&self) -> Result<Turn<'_>, LinkError> {
        if self.is_changing.replace(true) {
            return Err(LinkError::Busy);
        }
        Ok(Turn(self))
    }

    /// What a link still holds.
    fn left_on(&self, link: usize) -> Leaving {
        let state = self.engine.state.borrow();
        let logs = state.store.logs();
        let there = self.segments_of(link).filter_map(|id| logs.get(id));
        let there = there.filter(|log| log.live() > 0);
        there.fold(Leaving::default(), |sum, log| Leaving {
            segments: sum.segments + 1,
            live: sum.live + Sectors(log.live()),
        })
    }

    /// Whether the rest of the chain can do without the link.
    fn may_leave(&self, link: usize) -> Result<(), LinkError> {
        let roster = self.keeper.roster();
        if !roster.has(link) {
            return Err(LinkError::NoSuchLink { link });
        }
        if let Some(lost) = self.keeper.lost().filter(|lost| *lost != link) {
            return Err(LinkError::Lost { link: lost });
        }
        self.bear(roster.in_use().count() - 1)
    }

    /// Whether so many links bear the export.
    fn bear(&self, drives: usize) -> Result<(), LinkError> {
        if drives < LINKS_LEAST {
            return Err(LinkError::Last);
        }
        let (limit, export) = (Geometry { drives, ..self.geometry }.export_limit(), self.export);
        if export > limit { Err(LinkError::Room { limit, export }) } else { Ok(()) }
    }

    /// Whether the others have room for all that was promised, and for cleaning.
    fn has_room_without(&self, state: &State, device: Device) -> bool {
        let needed = state.store.reserved().log.0 + self.spared.log.0;
        state.store.logs().room_without(device) >= needed
    }

    /// Goes on with a link that an earlier opening began to empty.
    pub(crate) fn resume_leaving(self: &Rc<Self>) {
        let Some(link) = self.keeper.roster().leaving else { return };
        let chain = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            let Ok(_turn) = chain.turn() else { return };
            // If that stops, the labels still say that the link leaves, and the list of links why
            // it stopped.
            let _ = chain.leave(link.into(), OnLoss::Stop).await;
        });
    }

    /// Empties a link of which the labels say that it leaves, and forgets it. Returns what is lost
    /// with it.
    async fn leave(&self, link: usize, on_loss: OnLoss) -> Result<Loss, LinkError> {
        self.stopped.replace(None);
        let left = self.empty_and_forget(link, on_loss).await;
        self.stopped.replace(left.as_ref().err().cloned());
        left
    }

    async fn empty_and_forget(&self, link: usize, on_loss: OnLoss) -> Result<Loss, LinkError> {
        let (device, mut loss) = (device(link), Loss::default());
        {
            let mut state = self.engine.state.borrow_mut();
            state.leaving = Some(device);
            state.unreadable = None;
            state.heaps.set(link, None);
            state.pace.forget_counts();
        }
        self.engine.wanted.notify();
        loop {
            let progress = self.engine.progress.wait();
            if self.engine.is_closed() {
                return Err(LinkError::Closed);
            }
            if let Some(reason) = self.engine.state.borrow().store.read_only() {
                return Err(LinkError::ReadOnly(reason));
            }
            match self.obstacle(link) {
                Some(error) if on_loss == OnLoss::Stop => return Err(error),
                Some(_) => self.give_up(link, &mut loss).await?,
                None => {}
            }
            if self.shuts(device) && self.is_empty(link) {
                break;
            }
            progress.await;
        }
        self.forget(link).await?;
        Ok(loss.merged())
    }

    /// Whether no record goes to the link any more. Sees to that as soon as there is room enough
    /// elsewhere for all that was promised, and for cleaning.
    fn shuts(&self, device: Device) -> bool {
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        if !state.store.logs().is_shut(device) {
            if !self.has_room_without(state, device) {
                return false;
            }
            state.store.shut(device);
            state.pace.forget_counts();
            self.engine.wanted.notify();
        }
        if state.tail_drive() == device {
            let tail = self.tail(state);
            let needed = self.geometry.largest().log;
            let Some(next) = tail.next(state.store.logs(), needed) else { return false };
            state.advance(next);
            self.engine.wanted.notify();
            self.engine.commit.notify();
        }
        true
    }

    /// Whether recovery needs nothing of the link, and nothing is read or written there.
    fn is_empty(&self, link: usize) -> bool {
        let state = self.engine.state.borrow();
        let logs = state.store.logs();
        let is_given_up = self.keeper.lost() == Some(link) && plant::is(Bug::LossNotNoted);
        self.segments_of(link).filter_map(|id| logs.get(id)).all(|log| {
            let is_moving = state.pace.contains(log.id()) && plant::is(Bug::LinkForgottenEarly);
            log.may_reset() || is_moving || is_given_up
        })
    }

    /// Lets a link go that holds nothing.
    async fn forget(&self, link: usize) -> Result<(), LinkError> {
        let device = device(link);
        if !plant::is(Bug::LinkForgottenEarly) && !plant::is(Bug::LossNotNoted) {
            self.engine.state.borrow_mut().store.forget(device);
        }
        let is_there = |id: &LogId| self.segments_of(link).any(|of| of == *id);
        let retired = self.engine.state.borrow().store.root().retired.clone();
        if retired.iter().any(is_there) {
            // They are of the drive, not of the place.
            let kept: Vec<_> = retired.into_iter().filter(|id| !is_there(id)).collect();
            update_root(self, Phase::OpenedSet, |root| root.retired = kept).await?;
        }
        self.change_links(Change::Remove { link: narrow(link) }, &[]).await?;
        self.places.put(link, None);
        let mut state = self.engine.state.borrow_mut();
        state.leaving = None;
        state.pace.forget_counts();
        drop(state);
        self.engine.wanted.notify();
        self.engine.notify_progress();
        Ok(())
    }

    /// Changes which links there are. The places of the root that this moves have the newest root
    /// before, and it is not changed meanwhile: a crash finds it whichever roster counts. `new` are
    /// the drives of a link that is added.
    async fn change_links(
        &self,
        change: Change,
        new: &[Rc<dyn BlockDevice>],
    ) -> Result<(), LinkError> {
        let lock = self.engine.state.borrow().store.root_lock();
        let _turn = lock.take().await;
        let now = self.keeper.roster();
        let next = now.after(change).map_err(NotChanged::Impossible)?.unwrap_or(now);
        let (root, volume) = {
            let state = self.engine.state.borrow();
            (state.store.root().clone(), state.store.volume())
        };
        // A link that leaves now is not lost any more.
        let lost = self.keeper.lost();
        let slots = root_slots(&next, lost.filter(|link| next.has(*link)));
        // A place that stands in for one on a lost link may have no root yet.
        for (slot, old) in slots.into_iter().zip(root_slots(&now, None)) {
            if slot == old || plant::is(Bug::RootLeavesWithLink) {
                continue;
            }
            if now.has(slot.device.0.into()) {
                let member = self.engine.members.of(slot.device);
                write_root(member, Phase::OpenedSet, &root, volume, slot.place).await?;
                continue;
            }
            // The place is still empty.
            for drive in new {
                drive.submit(root.write_to(slot.place, volume)).await?;
            }
        }
        Ok(self.keeper.change(change).await?)
    }
}

const _: () = assert!(LINKS == crate::limit::DRIVES_MOST);
