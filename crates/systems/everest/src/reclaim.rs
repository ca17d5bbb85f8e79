//! Reclaiming (the Everest paper, section 3.2.3): ranges are brought home, and stores forget them
//! when they are durable at home.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Lba, Nanos, Request, SECTOR_BYTES, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::bring::AtHome;
use crate::call::Ask;
use crate::evacuate::Evacuation;
use crate::failed::{Pass, Passed, Trouble};
use crate::header::HEADER;
use crate::lender::LenderError;
use crate::locks::Use;
use crate::offload::Client;
use crate::table::{Candidate, Holder};
use crate::versions::{Range, Version};

/// While nothing can go home, the client looks less and less often, at most so many times apart.
const RARELY: u64 = 16;
/// The most of a range that goes home at a time: zeroes may be as long as the base volume.
pub(crate) const PIECE: Sectors = Sectors((4 << 20) / SECTOR_BYTES);

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
            apart = if reclaimed.some { 1 } else { RARELY.min(2 * apart) };
            let has_failed = matches!(reclaimed.trouble, Some(Trouble::Base(_)));
            if has_failed && plant::is(Bug::ReclaimEndsAtError) {
                return;
            }
            // The next round tries again after an error: stores still have what they had.
            self.give_up_stores().await;
            self.unlist_unused().await;
        }
    }

    /// Brings the ranges of a pass home, `together` at a time, while the base volume has time for
    /// it. With `usize::MAX` it does not wait for such time. Where the base or a store fails for
    /// some ranges only, the others go home.
    pub(crate) async fn reclaim_some(self: &Rc<Self>, together: usize) -> Passed {
        let _turn = self.reclaiming.take().await;
        let mut some = false;
        let pass = self.next_pass();
        let mut evacuation = Evacuation::new(&pass.ranges);
        for ranges in pass.ranges.chunks(together.min(self.options.pass.max(1))) {
            let asked = together == usize::MAX;
            while !asked && !self.is_over() && !self.may_reclaim() {
                if evacuation.is_over(self) {
                    // Another pass looks for more.
                    self.weigh();
                    return self.end_pass(&pass, some, evacuation.is_whole());
                }
                match evacuation.go_on(self, together).await {
                    true => some = true,
                    false => self.runtime.sleep(self.options.reclaim_every).await,
                }
            }
            if self.is_over() {
                break;
            }
            let (more, result) = self.bring_home(ranges).await;
            some |= more;
            // The base may take the other ranges, unless it takes nothing any more.
            if result.is_err_and(|error| !error.is_local()) {
                break;
            }
        }
        self.weigh();
        self.end_pass(&pass, some, true)
    }

    /// The ranges that go home next, sorted by address: first those with too few copies on stores
    /// that stay, and those of which a store that leaves has something; then the oldest. What
    /// failed lately comes after all others. What is noted as damaged comes last: it cannot go home
    /// unless the store's disk reads again.
    fn next_pass(&self) -> Pass {
        self.forgive();
        let live = |store: &usize| self.peers[*store].is_live();
        let reachable: u32 = (0..self.peers.len()).filter(live).map(|store| 1 << store).sum();
        let leaving = self.leaving();
        let stay = reachable & !leaving;
        let few =
            |one: &Candidate| ((one.copies & stay).count_ones() as usize) < self.options.copies;
        let mut found = self.table.borrow().candidates();
        // A range that is home already waits until the store that must forget it first can be
        // reached, and so does what is older than a lost range.
        found.retain(|one| match one.dirty && one.copies != 0 {
            true => one.copies & reachable != 0,
            false if one.dirty => self.outlives_loss(one.range),
            false => self.may_settle(one.range.extent),
        });
        let is_urgent = |one: &Candidate| few(one) || self.holds(leaving, one.range.extent);
        found.sort_by_cached_key(|one| {
            let Range { extent, version } = one.range;
            let has_failed = self.has_failed(one) && !plant::is(Bug::FailedComeFirst);
            (self.is_noted(one), has_failed, !is_urgent(one), version, extent.start)
        });
        let untried = found.split_off(self.options.pass.max(1).min(found.len()));
        found.sort_unstable_by_key(|one| one.range.extent.start);
        for one in &mut found {
            // The rest is left to the next pass.
            one.range.extent.len = one.range.extent.len.min(PIECE);
        }
        self.begin_pass(found, untried)
    }

    /// Whether the base volume has time for reclaiming.
    fn may_reclaim(&self) -> bool {
        let now = self.runtime.now();
        let calm = |last| now.since(last) >= self.options.calm;
        let policy = self.options.policy;
        policy.may_reclaim(self.home.load())
            && (policy.is_always_over() || self.last_over.get().is_none_or(calm))
    }

    /// Whether the store that must forget `extent` first can be reached.
    fn may_settle(&self, extent: Extent) -> bool {
        let holders = self.table.borrow().holders(extent);
        holders.first().is_none_or(|first| self.peers[first.store].is_live())
    }

    /// Whether stores hold versions of `extent` that are older than lost ones, and the store that
    /// must forget its version first can be reached. The note of the loss in the header hides these
    /// versions from an opening, so that nobody needs them any more.
    fn outlives_loss(&self, range: Range) -> bool {
        let is_held = !self.table.borrow().holders(range.extent).is_empty();
        is_held
            && !plant::is(Bug::LossOutlived)
            && self.header.is_all_lost(range)
            && self.may_settle(range.extent)
    }

    /// Whether all that is off-loaded can be brought home.
    pub(crate) fn may_reclaim_all(&self) -> bool {
        let found = self.table.borrow().candidates();
        let is_lost = |one: &Candidate| self.header.is_lost(one.range.extent);
        let can_be_read = |one: &Candidate| !one.dirty || one.copies != 0 || is_lost(one);
        let live = |holder: &Holder| self.peers[holder.store].is_live();
        let reached =
            |one: &Candidate| self.table.borrow().holders(one.range.extent).iter().all(live);
        let holds = |one: &Candidate| reached(one) && can_be_read(one);
        !self.is_over() && found.iter().all(holds)
    }

    /// Brings ranges home. Returns whether stores hold less now, and the first error of the base
    /// volume, which may be for some of the ranges only.
    async fn bring_home(self: &Rc<Self>, ranges: &[Candidate]) -> (bool, Result<(), IoError>) {
        let copy = |candidate: &Candidate| {
            let (client, candidate) = (Rc::clone(self), *candidate);
            // A version left over by a failed write must be told from one on its way to a store:
            // [`Use::Home`] excludes the latter. All locks are asked for at once, so that none
            // waits for a later request.
            let what = if candidate.left_over { Use::Home } else { Use::Reclaim };
            let locked = self.locks.ask(self.whole_sectors(candidate.range.extent), what);
            let copied = self.answer(async move { client.copy_home(candidate, locked).await });
            (candidate.range.extent, copied)
        };
        let copies: Vec<_> = self.apart(ranges).map(copy).collect();
        let (mut home, mut result) = (Vec::new(), Ok(()));
        for (extent, copy) in copies {
            match copy.await {
                Ok(parts) => home.extend(parts),
                Err(error) => {
                    let whole = self.whole_sectors(extent);
                    self.note_failed(whole, Some(Trouble::Base(error.clone())));
                    result = result.and(Err(error));
                }
            }
        }
        let early = plant::is(Bug::DeleteBeforeBaseDurable) || plant::is(Bug::CleanBeforeFlush);
        if home.iter().any(|part| part.moved)
            && !early
            && let Err(error) = self.base.submit(Request::Flush).await
        {
            let failed = |one: &Candidate| {
                self.note_failed(one.range.extent, Some(Trouble::Base(error.clone())));
            };
            ranges.iter().for_each(failed);
            return (false, Err(error));
        }
        let forget = |part: AtHome| {
            let (client, extent) = (Rc::clone(self), part.range.extent);
            (extent, self.answer(async move { client.forget(part).await }))
        };
        let forgotten: Vec<_> = home.into_iter().map(forget).collect();
        let mut some = false;
        for (extent, settled) in forgotten {
            match settled.await {
                Ok(settled) => some |= settled,
                Err(error) => {
                    self.note_trouble(extent, Trouble::Base(error.clone()));
                    result = result.and(Err(error));
                }
            }
        }
        (some, result)
    }

    /// The extent, widened to whole physical sectors of the base volume. A power cut during the
    /// write of a part of one may damage the other logical sectors in it.
    pub(crate) fn whole_sectors(&self, extent: Extent) -> Extent {
        let told = self.base.capabilities();
        let all = Extent::new(0, told.capacity.0.saturating_sub(HEADER.0));
        extent.widened_to(told.physical_sector).intersection(all)
    }

    /// The ranges that share no physical sector with a range before them. The others are left to a
    /// later pass. One that is noted as damaged goes after those beside it that are not.
    fn apart<'a>(&self, ranges: &'a [Candidate]) -> impl Iterator<Item = &'a Candidate> {
        let (mut next, whole) = (Lba(0), |one: &Candidate| self.whole_sectors(one.range.extent));
        let apart = move |(index, one): (usize, &'a Candidate)| {
            let (start, end) = (whole(one).start, whole(one).end());
            let mut beside =
                ranges[index + 1..].iter().take_while(|other| whole(other).start < end);
            let is_good = |other: &Candidate| other.dirty && !self.is_noted(other);
            let is_apart = start >= next && !(self.is_noted(one) && beside.any(is_good));
            next = if is_apart { end } else { next };
            is_apart.then_some(one)
        };
        ranges.iter().enumerate().filter_map(apart)
    }

    /// Makes all stores forget their versions of `extent`, which is durably home. Stores that have
    /// the newest version forget last: until then it hides the older versions of the others. With
    /// `void` the header notes the versions of unreachable stores as void. False if a store may
    /// still hold something.
    ///
    /// Versions newer than `limit` are on their way to a store: then nothing is done.
    ///
    /// # Errors
    /// If the header cannot be written, or the client is closed.
    pub(crate) async fn settle(
        self: &Rc<Self>,
        extent: Extent,
        limit: Version,
        void: bool,
    ) -> Result<bool, IoError> {
        let holders = self.table.borrow().holders(extent);
        let is_newer = |holder: &Holder| holder.version > limit;
        if holders.iter().any(is_newer) && !plant::is(Bug::OnItsWayDeleted) {
            return Ok(false);
        }
        let together = |one: &Holder, next: &Holder| {
            one.has_newest == next.has_newest && (one.has_newest || one.version == next.version)
        };
        for same in holders.chunk_by(together) {
            if self.closed.get() {
                // The base may have noted that a store has these versions.
                return Err(IoError::Gone);
            }
            if same.iter().any(|holder| holder.has_newest) && !self.found_again(extent).await? {
                return Ok(false);
            }
            let forget = |holder: &Holder| {
                let Range { extent, version } = holder.range();
                let asked = self.call(holder.store, Ask::Delete { extent, version });
                self.answer(async move { Ok(asked.await) })
            };
            let sent: Vec<_> = same.iter().map(forget).collect();
            let mut all = true;
            for (holder, sent) in same.iter().zip(sent) {
                let range = holder.range();
                let sent = sent.await?;
                if let Err(LenderError::Failed(error)) = &sent {
                    let trouble = Trouble::Store(holder.store, error.clone());
                    self.note_trouble(extent, trouble);
                }
                if sent.is_ok() {
                    self.peers[holder.store].full_until.set(None);
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
        if !self.found_again(extent).await? {
            return Ok(false);
        }
        self.table.borrow_mut().tidy(extent);
        Ok(true)
    }

    /// Notes as void the versions of stores that were unreachable for longer than reads wait, if
    /// all they hold is home. Not while something is lost: a store may come back with it.
    async fn give_up_stores(self: &Rc<Self>) {
        for store in 0..self.peers.len() {
            let gone = self.lost_for(store) > self.options.patience;
            let is_clean = || {
                let table = self.table.borrow();
                table.is_used(store) && table.may_be_void(store) && !table.has_losses()
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

    /// Takes stores off the list that hold nothing, so that openings need not ask them.
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
                // If this fails, the next opening asks the store.
                drop(self.header.unlist(peer.id, unused).await);
            }
        }
    }
}
