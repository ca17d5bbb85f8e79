//! A link is added: see the module above.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Hint, IoError, Payload, Request, narrow};
use manylogs_engine::{Phase, update_root};
use manylogs_logstore::BLANK;
use manylogs_logstore::ondisk::equal_logs::ROOTS;
use manylogs_plant::{self as plant, Bug};

use super::{LinkError, device};
use crate::join::free_id;
use crate::link::Link;
use crate::ondisk::Superblock;
use crate::roster::{Change, HALVES};
use crate::state::Inner;
use crate::summaries::Area;

impl Inner {
    fn fits_as_link(&self, drives: &[(Rc<dyn BlockDevice>, usize)]) -> Result<(), LinkError> {
        let wanted = if self.is_mirrored() { HALVES } else { 1 };
        if drives.len() != wanted {
            return Err(LinkError::Drives { wanted, given: drives.len() });
        }
        let need = self.label.least_device();
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

    pub(super) async fn add_link(
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
            self.keeper.add(self.bedded(device, label, given));
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

    /// Makes the places of roots and the beginning of each segment blank: the drive may have been a
    /// link of this chain, or of a copy of it, and then an opening would take its records up.
    async fn make_blank(&self, drive: &Rc<dyn BlockDevice>) -> Result<(), IoError> {
        if plant::is(Bug::AddedLinkNotBlank) {
            return Ok(());
        }
        let begin = |region: Extent| Extent { len: BLANK.min(region.len), ..region };
        let segments = self.label.regions(0).map(|(_, region)| begin(region));
        let area = self.label.area().filter(|_| !plant::is(Bug::AddedTablesKept));
        let tables = area.map(Area::mark_and_table).into_iter().flatten();
        for extent in ROOTS.into_iter().chain(tables).chain(segments) {
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
        self.engine.members.of(device(link)).set_replaced();
        if let Some(tables) = &self.tables {
            tables.replace(link);
        }
        match link < places {
            true => state.store.open_again(device(link)),
            false => state.store.grow(&self.label.regions(link).collect::<Vec<_>>()),
        }
        if self.tables.is_some() {
            self.segments_of(link).for_each(|id| state.store.hold(id));
        }
        state.pace.forget_counts();
    }
}
