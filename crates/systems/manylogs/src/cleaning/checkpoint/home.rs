//! Home writes of a batch.

use std::rc::Rc;

use manylogs_block::{Completion, IoError, Lba, Nanos, Payload, Sectors, all_done};
use manylogs_logstore::store::Place;
use manylogs_logstore::{Class, DataSequence, EntryKind};

use super::band::STREAM_LEAST;
use super::copy::{Group, Renewed, Strand};
use super::{CheckpointReport, HOME_WRITE_MAX, Progress};
use crate::requests::write::What;
use crate::state::Inner;
use manylogs_engine::Phase;
use manylogs_plant::{self as plant, Bug};

/// Number of home writes that follow each other before waiting records may pass: as many as a
/// shingled drive takes for a stream.
const STREAM_WRITES: usize = (STREAM_LEAST.0 / HOME_WRITE_MAX.0) as usize;
/// Longest time for which records pass before the band is continued.
const PASSING: Nanos = Nanos::from_millis(100);

/// A write home under way.
#[derive(Debug)]
pub(super) struct Under {
    writes: Vec<Completion>,
    content: Payload,
}

impl Group {
    /// The content that the group writes: its runs, and `home` in the gaps. Without gaps `home`
    /// is not used.
    pub(super) fn over(&self, home: &Payload) -> Payload {
        let gap = |from: Lba, until: Lba| {
            home.slice(Sectors(from.0 - self.extent.start.0), Sectors(until.0 - from.0))
        };
        let mut content = Payload::default();
        let mut next = self.extent.start;
        for run in &self.runs {
            if next < run.extent.start {
                content.append(gap(next, run.extent.start));
            }
            content.append(run.content.clone());
            next = run.extent.end();
        }
        if next < self.extent.end() {
            content.append(gap(next, self.extent.end()));
        }
        content
    }

    /// Whether there are gaps between the runs.
    pub(super) fn has_gaps(&self) -> bool {
        self.runs.iter().map(|run| run.extent.len.0).sum::<u64>() < self.extent.len.0
    }
}

/// Waits until the device has answered the writes; the answer stays in `started`.
pub(super) async fn settle(started: &mut Result<Under, IoError>) {
    if let Ok(Under { writes, .. }) = started {
        let done = all_done(std::mem::take(writes)).await;
        writes.push(Completion::ready(done.map(|()| Payload::default())));
    }
}

/// While this exists no record begins, because it would interrupt the stream of home writes to a
/// shingled drive.
struct RecordsHeld(Rc<Inner>);

impl RecordsHeld {
    fn new(inner: &Rc<Inner>) -> Self {
        inner.engine.state.borrow_mut().pacing.held_by_band = true;
        Self(Rc::clone(inner))
    }
}

impl Drop for RecordsHeld {
    fn drop(&mut self) {
        self.0.engine.state.borrow_mut().pacing.held_by_band = false;
        self.0.engine.commit.notify();
    }
}

impl Inner {
    /// Writes the strands, one after the other. Waits for all writes, even if one fails: a write
    /// under way could land on newer data once the locks are released.
    pub(super) async fn write_strands(
        self: &Rc<Self>,
        strands: Vec<Strand>,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let mut result = Ok(());
        for strand in strands {
            result = result.and(self.write_strand(strand, progress).await);
        }
        result
    }

    async fn write_strand(
        self: &Rc<Self>,
        strand: Strand,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let (mut result, at_once) = (Ok(()), self.at_once());
        let Strand { writes: mut rest, is_stream } = strand;
        while !rest.is_empty() {
            // The last writes go along, because they would be too short for a stream of their own.
            let all = !is_stream || rest.len() < 2 * STREAM_WRITES;
            let behind = if all { Vec::new() } else { rest.split_off(STREAM_WRITES) };
            let held = is_stream.then(|| RecordsHeld::new(self));
            let mut writes: Vec<(Group, Result<Under, IoError>)> = Vec::with_capacity(rest.len());
            for (group, content) in rest {
                if let Some(first) = writes.len().checked_sub(at_once) {
                    settle(&mut writes[first].1).await;
                }
                let started = content.map(|content| self.start(&group, content, progress));
                writes.push((group, started));
            }
            if held.is_some() {
                for (_, started) in &mut writes {
                    settle(started).await;
                }
            }
            drop(held);
            for (group, started) in writes {
                let report = &mut progress.report;
                let finished = self.finish_group(group, started, progress.floor, report).await;
                result = result.and(finished);
                if plant::is(Bug::PassLeavesWrites) {
                    result.clone()?;
                }
            }
            rest = behind;
            if is_stream {
                self.let_records_pass().await;
            }
        }
        result
    }

    pub(super) fn start(&self, group: &Group, content: Payload, progress: &mut Progress) -> Under {
        progress.report.home_writes += 1;
        progress.report.home_write_sectors += group.extent.len;
        let writes = self.submit_home(Phase::Checkpoint, group.extent, &content, false);
        Under { writes, content }
    }

    /// Waits until the records that clients wait for are durable, for [`PASSING`] at most.
    async fn let_records_pass(&self) {
        let until = self.engine.runtime.now() + PASSING;
        loop {
            let progress = self.engine.progress.wait();
            let now = self.engine.runtime.now();
            let waits = self.engine.state.borrow().store.entries().waiters > 0;
            if !waits || now >= until {
                return;
            }
            self.engine.runtime.within(until.since(now), progress).await;
        }
    }

    /// Waits for the writes of a group. If they fail, the group's versions are logged again with
    /// new sequences, above the floor of this pass. The next checkpoint tries again.
    pub(super) async fn finish_group(
        self: &Rc<Self>,
        group: Group,
        started: Result<Under, IoError>,
        floor: DataSequence,
        report: &mut CheckpointReport,
    ) -> Result<(), IoError> {
        let (result, content) = match started {
            Ok(Under { writes, content }) => (all_done(writes).await, Some(content)),
            Err(error) => (Err(error), None),
        };
        match result {
            Ok(()) => Ok(()),
            Err(IoError::Medium { .. } | IoError::Transient { .. } | IoError::NoSpace { .. }) => {
                for run in group.runs {
                    report.kept_extents += 1;
                    if plant::is(Bug::KeptDropped) {
                        continue;
                    }
                    let zeroes = matches!(run.place, Place::Zeroes { .. });
                    let kind = if zeroes { EntryKind::Zeroes } else { EntryKind::Data };
                    // What was kept stays so: metadata may lead to it.
                    let class = match run.place {
                        Place::Log { class, .. } if class.is_kept() => class,
                        _ => Class::Data,
                    };
                    let truth = run.truth.as_ref().unwrap_or(&run.content);
                    let content = (kind == EntryKind::Data).then_some(truth);
                    let what = What::of(kind, class);
                    self.renew(what, run.extent, content, Renewed::Below(floor)).await?;
                }
                if let Some(content) = content {
                    self.keep_unchanged(group.extent, &content).await?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
