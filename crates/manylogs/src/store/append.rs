//! Records: which entries they take, and what becomes of them.

use manylogs_block::Sectors;
use manylogs_logstore::{
    AppendOf, AppendSlot, EntryKind, LogId, MAX_ENTRIES, Payloads, RecordSequence, RecordShape,
};

use super::{InFlightRecord, RecordSlots, Store};
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// Takes as many pending slots as fit in one record of `log`.
    pub(crate) fn gather(&mut self, log: LogId, longest: Sectors) -> RecordSlots {
        let shape = self.logs.shape();
        let free = self.logs.get(log).map_or(self.logs.region(log).len, |log| log.free());
        let mut size = RecordSize::default();
        let mut slots = RecordSlots::new();
        while let Some(&id) = self.entries.pending.front() {
            let slot = self.entries.slots.get(id);
            let (reserved, waits) = (slot.reserved, slot.waiter.is_some());
            let next = size.with(slot.entry.payload_sectors());
            let fits = next.record_len(shape) <= free
                && next.payload <= longest.0
                && slots.len() < MAX_ENTRIES;
            if !fits && !slots.is_empty() {
                break;
            }
            size = next;
            self.entries.pending.pop_front();
            // The record takes the room that was set aside.
            self.reserved -= reserved;
            self.entries.waiters -= usize::from(waits);
            slots.push(id);
        }
        if self.entries.pending.is_empty() {
            self.entries.volatile_until = None;
        }
        slots
    }

    /// Puts the slots' entries behind the last record of `log`.
    pub(crate) fn append(
        &mut self,
        log: LogId,
        slots: RecordSlots,
    ) -> (RecordSequence, AppendSlot) {
        let of = self.next_record(log);
        let sequence = of.sequence;
        let entries = slots.iter().map(|id| self.entries.slots.get(*id).entry).collect();
        let payloads: Payloads =
            slots.iter().filter_map(|id| self.entries.slots.get(*id).payload.clone()).collect();
        let mut slot = self.logs.with(log, |log| log.append(&of, entries, payloads));
        let supersedes =
            slot.record.entries.iter().filter(|e| e.kind == EntryKind::Supersede).count();
        self.counters.supersedes += supersedes as u64;
        self.counters.records += 1;
        self.counters.record_sectors += slot.target.len.0;
        let offsets = std::mem::take(&mut slot.offsets);
        let header = self.header_apart(&slot.record);
        self.entries.records.insert(sequence, InFlightRecord { log, slots, offsets, header });
        if plant::is(Bug::NvramBeforePayload) {
            self.journal(&[sequence]);
        }
        (sequence, slot)
    }

    /// What the next record, to `log`, says of itself; a snapshot under way learns of the log.
    pub(crate) fn next_record(&mut self, log: LogId) -> AppendOf {
        if let Some(touched) = &mut self.roots.capturing
            && !plant::is(Bug::SnapshotMissesLog)
        {
            touched.add(log);
        }
        let sequence = self.sequences.next_record;
        self.sequences.next_record = sequence.next();
        let (floor, next_data) = (self.roots.on_disk.floor, self.sequences.next_data);
        AppendOf { volume: self.volume, sequence, floor, next_data }
    }

    /// A record was written. Its entries take effect when all before it in the log are durable.
    pub(crate) fn record_written(&mut self, log: LogId, sequence: RecordSequence) {
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

    /// A record could not be written: its log is out of use, and the entries of this record and of
    /// those behind it wait for another.
    pub(crate) fn record_failed(&mut self, log: LogId, sequence: RecordSequence) {
        let void = self.logs.with(log, |log| log.fail_append(sequence));
        for sequence in void {
            if plant::is(Bug::FailedRecordSettled) {
                self.settle_record(sequence);
                continue;
            }
            let Some(record) = self.entries.records.remove(&sequence) else { continue };
            self.drop_header(&record.header);
            for id in record.slots {
                let slot = self.entries.slots.get(id);
                self.reserved += slot.reserved;
                // Whether or not somebody waits, this was due once.
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
