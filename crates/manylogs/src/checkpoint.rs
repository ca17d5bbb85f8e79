//! Checkpoint: the newest versions go home in order of address, and then one number, the floor,
//! declares everything older dead at once.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Lba, Nanos, Payload, Sectors};
use manylogs_logstore::{DataSequence, EntryKind, LogId, MapValue, Mapped};

use crate::error::VolumeError;
use crate::home_lock::{HomeGuard, Writer};
use crate::phase::Phase;
use crate::place::Place;
use crate::plant::{self, Bug};
use crate::state::{Inner, State};

/// What one batch holds at most: memory, and the time for which clients may be locked out.
const BATCH_SECTORS: u64 = 8192;
const BATCH_RUNS: usize = 512;
/// Longest home write.
const WRITE_SECTORS: u64 = 2048;
/// Log reads are joined across gaps up to this: record headers lie between.
const READ_GAP: u64 = 64;
/// Zeroed extents up to this are written out; larger ones stay in the table.
const ZEROES_WRITTEN: u64 = 2048;

/// How much a checkpoint yields to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Between batches it waits until the volume is idle.
    Gentle,
    /// As fast as its rate limit allows.
    Steady,
    /// As fast as it can: somebody waits for room.
    Urgent,
}

/// What a checkpoint did (seed 000 section VI, Fig. 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// From the start to the durable floor.
    pub duration: Nanos,
    /// Client writes that were logged since the last checkpoint, and their length.
    pub logged_writes: u64,
    /// See `logged_writes`.
    pub logged_sectors: Sectors,
    /// Reads from logs, and their length.
    pub log_reads: u64,
    /// See `log_reads`.
    pub log_read_sectors: Sectors,
    /// Writes home, and their length: fewer than were logged, where writes were overwritten or
    /// became neighbours.
    pub home_writes: u64,
    /// See `home_writes`.
    pub home_write_sectors: Sectors,
    /// Time spent reading logs.
    pub log_read_time: Nanos,
    /// Time spent writing home.
    pub home_write_time: Nanos,
}

/// Mapped extents that go home in one write, gaps between them filled with what is home.
#[derive(Debug)]
struct Group {
    /// Whole physical sectors.
    extent: Extent,
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    extent: Extent,
    place: Place,
}

impl Inner {
    pub(crate) async fn checkpoint(
        self: &Rc<Self>,
        pace: Pace,
    ) -> Result<CheckpointReport, VolumeError> {
        let _turn = self.turn.take().await;
        let started = self.runtime.now();
        let (floor, mut report) = {
            let state = self.state.borrow();
            let report = CheckpointReport {
                logged_writes: state.counters.logged_since_checkpoint,
                logged_sectors: Sectors(state.counters.logged_sectors_since_checkpoint),
                ..CheckpointReport::default()
            };
            (state.next_data, report)
        };
        // From here on no version below the floor is on its way into a record.
        if !plant::is(Bug::NoBarrierBeforePass) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        let mut cursor = Lba(0);
        while let Some(extents) = self.next_batch(&mut cursor, floor) {
            self.keep_pace(pace).await;
            let before = report.home_write_sectors;
            self.copy_home(&extents, floor, &mut report).await?;
            self.limit_rate(pace, report.home_write_sectors - before).await;
        }
        // Versions that were overwritten before the pass came to them were not copied: what
        // overwrote them must be durable before they may die, and so must the copies.
        self.state.borrow_mut().dirty_home |= self.below.volatile_cache;
        if !plant::is(Bug::FloorBeforeHomeDurable) {
            self.make_durable(Phase::Checkpoint).await?;
        }
        if plant::is(Bug::ForgetBeforeFloor) {
            self.forget_below(floor);
        }
        self.update_root(Phase::Checkpoint, |root| root.floor = floor).await?;
        self.forget_below(floor);
        report.duration = self.runtime.now().since(started);
        Ok(report)
    }

    /// The next extents with versions below the floor, in order of address.
    fn next_batch(&self, cursor: &mut Lba, floor: DataSequence) -> Option<Vec<Extent>> {
        let state = self.state.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        let mut sectors = 0;
        for (extent, mapped) in state.map.iter_from(*cursor) {
            if sectors >= BATCH_SECTORS || extents.len() >= BATCH_RUNS {
                break;
            }
            *cursor = extent.end();
            if mapped.sequence < floor {
                let copied = match mapped.value {
                    Place::Log { .. } => extent.len.0,
                    Place::Zeroes { .. } | Place::Buffered { .. } => 0,
                };
                sectors += copied;
                extents.push(extent);
            }
        }
        (!extents.is_empty()).then_some(extents)
    }

