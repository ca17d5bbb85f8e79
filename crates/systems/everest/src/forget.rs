//! Forgetting a store that is gone for good.

use std::collections::BTreeSet;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::begin::OffloadError;
use crate::call::StoreId;
use crate::header::{Content, HEADER, Header};
use crate::locks::Use;
use crate::offload::{Client, Offloaded};
use crate::versions::{Range, Version};

/// What forgetting or removing a store costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// Ranges that are lost, in addresses of the base volume's clients, in order.
    pub lost: Vec<Extent>,
    /// Whether the store is dropped: ranges are lost only if that was accepted.
    pub done: bool,
}

impl Offloaded {
    /// Forgets a store that cannot be reached, for good. The ranges whose newest version only this
    /// store had are lost: they read as errors until they are written, and never as something
    /// older. This holds whatever crashes once this returns, and the base durably neither lists nor
    /// keeps the store. If the header has no room for all ranges, those closest to one another are
    /// joined with what lies between them, which is lost too.
    ///
    /// Without `accept` nothing is changed if a range would be lost.
    ///
    /// # Errors
    /// [`OffloadError::Answers`] if the store can be reached, [`OffloadError::Unknown`] if it is no
    /// store of this base volume, and [`OffloadError::Base`] if the header cannot be written: then
    /// an opening finds the store listed, or the ranges lost.
    pub async fn forget(&self, store: StoreId, accept: bool) -> Result<Forgotten, OffloadError> {
        let client = &self.0;
        let Some(number) = client.peers.iter().position(|peer| peer.id == store) else {
            // It is kept at most, and holds nothing: an opening has all stores that are listed.
            return self.remove(store, false).await;
        };
        let peer = &client.peers[number];
        if peer.is_live() {
            return Err(OffloadError::Answers { store });
        }
        peer.gone.set(true);
        let forgotten = client.forget_gone(number, accept).await;
        if !forgotten.as_ref().is_ok_and(|forgotten| forgotten.done) {
            peer.gone.set(false);
        }
        client.changed.notify();
        forgotten
    }

    /// Forgets a store of the base volume on `device`, which is not open. What only this store has
    /// is known if the client noted it: it does so at an orderly close, and while it is open when
    /// the store has been unreachable for [`OffloadOptions::note_after`]. Otherwise, if the store
    /// may hold newer data, the whole base volume is lost. What is lost reads as errors until it is
    /// written. Durable when it returns.
    ///
    /// [`OffloadOptions::note_after`]: crate::OffloadOptions::note_after
    ///
    /// # Errors
    /// [`OffloadError::NoHeader`] if it is no base volume, [`OffloadError::Unknown`] if the store
    /// is none of it, and [`OffloadError::Base`] if the device fails.
    pub async fn forget_closed(
        runtime: &Handle,
        device: Rc<dyn BlockDevice>,
        store: StoreId,
        accept: bool,
    ) -> Result<Forgotten, OffloadError> {
        let header = Header::find(runtime, device).await?.ok_or(OffloadError::NoHeader)?;
        let (sectors, opening) = (header.content().sectors, header.content().opening());
        let noted = header.content().noted(store);
        let whole = Extent::new(0, sectors.0.saturating_sub(HEADER.0));
        let version = Version::last_of(opening.incarnation);
        let ranges = match (header.is_listed(store), noted) {
            (false, _) => Vec::new(),
            (true, Some(noted)) => noted,
            (true, None) => vec![Range { extent: whole, version }],
        };
        let lost: Vec<Extent> = ranges.iter().map(|range| range.extent).collect();
        if !header.is_listed(store) && !header.is_kept(store) {
            return Err(OffloadError::Unknown { store });
        }
        if !lost.is_empty() && !accept {
            return Ok(Forgotten { lost, done: false });
        }
        header.drop_store(store, &ranges).await?;
        Ok(Forgotten { lost, done: true })
    }
}

