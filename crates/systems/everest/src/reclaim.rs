//! Reclaiming (the Everest paper, section 3.2.3): ranges go home, and stores forget them when they
//! are durable there.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Hint, IoError, Lba, Nanos, Payload, Request, SECTOR_BYTES, Sectors,
};
use manylogs_plant::{self as plant, Bug};

use crate::call::Ask;
use crate::header::HEADER;
use crate::locks::{Locked, Use};
use crate::offload::{Client, at_home};
use crate::read::Newest;
use crate::table::{Candidate, Holder};
use crate::versions::{Range, Version};

/// The oldest ranges go home first, so many of them by address.
const PASS: usize = 4096;
/// While nothing can go home, the client looks less and less often, at most so many times apart.
const RARELY: u64 = 16;
/// The most of a range that goes home at a time: zeroes may be as long as the base volume.
const PIECE: Sectors = Sectors((4 << 20) / SECTOR_BYTES);

/// A range that is home, but for a flush.
struct AtHome {
    range: Range,
    /// Up to which version stores may forget it.
    limit: Version,
    /// It was written home just now.
    moved: bool,
    locked: Option<Rc<Locked>>,
}

impl Client {
    /// Reclaims in the background until the client is closed.
    pub(crate) async fn run_reclaim(self: Rc<Self>) {
        let mut apart = 1;
        loop {
            self.runtime.sleep(Nanos(self.options.reclaim_every.0.saturating_mul(apart))).await;
            if self.is_over() {
                return;
            }
            let reclaimed = self.reclaim_some(self.options.together).await;
            apart = if reclaimed == Ok(true) { 1 } else { RARELY.min(2 * apart) };
            if reclaimed.is_err() && plant::is(Bug::ReclaimEndsAtError) {
                return;
            }
            // An error passes, or it does not: stores still have what they had.
            self.give_up_stores().await;
            self.unlist_unused().await;
        }
    }

    /// Brings ranges home, `together` at a time, as long as the base volume has time for it. True
    /// if stores hold less now.
    ///
    /// # Errors
    /// If the base volume fails.
    pub(crate) async fn reclaim_some(self: &Rc<Self>, together: usize) -> Result<bool, IoError> {
        let _turn = self.reclaiming.take().await;
        let mut some = false;
        let pass = self.next_pass();
        for ranges in pass.chunks(together.min(PASS)) {
            let asked = together == usize::MAX;
            while !asked && !self.is_over() && !self.may_reclaim() {
                self.runtime.sleep(self.options.reclaim_every).await;
            }
            if self.is_over() {
                break;
            }
            some |= self.bring_home(ranges).await?;
        }
        self.weigh();
        Ok(some)
    }

    /// The ranges that go home next, sorted by address: first those with too few copies, then the
    /// oldest.
    fn next_pass(&self) -> Vec<Candidate> {
        let live = |store: &usize| self.peers[*store].is_live();
        let reachable: u32 = (0..self.peers.len()).filter(live).map(|store| 1 << store).sum();
        let few =
            |one: &Candidate| (one.copies & reachable).count_ones() as usize >= self.options.copies;
        let mut found = self.table.borrow().candidates();
        // What is home already waits for a store that cannot be reached.
        found.retain(|one| match one.dirty {
            true => one.copies & reachable != 0,
            false => self.may_settle(one.range.extent),
        });
        found.sort_unstable_by_key(|one| (few(one), one.range.version, one.range.extent.start));
        found.truncate(PASS);
        found.sort_unstable_by_key(|one| one.range.extent.start);
        for one in &mut found {
            // The rest is a candidate of the next pass.
            one.range.extent.len = one.range.extent.len.min(PIECE);
        }
        found
    }

    /// Whether the base volume has time for what is brought home.
    fn may_reclaim(&self) -> bool {
        let now = self.runtime.now();
        let calm = |last| now.since(last) >= self.options.calm;
        let policy = self.options.policy;
        policy.may_reclaim(self.home.load())
            && (policy.is_always_over() || self.last_over.get().is_none_or(calm))
    }

    /// Whether the store that forgets `extent` first can be reached.
    fn may_settle(&self, extent: Extent) -> bool {
        let holders = self.table.borrow().holders(extent);
        holders.first().is_none_or(|first| self.peers[first.store].is_live())
    }

