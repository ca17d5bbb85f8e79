//! Answers from the table alone: how long a drain would take, and which blocks are zeroes.

use std::rc::Rc;

use manylogs_block::{
    Capabilities, Completion, Extent, ExtentKind, Extents, IoError, IoResult, Lba, Nanos, Sectors,
    completion,
};
use manylogs_logstore::store::{Place, Store};
use manylogs_logstore::{EntryKind, Mapped};

use crate::state::Inner;
use crate::volume::Volume;

/// The disk that estimates of the time to drain assume: the time of one home write at a random
/// place, and bytes a second for long ones.
const SEEK: Nanos = Nanos::from_millis(8);
const BYTES_PER_S: f64 = 100e6;
/// Home writes closer than this count as one: the drive passes over the gap.
const NEAR: Sectors = Sectors(256);
/// Parts of the table that one answer about extents goes through: the volume answers nobody else
/// meanwhile.
const PARTS_MAX: usize = 4096;

/// About how long it takes to move what is logged home: a seek for each run of neighbours, and
/// transfer. `mapped` has the extents by address, and whether each is zeroes. Zeroes cost no
/// transfer on a device that zeroes fast, and nothing where the device turns out to read zeroes.
pub(crate) fn drain_estimate(
    mapped: impl Iterator<Item = (Extent, bool)>,
    below: &Capabilities,
) -> Nanos {
    let (mut runs, mut end, mut bytes) = (0u64, Lba(0), 0);
    for (extent, zeroes) in mapped {
        if runs == 0 || extent.start.0 > end.0 + NEAR.0 {
            runs += 1;
        }
        end = extent.end();
        bytes += match zeroes {
            true if below.fast_zero || below.discard => 0,
            true => extent.len.bytes(),
            // Read from the logs, written home.
            false => 2 * extent.len.bytes(),
        };
    }
    let transfer = Nanos::from_secs_f64(bytes as f64 / BYTES_PER_S);
    Nanos(transfer.0 + runs * SEEK.0)
}

const fn is_zeroes(place: &Place) -> bool {
    matches!(place, Place::Zeroes { .. })
}

impl Volume {
    /// About how long a drain would take on a disk with 8 ms a seek. Walks through the table.
    #[must_use]
    pub fn drain_estimate(&self) -> Nanos {
        let state = self.inner().engine.state.borrow();
        let mapped = state.store.map().iter();
        let mapped = mapped.map(|(extent, mapped)| (extent, is_zeroes(&mapped.value)));
        drain_estimate(mapped, &self.inner().below)
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
