//! One batch of a checkpoint: logged versions are read, and written to their homes.

use std::rc::Rc;

use manylogs_block::{Completion, Extent, IoError, Lba, Payload, Request, Sectors};
use manylogs_logstore::{DataSequence, EntryKind, LogId, MapValue, Mapped};

use super::CheckpointReport;
use crate::home_lock::{HomeGuard, Writer};
use crate::phase::Phase;
use crate::place::Place;
use crate::state::Inner;
use manylogs_plant::{self as plant, Bug};

/// Longest home write.
const WRITE_SECTORS: u64 = 2048;
/// Log reads are joined across gaps up to this: record headers lie between.
const READ_GAP: u64 = 64;
/// Zeroed extents up to this are written out; larger ones stay in the table.
const ZEROES_WRITTEN: u64 = 2048;
/// Longest request for zeroes when everything must go home.
const ZEROES_REQUEST: u64 = 1 << 19;

/// A version on its way home.
#[derive(Clone, Debug)]
struct Run {
    extent: Extent,
    place: Place,
    content: Payload,
}

/// Runs that go home in one write, gaps between them filled with what is home.
#[derive(Debug)]
struct Group {
    /// Whole physical sectors.
    extent: Extent,
    runs: Vec<Run>,
}

impl Inner {
    pub(super) async fn copy_home(
        self: &Rc<Self>,
        extents: &[Extent],
        floor: DataSequence,
        materialise: bool,
        report: &mut CheckpointReport,
    ) -> Result<(), IoError> {
        let mut guards: Vec<HomeGuard> = Vec::new();
        for extent in extents {
            if plant::is(Bug::CheckpointWithoutLock) {
                break;
            }
            let whole = self.widen_to_physical(*extent);
            guards.push(self.locks.lock(Writer::Checkpoint, whole).await);
        }
        // What is mapped may have changed while waiting for the locks.
        let mut runs = self.runs(extents, floor, materialise).await?;
        let read_from = self.runtime.now();
        let lost = self.read_logged(&mut runs, report).await?;
        for run in &lost {
            report.lost_extents += 1;
            self.renew(EntryKind::Lost, run.extent, None, floor)?;
        }
        let groups = self.groups(runs);
        let mut contents = Vec::with_capacity(groups.len());
        for group in &groups {
            contents.push(self.content_of(group).await);
        }
        let written_from = self.runtime.now();
        let mut writes: Vec<(Group, Result<Vec<Completion>, IoError>)> = Vec::new();
        for (group, content) in groups.into_iter().zip(contents) {
            let started = content.map(|content| {
                report.home_writes += 1;
                report.home_write_sectors += group.extent.len;
                self.submit_home(Phase::Checkpoint, group.extent, &content, false)
            });
            writes.push((group, started));
        }
        for (group, started) in writes {
            self.finish_group(group, started, floor, report).await?;
        }
        report.log_read_time += written_from.since(read_from);
        report.home_write_time += self.runtime.now().since(written_from);
        drop(guards);
        Ok(())
    }