    /// Whether all that is off-loaded can be brought home.
    pub(crate) fn may_reclaim_all(&self) -> bool {
        let found = self.table.borrow().candidates();
        let can_be_read = |one: &Candidate| !one.dirty || one.copies != 0;
        let live = |holder: &Holder| self.peers[holder.store].is_live();
        let reached =
            |one: &Candidate| self.table.borrow().holders(one.range.extent).iter().all(live);
        let holds = |one: &Candidate| reached(one) && can_be_read(one);
        !self.is_over() && found.iter().all(holds)
    }

    async fn bring_home(self: &Rc<Self>, ranges: &[Candidate]) -> Result<bool, IoError> {
        let copy = |candidate: &Candidate| {
            let (client, candidate) = (Rc::clone(self), *candidate);
            // What was left over by a write that failed is told from what is on its way there by a
            // lock that excludes the latter. All are asked for at once: who comes later waits for
            // all, and none of these for him.
            let what = if candidate.left_over { Use::Home } else { Use::Reclaim };
            let locked = self.locks.ask(self.whole_sectors(candidate.range.extent), what);
            self.answer(async move { client.copy_home(candidate, locked).await })
        };
        let copies: Vec<_> = self.apart(ranges).map(copy).collect();
        let (mut home, mut result) = (Vec::new(), Ok(()));
        for copy in copies {
            match copy.await {
                Ok(parts) => home.extend(parts),
                Err(error) => result = result.and(Err(error)),
            }
        }
        let early = plant::is(Bug::DeleteBeforeBaseDurable) || plant::is(Bug::CleanBeforeFlush);
        if home.iter().any(|part| part.moved) && !early {
            self.base.submit(Request::Flush).await?;
        }
        let forget = |part: AtHome| {
            let client = Rc::clone(self);
            self.answer(async move { client.forget(part).await })
        };
        let forgotten: Vec<_> = home.into_iter().map(forget).collect();
        let mut some = false;
        for settled in forgotten {
            some |= settled.await?;
        }
        result.map(|()| some)
    }

    /// The extent, widened to whole physical sectors of the base volume: a power cut while a part
    /// of one is written may damage its neighbours, which nobody writes.
    fn whole_sectors(&self, extent: Extent) -> Extent {
        let told = self.base.capabilities();
        let all = Extent::new(0, told.capacity.0.saturating_sub(HEADER.0));
        extent.widened_to(told.physical_sector).intersection(all)
    }

