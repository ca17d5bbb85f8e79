//! Writes: to stores, or home.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, IoResult, Nanos, Payload, Request, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::call::Ask;
use crate::home::{made_durable, moved_home};
use crate::lender::LenderError;
use crate::locks::Use;
use crate::offload::Client;
use crate::versions::{Range, Version};

impl Client {
    /// Whether a write should go to stores: its range is off-loaded, or the base volume is busy and
    /// enough stores are not.
    pub(crate) fn wants_offload(&self, extent: Extent) -> bool {
        if self.table.borrow().is_held(extent) {
            return !plant::is(Bug::OverwriteGoesHome);
        }
        let (policy, base) = (self.options.policy, self.home.load());
        if !policy.is_over(base) {
            return false;
        }
        self.last_over.set(Some(self.runtime.now()));
        if self.held.get() >= self.options.held_max.0 && !plant::is(Bug::HeldMaxIgnored) {
            return false;
        }
        self.has_takers()
    }

    /// Whether enough stores are under their threshold, and less busy than the base volume.
    pub(crate) fn has_takers(&self) -> bool {
        let (policy, base) = (self.options.policy, self.home.load());
        let is_under = |store: &usize| policy.is_under(self.peers[*store].lender.load(), base);
        self.takers(0).iter().filter(|store| is_under(store)).count() >= self.options.copies
    }

    /// Stores that take writes, those under their threshold first and of these the one that will
    /// have done a write first, except those whose bit in `tried` is set.
    fn takers(&self, tried: u32) -> Vec<usize> {
        let now = self.runtime.now();
        let takes = |store: &usize| tried >> store & 1 == 0 && self.peers[*store].takes_writes(now);
        let mut stores: Vec<usize> = (0..self.peers.len()).filter(takes).collect();
        let (policy, base) = (self.options.policy, self.home.load());
        let is_over = |store: usize| !policy.is_under(self.peers[store].lender.load(), base);
        stores.sort_by_key(|store| (is_over(*store), self.key(*store)));
        stores
    }

    /// The number by which stores are compared: less is better.
    pub(crate) fn key(&self, store: usize) -> u64 {
        let peer = &self.peers[store];
        let pace = match plant::is(Bug::PaceIgnored) {
            true => Nanos(0),
            false => peer.pace.mean(self.runtime.now()),
        };
        self.options.policy.key(peer.lender.load(), pace)
    }

    /// Carries out a write, zeroes or a discard.
    pub(crate) async fn write(self: &Rc<Self>, request: Request) -> IoResult {
        let Some(extent) = request.extent() else { return Err(IoError::Unsupported) };
        let content = match &request {
            Request::Write { payload, .. } => Some(payload.clone()),
            Request::WriteZeroes { if_fast: true, .. } if !self.base.capabilities().fast_zero => {
                return Err(IoError::Unsupported);
            }
            _ => None,
        };
        if self.wants_offload(extent) {
            let _locked = self.locks.take(extent, Use::Offload).await;
            if self.offload(extent, content.as_ref()).await {
                self.count(|figures| figures.offloaded += 1);
                return Ok(Payload::default());
            }
        }
        let _locked = self.locks.take(extent, Use::Home).await;
        if self.fenced.get() {
            return Err(IoError::Gone);
        }
        self.count(|figures| figures.home += 1);
        let held = self.table.borrow().is_held(extent) && !plant::is(Bug::OverwriteGoesHome);
        if held {
            self.write_through(extent, request).await
        } else {
            self.write_home(request).await
        }
    }

    async fn write_home(&self, request: Request) -> IoResult {
        self.home.submit(moved_home(request)).await
    }

    /// Writes home over a range of which stores may hold older versions, and makes them forget
    /// these. Until then, an opening takes the stores' versions for the newest.
    async fn write_through(self: &Rc<Self>, extent: Extent, request: Request) -> IoResult {
        let durable = !plant::is(Bug::ThroughNotDurable);
        let request = if durable { made_durable(request) } else { request };
        if plant::is(Bug::VoidBeforeHome) {
            self.settle(extent, Version(u64::MAX), true).await?;
        }
        self.write_home(request).await?;
        let all = Range { extent, version: Version(u64::MAX) };
        self.table.borrow_mut().cleaned(all);
        let deadline = self.runtime.now() + self.options.patience;
        loop {
            let changed = self.changed.wait();
            if self.settle(extent, Version(u64::MAX), true).await? {
                return Ok(Payload::default());
            }
            // The header has no room for more void ranges.
            let now = self.runtime.now();
            if now >= deadline {
                return Err(IoError::Transient { extent });
            }
            self.runtime.within(deadline.since(now), changed).await;
        }
    }

