//! One batch of a checkpoint: logged versions are read, and written to their homes.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Lba, Payload, Sectors};
use manylogs_logstore::store::Place;
use manylogs_logstore::{Class, DataSequence, EntryKind, MapValue, Mapped};

use super::rows::joined;
use super::{HOME_WRITE_MAX, Progress};
use crate::requests::home_lock::{HomeGuard, Writer};
use crate::requests::write::What;
use crate::state::Inner;
use manylogs_engine::Phase;
use manylogs_plant::{self as plant, Bug};

/// A version on its way home.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) extent: Extent,
    pub(super) sequence: DataSequence,
    pub(super) place: Place,
    pub(super) content: Payload,
    /// The version's content, if its home gets another form of it.
    pub(super) truth: Option<Payload>,
}

impl Run {
    /// The part of `len` sectors behind the first `skip` sectors.
    pub(super) fn part(&self, skip: Sectors, len: Sectors) -> Self {
        Self {
            extent: Extent { start: self.extent.start + skip, len },
            sequence: self.sequence,
            place: self.place.advance(skip),
            content: self.content.slice(skip, len),
            truth: self.truth.as_ref().map(|truth| truth.slice(skip, len)),
        }
    }
}

/// Versions that go home together.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) parts: Vec<Part>,
    /// Number of versions in it.
    pub(super) versions: u64,
}

/// A part of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Versions in this extent go home.
    pub(super) extent: Extent,
    /// If set, all of this extent is written, including its unchanged parts.
    pub(super) whole: Option<Extent>,
}

impl Part {
    /// The extent that is locked while the part goes home.
    fn locked(self) -> Extent {
        let whole = self.whole.filter(|_| !plant::is(Bug::BandWithoutLock));
        whole.map_or(self.extent, |whole| {
            let start = whole.start.min(self.extent.start);
            Extent::between(start, whole.end().max(self.extent.end()))
        })
    }
}

/// Home writes in the order of their addresses.
#[derive(Debug)]
pub(super) struct Strand {
    pub(super) writes: Vec<(Group, Result<Payload, IoError>)>,
    /// Whether a drive should take the writes for a stream.
    pub(super) is_stream: bool,
}

/// Runs that go home in one write. Gaps between them are filled with the content at home.
#[derive(Debug)]
pub(super) struct Group {
    /// Whole physical sectors.
    pub(super) extent: Extent,
    pub(super) runs: Vec<Run>,
}

/// Which blocks of an extent are logged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// Blocks with logged versions older than this.
    Below(DataSequence),
    /// Blocks that are at home only.
    NotLogged,
}

impl Renewed {
    fn takes(self, mapped: Option<Mapped<Place>>) -> bool {
        match (self, mapped) {
            (Self::Below(floor), Some(mapped)) => {
                mapped.sequence < floor && !matches!(mapped.value, Place::Buffered { .. })
            }
            (Self::Below(_), None) => false,
            (Self::NotLogged, mapped) => mapped.is_none(),
        }
    }
}

/// Whether a planted bug makes a drain leave the version in its log.
fn is_forgotten(progress: &Progress, place: Place) -> bool {
    let Place::Log { class, .. } = place else { return false };
    let bug = match class {
        Class::Metadata | Class::Leading | Class::KeptMetadata => Bug::NearDrainForgetsMetadata,
        Class::Data | Class::DurabilityOnly => Bug::NearDrainForgetsContent,
    };
    progress.pass.materialise && plant::is(bug)
}