    /// Those that share no physical sector with one before them, by address. Others follow later.
    fn apart<'a>(&self, ranges: &'a [Candidate]) -> impl Iterator<Item = &'a Candidate> {
        let mut next = Lba(0);
        ranges.iter().filter(move |one| {
            let whole = self.whole_sectors(one.range.extent);
            let is_apart = whole.start >= next;
            if is_apart {
                next = whole.end();
            }
            is_apart
        })
    }

    /// Writes home what is newest in a range.
    async fn copy_home(
        self: Rc<Self>,
        candidate: Candidate,
        locked: Locked,
    ) -> Result<Vec<AtHome>, IoError> {
        locked.wait().await;
        let locked = (!plant::is(Bug::ReclaimWithoutLock)).then(|| Rc::new(locked));
        let mut home = Vec::new();
        for (part, known) in self.table.borrow().lookup(candidate.range.extent) {
            let version = known.map_or(Version(0), |(version, _)| version);
            let dirty = known.is_some_and(|(_, copies)| !copies.clean);
            let limit = if candidate.left_over { Version(u64::MAX) } else { version };
            let range = Range { extent: part, version };
            home.push((dirty, AtHome { range, limit, moved: false, locked: locked.clone() }));
        }
        let mut parts = Vec::with_capacity(home.len());
        for (dirty, part) in home {
            if !dirty {
                parts.push(part);
                continue;
            }
            let whole = self.whole_sectors(part.range.extent);
            // Later, or never: what is damaged in a store is lost.
            let Ok(newest) = self.read_newest(whole, &mut 0).await else { continue };
            let mut payload = Payload::default();
            let same =
                |one: &&Newest| one.known.is_some_and(|(version, _)| version == part.range.version);
            for one in newest.iter().filter(same) {
                let extent = one.extent.intersection(part.range.extent);
                let range = Range { extent, ..part.range };
                let locked = locked.clone();
                parts.push(AtHome { range, moved: true, locked, limit: part.limit });
            }
            newest.into_iter().for_each(|one| payload.append(one.content));
            let (extent, fua, hint) = (at_home(whole), false, Hint::None);
            self.base.submit(Request::Write { extent, payload, fua, hint }).await?;
        }
        Ok(parts)
    }

    /// What is home durably is forgotten by the stores. False if one may still hold it.
    async fn forget(self: Rc<Self>, part: AtHome) -> Result<bool, IoError> {
        let AtHome { range, limit, moved, locked } = part;
        if moved {
            self.table.borrow_mut().cleaned(range);
            self.count(|figures| figures.reclaimed += 1);
        }
        let settled = self.settle(range.extent, limit, false).await;
        drop(locked);
        settled
    }

    /// Makes all stores forget what they have of `extent`, which is home durably. Those that have
    /// the newest version come last: until then it hides whatever the others have. With `void` the
    /// base notes that the versions of stores that cannot be reached count no more. False if a
    /// store may still hold something.
    ///
    /// Versions beyond `limit` are on their way to a store, and then nothing is done.
    ///
    /// # Errors
    /// If the base cannot note it.
    pub(crate) async fn settle(
        self: &Rc<Self>,
        extent: Extent,
        limit: Version,
        void: bool,
    ) -> Result<bool, IoError> {
        let holders = self.table.borrow().holders(extent);
        if holders.iter().any(|holder| holder.version > limit) {
            return Ok(false);
        }
        let together = |one: &Holder, next: &Holder| {
            one.has_newest == next.has_newest && (one.has_newest || one.version == next.version)
        };
        for same in holders.chunk_by(together) {
            let forget = |holder: &Holder| {
                let (extent, version) = (holder.extent(), holder.version);
                let asked = self.call(holder.store, Ask::Delete { extent, version });
                self.answer(async move { asked.await.map_err(|error| error.of_request(extent)) })
            };
            let sent: Vec<_> = same.iter().map(forget).collect();
            let mut all = true;
            for (holder, sent) in same.iter().zip(sent) {
                let range = Range { extent: holder.extent(), version: holder.version };
                if sent.await.is_ok() {
                    self.peers[holder.store].full.set(false);
                } else if !void || !self.header.void(self.peers[holder.store].id, range).await? {
                    all = false;
                    continue;
                }
                self.table.borrow_mut().forgotten(holder.store, range);
            }
            if !all {
                return Ok(false);
            }
        }
        self.table.borrow_mut().tidy(extent);
        Ok(true)
    }

    /// What a store held that is gone for longer than reads wait is void once all of it is home.
    async fn give_up_stores(self: &Rc<Self>) {
        for store in 0..self.peers.len() {
            let gone = self.lost_for(store) > self.options.patience;
            let is_clean = || {
                let table = self.table.borrow();
                table.is_used(store) && table.may_be_void(store)
            };
            if !gone || !is_clean() {
                continue;
            }
            let whole = Extent::new(0, self.base.capabilities().capacity.0);
            let range = Range { extent: whole, version: self.last_version() };
            let noted = self.header.void(self.peers[store].id, range).await;
            if noted == Ok(true) && !self.peers[store].is_live() {
                self.table.borrow_mut().forgotten(store, range);
                self.table.borrow_mut().tidy(whole);
            }
        }
    }

    /// Takes stores off the list that hold nothing: no opening needs to ask them.
    async fn unlist_unused(self: &Rc<Self>) {
        for (store, peer) in self.peers.iter().enumerate() {
            let early = plant::is(Bug::UnlistedTooEarly);
            let unused = || {
                peer.is_live()
                    && peer.busy.get() == 0
                    && (early || !self.table.borrow().is_used(store))
                    && self.header.voids_of(peer.id).is_empty()
            };
            if self.header.is_listed(peer.id) && unused() {
                // If it fails the store is asked at the next opening.
                drop(self.header.unlist(peer.id, unused).await);
            }
        }
    }
}
