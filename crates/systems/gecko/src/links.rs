//! Links are added to a chain in use, and removed from it.
//!
//! *Adding.* What the new drives held is made blank, and the root covers their segments. Then the
//! labels name the link, those of its own drives first. Only then segments of it are used.
//!
//! *Removing.* The labels say that the link leaves, so that any later opening goes on with it. No
//! segment of it is taken any more. Cleaning makes room elsewhere first. Then no record goes there,
//! and what lives there is moved as any cleaning moves it. When all of that is durable elsewhere,
//! and nothing reads there, the root is written to links that stay, and the labels forget the link.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Hint, IoError, Payload, Request, Sectors, narrow};
use manylogs_engine::{Phase, update_root, write_root};
use manylogs_logstore::ondisk::equal_logs::least_device;
use manylogs_logstore::store::Device;
use manylogs_logstore::{BLANK, LogId};
use manylogs_plant::{self as plant, Bug};

use crate::chain::Chain;
use crate::join::free_id;
use crate::keeper::{Drive, NotChanged};
use crate::limit::Geometry;
use crate::link::Link;
use crate::ondisk::{Superblock, root_slots};
use crate::roster::{Change, HALVES, LINKS, LINKS_LEAST};
use crate::state::Inner;

mod error;
pub use error::LinkError;

/// A link of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Its place, counted from 0.
    pub link: usize,
    /// Its current drives, by their numbers among those with which the chain was opened.
    pub given: Vec<usize>,
    /// How far it is, if it leaves.
    pub leaving: Option<Leaving>,
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
        let state = |link| LinkState {
            link,
            given: keeper.current(link).iter().map(|drive| drive.given).collect(),
            leaving: leaving(link),
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
    /// # Errors
    /// See [`LinkError`]. If the chain was closed or stopped taking writes, the link still leaves.
    pub async fn remove_link(&self, link: usize) -> Result<(), LinkError> {
        let _turn = self.0.turn()?;
        self.0.may_leave(link)?;
        self.0.keeper.change(Change::Evacuate { link: narrow(link) }).await?;
        self.0.leave(link).await
    }
}

/// One link is added or removed at a time.
struct Turn<'a>(&'a Inner);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_changing.set(false);
    }
}