impl Inner {
    pub(super) async fn copy_home(
        self: &Rc<Self>,
        batch: &Batch,
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let extents: Vec<Extent> = batch.parts.iter().map(|part| part.extent).collect();
        let extents = extents.as_slice();
        let planted = plant::is(Bug::RenewOverNewer);
        let early = if planted { Some(self.runs_to_copy(extents, progress).await?) } else { None };
        let rows = self.rows_of_homes();
        let mut guards: Vec<HomeGuard> = Vec::new();
        for part in &batch.parts {
            if plant::is(Bug::CheckpointWithoutLock) {
                break;
            }
            let whole = self.locked_at_home(part.locked(), rows);
            guards.push(self.locks.lock(Writer::Checkpoint, whole).await);
        }
        // The map may have changed while this waited for the locks.
        let mut runs = match early {
            Some(early) => early,
            None => self.runs_to_copy(extents, progress).await?,
        };
        let read_from = self.engine.runtime.now();
        self.read_logged(&mut runs, progress).await?;
        self.keep_others(&mut runs, progress);
        let led = self.put_home_forms(&mut runs, progress);
        let (written_from, result) = match rows {
            None => {
                let strands = self.strands(batch, runs).await;
                (self.engine.runtime.now(), self.write_strands(strands, progress).await)
            }
            Some(array) => {
                (self.engine.runtime.now(), self.write_rows(array, runs, progress).await)
            }
        };
        let report = &mut progress.report;
        report.log_read_time += written_from.since(read_from);
        report.home_write_time += self.engine.runtime.now().since(written_from);
        if result.is_ok() {
            self.settle_leading(led, progress);
        }
        drop(guards);
        result
    }

    pub(super) fn widen_to_physical(&self, extent: Extent) -> Extent {
        let whole = extent.widened_to(self.below.physical_sector);
        let volume = Extent { start: Lba(0), len: self.layout.capacity() };
        whole.intersection(volume)
    }

    /// The versions in `extents` that must be copied. The others are renewed in the table first.
    async fn runs_to_copy(
        self: &Rc<Self>,
        extents: &[Extent],
        progress: &mut Progress,
    ) -> Result<Vec<Run>, IoError> {
        self.renew_what_is_not_copied(extents, progress).await?;
        // No await may come between here and the reads, or a log could be reset meanwhile.
        Ok(self.runs(extents, progress))
    }

