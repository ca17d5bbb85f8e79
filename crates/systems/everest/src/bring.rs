//! Copies on their way home: what is read, where it is written, and what stores forget then.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Hint, IoError, Payload, Request, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::failed::Trouble;
use crate::home::at_home;
use crate::locks::Locked;
use crate::offload::Client;
use crate::read::{Again, Newest};
use crate::table::{Candidate, Copies};
use crate::versions::{Range, Version};

/// What the base returned of the sectors beside off-loaded ones.
#[derive(Default)]
struct ReadHome {
    good: Vec<Extent>,
    /// What is damaged, sector by sector.
    bad: Vec<(Extent, IoError)>,
}

/// A range that was written home, perhaps not durably before the next flush.
pub(crate) struct AtHome {
    pub(crate) range: Range,
    /// The newest version that stores may forget.
    limit: Version,
    /// Whether this pass wrote it home.
    pub(crate) moved: bool,
    locked: Option<Rc<Locked>>,
}

impl Client {
    /// Writes the newest version of a range home, unless it is there.
    pub(crate) async fn copy_home(
        self: Rc<Self>,
        candidate: Candidate,
        locked: Locked,
    ) -> Result<Vec<AtHome>, IoError> {
        locked.wait().await;
        let locked = (!plant::is(Bug::ReclaimWithoutLock)).then(|| Rc::new(locked));
        let mut home = Vec::new();
        for (part, known) in self.table.borrow().lookup(candidate.range.extent) {
            let version = known.map_or(Version(0), |(version, _)| version);
            // Of a lost version nothing is left that could be written home.
            let dirty = known.is_some_and(|(_, copies)| copies.is_away());
            let is_lost = known.is_some_and(|(_, copies)| copies.is_lost());
            if is_lost && !self.header.is_all_lost(Range { extent: part, version }) {
                continue;
            }
            let limit = if candidate.left_over { Version(u64::MAX) } else { version };
            let range = Range { extent: part, version };
            home.push((dirty, AtHome { range, limit, moved: false, locked: locked.clone() }));
        }
        let mut parts = Vec::with_capacity(home.len());
        for (dirty, part) in home {
            match dirty {
                true => parts.extend(self.write_sectors(part).await?),
                false => parts.push(part),
            }
        }
        Ok(parts)
    }

    /// Writes a range home with the rest of its physical sectors. Returns what of it is there, and
    /// nothing if it is left to a later pass.
    ///
    /// # Errors
    /// If the base volume cannot be written.
    async fn write_sectors(self: &Rc<Self>, part: AtHome) -> Result<Vec<AtHome>, IoError> {
        let AtHome { range, limit, locked, .. } = part;
        let whole = self.whole_sectors(range.extent);
        let newest = match self.read_sectors(whole).await {
            Ok(newest) => newest,
            Err(again) => {
                self.note_unread(whole, again);
                self.note_if_damaged(range, whole).await;
                return Ok(Vec::new());
            }
        };
        let mut parts = Vec::new();
        for run in newest.chunk_by(|one, next| one.extent.end() == next.extent.start) {
            let same =
                |one: &&Newest| one.known.is_some_and(|(version, _)| version == range.version);
            let (before, first) = (parts.len(), run.first().map(|first| first.extent.start));
            for one in run.iter().filter(same) {
                let extent = one.extent.intersection(range.extent);
                let (range, locked) = (Range { extent, ..range }, locked.clone());
                parts.push(AtHome { range, limit, moved: true, locked });
            }
            if let Some(start) = first.filter(|_| parts.len() > before) {
                let payload = Newest::joined(run);
                let extent = at_home(Extent { start, len: payload.len() });
                let (fua, hint) = (false, Hint::None);
                self.base.submit(Request::Write { extent, payload, fua, hint }).await?;
            }
        }
        Ok(parts)
    }