impl Client {
    async fn forget_gone(
        self: &Rc<Self>,
        number: usize,
        accept: bool,
    ) -> Result<Forgotten, OffloadError> {
        let all = Extent::new(0, self.base.capabilities().capacity.0.saturating_sub(HEADER.0));
        // No version is on its way to any store meanwhile.
        let _locked = self.locks.take(all, Use::Home).await;
        if self.is_over() {
            return Err(IoError::Gone.into());
        }
        // Newer than what the store has, so that it is no store's if it returns.
        let (store, version) = (self.peers[number].id, self.next_version());
        let only = self.table.borrow().only_in(number).iter().map(|range| range.extent).collect();
        let lost = joined(only, self.header.content().room_for_losses(store).max(1));
        if !lost.is_empty() && !accept {
            return Ok(Forgotten { lost, done: false });
        }
        let home = self.table.borrow().home_but_held(number);
        for extent in home.into_iter().filter(|_| !plant::is(Bug::ForgottenUncovers)) {
            // Older versions elsewhere, which this store's hide, must count no more.
            if !self.settle(extent, Version(u64::MAX), true).await? {
                return Err(IoError::ReadOnly { reason: "too many ranges are void" }.into());
            }
        }
        let ranges: Vec<Range> = lost.iter().map(|&extent| Range { extent, version }).collect();
        self.header.drop_store(store, &ranges).await?;
        {
            let mut table = self.table.borrow_mut();
            table.forgotten(number, Range { extent: all, version: Version(u64::MAX) });
            table.tidy(all);
        }
        self.count_lost(&ranges).await;
        Ok(Forgotten { lost, done: true })
    }

    /// Counts ranges as lost of which the header says so already.
    pub(crate) async fn count_lost(self: &Rc<Self>, lost: &[Range]) {
        lost.iter().for_each(|range| self.table.borrow_mut().lost(*range));
        for Range { extent, version } in lost {
            // What stores have of it counts no more. Where one cannot be reached, it forgets that
            // when the range is written.
            drop(self.settle(*extent, *version, false).await);
        }
        self.weigh();
    }
}

impl Header {
    /// Drops a store, and notes in the same change that `lost` is lost.
    async fn drop_store(&self, store: StoreId, lost: &[Range]) -> Result<(), IoError> {
        if plant::is(Bug::LossAfterDrop) {
            self.update(|content| content.drop_store(store)).await?;
        }
        let change = |content: &mut Content| {
            content.drop_store(store);
            content.lose(lost);
            content.make_room()
        };
        match self.update(change).await? {
            true => Ok(()),
            false => Err(IoError::ReadOnly { reason: "too many ranges are lost or void" }),
        }
    }
}

/// The extents, sorted, at most `most` of them: those closest to one another are joined.
pub(crate) fn joined(mut extents: Vec<Extent>, most: usize) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.start);
    let gap = |pair: &[Extent]| pair[1].start.0.saturating_sub(pair[0].end().0);
    let mut gaps: Vec<(u64, usize)> =
        extents.windows(2).enumerate().map(|(index, pair)| (gap(pair), index)).collect();
    gaps.retain(|(gap, _)| *gap > 0);
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    gaps.truncate(most - 1);
    let apart: BTreeSet<usize> = gaps.into_iter().map(|(_, before)| before + 1).collect();
    let mut joined: Vec<Extent> = Vec::new();
    for (index, extent) in extents.into_iter().enumerate() {
        let apart = index == 0 || apart.contains(&index);
        match joined.last_mut().filter(|_| !apart) {
            Some(last) => last.len = Sectors(extent.end().max(last.end()).0 - last.start.0),
            None => joined.push(extent),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_are_joined() {
        let given = || [(50, 5), (0, 8), (8, 8), (20, 4), (100, 1)].map(|(a, n)| Extent::new(a, n));
        let of = |most| -> Vec<(u64, u64)> {
            let joined = joined(given().to_vec(), most);
            joined.iter().map(|extent| (extent.start.0, extent.len.0)).collect()
        };
        assert_eq!(of(9), [(0, 16), (20, 4), (50, 5), (100, 1)]);
        assert_eq!(of(3), [(0, 24), (50, 5), (100, 1)]);
        assert_eq!(of(2), [(0, 55), (100, 1)]);
        assert_eq!(of(1), [(0, 101)]);
        assert_eq!(joined(Vec::new(), 1), []);
    }
}