    /// Renews lost extents in the table, and long zeroed ones. Zeroed extents go into a list in
    /// `progress`, to be zeroed at home, if the logs have no room for them or nothing may stay
    /// logged.
    async fn renew_what_is_not_copied(
        self: &Rc<Self>,
        extents: &[Extent],
        progress: &mut Progress,
    ) -> Result<(), IoError> {
        let below = Renewed::Below(progress.floor);
        for (extent, mapped) in self.mapped_to_take(extents, progress) {
            match mapped.value {
                Place::Lost { .. } if !plant::is(Bug::LostForgotten) => {
                    self.renew(EntryKind::Lost, extent, None, below).await?;
                }
                Place::Zeroes { .. } if extent.len > HOME_WRITE_MAX => {
                    let kind = EntryKind::Zeroes;
                    let left = if progress.pass.materialise {
                        extent.len
                    } else {
                        self.renew_what_fits(kind, extent, None, below)
                    };
                    if left > Sectors(0) {
                        progress.zeroed.push(extent);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The versions in `extents` that must be copied.
    fn runs(&self, extents: &[Extent], progress: &Progress) -> Vec<Run> {
        let mut runs = Vec::new();
        for (extent, Mapped { sequence, value: mut place }) in
            self.mapped_to_take(extents, progress)
        {
            if is_forgotten(progress, place) {
                continue;
            }
            match place {
                Place::Buffered { .. } | Place::Lost { .. } => continue,
                Place::Zeroes { .. } if extent.len > HOME_WRITE_MAX => continue,
                Place::Zeroes { .. } | Place::Log { .. } => {}
            }
            let mut rest = extent;
            while !rest.is_empty() {
                let part = Extent { start: rest.start, len: rest.len.min(HOME_WRITE_MAX) };
                runs.push(Run {
                    extent: part,
                    sequence,
                    place,
                    content: Payload::zeroes(part.len),
                    truth: None,
                });
                rest = Extent { start: rest.start + part.len, len: rest.len - part.len };
                place = place.advance(part.len);
            }
        }
        runs
    }

    /// The versions in `extents` that should go home.
    fn mapped_to_take(
        &self,
        extents: &[Extent],
        progress: &Progress,
    ) -> Vec<(Extent, Mapped<Place>)> {
        let state = self.engine.state.borrow();
        let all = extents.iter().flat_map(|extent| state.store.map().lookup(*extent));
        let mapped = all.filter_map(|(extent, mapped)| mapped.map(|mapped| (extent, mapped)));
        mapped.filter(|(_, mapped)| progress.takes(mapped)).collect()
    }

    /// Keeps a version in the logs under a new sequence, above the floor of the pass. The caller
    /// holds the lock on the extent. So no client's write with an older sequence can be under way
    /// there, which the new version would hide. Parts with a newer version are left alone.
    ///
    /// For each waiting entry the room of a record of its own is set aside. If that fills the logs
    /// or the table in non-volatile RAM, this makes the waiting entries durable: they share
    /// records, which need far less room.
    ///
    /// # Errors
    /// If there is no room even after that, or the device fails.
    pub(super) async fn renew(
        self: &Rc<Self>,
        what: impl Into<What>,
        extent: Extent,
        content: Option<&Payload>,
        which: Renewed,
    ) -> Result<(), IoError> {
        let what = what.into();
        let mut left = self.renew_what_fits(what, extent, content, which);
        while left > Sectors(0) {
            if !plant::is(Bug::RenewedNotGathered) {
                self.make_durable(Phase::Checkpoint).await?;
            }
            let before = left;
            left = self.renew_what_fits(what, extent, content, which);
            if left >= before {
                let reason = "the logs have no room to keep what cannot be written home";
                return Err(IoError::ReadOnly { reason });
            }
        }
        Ok(())
    }

    /// As [`Inner::renew`], as far as there is room now. Returns the number of sectors left over.
    pub(super) fn renew_what_fits(
        self: &Rc<Self>,
        what: impl Into<What>,
        extent: Extent,
        content: Option<&Payload>,
        which: Renewed,
    ) -> Sectors {
        let what = what.into();
        let kind = what.kind();
        let mut state = self.engine.state.borrow_mut();
        let state = &mut *state;
        let lookup = state.store.map().lookup(extent);
        let parts: Vec<Extent> =
            lookup.filter(|(_, mapped)| which.takes(*mapped)).map(|(part, _)| part).collect();
        let mut left = Sectors(parts.iter().map(|part| part.len.0).sum());
        for part in parts {
            let room = self.record_room(kind, part);
            let fits = match kind {
                // Zeroes can be written home instead.
                EntryKind::Zeroes => state.store.fits(room),
                _ => state.store.fits_spared(room),
            };
            if !fits {
                break;
            }
            let skip = Sectors(part.start.0 - extent.start.0);
            let content = content.map(|content| content.slice(skip, part.len));
            let _answered = self.buffer(state, what, part, content, false, room);
            left = left - part.len;
        }
        left
    }

    /// The writes of a batch with their contents. If the whole of a part cannot be read at home,
    /// only its runs are written.
    async fn strands(&self, batch: &Batch, mut runs: Vec<Run>) -> Vec<Strand> {
        let (mut strands, mut others) = (Vec::new(), Vec::new());
        for Part { extent, whole } in &batch.parts {
            let behind = runs.partition_point(|run| run.extent.start < extent.end());
            let rest = runs.split_off(behind);
            let within = std::mem::replace(&mut runs, rest);
            if let Some(whole) = whole.filter(|_| !within.is_empty()) {
                let pieces = self.without_holes(self.pieces_of(whole, &within)).await;
                let writes = self.with_contents(pieces).await;
                if writes.iter().all(|(_, content)| content.is_ok()) {
                    strands.push(Strand { writes, is_stream: true });
                    continue;
                }
            }
            others.extend(within);
        }
        others.extend(runs);
        let writes = self.with_contents(self.groups(others)).await;
        strands.push(Strand { writes, is_stream: false });
        strands
    }

    async fn with_contents(&self, groups: Vec<Group>) -> Vec<(Group, Result<Payload, IoError>)> {
        let mut found = Vec::with_capacity(groups.len());
        for group in groups {
            let content = self.content_of(&group).await;
            found.push((group, content));
        }
        found
    }

    fn groups(&self, runs: Vec<Run>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for run in runs {
            let whole = self.widen_to_physical(run.extent);
            if let Some(group) = groups.last_mut() {
                // Two writes must not share a physical sector.
                let shares = whole.start < group.extent.end();
                let joins = whole.start == group.extent.end()
                    && group.extent.len + whole.len <= HOME_WRITE_MAX;
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

    /// The content that a group writes: its runs, and the content at home in the gaps.
    async fn content_of(&self, group: &Group) -> Result<Payload, IoError> {
        Ok(group.over(&joined(self.read_gaps(group)).await?))
    }
}
