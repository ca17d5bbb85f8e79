//! Log swapping (seed 000 section III-G): in idle time the content of a full hot log moves to an
//! empty cold one, so that small writes near the head go on finding room.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload, Sectors};
use manylogs_logstore::{Entry, EntryKind, Headers, LogId, Mapped, ScanOf, Supersede, scan};

use crate::phase::{Phase, Reader};
use crate::records::placement::farthest_empty;
use crate::state::{Inner, State};
use crate::store::Place;
use crate::store::Room;
use crate::store::{Origin, SlotId};
use manylogs_plant::{self as plant, Bug};

/// Sectors that one read of the source takes.
const CHUNK: u64 = 2048;

/// A version that is to move.
#[derive(Clone, Copy, Debug)]
struct Live {
    extent: Extent,
    mapped: Mapped<Place>,
}

/// How far a log was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    All,
    /// Clients needed the disk, or the target had no more room.
    InPart,
    /// The table has nothing of it that can be found in the log.
    Nothing,
}

impl Inner {
    /// Moves the fullest log above the threshold, if there is one and a place for it; true if a
    /// log was moved.
    pub(crate) async fn swap_one(self: &Rc<Self>) -> bool {
        let _turn = self.cleaning.take().await;
        let Some((from, to)) = self.choose_swap() else { return false };
        self.state.borrow_mut().store.logs.set_aside(from);
        let moved = self.move_log(from, to).await;
        let mut state = self.state.borrow_mut();
        state.store.logs.put_back();
        state.store.overtakers.clear();
        if !matches!(moved, Ok(Moved::InPart)) {
            // It is free, or waits for newer versions to become durable, or is damaged, which is
            // for the checkpoint to find: to try again would not help.
            state.store.noted.remove(&from);
        }
        if let Ok(Moved::All) = moved {
            state.counters.log_swaps += 1;
            state.store.reset_candidates.push(from);
            state.store.reset_what_can_be();
        }
        drop(state);
        self.notify_progress();
        matches!(moved, Ok(Moved::All))
    }

    fn choose_swap(&self) -> Option<(LogId, LogId)> {
        let mut state = self.state.borrow_mut();
        if state.store.read_only.is_some() {
            return None;
        }
        let can_move = |log: &&manylogs_logstore::Log| !log.is_busy() && !log.is_retired();
        let hot = state.store.noted.iter().filter_map(|id| state.store.logs.get(*id));
        let from = hot.filter(can_move).max_by_key(|log| log.used())?;
        let (from, start, used) = (from.id(), from.region().start, from.used().0);
        let to = farthest_empty(&state.store.logs, start, from)?;
        if !state.store.is_ready(to) {
            // It is opened first, and found again in the next idle moment.
            state.store.unopened = Some(to);
            self.log_wanted.notify();
            return None;
        }
        // While it moves, everything is there twice.
        let enough = state.store.reserved.log.0 + 2 * used <= state.store.logs.room();
        enough.then_some((from, to))
    }

    /// Copies what recovery needs of `from` and points the table at the copies. Stops, without
    /// loss, when clients need the disk; what was copied by then stays copied.
    async fn move_log(self: &Rc<Self>, from: LogId, to: LogId) -> Result<Moved, IoError> {
        let live = self.live_in(from).await?;
        if live.is_empty() {
            return Ok(Moved::Nothing);
        }
        if !self.move_supersedes(from, to).await? {
            return Ok(Moved::InPart);
        }
        let mut rest = live.as_slice();
        while !rest.is_empty() {
            if !self.is_idle() {
                self.runtime.sleep(self.config().idle).await;
                if !self.is_idle() {
                    return Ok(Moved::InPart);
                }
            }
            let (chunk, others) = rest.split_at(chunk_len(rest));
            rest = others;
            if !self.move_chunk(from, to, chunk).await? {
                return Ok(Moved::InPart);
            }
        }
        Ok(Moved::All)
    }

    /// What the table still has in `log`, in the order of the log: its records tell where to look.
    async fn live_in(&self, log: LogId) -> Result<Vec<Live>, IoError> {
        let of = ScanOf {
            volume: self.volume,
            log,
            region: self.layout.regions()[log.0 as usize],
            physical: self.below.physical_sector,
            floor: self.state.borrow().store.roots.on_disk.floor,
            capacity: self.layout.capacity(),
        };
        if self.shape.headers == Headers::Apart {
            return Ok(self.live_by_table(log));
        }
        let scanned = scan(self.device.device(), of, Payload::default()).await?;
        let state = self.state.borrow();
        let mut live: Vec<Live> = Vec::new();
        let entries = scanned.records.iter().flat_map(|record| &record.entries);
        for entry in entries.filter(|entry| entry.kind != EntryKind::Supersede) {
            for (extent, mapped) in state.store.map.lookup(entry.extent) {
                if let Some(mapped) = mapped
                    && mapped.value.log() == Some(log)
                {
                    live.push(Live { extent, mapped });
                }
            }
        }
        // A block that was logged twice in the log is found by both entries.
        live.sort_by_key(|live| {
            (position(live), live.extent.start, std::cmp::Reverse(live.extent.len))
        });
        live.dedup_by_key(|live| live.extent.start);
        Ok(live)
    }

    /// As [`Inner::live_in`], where the log does not tell.
    fn live_by_table(&self, log: LogId) -> Vec<Live> {
        let state = self.state.borrow();
        let all = state.store.map.iter().map(|(extent, mapped)| Live { extent, mapped });
        let mut live: Vec<Live> =
            all.filter(|live| live.mapped.value.kept_by(self.shape) == Some(log)).collect();
        live.sort_by_key(|live| (position(live), live.extent.start));
        live
    }