fn device(link: usize) -> Device {
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
        let drives = roster.in_use().count() - 1;
        if drives < LINKS_LEAST {
            return Err(LinkError::Last);
        }
        let (limit, export) = (Geometry { drives, ..self.geometry }.export_limit(), self.export);
        if export > limit {
            return Err(LinkError::Room { limit, export });
        }
        Ok(())
    }

    /// Goes on with a link that an earlier opening began to empty.
    pub(crate) fn resume_leaving(self: &Rc<Self>) {
        let Some(link) = self.keeper.roster().leaving else { return };
        let chain = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            let Ok(_turn) = chain.turn() else { return };
            // If it fails the labels still say that the link leaves, and so does the list of links.
            let _ = chain.leave(link.into()).await;
        });
    }

    /// Empties a link of which the labels say that it leaves, and forgets it.
    async fn leave(&self, link: usize) -> Result<(), LinkError> {
        let device = device(link);
        {
            let mut state = self.engine.state.borrow_mut();
            state.leaving = Some(device);
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
            if self.shuts(device) && self.is_empty(link) {
                break;
            }
            progress.await;
        }
        self.forget(link).await
    }

    /// Whether no record goes to the link any more. Sees to that as soon as there is room enough
    /// elsewhere for all that was promised, and for cleaning.
    fn shuts(&self, device: Device) -> bool {
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        if !state.store.logs().is_shut(device) {
            let needed = state.store.reserved().log.0 + self.spared.log.0;
            if state.store.logs().room_without(device) < needed {
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
        self.segments_of(link).filter_map(|id| logs.get(id)).all(|log| {
            let is_moving = state.pace.contains(log.id()) && plant::is(Bug::LinkForgottenEarly);
            log.may_reset() || is_moving
        })
    }

    /// Lets a link go that holds nothing.
    async fn forget(&self, link: usize) -> Result<(), LinkError> {
        let device = device(link);
        if !plant::is(Bug::LinkForgottenEarly) {
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
        for (slot, old) in root_slots(&next).into_iter().zip(root_slots(&now)) {
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

    fn fits_as_link(&self, drives: &[(Rc<dyn BlockDevice>, usize)]) -> Result<(), LinkError> {
        let wanted = if self.is_mirrored() { HALVES } else { 1 };
        if drives.len() != wanted {
            return Err(LinkError::Drives { wanted, given: drives.len() });
        }
        let need = least_device(self.label.segments, self.label.segment);
        let is_zoned = self.places.devices().iter().any(BlockDevice::is_reset_first);
        for (drive, _) in drives {
            let told = drive.capabilities();
            let have = told.capacity;
            if have < need {
                return Err(LinkError::TooSmall { have, need });
            }
            if told.physical_sector > self.label.physical {
                return Err(LinkError::LargeSectors);
            }
            if is_zoned || drive.is_reset_first() {
                return Err(LinkError::Zoned);
            }
        }
        Ok(())
    }

    async fn add_link(
        self: &Rc<Self>,
        drives: Vec<(Rc<dyn BlockDevice>, usize)>,
    ) -> Result<usize, LinkError> {
        self.fits_as_link(&drives)?;
        let link = self.keeper.roster().free_place().ok_or(LinkError::Full)?;
        for (drive, _) in &drives {
            self.make_blank(drive).await?;
        }
        // A root that names segments is not written between this and the growth of the store.
        let naming = self.naming.take().await;
        self.cover(link).await?;
        let mut ids = [0; HALVES];
        let new: Vec<_> = drives.iter().map(|(drive, _)| Rc::clone(drive)).collect();
        for (id, (device, given)) in ids.iter_mut().zip(drives) {
            *id = free_id(&self.keeper.roster(), || self.engine.runtime.random());
            let (drive, sectors) = (narrow(link), device.capabilities().capacity);
            let label = Superblock { drive, sectors, id: *id, ..self.label };
            self.keeper.add(Drive { device, label, given });
        }
        let opening = self.keeper.opening();
        let added = self.change_links(Change::Add { link: narrow(link), ids, opening }, &new).await;
        if let Err(error) = added {
            ids.into_iter().for_each(|id| self.keeper.forget(id));
            return Err(error);
        }
        self.places.put(link, Link::of(&self.engine.runtime, &self.keeper, link, false));
        self.take_into_use(link);
        drop(naming);
        self.start_cleaners();
        self.engine.wanted.notify();
        self.engine.notify_progress();
        self.offer_room_to_clients();
        Ok(link)
    }

    /// Makes the beginning of each segment blank: the drive may have been a link of this chain, or
    /// of a copy of it, and then a scan would take its records up.
    async fn make_blank(&self, drive: &Rc<dyn BlockDevice>) -> Result<(), IoError> {
        for (_, region) in self.label.regions(0) {
            let extent = Extent { len: BLANK.min(region.len), ..region };
            let is_blank = match drive.submit(Request::Read { extent }).await {
                Ok(content) => content.is_zero(),
                // A write may mend it.
                Err(_) => false,
            };
            if !is_blank {
                let (payload, hint) = (Payload::zeroes(extent.len), Hint::None);
                drive.submit(Request::Write { extent, payload, fua: false, hint }).await?;
            }
        }
        drive.submit(Request::Flush).await.map(drop)
    }

    /// Makes the root cover the segments of a place, durably.
    async fn cover(&self, link: usize) -> Result<(), IoError> {
        let segments: Vec<_> = self.segments_of(link).collect();
        let count = self.engine.state.borrow().store.logs().count();
        let last = segments.last().map_or(0, |last| last.0 as usize + 1);
        let count = count.max(last);
        let cover = update_root(self, Phase::OpenedSet, |root| {
            root.opened = root.opened.resized(count);
            root.used = root.used.resized(count);
            segments.into_iter().for_each(|id| root.used.add(id));
        });
        cover.await
    }

    /// From now on segments of the link are used.
    fn take_into_use(&self, link: usize) {
        let mut state = self.engine.state.borrow_mut();
        let places = state.store.logs().count() / manylogs_block::to_usize(self.geometry.per_drive);
        match link < places {
            true => state.store.open_again(device(link)),
            false => state.store.grow(&self.label.regions(link).collect::<Vec<_>>()),
        }
        state.pace.forget_counts();
    }
}

const _: () = assert!(LINKS == crate::limit::DRIVES_MOST);