    async fn keep_pace(&self, pace: Pace) {
        while pace == Pace::Gentle && !self.is_idle() && self.state.borrow().starved == 0 {
            self.runtime.sleep(self.config().idle).await;
        }
    }

    async fn limit_rate(&self, pace: Pace, moved: Sectors) {
        if pace != Pace::Urgent && self.config().checkpoint_rate > 0 {
            let seconds = moved.bytes() as f64 / self.config().checkpoint_rate as f64;
            self.runtime.sleep(Nanos::from_secs_f64(seconds)).await;
        }
    }

    async fn copy_home(
        self: &Rc<Self>,
        extents: &[Extent],
        floor: DataSequence,
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
        let groups = self.groups(extents, floor);
        let read_from = self.runtime.now();
        let contents = self.read_groups(&groups, report).await?;
        let written_from = self.runtime.now();
        let mut writes = Vec::new();
        for (group, content) in groups.iter().zip(contents) {
            report.home_writes += 1;
            report.home_write_sectors += group.extent.len;
            writes.extend(self.submit_home(Phase::Checkpoint, group.extent, &content, false));
        }
        for write in writes {
            write.await?;
        }
        report.log_read_time += written_from.since(read_from);
        report.home_write_time += self.runtime.now().since(written_from);
        drop(guards);
        Ok(())
    }

    fn widen_to_physical(&self, extent: Extent) -> Extent {
        let physical = self.below.physical_sector.0;
        let start = extent.start.0 / physical * physical;
        let end = extent.end().0.next_multiple_of(physical).min(self.layout.capacity().0);
        Extent::between(Lba(start), Lba(end))
    }