    /// The newest content of whole physical sectors that are locked, by parts. What is lost in them
    /// is what home has: it is an error for clients, whatever is written there. Sectors that should
    /// be home and that the base returns damaged are left out: so they stay errors. A power cut
    /// while what is beside them is written may damage their whole physical sector. So one in which
    /// the base returns others is left out as a whole.
    async fn read_sectors(self: &Rc<Self>, extent: Extent) -> Result<Vec<Newest>, Again> {
        let parts = self.table.borrow().lookup(extent);
        let is_lost =
            |known: Option<(Version, Copies)>| known.is_some_and(|(_, copies)| copies.is_lost());
        if !parts.iter().any(|(_, known)| is_lost(*known)) {
            match self.read_newest(extent).await {
                Err(Again::Home(error)) if error.is_damage() => {}
                read => return read,
            }
        }
        let (mut found, mut home) = (Vec::new(), ReadHome::default());
        for (extent, known) in parts {
            let version = known.map_or(Version(0), |(version, _)| version);
            let is_noted = || self.header.is_all_lost(Range { extent, version });
            let is_needless = is_lost(known) && is_noted();
            if !is_needless && known.is_some_and(|(_, copies)| !copies.clean) {
                found.extend(self.read_newest(extent).await?);
                continue;
            }
            let content = match self.base.submit(Request::Read { extent: at_home(extent) }).await {
                Ok(content) => content,
                Err(error) if error.is_damage() && is_needless => Payload::zeroes(extent.len),
                Err(error) if error.is_damage() && !plant::is(Bug::BadSectorHoldsAll) => {
                    found.extend(self.read_each(extent, known, &mut home).await?);
                    continue;
                }
                Err(error) => return Err(Again::Home(error)),
            };
            if !is_needless {
                home.good.push(extent);
            }
            found.push(Newest { extent, known, content });
        }
        Ok(self.without_mixed(found, home))
    }

    /// Reads a part that should be home sector by sector, and leaves out those that are damaged.
    async fn read_each(
        self: &Rc<Self>,
        extent: Extent,
        known: Option<(Version, Copies)>,
        home: &mut ReadHome,
    ) -> Result<Vec<Newest>, Again> {
        let mut found = Vec::new();
        for sector in extent.range() {
            let extent = Extent::new(sector, 1);
            match self.base.submit(Request::Read { extent: at_home(extent) }).await {
                Ok(content) => {
                    home.good.push(extent);
                    found.push(Newest { extent, known, content });
                }
                Err(error) if error.is_damage() => home.bad.push((extent, error)),
                Err(error) => return Err(Again::Home(error)),
            }
        }
        Ok(found)
    }

    /// Without the physical sectors of which the base returns some sectors, and others damaged.
    fn without_mixed(&self, found: Vec<Newest>, home: ReadHome) -> Vec<Newest> {
        let mut mixed = Vec::new();
        for (bad, error) in home.bad {
            let whole = self.whole_sectors(bad);
            let spares = plant::is(Bug::BadSectorTakesGood);
            if !spares && home.good.iter().any(|good| good.overlaps(whole)) {
                mixed.push(whole);
                self.note_failed(whole, Some(Trouble::Base(error)));
            }
        }
        let outside = |one: Newest| {
            let mut left = vec![Range { extent: one.extent, version: Version::default() }];
            for whole in &mixed {
                left = left.into_iter().flat_map(|range| range.outside(*whole)).collect();
            }
            left.into_iter().map(move |Range { extent, .. }| Newest {
                extent,
                known: one.known,
                content: one
                    .content
                    .slice(Sectors(extent.start.0 - one.extent.start.0), extent.len),
            })
        };
        found.into_iter().flat_map(outside).collect()
    }

    /// Makes the stores forget a range that is durably home. False if one may still hold it.
    pub(crate) async fn forget(self: Rc<Self>, part: AtHome) -> Result<bool, IoError> {
        let AtHome { range, limit, moved, locked } = part;
        if moved {
            self.table.borrow_mut().cleaned(range);
            self.count(|figures| figures.reclaimed += 1);
        }
        let settled = self.settle(range.extent, limit, false).await;
        drop(locked);
        match settled {
            Ok(true) => self.note_gone_home(range.extent),
            Ok(false) | Err(_) => self.note_failed(range.extent, None),
        }
        settled
    }
}
