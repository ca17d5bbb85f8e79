//! Records: the entries that they take, and the effects of their writes.

use crate::{
    AppendOf, AppendSlot, EntryKind, Log, LogId, MAX_ENTRIES, Payloads, RecordSequence, RecordShape,
};
use manylogs_block::Sectors;

use super::{InFlightRecord, RecordSlots, SlotId, Store, Stream};
use manylogs_plant::{self as plant, Bug};
use smallvec::SmallVec;

impl Store {
    /// Takes as many pending batches as fit in one record of `log`.
    pub fn gather(&mut self, log: LogId, longest: Sectors) -> RecordSlots {
        let shape = self.logs.shape();
        let free = self.logs.get(log).map_or(self.logs.region(log).len, |log| log.free());
        let mut size = RecordSize::default();
        let mut slots = RecordSlots::new();
        while let Some(&first) = self.entries.pending.front() {
            let (next, entries) = self.with_batch(size, first);
            let fits = next.record_len(shape) <= free
                && next.payload <= longest.0
                && next.entries <= MAX_ENTRIES
                && self.may_follow(first, log);
            if !fits && !slots.is_empty() {
                break;
            }
            size = next;
            for _ in 0..entries {
                let Some(id) = self.entries.pending.pop_front() else { break };
                let slot = self.entries.slots.get(id);
                // The record takes over the room that was set aside for the entry.
                self.reserved -= slot.reserved;
                self.entries.waiters -= usize::from(slot.waiter.is_some());
                slots.push(id);
            }
        }
        if self.entries.pending.is_empty() {
            self.entries.volatile_until = None;
        }
        slots
    }

    /// The size of a record of size `size` plus the first waiting batch, and the number of entries
    /// of that batch.
    fn with_batch(&self, size: RecordSize, first: SlotId) -> (RecordSize, usize) {
        let slot = self.entries.slots.get(first);
        if slot.rest == 0 {
            return (size.with(slot.entry.payload_sectors()), 1);
        }
        let entries = 1 + usize::from(slot.rest);
        let entries = if plant::is(Bug::BatchSplit) { 1 } else { entries };
        let batch = self.entries.pending.iter().take(entries);
        let payload = |id: &SlotId| self.entries.slots.get(*id).entry.payload_sectors();
        (batch.fold(size, |size, id| size.with(payload(id))), entries)
    }

    /// Whether the batch that begins with this slot may go to `log`: its stream may have records in
    /// flight in another log.
    pub(super) fn may_follow(&self, first: SlotId, log: LogId) -> bool {
        let stream = self.entries.slots.get(first).stream;
        let bound = self.entries.streams.bound_to(stream);
        bound.is_none_or(|bound| bound == log) || plant::is(Bug::StreamSwitchesLog)
    }

    /// Appends the slots' entries to `log` as one record.
    pub fn append(&mut self, log: LogId, slots: RecordSlots) -> (RecordSequence, AppendSlot) {
        let of = self.next_record(log);
        let sequence = of.sequence;
        let mut entries = Vec::with_capacity(slots.len());
        let mut payloads = Payloads::new();
        for slot in slots.iter().map(|id| self.entries.slots.get(*id)) {
            entries.push(slot.entry);
            if let Some(payload) = &slot.payload {
                payloads.push(payload.clone());
            }
        }
        let mut slot = self.logs.with(log, |log| log.append(&of, entries, payloads));
        let supersedes =
            slot.record.entries.iter().filter(|e| e.kind == EntryKind::Supersede).count();
        self.counters.supersedes += supersedes as u64;
        self.counters.records += 1;
        self.counters.record_sectors += slot.target.len.0;
        let offsets = std::mem::take(&mut slot.offsets);
        let header = self.header_apart(&slot.record);
        let streams = self.streams_of(&slots);
        for stream in &streams {
            self.entries.streams.begin(*stream, log);
        }
        let record = InFlightRecord { log, slots, offsets, streams, header };
        self.entries.records.push(sequence, record);
        if plant::is(Bug::NvramBeforePayload) {
            self.journal(&[sequence]);
        }
        (sequence, slot)
    }

    fn streams_of(&self, slots: &[SlotId]) -> SmallVec<[Stream; 1]> {
        let mut streams = SmallVec::new();
        for stream in slots.iter().filter_map(|id| self.entries.slots.get(*id).stream) {
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
        streams
    }

    /// The record that begins an epoch in `log`, if the begin must be durable before entries
    /// follow.
    pub fn begin_epoch(&mut self, log: LogId) -> Option<(RecordSequence, AppendSlot)> {
        let floor = self.epoch_floor();
        let cannot_begin = |log: &Log| log.used().0 > 0 || log.is_retired() || log.is_held();
        if self.logs.is_shut_for(log) {
            return None;
        }
        if self.logs.is_begun(log, floor) || self.logs.get(log).is_some_and(cannot_begin) {
            return None;
        }
        let of = self.next_record(log);
        Some((of.sequence, self.logs.with(log, |log| log.begin(&of))))
    }

    /// The fields of the next record, which goes to `log`. A snapshot under way learns of the log.
    pub fn next_record(&mut self, log: LogId) -> AppendOf {
        if let Some(opened) = &mut self.roots.capturing
            && !plant::is(Bug::SnapshotMissesLog)
        {
            opened.add(log);
        }
        let sequence = self.sequences.next_record;
        self.sequences.next_record = sequence.next();
        let (floor, kept_floor) = (self.floor(), self.epoch_floor());
        let next_data = self.sequences.next_data;
        AppendOf { volume: self.volume, sequence, floor, kept_floor, next_data }
    }

    /// Notes that a record was written. Its entries take effect once all before it in the log are
    /// durable.
    pub fn record_written(&mut self, log: LogId, sequence: RecordSequence) {
        let durable = self.logs.with(log, |log| log.finish_append(sequence));
        if plant::is(Bug::AckPastHole) {
            self.settle_record(sequence);
        }
        if self.journal(&durable) {
            for sequence in durable {
                self.settle_record(sequence);
            }
        }
        self.reset_what_can_be();
    }

    /// Notes that a record could not be written. Its log is out of use, and the entries of this
    /// record and of those behind it wait for another log.
    pub fn record_failed(&mut self, log: LogId, sequence: RecordSequence) {
        let void = self.logs.with(log, |log| log.fail_append(sequence));
        for sequence in void {
            if plant::is(Bug::FailedRecordSettled) {
                self.settle_record(sequence);
                continue;
            }
            let Some(record) = self.entries.records.remove(sequence) else { continue };
            self.drop_header(&record.header);
            for stream in record.streams {
                self.entries.streams.end(stream);
            }
            for id in record.slots {
                let slot = self.entries.slots.get(id);
                self.reserved += slot.reserved;
                // The entry was due already, so it stays due even if no client waits for it.
                self.entries.force = self.entries.force.max(Some(slot.ticket));
                self.entries.line_up(id);
            }
        }
    }
}

/// The length of a record as it grows entry by entry.
#[derive(Clone, Copy, Debug, Default)]
struct RecordSize {
    entries: usize,
    units: u64,
    payload: u64,
}

impl RecordSize {
    fn with(self, payload: Sectors) -> Self {
        Self {
            entries: self.entries + 1,
            units: self.units + payload.0.div_ceil(8),
            payload: self.payload + payload.0,
        }
    }

    fn record_len(self, shape: RecordShape) -> Sectors {
        shape.len_of(self.entries, self.units, Sectors(self.payload)).1
    }
}