    /// The home writes for what is mapped in `extents`. Large zeroed extents are renewed in the
    /// table instead.
    fn groups(self: &Rc<Self>, extents: &[Extent], floor: DataSequence) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut state = self.state.borrow_mut();
        let runs: Vec<_> = extents.iter().flat_map(|extent| state.map.lookup(*extent)).collect();
        for (extent, mapped) in runs {
            let Some(Mapped { sequence, value: mut place }) = mapped else { continue };
            if sequence >= floor || matches!(place, Place::Buffered { .. }) {
                continue;
            }
            let long_zeroes =
                matches!(place, Place::Zeroes { .. }) && extent.len.0 > ZEROES_WRITTEN;
            if long_zeroes && self.renew_zeroes(&mut state, extent) {
                continue;
            }
            let mut rest = extent;
            while !rest.is_empty() {
                let part = Extent { start: rest.start, len: rest.len.min(Sectors(WRITE_SECTORS)) };
                let skip = part.len;
                self.add_run(&mut groups, Run { extent: part, place });
                rest = Extent { start: rest.start + skip, len: rest.len - skip };
                place = place.advance(skip);
            }
        }
        groups
    }

    fn add_run(&self, groups: &mut Vec<Group>, run: Run) {
        let whole = self.widen_to_physical(run.extent);
        if let Some(group) = groups.last_mut() {
            // Two writes must not share a physical sector.
            let shares = whole.start < group.extent.end();
            let joins = whole.start == group.extent.end()
                && group.extent.len.0 + whole.len.0 <= WRITE_SECTORS;
            if shares || joins {
                group.extent = Extent::between(group.extent.start, whole.end());
                group.runs.push(run);
                return;
            }
        }
        groups.push(Group { extent: whole, runs: vec![run] });
    }

    /// Zeroes too long to write out stay zeroes by a new version, if there is room for its record.
    /// The caller holds the lock on the extent, so no client's write with an older sequence can be
    /// under way to it, which the new version would hide.
    fn renew_zeroes(self: &Rc<Self>, state: &mut State, extent: Extent) -> bool {
        let fits = state.fits(self.record_len(EntryKind::Zeroes, extent));
        if fits {
            let _answered = self.buffer(state, EntryKind::Zeroes, extent, None, false);
        }
        fits
    }

    async fn read_groups(
        &self,
        groups: &[Group],
        report: &mut CheckpointReport,
    ) -> Result<Vec<Payload>, IoError> {
        let mut logged = self.read_logged(groups, report).await?.into_iter();
        let mut contents = Vec::with_capacity(groups.len());
        for group in groups {
            let home = self.read_around(group).await?;
            let gap = |from: Lba, until: Lba| {
                let len = Sectors(until.0 - from.0);
                home.slice(Sectors(from.0 - group.extent.start.0), len)
            };
            let mut content = Payload::default();
            let mut next = group.extent.start;
            for run in &group.runs {
                if next < run.extent.start {
                    content.append(gap(next, run.extent.start));
                }
                content.append(match run.place {
                    Place::Log { .. } => logged.next().unwrap_or_default(),
                    Place::Zeroes { .. } | Place::Buffered { .. } => {
                        Payload::zeroes(run.extent.len)
                    }
                });
                next = run.extent.end();
            }
            if next < group.extent.end() {
                content.append(gap(next, group.extent.end()));
            }
            contents.push(content);
        }
        Ok(contents)
    }

    /// What is home in a group that has gaps; nothing if it has none.
    async fn read_around(&self, group: &Group) -> Result<Payload, IoError> {
        let covered: u64 = group.runs.iter().map(|run| run.extent.len.0).sum();
        let mut content = Payload::default();
        if covered < group.extent.len.0 {
            for home in self.layout.home(group.extent) {
                content.append(self.device.read(home).await?);
            }
        }
        Ok(content)
    }

    /// The logged runs of all groups, in their order; read in the order of the logs.
    async fn read_logged(
        &self,
        groups: &[Group],
        report: &mut CheckpointReport,
    ) -> Result<Vec<Payload>, IoError> {
        let mut wanted: Vec<(usize, LogId, Extent, Extent)> = Vec::new();
        for run in groups.iter().flat_map(|group| &group.runs) {
            if let Place::Log { log, offset } = run.place {
                let within = Extent::new(offset.0.into(), run.extent.len.0);
                wanted.push((wanted.len(), log, within, run.extent));
            }
        }
        let mut contents = vec![Payload::default(); wanted.len()];
        wanted.sort_by_key(|(_, log, within, _)| (*log, within.start));
        let mut reads = Vec::new();
        let mut rest = wanted.as_slice();
        while let Some((_, log, first, _)) = rest.first().copied() {
            let mut span = first;
            let joined = rest
                .iter()
                .take_while(|(_, other, within, _)| {
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
            let (members, others) = rest.split_at(joined);
            rest = others;
            report.log_reads += 1;
            report.log_read_sectors += span.len;
            let read = self.read_log(&mut self.state.borrow_mut(), log, span);
            reads.push((log, read, members));
        }
        let mut first_error = None;
        for (log, (within, _, read), members) in reads {
            let read = read.await;
            match self.check_logged(log, within, read, members[0].3) {
                Ok(payload) => {
                    for (index, _, part, _) in members {
                        let skip = Sectors(part.start.0 - within.start.0);
                        contents[*index] = payload.slice(skip, part.len);
                    }
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(contents), Err)
    }

    /// Everything below the durable floor is home: the table forgets it, and logs that held
    /// nothing else are free.
    fn forget_below(&self, floor: DataSequence) {
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            state.note_table_size();
            let mut gone: Vec<(LogId, u64)> = Vec::new();
            state.map.retain(|extent, mapped| {
                if mapped.sequence >= floor {
                    return true;
                }
                if let Place::Log { log, .. } | Place::Zeroes { log } = mapped.value {
                    match gone.last_mut() {
                        Some((last, sectors)) if *last == log => *sectors += extent.len.0,
                        _ => gone.push((log, extent.len.0)),
                    }
                }
                false
            });
            for (log, sectors) in gone {
                state.sub_live(log, sectors);
            }
            for id in state.logs.ids() {
                state.logs.adjust(id, |log| log.raise_floor(floor));
                if state.logs.get(id).is_some() {
                    state.reset_candidates.push(id);
                }
            }
            state.reset_what_can_be();
            state.counters.checkpoints += 1;
            state.counters.logged_since_checkpoint = 0;
            state.counters.logged_sectors_since_checkpoint = 0;
        }
        self.notify_progress();
    }
}