    /// Off-loads a version of a range that is locked. False if too few stores have it; some may
    /// hold it all the same.
    pub(crate) async fn offload(
        self: &Rc<Self>,
        extent: Extent,
        content: Option<&Payload>,
    ) -> bool {
        let version = self.next_version();
        let longest = self.peers.iter().map(|peer| peer.lender.longest_write()).min();
        // Parts begin where physical sectors do, if the whole does.
        let longest = longest.map_or(extent.len, |longest| Sectors((longest.0 & !7).max(1)));
        let step = if content.is_some() { longest } else { extent.len };
        let mut skip = Sectors(0);
        while skip < extent.len {
            let len = Sectors(step.0.min(extent.len.0 - skip.0));
            let part = Extent { start: extent.start + skip, len };
            let content = content.map(|content| content.slice(skip, len));
            if !self.offload_part(Range { extent: part, version }, content).await {
                return false;
            }
            skip += len;
        }
        true
    }

    async fn offload_part(self: &Rc<Self>, range: Range, content: Option<Payload>) -> bool {
        let copies = self.options.copies - usize::from(plant::is(Bug::OneCopyLess));
        let (mut holders, mut tried) = (0_u32, 0_u32);
        while (holders.count_ones() as usize) < copies {
            let missing = copies - holders.count_ones() as usize;
            let mut chosen = self.takers(tried);
            if chosen.len() < missing {
                return false;
            }
            chosen.truncate(missing);
            chosen.iter().for_each(|store| tried |= 1 << store);
            let send = |&store: &usize| {
                let client = Rc::clone(self);
                let content = content.clone();
                self.answer(async move { client.store_one(store, range, content).await })
            };
            let sent: Vec<_> = chosen.iter().map(send).collect();
            for (store, sent) in chosen.into_iter().zip(sent) {
                if sent.await.is_ok() {
                    holders |= 1 << store;
                }
            }
            // A copy that was given up meanwhile is void and does not count.
            let sent = |store: &usize| self.table.borrow().is_sent(*store, range);
            let lost = (0..self.peers.len()).filter(|store| !sent(store)).map(|store| 1 << store);
            holders &= !lost.sum::<u32>();
        }
        self.table.borrow_mut().kept(range, holders);
        self.written.note(range.version, self.runtime.now());
        self.held.set(self.held.get() + range.extent.len.0);
        self.count(|figures| figures.held_max = figures.held_max.max(Sectors(self.held.get())));
        true
    }

    /// Stores one copy.
    async fn store_one(
        self: Rc<Self>,
        store: usize,
        range: Range,
        content: Option<Payload>,
    ) -> Result<(), IoError> {
        let peer = &self.peers[store];
        // A store that leaves may already be dropped from the header, and must not be listed again.
        if peer.leaving.get().is_some() {
            return Err(IoError::Transient { extent: range.extent });
        }
        peer.busy.set(peer.busy.get() + 1);
        let late = plant::is(Bug::ListedAfterWrite);
        let listed = if late { Ok(()) } else { self.header.list(peer.id).await };
        let result = match listed {
            Ok(()) => self.send_one(store, range, content).await,
            Err(error) => Err(error),
        };
        if late {
            drop(self.header.list(peer.id).await);
        }
        peer.busy.set(peer.busy.get() - 1);
        result
    }

    async fn send_one(
        self: &Rc<Self>,
        store: usize,
        range: Range,
        content: Option<Payload>,
    ) -> Result<(), IoError> {
        let Range { extent, version } = range;
        let peer = &self.peers[store];
        if !peer.takes_writes(self.runtime.now()) {
            return Err(IoError::Transient { extent });
        }
        let had = self.table.borrow().is_held_by(store, extent);
        // The write may arrive whatever the answer is.
        self.table.borrow_mut().sent(store, range);
        let ask = Ask::Write { extent, version, content };
        let (began, told) = (self.runtime.now(), peer.lender.load().wait);
        let answer = self.call(store, ask).await;
        if answer.is_ok() {
            let now = self.runtime.now();
            peer.pace.measured(now, now.since(began), told);
        }
        let done_or_not = matches!(answer, Err(LenderError::Unreachable | LenderError::NoSession));
        // A full store refuses at once and holds nothing; after other failures the version may
        // still be found there.
        let full = matches!(answer, Err(LenderError::Failed(IoError::NoSpace { .. })));
        let is_known = full || matches!(answer, Err(LenderError::Newer));
        let forgets = plant::is(Bug::TimedOutForgotten) && done_or_not;
        if (is_known && (!had || plant::is(Bug::RefusalForgetsOlder))) || forgets {
            self.table.borrow_mut().forgotten(store, range);
        }
        match answer {
            Ok(_) => {
                peer.full_until.set(None);
                Ok(())
            }
            Err(error) => {
                if matches!(error, LenderError::Failed(_)) {
                    peer.refused(full, self.runtime.now());
                }
                Err(error.of_request(extent))
            }
        }
    }
}
