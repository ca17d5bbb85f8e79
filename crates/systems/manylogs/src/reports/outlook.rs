//! Answers from the table alone: the time that a drain would take, and the blocks that are zeroes.

use std::rc::Rc;

use manylogs_block::{
    Completion, Extent, ExtentKind, Extents, IoError, IoResult, Nanos, completion,
};
use manylogs_logstore::store::{Place, Store};
use manylogs_logstore::{EntryKind, Mapped};

use crate::reports::home_pace::{HomePace, HomeWork};
use crate::state::Inner;
use crate::volume::Volume;

/// Most extents that an estimate looks at. It assumes that the rest of a larger table is alike.
const LOOKED_AT: usize = 200_000;
/// Most parts of the table that one answer about extents covers: the volume serves no other request
/// meanwhile.
const PARTS_MAX: usize = 4096;

/// Estimate of the time of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainEstimate {
    /// The time.
    pub time: Nanos,
    /// Whether the estimate follows from measured checkpoints. Else it follows from
    /// [`crate::OpenOptions::pace`], or from values that are usual for such devices.
    pub is_seen: bool,
}

const fn is_zeroes(place: &Place) -> bool {
    matches!(place, Place::Zeroes { .. })
}

impl Volume {
    /// Estimate of the time that a drain would take with no other load. It follows from this
    /// opening's checkpoints, without the time that they waited for others. Walks through the
    /// table, or through the beginning of a large one.
    #[must_use]
    pub fn drain_estimate(&self) -> DrainEstimate {
        let (inner, state) = (self.inner(), self.inner().engine.state.borrow());
        let map = state.store.map();
        let mapped = map.iter().take(LOOKED_AT);
        let mapped = mapped.map(|(extent, mapped)| (extent, is_zeroes(&mapped.value)));
        let some = HomeWork::of(mapped, &inner.below);
        let all = map.len() as u64;
        let work = some.scaled(all, all.min(LOOKED_AT as u64)).of_drain();
        let assumed = inner.pace().time_of(work);
        let factor = state.passes_seen.factor();
        let time = Nanos::from_secs_f64(assumed.as_secs_f64() * factor.unwrap_or(1.0));
        DrainEstimate { time, is_seen: factor.is_some() }
    }

    /// Bytes of the volume that are zeroes by the table. Walks through the table.
    #[must_use]
    pub fn zeroed_bytes(&self) -> u64 {
        let state = self.inner().engine.state.borrow();
        let zeroed = state.store.map().iter().filter(|(_, mapped)| is_zeroes(&mapped.value));
        zeroed.map(|(extent, _)| extent.len.bytes()).sum()
    }
}

impl Inner {
    /// Pace at which the device takes home writes, before a checkpoint has been measured.
    pub(crate) fn pace(&self) -> HomePace {
        self.pace.get().unwrap_or_else(|| HomePace::assumed(&self.below))
    }

    /// The work to bring home the versions in `extents` of the table.
    pub(crate) fn home_work(&self, extents: impl Iterator<Item = Extent>) -> HomeWork {
        let state = self.engine.state.borrow();
        let mapped = extents.flat_map(|extent| state.store.map().lookup(extent));
        let mapped = mapped.filter_map(|(part, mapped)| Some((part, is_zeroes(&mapped?.value))));
        HomeWork::of(mapped, &self.below)
    }

    /// The kinds of the parts of `within`: from the table, and for other parts from the device
    /// below. Costs O(parts).
    pub(crate) fn extents(self: &Rc<Self>, within: Extent) -> Completion<Extents> {
        let parts = {
            let state = self.engine.state.borrow();
            let kind = |mapped: Mapped<Place>| kind_of(&state.store, &mapped.value);
            let parts = state.store.map().lookup(within).take(PARTS_MAX);
            parts.map(|(part, mapped)| (part, mapped.map(kind))).collect::<Vec<_>>()
        };
        let (completer, completion) = completion();
        let inner = Rc::clone(self);
        self.engine.runtime.spawn(async move { completer.complete(inner.with_homes(parts).await) });
        completion
    }

    async fn with_homes(&self, parts: Vec<(Extent, Option<ExtentKind>)>) -> IoResult<Extents> {
        let mut known = Extents::default();
        for (part, kind) in parts {
            match kind {
                Some(kind) => known.push(part, kind),
                None if self.add_home(part, &mut known).await? => {}
                None => break,
            }
        }
        Ok(known)
    }

    /// Adds the kinds of the homes of `part` by the device below; false if its answer is
    /// incomplete.
    async fn add_home(&self, part: Extent, known: &mut Extents) -> Result<bool, IoError> {
        let mut next = part.start;
        for home in self.layout.home(part) {
            let told = self.device.extents(home).await?;
            for (extent, kind) in told.iter() {
                known.push(Extent { start: next, len: extent.len }, kind);
                next = next + extent.len;
            }
            if told.whole() != home {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn kind_of(store: &Store, place: &Place) -> ExtentKind {
    match place {
        Place::Zeroes { .. } => ExtentKind::Hole,
        Place::Log { .. } => ExtentKind::Logged,
        Place::Lost { .. } => ExtentKind::Data,
        Place::Buffered { slot, .. } => match store.entries().slots.get(*slot).entry.kind {
            EntryKind::Zeroes => ExtentKind::Hole,
            EntryKind::Lost => ExtentKind::Data,
            _ => ExtentKind::Logged,
        },
    }
}
