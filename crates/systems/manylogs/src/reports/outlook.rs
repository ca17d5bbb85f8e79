//! Answers from the table alone: how long a drain would take, and which blocks are zeroes.

use std::rc::Rc;

use manylogs_block::{
    Completion, Extent, ExtentKind, Extents, IoError, IoResult, Nanos, completion,
};
use manylogs_logstore::store::{Place, Store};
use manylogs_logstore::{EntryKind, Mapped};

use crate::reports::home_pace::{HomePace, HomeWork};
use crate::state::Inner;
use crate::volume::Volume;

/// Extents of the table that an estimate looks at: of a larger table it takes the rest to be alike.
const LOOKED_AT: usize = 200_000;
/// Parts of the table that one answer about extents goes through: the volume answers nobody else
/// meanwhile.
const PARTS_MAX: usize = 4096;

/// About how long a drain would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainEstimate {
    /// The time.
    pub time: Nanos,
    /// Whether that is by what checkpoints were seen to take; else it is by
    /// [`crate::OpenOptions::pace`], or by what devices of the kind take.
    pub is_seen: bool,
}

const fn is_zeroes(place: &Place) -> bool {
    matches!(place, Place::Zeroes { .. })
}

impl Volume {
    /// About how long a drain would take with nothing else to do: by what this opening's
    /// checkpoints took, what they waited for others not counted. Walks through the table, or
    /// through the beginning of a large one.
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

    /// Home bytes that the table says are zeroes. Walks through the table.
    #[must_use]
    pub fn zeroed_bytes(&self) -> u64 {
        let state = self.inner().engine.state.borrow();
        let zeroed = state.store.map().iter().filter(|(_, mapped)| is_zeroes(&mapped.value));
        zeroed.map(|(extent, _)| extent.len.bytes()).sum()
    }
}

impl Inner {
    /// How fast the device takes what goes home, before any checkpoint has shown it.
    pub(crate) fn pace(&self) -> HomePace {
        self.pace.get().unwrap_or_else(|| HomePace::assumed(&self.below))
    }

    /// The work to bring home what is in `extents` of the table.
    pub(crate) fn home_work(&self, extents: impl Iterator<Item = Extent>) -> HomeWork {
        let state = self.engine.state.borrow();
        let mapped = extents.flat_map(|extent| state.store.map().lookup(extent));
        let mapped = mapped.filter_map(|(part, mapped)| Some((part, is_zeroes(&mapped?.value))));
        HomeWork::of(mapped, &self.below)
    }

    /// Which parts of `within` the table knows, and what the device below knows of the others.
    /// Costs O(parts).
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

    /// Adds what the device below knows of the homes of `part`; false if it did not tell all.
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
