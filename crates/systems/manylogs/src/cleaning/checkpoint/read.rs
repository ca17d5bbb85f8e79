//! Reads the content of logged versions for a checkpoint, in the order of the logs.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{Extent, IoError, Lba, Payload, Sectors};
use manylogs_logstore::store::Place;
use manylogs_logstore::{EntryKind, LogId, units_of};

use super::copy::{Renewed, Run};
use super::suspect::Verdict;
use super::{HOME_WRITE_MAX, Progress};
use crate::state::Inner;
use manylogs_engine::{Reader, end_read, read_log};

/// Log reads are joined across gaps up to this, because record headers lie between.
const READ_GAP: u64 = 64;

/// A run that cannot be read, and the error.
type Unread = (Run, IoError);

impl Inner {
    /// Fills in the content of the logged runs. Removes runs that cannot be read: they stay logged,
    /// or are marked as lost.
    pub(super) async fn read_logged(
        self: &Rc<Self>,
        runs: &mut Vec<Run>,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let mut wanted: Vec<(LogId, Extent, usize)> = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            if let Place::Log { log, offset, .. } = run.place {
                wanted.push((log, Extent::new(offset.0.into(), run.extent.len.0), index));
            }
        }
        wanted.sort_by_key(|(log, within, _)| (*log, within.start));
        let mut reads = Vec::new();
        for members in joined(&wanted) {
            let (log, first, _) = members[0];
            let end = members.iter().map(|(_, within, _)| within.end()).max();
            let span = Extent::between(first.start, end.unwrap_or(first.end()));
            progress.report.log_reads += 1;
            progress.report.log_read_sectors += span.len;
            // From here on no log begins anew under a read that has not been sent yet.
            let read = self.engine.state.borrow_mut().store.begin_read(log, span);
            reads.push((read, members));
        }
        let (mut failed, mut result) = (Vec::new(), Ok(()));
        let (mut under_way, at_once) = (VecDeque::new(), self.at_once());
        let mut ahead = reads.iter();
        for (read, members) in &reads {
            while under_way.len() < at_once
                && let Some((next, _)) = ahead.next()
            {
                under_way.push_back(self.device.read(Reader::System, next.extent));
            }
            let Some(found) = under_way.pop_front() else { break };
            let home = runs[members[0].2].extent;
            match end_read(&**self, read, found.await, home) {
                Ok(payload) => {
                    for (_, part, index) in *members {
                        let skip = Sectors(part.start.0 - read.within.start.0);
                        runs[*index].content = payload.slice(skip, part.len);
                    }
                }
                // Perhaps only one of the runs cannot be read.
                Err(error) if is_of_the_copy(&error) => {
                    failed.extend(members.iter().map(|(_, _, index)| *index));
                }
                // The other reads are awaited too, because each keeps its log from beginning anew.
                Err(error) => result = result.and(Err(error)),
            }
        }
        result?;
        self.read_one_by_one(runs, failed, progress).await
    }

    /// Reads the runs again that could not be read together with others, unit by unit: a unit is
    /// the smallest part with a checksum.
    async fn read_one_by_one(
        self: &Rc<Self>,
        runs: &mut Vec<Run>,
        mut failed: Vec<usize>,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        if failed.is_empty() {
            return Ok(());
        }
        failed.sort_unstable();
        let mut apart: Vec<Run> = Vec::new();
        for index in failed.into_iter().rev() {
            apart.push(runs.remove(index));
        }
        let mut unread = Vec::new();
        for run in apart {
            let (whole, bad) = self.read_parts_of(run).await?;
            runs.extend(whole);
            unread.extend(bad);
        }
        for (run, error) in unread {
            self.give_up_or_wait(&run, &error, progress).await?;
        }
        runs.sort_by_key(|run| run.extent.start);
        Ok(())
    }

    async fn read_parts_of(&self, run: Run) -> Result<(Vec<Run>, Vec<Unread>), IoError> {
        let (mut read, mut unread) = (Vec::new(), Vec::new());
        let Place::Log { log, offset, .. } = run.place else { return Ok((vec![run], unread)) };
        for (skip, len) in units_of(run.extent.len) {
            let mut part = run.part(skip, len);
            let within = Extent::new(u64::from(offset.0) + skip.0, len.0);
            match self.read_one(log, within, part.extent).await {
                Ok(content) => {
                    part.content = content;
                    read.push(part);
                }
                Err(error) if is_of_the_copy(&error) => unread.push((part, error)),
                Err(error) => return Err(error),
            }
        }
        Ok((read, unread))
    }

    async fn give_up_or_wait(
        self: &Rc<Self>,
        run: &Run,
        error: &IoError,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let (which, confirm_after) =
            ((run.extent.start, run.sequence), progress.pass.confirm_after);
        let now = self.engine.runtime.now();
        let verdict =
            self.engine.state.borrow_mut().suspects.judge(which, error, now, confirm_after);
        match verdict {
            Verdict::Wait => {
                progress.report.unread_extents += 1;
                progress.note_unread(run);
                Ok(())
            }
            Verdict::Lost => {
                progress.report.lost_extents += 1;
                self.renew(EntryKind::Lost, run.extent, None, Renewed::Below(progress.floor)).await
            }
        }
    }

    /// Reads one logged run; tries once more if it fails.
    pub(crate) async fn read_one(
        &self,
        log: LogId,
        part: Extent,
        home: Extent,
    ) -> Result<Payload, IoError> {
        let mut result = Err(IoError::Gone);
        for _ in 0..2 {
            let (read, found) =
                read_log(self, &mut self.engine.state.borrow_mut(), log, part, Reader::System);
            result = end_read(self, &read, found.await, home)
                .map(|payload| payload.slice(read.skip, part.len));
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Whether the error concerns this copy only.
const fn is_of_the_copy(error: &IoError) -> bool {
    matches!(error, IoError::Checksum { .. }) || error.is_local()
}

/// Splits reads, sorted by log and place, into groups that one read each covers well.
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
                    && end - span.start.0 <= HOME_WRITE_MAX.0;
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