    /// Waits for a group's writes. What could not be written stays logged, as a new version: the
    /// floor passes it, and the next checkpoint tries again.
    async fn finish_group(
        self: &Rc<Self>,
        group: Group,
        started: Result<Vec<Completion>, IoError>,
        floor: DataSequence,
        report: &mut CheckpointReport,
    ) -> Result<(), IoError> {
        let result = match started {
            Ok(writes) => {
                let mut result = Ok(());
                for write in writes {
                    result = result.and(write.await.map(drop));
                }
                result
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => Ok(()),
            Err(IoError::Medium { .. } | IoError::Transient { .. } | IoError::NoSpace { .. }) => {
                for run in group.runs {
                    report.kept_extents += 1;
                    let zeroes = matches!(run.place, Place::Zeroes { .. });
                    let kind = if zeroes { EntryKind::Zeroes } else { EntryKind::Data };
                    let content = (kind == EntryKind::Data).then_some(&run.content);
                    self.renew(kind, run.extent, content, floor)?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn widen_to_physical(&self, extent: Extent) -> Extent {
        let physical = self.below.physical_sector.0;
        let start = extent.start.0 / physical * physical;
        let end = extent.end().0.next_multiple_of(physical).min(self.layout.capacity().0);
        Extent::between(Lba(start), Lba(end))
    }

    /// What is mapped in `extents` and must be copied. Long zeroed extents are renewed in the table
    /// instead, or, to materialise them, zeroed on the device; lost ones are renewed.
    async fn runs(
        self: &Rc<Self>,
        extents: &[Extent],
        floor: DataSequence,
        materialise: bool,
    ) -> Result<Vec<Run>, IoError> {
        let mapped: Vec<(Extent, Mapped<Place>)> = {
            let state = self.state.borrow();
            let all = extents.iter().flat_map(|extent| state.map.lookup(*extent));
            all.filter_map(|(extent, mapped)| mapped.map(|mapped| (extent, mapped))).collect()
        };
        let mut runs = Vec::new();
        for (extent, Mapped { sequence, value: mut place }) in mapped {
            if sequence >= floor {
                continue;
            }
            match place {
                Place::Buffered { .. } => continue,
                Place::Lost { .. } => {
                    self.renew(EntryKind::Lost, extent, None, floor)?;
                    continue;
                }
                Place::Zeroes { .. } if extent.len.0 > ZEROES_WRITTEN => {
                    if materialise {
                        self.zero_home(extent).await?;
                        continue;
                    }
                    if self.renew(EntryKind::Zeroes, extent, None, floor).is_ok() {
                        continue;
                    }
                }
                Place::Zeroes { .. } | Place::Log { .. } => {}
            }
            let mut rest = extent;
            while !rest.is_empty() {
                let part = Extent { start: rest.start, len: rest.len.min(Sectors(WRITE_SECTORS)) };
                runs.push(Run { extent: part, place, content: Payload::zeroes(part.len) });
                rest = Extent { start: rest.start + part.len, len: rest.len - part.len };
                place = place.advance(part.len);
            }
        }
        Ok(runs)
    }

    /// Zeroes the home of a long extent.
    async fn zero_home(&self, extent: Extent) -> Result<(), IoError> {
        for home in self.layout.home(extent) {
            for start in home.range().step_by(manylogs_block::to_usize(ZEROES_REQUEST)) {
                let len = ZEROES_REQUEST.min(home.end().0 - start);
                let request = Request::WriteZeroes { extent: Extent::new(start, len), fua: false };
                self.device.submit(Phase::Drain, request).await?;
            }
        }
        Ok(())
    }

    /// Keeps a version in the logs under a new sequence, above the floor of the pass. The caller
    /// holds the lock on the extent, so no client's write with an older sequence can be under way
    /// to it, which the new version would hide. What was overwritten meanwhile stays as it is.
    fn renew(
        self: &Rc<Self>,
        kind: EntryKind,
        extent: Extent,
        content: Option<&Payload>,
        floor: DataSequence,
    ) -> Result<(), IoError> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let old = |mapped: Mapped<Place>| mapped.sequence < floor && mapped.value.log().is_some();
        let lookup = state.map.lookup(extent);
        let parts: Vec<Extent> =
            lookup.filter(|(_, m)| m.is_some_and(old)).map(|(part, _)| part).collect();
        for part in parts {
            let room = self.record_room(kind, part);
            // Zeroes can be written out instead.
            let spared = kind != EntryKind::Zeroes;
            if !(if spared { state.fits_spared(room) } else { state.fits(room) }) {
                let reason = "the logs have no room to keep what cannot be written home";
                return Err(IoError::ReadOnly { reason });
            }
            let skip = Sectors(part.start.0 - extent.start.0);
            let content = content.map(|content| content.slice(skip, part.len));
            let _answered = self.buffer(state, kind, part, content, false);
        }
        Ok(())
    }

    fn groups(&self, runs: Vec<Run>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for run in runs {
            let whole = self.widen_to_physical(run.extent);
            if let Some(group) = groups.last_mut() {
                // Two writes must not share a physical sector.
                let shares = whole.start < group.extent.end();
                let joins = whole.start == group.extent.end()
                    && group.extent.len.0 + whole.len.0 <= WRITE_SECTORS;
                if shares || joins {
                    group.extent = Extent::between(group.extent.start, whole.end());
                    group.runs.push(run);
                    continue;
                }
            }
            groups.push(Group { extent: whole, runs: vec![run] });
        }
        groups
    }

    /// What a group writes: its runs, and what is home between them.
    async fn content_of(&self, group: &Group) -> Result<Payload, IoError> {
        let covered: u64 = group.runs.iter().map(|run| run.extent.len.0).sum();
        let mut home = Payload::default();
        if covered < group.extent.len.0 {
            for part in self.layout.home(group.extent) {
                home.append(self.device.read(part).await?);
            }
        }
        let gap = |from: Lba, until: Lba| {
            home.slice(Sectors(from.0 - group.extent.start.0), Sectors(until.0 - from.0))
        };
        let mut content = Payload::default();
        let mut next = group.extent.start;
        for run in &group.runs {
            if next < run.extent.start {
                content.append(gap(next, run.extent.start));
            }
            content.append(run.content.clone());
            next = run.extent.end();
        }
        if next < group.extent.end() {
            content.append(gap(next, group.extent.end()));
        }
        Ok(content)
    }

    /// Fills in the content of the logged runs, reading in the order of the logs. Takes out and
    /// returns those whose logged copy is damaged.
    async fn read_logged(
        &self,
        runs: &mut Vec<Run>,
        report: &mut CheckpointReport,
    ) -> Result<Vec<Run>, IoError> {
        let mut wanted: Vec<(LogId, Extent, usize)> = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            if let Place::Log { log, offset } = run.place {
                wanted.push((log, Extent::new(offset.0.into(), run.extent.len.0), index));
            }
        }
        wanted.sort_by_key(|(log, within, _)| (*log, within.start));
        let mut reads = Vec::new();
        for members in joined(&wanted) {
            let (log, first, _) = members[0];
            let end = members.iter().map(|(_, within, _)| within.end()).max();
            let span = Extent::between(first.start, end.unwrap_or(first.end()));
            report.log_reads += 1;
            report.log_read_sectors += span.len;
            let read = self.read_log(&mut self.state.borrow_mut(), log, span);
            reads.push((log, read, members));
        }
        let mut lost = Vec::new();
        for (log, (within, _, read), members) in reads {
            let home = runs[members[0].2].extent;
            match self.check_logged(log, within, read.await, home) {
                Ok(payload) => {
                    for (_, part, index) in members {
                        let skip = Sectors(part.start.0 - within.start.0);
                        runs[*index].content = payload.slice(skip, part.len);
                    }
                }
                Err(IoError::Checksum { .. } | IoError::Medium { .. }) => {
                    // Perhaps one of them only.
                    for (_, part, index) in members {
                        match self.read_one(log, *part, runs[*index].extent).await {
                            Ok(payload) => runs[*index].content = payload,
                            Err(IoError::Checksum { .. } | IoError::Medium { .. }) => {
                                lost.push(*index);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        lost.sort_unstable();
        Ok(lost.into_iter().rev().map(|index| runs.remove(index)).collect())
    }

    /// Reads one logged run, once more if it fails.
    pub(crate) async fn read_one(
        &self,
        log: LogId,
        part: Extent,
        home: Extent,
    ) -> Result<Payload, IoError> {
        let mut result = Err(IoError::Gone);
        for _ in 0..2 {
            let (within, skip, read) = self.read_log(&mut self.state.borrow_mut(), log, part);
            result = self
                .check_logged(log, within, read.await, home)
                .map(|payload| payload.slice(skip, part.len));
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Splits reads, sorted by log and place, into those that one read covers well.
fn joined(wanted: &[(LogId, Extent, usize)]) -> Vec<&[(LogId, Extent, usize)]> {
    let mut out = Vec::new();
    let mut rest = wanted;
    while let Some((log, first, _)) = rest.first().copied() {
        let mut span = first;
        let count = rest
            .iter()
            .take_while(|(other, within, _)| {
                let end = span.end().0.max(within.end().0);
                let near = *other == log
                    && within.start.0 <= span.end().0 + READ_GAP
                    && end - span.start.0 <= WRITE_SECTORS;
                if near {
                    span = Extent::between(span.start, Lba(end));
                }
                near
            })
            .count()
            .max(1);
        let (members, others) = rest.split_at(count);
        out.push(members);
        rest = others;
    }
    out
}
