//! The search behind a place of a log where no record follows. Records found there show whether the
//! place had been durable.

use std::collections::VecDeque;

use manylogs_block::{IoError, Sectors};
use manylogs_plant::{self as plant, Bug};

use super::window::Window;
use super::{LOOK_AHEAD_MAX, RECORD_SECTORS_MAX};
use crate::{DataSequence, Epoch, Record, RecordSequence};

/// Records after a place in a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    /// Start of the first record after the place.
    pub(super) next: u64,
    /// Whether a later record says that the place was durable.
    pub(super) proven: bool,
    /// Whether all entries that were at the place are below the floor.
    pub(super) dead: bool,
    /// Whether the records behind are of a later epoch than those before.
    pub(super) renewed: bool,
    /// The predecessor's checksum in the record at `next`.
    previous_checksum: u32,
}

impl Behind {
    /// Whether the next record continues the chain of `record`. A lost write uncovers older
    /// content, for example the header of an unacknowledged record of an earlier incarnation. Such
    /// a header tells neither what is missing nor where the next record is.
    pub(super) fn is_behind(&self, record: &Record, offset: u64) -> bool {
        !self.renewed
            && self.next == offset + record.record_sectors.0
            && (self.previous_checksum == record.checksum || plant::is(Bug::PredecessorIgnored))
    }
}

/// A record that was found behind a place without a record.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    at: u64,
    sequence: RecordSequence,
    bound: DataSequence,
    previous_checksum: u32,
}

/// A record, and the durable tail that its header states.
#[derive(Clone, Copy, Debug)]
struct Prover {
    at: u64,
    sequence: RecordSequence,
    durable_tail: u64,
}

/// Decodes each sector of a log at most once, whatever the log holds: records found behind one
/// place are remembered for the next.
pub(super) struct LookAhead<'a> {
    pub(super) window: Window<'a>,
    /// The epoch of the records below.
    epoch: Option<Epoch>,
    /// Every sector before this offset was decoded.
    at: u64,
    /// If another record follows, it begins before this offset.
    end: u64,
    candidates: VecDeque<Candidate>,
    /// The record with the longest durable tail. Within an epoch a later record has at least as
    /// long a tail, so one record is enough.
    prover: Option<Prover>,
}

impl<'a> LookAhead<'a> {
    pub(super) fn new(window: Window<'a>, offset: u64) -> Self {
        let (candidates, prover) = (VecDeque::new(), None);
        Self { window, epoch: None, at: offset, end: 0, candidates, prover }
    }

    /// Finds the records behind `offset`, where the record after `last` of `epoch` belongs. Records
    /// in flight together may leave a hole after a crash. The hole is damage only if a later
    /// record's durable tail lies beyond it.
    pub(super) async fn behind(
        &mut self,
        offset: u64,
        epoch: Option<Epoch>,
        last: Option<RecordSequence>,
    ) -> Result<Option<Behind>, IoError> {
        let known = epoch.is_none() || self.epoch.is_none() || epoch == self.epoch;
        if self.at < offset || !known {
            (self.at, self.epoch, self.prover) = (self.at.max(offset), None, None);
            self.candidates.clear();
        }
        if plant::is(Bug::LookAheadForgets) {
            (self.at, self.prover) = (offset, None);
            self.candidates.clear();
        }
        self.epoch = self.epoch.or(epoch);
        self.forget(offset, last);
        self.end = self.end.max(offset + RECORD_SECTORS_MAX.0);
        let limit = (offset + LOOK_AHEAD_MAX.0).min(self.window.of.region.len.0);
        let mut renewed = false;
        loop {
            let missing = if renewed { 0 } else { offset };
            let proven = self.prover.is_some_and(|prover| prover.durable_tail > missing);
            if proven || self.at >= self.end.min(limit) {
                return Ok(self.candidates.front().map(|first| Behind {
                    next: first.at,
                    proven,
                    dead: first.bound <= self.window.of.floor,
                    renewed,
                    previous_checksum: first.previous_checksum,
                }));
            }
            let here = self.at;
            self.at += self.window.of.physical.0;
            let Ok(record) = self.window.header(here).await? else {
                self.pass_absent(here, limit);
                continue;
            };
            let header = &record.header;
            let newer = self.epoch.is_some_and(|epoch| header.epoch > epoch);
            let ended = self.epoch.is_some_and(|epoch| header.epoch < epoch);
            let later = last.is_none_or(|last| header.record_sequence > last);
            // A record at the place itself is the one that did not follow.
            if !later || ended || (here == offset && !newer) {
                continue;
            }
            if newer {
                renewed = true;
                self.candidates.clear();
                self.prover = None;
            }
            self.epoch = Some(header.epoch);
            self.take(here, &record);
        }
    }

    /// Skips sectors behind `here` whose content the device does not keep.
    fn pass_absent(&mut self, here: u64, limit: u64) {
        let step = self.window.of.physical.0;
        let until = self.window.absent_until(here).min(self.end.min(limit));
        if until > self.at {
            self.at = here + (until - here).next_multiple_of(step);
        }
    }

    /// Forgets the records that are no longer behind the place.
    fn forget(&mut self, offset: u64, last: Option<RecordSequence>) {
        let passed = |at: u64, sequence: RecordSequence| {
            at <= offset || last.is_some_and(|last| sequence <= last)
        };
        while self.candidates.front().is_some_and(|first| passed(first.at, first.sequence)) {
            self.candidates.pop_front();
        }
        self.prover = self.prover.filter(|prover| !passed(prover.at, prover.sequence));
    }

    fn take(&mut self, at: u64, record: &Record) {
        let header = &record.header;
        let sequence = header.record_sequence;
        self.candidates.push_back(Candidate {
            at,
            sequence,
            // The missing record came before this one, so this bound holds for its entries, too.
            bound: header.next_data,
            previous_checksum: header.previous_checksum,
        });
        if self.prover.is_none_or(|prover| prover.sequence < sequence) {
            let durable_tail = header.durable_tail.0.into();
            self.prover = Some(Prover { at, sequence, durable_tail });
        }
        self.end = self.end.max(at + record.record_sectors.0 + RECORD_SECTORS_MAX.0);
    }

    /// Headers that were decoded, and sectors that were read.
    pub(super) const fn work(&self) -> (u64, Sectors) {
        (self.window.work.headers, self.window.work.read)
    }
}