    async fn move_supersedes(self: &Rc<Self>, from: LogId, to: LogId) -> Result<bool, IoError> {
        let supersedes: Vec<Supersede> = {
            let state = self.state.borrow();
            state.store.logs.get(from).map(|log| log.supersedes().to_vec()).unwrap_or_default()
        };
        for chunk in supersedes.chunks(64) {
            if plant::is(Bug::SwapDropsSupersedes) {
                break;
            }
            let entries = chunk.iter().map(|supersede| {
                let Supersede { extent, data_sequence } = *supersede;
                (Entry { extent, data_sequence, kind: EntryKind::Supersede }, None)
            });
            if !self.append_to(from, to, entries.collect()).await? {
                return Ok(false);
            }
        }
        self.state.borrow_mut().store.logs.adjust(from, manylogs_logstore::Log::clear_supersedes);
        Ok(true)
    }

    async fn move_chunk(
        self: &Rc<Self>,
        from: LogId,
        to: LogId,
        chunk: &[Live],
    ) -> Result<bool, IoError> {
        let mut span: Option<Extent> = None;
        for live in chunk {
            if let Place::Log { offset, .. } = live.mapped.value {
                let at = Extent::new(offset.0.into(), live.extent.len.0);
                span = Some(span.map_or(at, |span| {
                    Extent::between(span.start.min(at.start), span.end().max(at.end()))
                }));
            }
        }
        let (mut within, mut content) = (Extent::default(), Payload::default());
        if let Some(span) = span {
            let (extent, _, read) =
                self.read_log(&mut self.state.borrow_mut(), from, span, Reader::Volume);
            within = extent;
            content = self.check_logged(from, within, read.await, chunk[0].extent)?;
        }
        let entries = chunk.iter().map(|live| {
            let kind = match live.mapped.value {
                Place::Log { .. } => EntryKind::Data,
                Place::Lost { .. } => EntryKind::Lost,
                Place::Zeroes { .. } | Place::Buffered { .. } => EntryKind::Zeroes,
            };
            let entry = Entry { extent: live.extent, data_sequence: live.mapped.sequence, kind };
            let payload = match live.mapped.value {
                Place::Log { offset, .. } => {
                    let skip = Sectors(u64::from(offset.0) - within.start.0);
                    Some(content.slice(skip, live.extent.len))
                }
                Place::Zeroes { .. } | Place::Lost { .. } | Place::Buffered { .. } => None,
            };
            (entry, payload)
        });
        self.append_to(from, to, entries.collect()).await
    }

    /// Appends entries that keep their data sequences to a certain log and waits until they are
    /// durable; false if the log has no room for them, or was reset since it was chosen and has to
    /// begin its epoch first.
    async fn append_to(
        self: &Rc<Self>,
        from: LogId,
        to: LogId,
        entries: Vec<(Entry, Option<Payload>)>,
    ) -> Result<bool, IoError> {
        let (last, record) = {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            let all: Vec<Entry> = entries.iter().map(|(entry, _)| *entry).collect();
            let room = Room::of(&all, self.shape);
            let accepts =
                state.store.logs.with(to, |log| log.accepts(room.log)) && state.store.is_ready(to);
            if !accepts || !state.store.fits(room) {
                return Ok(false);
            }
            state.counters.swapped_sectors += room.log.0;
            let slots: Vec<SlotId> = entries
                .into_iter()
                .map(|(entry, payload)| self.swap_slot(state, from, entry, payload))
                .collect();
            let record = state.store.append(to, slots);
            (state.store.entries.tickets.last(), record)
        };
        let (sequence, slot) = record;
        self.submit_record(Phase::Swap, to, sequence, slot);
        match last {
            Some(last) => self.wait_done(last).await.map(|()| true),
            None => Ok(true),
        }
    }

    fn swap_slot(
        &self,
        state: &mut State,
        from: LogId,
        entry: Entry,
        payload: Option<Payload>,
    ) -> SlotId {
        let mut entry = entry;
        if plant::is(Bug::SwapFreshSequence) {
            entry.data_sequence = state.store.take_data_sequence();
        }
        let reserved = self.record_room(entry.kind, entry.extent);
        let id = state.store.queue(entry, payload, None, reserved, Origin::Swap(from));
        if plant::is(Bug::SwapFreesSourceEarly) && entry.kind != EntryKind::Supersede {
            state.store.sub_live(from, entry.extent.len.0);
            state.store.reset_what_can_be();
        }
        // It goes into a record at once, which takes the room.
        state.store.reserved -= reserved;
        id
    }
}

fn position(live: &Live) -> u64 {
    match live.mapped.value {
        Place::Log { offset, .. } => offset.0.into(),
        Place::Zeroes { .. } | Place::Lost { .. } | Place::Buffered { .. } => 0,
    }
}

/// How many from the start fit one read, and one record.
fn chunk_len(live: &[Live]) -> usize {
    let data = live.iter().position(|live| matches!(live.mapped.value, Place::Log { .. }));
    let start = data.map_or(0, |index| position(&live[index]));
    let mut payload = 0;
    let fits = live.iter().take(256).take_while(|live| {
        let Place::Log { .. } = live.mapped.value else { return true };
        payload += live.extent.len.0;
        payload <= CHUNK && position(live) + live.extent.len.0 - start <= 2 * CHUNK
    });
    fits.count().max(1)
}
