//! Heaps: segments that take the live content that cleaning moves, apart from what clients write,
//! because old content is likely to stay live. Each drive has one at most, so that it is filled
//! while its drive is in the body.

use manylogs_logstore::LogId;
use manylogs_logstore::store::{Device, Logs};

use crate::limit::DRIVES_MOST;
use crate::state::{Inner, State};

/// The segment of each drive that takes live content, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heaps {
    of: [Option<LogId>; DRIVES_MOST],
    /// How often a heap was taken or left: counts made before the last change are out of date.
    changes: u64,
}

impl Heaps {
    /// The heap of a drive.
    fn on(&self, drive: usize) -> Option<LogId> {
        self.of.get(drive).copied().flatten()
    }

    /// Whether the segment is a heap.
    pub(crate) fn contains(&self, segment: LogId) -> bool {
        self.of.contains(&Some(segment))
    }

    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn set(&mut self, drive: usize, heap: Option<LogId>) {
        if let Some(place) = self.of.get_mut(drive) {
            *place = heap;
            self.changes += 1;
        }
    }
}

impl Inner {
    /// The segment that takes the live content of `from`. It is never on the drive at the tail, and
    /// on another drive than `from` if possible, so that one drive reads while the other writes.
    /// `None` if no drive has such a segment.
    pub(crate) fn heap_for(&self, state: &mut State, from: LogId) -> Option<LogId> {
        let tail = state.tail_drive();
        let from = state.store.logs().device(from);
        let all = self.links_from(state, 0).map(|link| Device(manylogs_block::narrow(link)));
        let body: Vec<Device> = all.filter(|drive| *drive != tail).collect();
        let others = || body.iter().copied().filter(|drive| *drive != from);
        let open = |drive: Device| state.heaps.on(drive.0.into());
        if let Some(heap) = others().find_map(open) {
            return Some(heap);
        }
        let blanks = |drive: &Device| self.blanks_on(state, *drive).count();
        let roomy = others().filter(|drive| blanks(drive) > 0).max_by_key(|drive| blanks(drive));
        let own = || body.iter().copied().find(|drive| *drive == from);
        let drive = match (roomy, own()) {
            (Some(drive), _) => drive,
            (None, Some(drive)) => match open(drive) {
                Some(heap) => return Some(heap),
                None => drive,
            },
            (None, None) => return None,
        };
        let heap = self.blanks_on(state, drive).next()?;
        state.heaps.set(drive.0.into(), Some(heap));
        Some(heap)
    }

    /// Empty segments of a drive that are neither the tail nor a heap.
    pub(crate) fn blanks_on<'a>(
        &self,
        state: &'a State,
        drive: Device,
    ) -> impl Iterator<Item = LogId> + use<'a> {
        let all = self.segments_of(drive.0.into());
        all.filter(|id| {
            *id != state.tail && !state.heaps.contains(*id) && state.store.logs().is_blank(*id)
        })
    }

    /// Closes the heap. Its remaining room stays unused, unless that room is promised.
    pub(crate) fn leave_heap(&self, state: &mut State, heap: LogId) {
        let drive = state.store.logs().device(heap);
        if state.heaps.on(drive.0.into()) == Some(heap) {
            state.heaps.set(drive.0.into(), None);
        }
        if !state.store.logs().is_blank(heap) && self.can_spare(state, heap) {
            state.store.seal(heap);
            state.close(heap);
        }
    }

    /// Whether all promised room is there without the rest of this segment.
    fn can_spare(&self, state: &State, segment: LogId) -> bool {
        let logs: &Logs = state.store.logs();
        let free = logs.get(segment).map_or(0, |log| log.free().0);
        logs.room() >= state.store.reserved().log.0 + self.spared.log.0 + free
    }
}
